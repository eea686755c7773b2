"""What a step's throughput is counted in, and the work of the first step.

Samples are what a DataLoader gave, along its first dimension. A language model predicts every
position of its input, and there the field counts tokens. A script without a DataLoader is known by
the targets of its loss.
"""

from typing import Any

from ..imports import note_failure
from .graph import num_targets, work_of

SAMPLE = "sample"
TOKEN = "token"  # noqa: S105  (no password)
STEP = "step"
_MOST_WALKS = 8
"""Of the graphs of the first step's backward passes; the others are taken to be like these."""
_PREDICTED_SHARE = 0.5


class Units:
    """Counted since the last line; `unit` is chosen when the first step is done."""

    def __init__(self) -> None:
        self.unit = SAMPLE
        self._samples = 0
        self._tokens = 0
        self._targets = 0
        self._flops: list[float | None] = []
        self._num_backwards = 0
        self._num_embedded = 0
        self._first_count = 0
        self._looks = True

    def add_batch(self, num_samples: int, num_tokens: int) -> None:
        self._samples += num_samples
        self._tokens += num_tokens

    def add_loss(self, loss: Any, hides_tensors: bool, has_loader: bool) -> None:
        """Of a backward pass that is about to begin."""
        if not self._looks and has_loader:
            return
        try:
            if not hides_tensors:
                self._targets += num_targets(loss)
                self._look_at_work(loss)
        except Exception as error:  # another torch keeps other names
            note_failure(f"sizes of the autograd graph: {error!r}")
            self._looks = False
            self._flops.append(None)

    def _look_at_work(self, loss: Any) -> None:
        if not self._looks:
            return
        self._num_backwards += 1
        if self._num_backwards <= _MOST_WALKS:
            work = work_of(loss)
            self._flops.append(work.flops)
            self._num_embedded += work.num_embedded

    def settle(self) -> dict[str, Any]:
        """After the first step: what its throughput is counted in, and its operations in each."""
        self._looks = False
        is_text = self._targets >= _PREDICTED_SHARE * self._num_embedded > 0
        if self._tokens or (is_text and not self._samples):
            self.unit = TOKEN
        elif not self._samples and not self._targets:
            self.unit = STEP
        told: dict[str, Any] = {"unit": self.unit}
        known = [flops for flops in self._flops if flops is not None]
        count = self._count(1)
        if known and len(known) == len(self._flops) and count:
            told["flops_per_unit"] = sum(known) / len(known) * self._num_backwards / count
        return told

    def take(self, num_steps: int, world_size: int) -> float:
        """Over the world, since the last time."""
        count = self._count(num_steps)
        self._samples = self._tokens = self._targets = 0
        return count if self.unit == STEP else count * world_size

    def _count(self, num_steps: int) -> float:
        if self.unit == STEP:
            return num_steps
        if not self._samples:
            return self._targets
        return self._tokens if self.unit == TOKEN else self._samples
