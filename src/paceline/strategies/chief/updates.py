"""Making one update: its number and rate, the order to all servers, and what is recorded of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from paceline.strategies.assignment import Report
from paceline.strategies.chief.loss_scale import LossScale
from paceline.strategies.chief.server_lines import ServerLines
from paceline.strategies.chief.state import Buffers, Moment
from paceline.strategies.leases import Arrival, Lease, Pace, Positions
from paceline.strategies.trainer import Waits
from paceline.train.duties import Duties
from paceline.train.state import Progress, copied
from paceline.train.step import Measures, StepResult


@dataclass(frozen=True)
class Gradient:
    """What has arrived, and what its trainer told of it."""

    arrival: Arrival
    rank: int
    report: Report


@dataclass
class Since:
    """What happened since the last line of the record."""

    ranks: list[int] = field(default_factory=list)
    staleness: list[int] = field(default_factory=list)
    leases: list[int] = field(default_factory=list)
    num_dropped: int = 0
    dropped_units: int = 0

    def facts(self, pace: Pace) -> dict[str, Any]:
        told: dict[str, Any] = {}
        if not pace.has_fixed_shares:
            told |= {"trainers": self.ranks, "leases": self.leases}
        if not pace.is_sync:
            told["staleness"] = self.staleness
        if self.num_dropped:
            told |= {"num_dropped": self.num_dropped, "dropped_units": self.dropped_units}
        return told


class Updates:
    """Used by one thread at a time."""

    def __init__(
        self,
        pace: Pace,
        positions: Positions,
        duties: Duties,
        buffers: Buffers,
        lines: ServerLines,
    ) -> None:
        self.pace, self.positions, self.duties = pace, positions, duties
        self._buffers, self.lines = buffers, lines
        self._since = Since()
        self.scale = LossScale()
        self.waits = Waits()
        """Of the chief's own training."""

    @property
    def progress(self) -> Progress:
        return self.duties.state.progress

    @property
    def version(self) -> int:
        return self.progress.step

    def make(self, gradients: Sequence[Gradient]) -> None:
        """All of them become one step."""
        step, rate = self.version + 1, self.duties.rate(self.version + 1)
        num_units = sum(each.report.num_units for each in gradients)
        seats = [each.arrival.seat for each in gradients]
        is_finite = all(each.report.is_finite for each in gradients)
        norm = self._order(step, seats, rate if is_finite else None, num_units)
        self.scale.after_step(is_finite)
        self._absorb(gradients)
        loss = sum(each.report.loss_sum for each in gradients) / num_units
        leases = [each.arrival.lease for each in gradients]
        self.positions.note_trained(leases)
        self._remember(gradients)
        if self.pace.has_fixed_shares:
            self.positions.next = leases[-1].indices.stop
        self.progress.step, self.progress.position = step, self.positions.next
        result = StepResult(torch.tensor(loss, dtype=torch.float64), norm, num_units)
        self.duties.recorder.add_step(step, rate, result)

    def _order(
        self, step: int, seats: list[int], rate: float | None, num_units: int
    ) -> torch.Tensor | None:
        """Clipping by the length of the whole gradient takes a question to all servers first; in
        modes where one worker makes an update, it has clipped it already."""
        factor = self._share_of_nominal(num_units)
        wants_norm = self.duties.recorder.ends_interval(step)
        clip = self.duties.recipe.optimizer.clip_norm if self.pace.is_sync else None
        if rate is None or (clip is None and not wants_norm):
            self.lines.update(step, seats, rate, factor)
            return None
        norm = self.lines.add_up(seats) * factor
        if clip is not None:
            factor *= min(1.0, clip / (norm + 1e-6))
        self.lines.update(step, [], rate, factor)
        return torch.tensor(norm)

    def _share_of_nominal(self, num_units: int) -> float:
        """With backup workers nobody knows beforehand which shares make a step: each divides by
        what a step usually has, and the difference is made up here."""
        if self.pace.has_fixed_shares or not self.pace.is_sync:
            return 1.0
        return self.nominal_units / num_units

    @property
    def nominal_units(self) -> int:
        return self.duties.task.global_batch(self.pace.num_shares)

    def units_of(self, lease: Lease) -> int:
        """By what the losses of a lease are divided."""
        task, pace = self.duties.task, self.pace
        if pace.is_sync and not pace.has_fixed_shares:
            return self.nominal_units
        if not pace.is_sync:
            return sum(map(task.num_units, lease.indices))
        count = task.micro_batches_per_step(pace.num_shares)
        first = self.positions.next
        return sum(map(task.num_units, range(first, first + count)))

    def _absorb(self, gradients: Sequence[Gradient]) -> None:
        sums = gradients[0].report.statistics.clone()
        for each in gradients[1:]:
            sums += each.report.statistics
        self._buffers.absorb(sums, sum(len(each.arrival.lease.indices) for each in gradients))

    def _remember(self, gradients: Sequence[Gradient]) -> None:
        since = self._since
        for each in gradients:
            since.ranks.append(each.rank)
            since.staleness.append(self.version - each.arrival.version)
            since.leases.append(each.arrival.lease.indices.start)

    def drop(self, gradient: Gradient) -> None:
        """It came too late: what it was computed for is handed out again."""
        self._since.num_dropped += 1
        self._since.dropped_units += gradient.report.num_units
        self.give_back(gradient.arrival.lease)
        if gradient.report.is_sent:
            self.lines.drop(gradient.arrival.seat)

    def give_back(self, lease: Lease) -> None:
        if not self.pace.has_fixed_shares:
            self.positions.give_back(lease)

    def write(self, must: bool) -> None:
        """One line of the record, where an interval ends."""
        if not must and not self.duties.recorder.ends_interval(self.version):
            return
        epochs = self.duties.task.epochs_at(self.positions.num_trained)
        since, self._since = self._since, Since()
        scale = torch.tensor(self.scale.scale) if self.scale.is_enabled else None
        waits, self.waits = self.waits, Waits()
        more = {**since.facts(self.pace), **waits.facts()}
        measures = Measures(loss_scale=scale, more=more)
        self.duties.write_steps(epochs, measures, all_of_them=True)

    def moment(self, held: Sequence[Lease]) -> Moment:
        return Moment(
            progress=copied(self.progress),
            aliases=self._buffers.aliases,
            buffers=self._buffers.tensors(),
            average_buffers=self._buffers.average_tensors(),
            scaler=self.scale.numbers(),
            positions=self.positions.numbers([] if self.pace.has_fixed_shares else held),
        )
