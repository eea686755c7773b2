"""What a server holds: its shard of the weights, the optimizer's state for it, its average."""

from collections.abc import Sequence

import torch
from torch import nn

from paceline.settings import OptimizerSettings
from paceline.strategies.shards import Piece, Shard, shard_size
from paceline.train.optimizer import optimizer_of, set_rate, with_weights
from paceline.train.state import moving_average

AVERAGE = "average"
_NOT_A_ROW = "step"
"""Adam counts its steps for each weight; all counts are the same."""
_NORM_STRETCH = 1 << 14
"""Numbers whose squares are added up in single precision."""


class ShardState:
    """The pieces of a group of the optimizer are one weight here, so an update is few operations;
    what must be updated as a whole stays by itself."""

    def __init__(self, shard: Shard, settings: OptimizerSettings, weights: torch.Tensor) -> None:
        self.shard, self.weights = shard, weights
        self.gradient = weights
        """Of the next update: the row in which it was added up."""
        self._own_row: torch.Tensor | None = None
        self._pieces = list(_segments(shard))
        self._values = [self._view(self.weights, piece) for piece in self._pieces]
        self._parameters = [nn.Parameter(value) for value in self._values]
        groups = with_weights(settings, self._parameters, [p.group for p in self._pieces])
        self.optimizer = optimizer_of(settings, groups, {"cpu"})
        self._decay = settings.average
        self.average: torch.Tensor | None = None

    @staticmethod
    def _view(row: torch.Tensor, piece: Piece) -> torch.Tensor:
        part = row[piece.start : piece.stop]
        return part.view(piece.num_rows, -1) if piece.num_rows else part

    @torch.no_grad()
    def add_up(self, gradients: Sequence[torch.Tensor]) -> None:
        """Always in the same order, so that sums round the same; in the first one's place, where
        it has all digits, because copying takes as long as adding."""
        first = gradients[0]
        if first.dtype != self.weights.dtype:
            if self._own_row is None:
                self._own_row = torch.empty_like(self.weights)
            first = self._own_row.copy_(first)
        for gradient in gradients[1:]:
            first.add_(gradient)
        self.gradient = first
        for parameter, piece in zip(self._parameters, self._pieces, strict=True):
            parameter.grad = self._view(first, piece)

    def norm_squared(self) -> float:
        """Stretch by stretch, and their sum with all digits: torch takes 25 times as long for the
        same with dtype=float64."""
        stretches = torch.split(self.gradient, _NORM_STRETCH)
        norms = torch.stack([torch.linalg.vector_norm(each) for each in stretches])
        return float(norms.double().square().sum())

    @torch.no_grad()
    def update(self, rate: float, factor: float) -> None:
        if factor != 1.0:
            self.gradient.mul_(factor)
        set_rate(self.optimizer, rate)
        self.optimizer.step()
        if self._decay:
            self._move_average()

    def _move_average(self) -> None:
        if self.average is None:
            self.average = self.weights.clone()
        else:
            moving_average(self._decay)([self.average], [self.weights], None)

    def rows(self, with_states: bool) -> dict[str, torch.Tensor]:
        """The average and, by its names, the optimizer's state, each as long as the weights."""
        found = {} if self.average is None else {AVERAGE: self.average}
        for name in self._state_names() if with_states else []:
            states = [self.optimizer.state[p][name] for p in self._parameters]
            found[name] = torch.cat([state.reshape(-1) for state in states])
        return found

    def _state_names(self) -> list[str]:
        state = self.optimizer.state.get(self._parameters[0], {})
        return [
            name
            for name, value in state.items()
            if isinstance(value, torch.Tensor) and name != _NOT_A_ROW
        ]

    def num_updates(self) -> float | None:
        """As Adam counts them."""
        state = self.optimizer.state.get(self._parameters[0], {})
        return float(state[_NOT_A_ROW]) if _NOT_A_ROW in state else None

    def load(self, rows: dict[str, torch.Tensor], num_updates: float | None) -> None:
        self.average = rows.pop(AVERAGE, None)
        if not rows and num_updates is None:
            return
        for piece, parameter in zip(self._pieces, self._parameters, strict=True):
            state = {name: self._view(row, piece).clone() for name, row in rows.items()}
            if num_updates is not None:
                state[_NOT_A_ROW] = torch.tensor(num_updates)
            self.optimizer.state[parameter] = state


def _segments(shard: Shard) -> list[Piece]:
    """Where the weights of this server lie in its row: one stretch for each group, and one for
    each weight that is updated as a whole."""
    found: list[Piece] = []
    place = 0
    for piece in shard:
        stop = place + piece.num_values
        last = found[-1] if found else None
        is_same = last and not piece.num_rows and not last.num_rows and last.group == piece.group
        if last is not None and is_same:
            found[-1] = Piece("", last.start, stop, last.group)
        else:
            found.append(Piece("", place, stop, piece.group, piece.num_rows))
        place = stop
    return found


def bytes_needed(shard: Shard, num_trainers: int, states_per_weight: int, averages: bool) -> int:
    """Weights, gradient, state, average, a copy on its way out, and what each trainer sends."""
    rows = 3 + states_per_weight + averages + num_trainers
    return 4 * shard_size(shard) * rows
