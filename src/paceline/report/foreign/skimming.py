"""Long logs: of most lines only where they are and the time of a step are looked at.

A curve keeps evenly some of very many points, so the others need not be parsed; of running means
the last of an epoch counts. What is passed over is counted, and the last line is never lost.
"""

import re

from paceline.report.foreign.tracks import Track

_AFTER_INDEX = r"\s*(\d+)\s*/{}\s*\]\s*Time[ :=]+(\d+\.\d+)\s*\("
_SHORTER = 6
"""Characters that a line may lack against another: one that lacks more is torn."""


class Skim:
    """The lines of one track in one epoch, after the line with which it was made."""

    def __init__(self, track: Track, line: str, begin: str, num_batches: int) -> None:
        """`begin` is what every line has before the index of its batch."""
        self.track = track
        self._least_length = len(line) - _SHORTER
        self.num_passed = 0
        self.last_line = ""
        self._match = re.compile(re.escape(begin) + _AFTER_INDEX.format(num_batches)).match
        self._num_batches = num_batches
        self._epoch, self._index = track.position
        curve = track.run.step_times.curve
        self._until_kept = -curve.num_points % curve.stride

    def passes_over(self, line: str, line_number: int) -> bool:
        """Whether the line is one more of these and no curve would keep its point."""
        if self.num_passed >= self._until_kept or len(line) < self._least_length:
            return False
        if not (match := self._match(line)):
            return False
        index = int(match[1])
        if not self._index < index <= self._num_batches or "nan" in line or "inf" in line:
            return False
        self._index, self.last_line = index, line
        self.num_passed += 1
        track, times = self.track, self.track.run.step_times
        track.move_to((self._epoch, index), line_number)
        seconds = float(match[2])
        if times.slowest is not None and seconds > times.slowest[1]:
            step = self._epoch * self._num_batches + index + 1 - track.first_index
            times.slowest = (step, seconds)
        return True

    def count_passed(self) -> None:
        """All but the last, which is parsed after all."""
        run = self.track.run
        curves = [run.step_times.curve, run.training_loss, run.rate, *run.training_scores.values()]
        in_step = run.step_times.curve.num_points
        for curve in curves:
            if curve.num_points == in_step:
                curve.num_points += self.num_passed - 1
