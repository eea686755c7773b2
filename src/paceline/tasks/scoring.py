"""Evaluation over a world: every sample once, whatever the number of processes."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from paceline.data.readahead import Filling, ReadAhead, as_it_is, fill_at_once
from paceline.errors import UserError
from paceline.machine.cores import cores_of_process
from paceline.tasks.batch_values import stage
from paceline.tasks.contract import Scores
from paceline.tasks.stream import TRAIN, Samples, samples_of
from paceline.units import plural

if TYPE_CHECKING:
    import torch

    from paceline.tasks.samples import SampleTask
    from paceline.world import World

_NUM_AHEAD = 2
Item = TypeVar("Item")


class ScoreBatches:
    """This process's share of the samples to score, as batches on the device.

    They are cut into the same batches whatever the world. For scores that are no means of samples
    there are `share`, `add_up` and `gather`.
    """

    def __init__(self, task: "SampleTask", samples: Samples, world: "World", final: bool) -> None:
        self.samples, self.split, self.final = samples, samples.split, final
        self._task, self._world = task, world
        self._num_left: int | None = None
        self._is_shared = self._is_combined = False

    def __len__(self) -> int:
        """Batches of this process."""
        return len(self._starts())

    def __iter__(self) -> Iterator[Any]:
        starts = self._starts()
        self._num_left = len(starts)
        for batch in self._read(starts):
            self._num_left -= 1
            yield self._task.on_device(batch)
            num_done = (len(starts) - self._num_left) * self._size * self._world.size
            self._task.tell_progress(min(num_done, len(self.samples)), len(self.samples))

    def _starts(self) -> range:
        return range(0, len(self.samples), self._size)[self._world.rank :: self._world.size]

    @property
    def _size(self) -> int:
        return self._task.recipe.evaluate.batch

    def _read(self, starts: range) -> Iterator[Any]:
        def begin(start: int) -> Filling:
            some = samples_of(self.samples[start : start + self._size], self.split)
            return self._task.fill(some, None)

        device = self._task.device
        is_here = device.type == "cpu"
        if (is_here and not self._task.reads_ahead) or self._task.asked_workers == 0:
            yield from (fill_at_once(begin(start)) for start in starts)
            return
        prepare = as_it_is if is_here else partial(stage, device=device)
        ahead = ReadAhead(begin, iter(starts), cores_of_process(), _NUM_AHEAD, prepare)
        try:
            for _ in starts:
                yield ahead.take()[1]
        finally:
            ahead.close()

    def share(self, everything: Sequence[Item]) -> Sequence[Item]:
        """This process's part of any list that is the same in all processes."""
        self._is_shared = True
        return everything[self._world.rank :: self._world.size]

    def add_up(self, sums: "torch.Tensor") -> "torch.Tensor":
        """The sum over all processes, in place."""
        self._is_combined = True
        return self._world.add_up(sums)

    def gather(self, values: Iterable[Any]) -> list[Any]:
        """The values of all processes (anything JSON can hold) in one list, in every process."""
        self._is_combined = True
        return [value for part in self._world.gather_values(list(values)) for value in part]

    def combine(self, scores: Scores) -> Scores:
        """What a task's `evaluate` returned, as scores of all processes."""
        self._refuse_part_of_the_samples()
        if not isinstance(scores, Scores) or (scores.num is None and not self._is_combined):
            raise UserError(
                f"{self._name} returned values of one process's samples alone",
                "return sums and their number, paceline.Scores.of_sums(num, loss=..., top1=...): "
                "they are added up over all processes",
            )
        whole = scores if scores.num is None else self._mean(scores, scores.num)
        needed = {"loss"} if self.split == TRAIN else {"loss", self._task.best_by}
        missing = sorted(needed - whole.values.keys())
        if missing:
            raise UserError(
                f"{self._name} returned no score '{missing[0]}'",
                f"it must be among the names; there are: {', '.join(whole.values) or 'none'}",
            )
        return whole

    def _mean(self, scores: Scores, num: float) -> Scores:
        import torch  # noqa: PLC0415  (a task's class is known without it)

        sums = torch.tensor([*scores.values.values(), num], dtype=torch.float64)
        *totals, total = self._world.add_up(sums).tolist()
        if total <= 0:
            raise UserError(f"{self._name} counted no samples", "count them, and return how many")
        values = {name: value / total for name, value in zip(scores.values, totals, strict=True)}
        signature = f"{self.split}:{len(self.samples)} samples"
        if total != len(self.samples):
            signature += f" ({total:g} {plural(self._task.unit)})"
        return Scores(values, scores.signature or signature, scores.samples)

    def _refuse_part_of_the_samples(self) -> None:
        if self._is_shared or self._num_left == 0 or not len(self):
            return
        seen = "none" if self._num_left is None else f"{len(self) - self._num_left}"
        raise UserError(
            f"{self._name} looked at {seen} of {len(self)} batches",
            "go through all of `batches`: a score of some samples is no score of the split",
        )

    @property
    def _name(self) -> str:
        return f"{type(self._task).__name__}.evaluate"
