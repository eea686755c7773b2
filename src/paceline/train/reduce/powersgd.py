"""PowerSGD (Vogels et al. 2019): a matrix of gradients is sent as two thin ones of few columns.

The same calculation as torch's `powerSGD_hook`, with which it agrees to rounding. torch's begins
its second and third all-reduce from callbacks: with several buckets these run in another order in
each process, and Gloo, which matches messages by their order, aborts. Here all matrices go
together.
"""

import torch
from torch import nn

from paceline.train.reduce.exchange import Tensors
from paceline.train.reduce.feedback import FeedbackExchange, flat, like
from paceline.world import World

_LEAST_GAIN = 2
"""Times that a matrix must shrink; others are sent as they are. As in torch."""


class PowerSgdExchange(FeedbackExchange):
    def __init__(self, network: nn.Module, world: World, rank: int, seed: int) -> None:
        super().__init__(network, world)
        source = torch.Generator().manual_seed(seed)
        self.right: Tensors = {}
        """By name, the right one of the two thin matrices, of the step before."""
        for name, weight in self._weights.items():
            rows, columns = as_matrix(weight).shape
            width = min(rows, columns, rank)
            if (rows + columns) * width * _LEAST_GAIN < rows * columns:
                drawn = torch.randn(columns, width, generator=source)
                self.right[name] = drawn.to(weight)

    def exchange(self, gradients: Tensors) -> tuple[Tensors, Tensors]:
        matrices = {name: as_matrix(gradients[name]) for name in self.right}
        others = [gradient for name, gradient in gradients.items() if name not in matrices]
        lefts = [matrix @ orthogonal(self.right[name]) for name, matrix in matrices.items()]
        summed = like([*others, *lefts], self._average(flat([*others, *lefts])))
        lefts = [orthogonal(left) for left in summed[len(others) :]]
        pairs = zip(matrices.values(), lefts, strict=True)
        rights = [matrix.T @ left for matrix, left in pairs]
        rights = like(rights, self._average(flat(rights))) if rights else []
        self.right = dict(zip(matrices, rights, strict=True))
        sent = dict(zip((n for n in gradients if n not in matrices), summed, strict=False))
        for name, left in zip(matrices, lefts, strict=True):
            sent[name] = (left @ self.right[name].T).view(gradients[name].shape)
        rest = {
            name: gradient - sent[name] if name in matrices else torch.zeros_like(gradient)
            for name, gradient in gradients.items()
        }
        return sent, rest

    def shared_tensors(self) -> Tensors:
        return {f"right.{name}": right for name, right in self.right.items()}

    def load_shared(self, tensors: Tensors) -> None:
        for name in self.right:
            if f"right.{name}" in tensors:
                self.right[name] = tensors[f"right.{name}"].to(self.world.device)


def as_matrix(tensor: torch.Tensor) -> torch.Tensor:
    """A row for each output of a layer."""
    return tensor.reshape(tensor.shape[0], -1) if tensor.ndim else tensor.reshape(1, 1)


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Columns of length 1 at right angles that span the same."""
    basis: torch.Tensor = torch.linalg.qr(matrix).Q
    return basis
