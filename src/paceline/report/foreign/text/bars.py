"""Progress bars of tqdm and rich in any log, Lightning's among them: the last resort.

    Epoch 3:  10%|█         | 100/1000 [00:10<01:30,  9.87it/s, loss=0.31, v_num=0]
    Epoch 0/9 ━━━━━━━━━━━━━━━━ 100/1000 0:00:10 • 0:01:30 9.87it/s loss: 0.310

A bar tells how many of how many, and for how long. That it counts steps of training is a guess,
by its description and its postfix.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from paceline.report.foreign.failures import Failures
from paceline.report.foreign.reading.contract import NO, POSSIBLE, TextFormat
from paceline.report.foreign.reading.timing import EpochMean
from paceline.report.foreign.reading.values import NUMBER, clock_seconds, number
from paceline.report.foreign.run import Curve, ForeignRun

TOOL = "progress bars of an unknown tool"
LIGHTNING = "Lightning's progress bars"

_TQDM = re.compile(
    r"(?P<name>[^|%\r]*?):?\s*\d+%\|[^|]*\|\s*(?P<done>\d+)/(?P<total>\d+)\s+"
    r"\[(?P<time>[\d:]+)<[^,\]]*,\s*(?:[\d.]+|\?)\s*(?:it/s|s/it|\w*batch\w*/s|\w*step\w*/s)"
    r"(?P<more>[^\]]*)\]"
)
_RICH = re.compile(
    r"(?P<name>.*?)[━╸╺ ]{4,}\s*(?P<done>\d+)/(?P<total>\d+)\s+(?P<time>\d+:\d\d:\d\d)\s+•\s+\S+\s+"
    r"[\d.]+it/s(?P<more>.*)"
)
_LOSS = re.compile(rf"\b(?:train(?:ing)?[_/ ])?loss(?:_step)?\s*[=:]\s*({NUMBER})")
_VALIDATION = re.compile(rf"\bval(?:id(?:ation)?)?[_/ ]loss(?:_epoch)?\s*[=:]\s*({NUMBER})")
_NOT_TRAINING = re.compile(
    r"valid|eval|test|sanity|download|map|load|token|predict|sampl|generat|shard|file|extract",
    re.IGNORECASE,
)
_TRAINING = re.compile(r"epoch|train|step|iter", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")
_MOST_BARS = 200


@dataclass
class _Bar:
    name: str
    total: int
    before: int = 0
    """Steps of earlier rounds of the same bar."""
    done: int = 0
    rounds: dict[int, EpochMean] = field(default_factory=dict)
    losses: Curve = field(default_factory=Curve)
    validation: Curve = field(default_factory=Curve)
    seconds: float = 0.0
    earlier_seconds: float = 0.0
    more: str = ""
    """What stands behind the count."""

    def take(self, done: int, seconds: float, more: str, is_apart: bool) -> None:
        """`is_apart`: something else was printed since the last bar, or it had another name."""
        if done < self.done or (is_apart and self._is_next_round(done, seconds, more)):
            self.before += self.done
            self.earlier_seconds += self.seconds
        self.done, self.seconds, self.more = done, seconds, more
        if done and seconds:
            self.rounds[self.before] = EpochMean(done, seconds / done, None)
        step = self.before + done
        loss, validation = _value(_LOSS, more), _value(_VALIDATION, more)
        known = self.losses.last
        if loss is not None and (known is None or known[0] < step):
            self.losses.add(step, loss)
        known = self.validation.last
        # A bar repeats the last evaluation until the next one.
        if validation is not None and (known is None or known[1] != validation):
            self.validation.add(self.before, validation)

    def _is_next_round(self, done: int, seconds: float, more: str) -> bool:
        """Files often keep the last state alone; the same state twice is one bar drawn twice."""
        return done == self.done == self.total and (seconds, more) != (self.seconds, self.more)

    @property
    def weight(self) -> tuple[bool, bool, bool, float]:
        """How likely it counts steps of training."""
        return (
            not _NOT_TRAINING.search(self.name),
            bool(self.losses),
            bool(_TRAINING.search(self.name)),
            self.earlier_seconds + self.seconds,
        )


def _value(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.search(text)
    return number(match[1]) if match else None


def _match(line: str) -> re.Match[str] | None:
    return _TQDM.search(line) or (_RICH.search(line) if "•" in line else None)


def sureness(line: str) -> float:
    match = _match(line)
    if match is None:
        return NO
    return POSSIBLE if _LOSS.search(match["more"]) else POSSIBLE / 2


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._bars: dict[tuple[str, int], _Bar] = {}
        self._failures = Failures()
        self._is_lightning = False
        self._is_apart = False
        self._last_name = ""

    def take(self, line: str) -> None:
        match = _match(line) if "it/s" in line or "s/it" in line or "/s" in line else None
        if match is None:
            self._failures.look_at(line)
            self._is_apart = True
            return
        name = _DIGITS.sub("", match["name"]).strip()[-40:]
        key = (name, int(match["total"]))
        if key not in self._bars and len(self._bars) >= _MOST_BARS:
            return
        self._is_lightning = self._is_lightning or "v_num" in match["more"]
        bar = self._bars.setdefault(key, _Bar(*key))
        seconds = clock_seconds(match["time"]) or 0.0
        is_apart = self._is_apart or match["name"] != self._last_name
        bar.take(int(match["done"]), seconds, match["more"], is_apart)
        self._is_apart, self._last_name = False, match["name"]

    def finish(self) -> list[ForeignRun]:
        if not self._bars:
            return []
        bar = max(self._bars.values(), key=lambda one: one.weight)
        run = ForeignRun(self._path, LIGHTNING if self._is_lightning else TOOL)
        run.step = bar.before + bar.done
        run.training_loss, run.validation_loss = bar.losses, bar.validation
        run.steps_per_epoch = bar.total if bar.before else None
        self._fill_times(run, bar)
        self._failures.ended(run)
        called = f"'{bar.name}'" if bar.name else "without a name"
        run.notes.append(
            f"no reader knows this log: all is from its progress bar {called} (of {bar.total:,}); "
            "that the bar counts steps of training is a guess"
        )
        return [run]

    def _fill_times(self, run: ForeignRun, bar: _Bar) -> None:
        times = run.step_times
        times.num_steps = sum(one.num_steps for one in bar.rounds.values())
        times.total_seconds = sum(one.num_steps * one.step_seconds for one in bar.rounds.values())
        times.steps_per_timing = bar.total
        times.how = "the time of the progress bar over its count, in whole seconds"
        for before, one in bar.rounds.items():
            if one.num_steps * one.step_seconds >= 10:
                times.add(before + one.num_steps, one.step_seconds)
        if times.total_seconds:
            run.wall_seconds = times.total_seconds
            run.wall_how = "the time of the progress bar, all rounds added up"


FORMAT = TextFormat(TOOL, ("it/s", "s/it", "/s,", "/s]"), sureness, _Reader)
