"""A network's gradients and weights as the flat rows that travel to and from the servers."""

from collections.abc import Sequence

import torch
from torch import nn

from paceline.settings import OptimizerSettings
from paceline.strategies.shards import Piece, Shard, Weight, shard_size
from paceline.train.optimizer import group_kinds, group_of

Tensors = dict[str, torch.Tensor]


def trained_weights(network: nn.Module, settings: OptimizerSettings) -> list[Weight]:
    kinds = group_kinds(settings)
    found = []
    for name, value in network.named_parameters():
        if value.requires_grad:
            group = group_of(settings, value.ndim)
            num_rows = len(value) if kinds[group].get("is_orthogonal") else 0
            found.append(Weight(name, value.numel(), group, num_rows))
    return found


class FlatRows:
    """Rows beside a network, one per server, in ordinary memory."""

    def __init__(self, network: nn.Module, shards: Sequence[Shard], wire: torch.dtype) -> None:
        self._named = dict(network.named_parameters())
        self._shards = shards
        self._device = next(iter(self._named.values())).device
        is_pinned = self._device.type == "cuda"
        sizes = [shard_size(shard) for shard in shards]
        self.gradients = [torch.empty(n, dtype=wire, pin_memory=is_pinned) for n in sizes]
        self._is_direct = self._device.type == "cpu" and wire == torch.float32
        self._flat = (
            self.gradients
            if self._is_direct
            else [torch.empty(size, device=self._device) for size in sizes]
        )

    def new_rows(self) -> list[torch.Tensor]:
        """To receive weights into."""
        return [torch.empty_like(row) for row in self.gradients]

    @torch.no_grad()
    def pack_gradients(self) -> list[torch.Tensor]:
        """What backward has left in the network, ready to be sent."""
        rows = {name: _row_of(value) for name, value in self._named.items() if value.requires_grad}
        for flat, shard, packed in zip(self._flat, self._shards, self.gradients, strict=True):
            torch.cat([rows[p.name][p.start : p.stop] for p in shard], out=flat)
            if not self._is_direct:
                packed.copy_(flat)
        return self.gradients

    @torch.no_grad()
    def put_weights(self, received: Sequence[torch.Tensor]) -> None:
        """Into the network, which computes with them from now on."""
        here = received if self._is_direct else self._flat
        if not self._is_direct:
            for flat, row in zip(self._flat, received, strict=True):
                flat.copy_(row)
        targets: list[torch.Tensor] = []
        sources: list[torch.Tensor] = []
        strided: dict[str, torch.Tensor] = {}
        for shard, flat in zip(self._shards, here, strict=True):
            parts = torch.split(flat, [piece.num_values for piece in shard])
            for piece, part in zip(shard, parts, strict=True):
                targets.append(self._place(piece, strided))
                sources.append(part)
        torch._foreach_copy_(targets, sources)
        for name, row in strided.items():
            value = self._named[name]
            value.copy_(row.view(value.shape))

    def _place(self, piece: Piece, strided: Tensors) -> torch.Tensor:
        """Where a piece goes; weights that are not stored row by row are put together first."""
        value = self._named[piece.name].detach()
        if not value.is_contiguous():
            row = strided.setdefault(piece.name, value.new_empty(value.numel()))
        else:
            row = value.view(-1)
        return row[piece.start : piece.stop]


def _row_of(weight: torch.Tensor) -> torch.Tensor:
    """A weight that a step did not use has no gradient."""
    if weight.grad is None:
        return torch.zeros(weight.numel(), dtype=weight.dtype, device=weight.device)
    return weight.grad.reshape(-1)


def rows_of(tensors: Tensors, shards: Sequence[Shard]) -> list[torch.Tensor]:
    """Named tensors as one row per server."""
    rows = {name: tensor.detach().reshape(-1).cpu() for name, tensor in tensors.items()}
    return [torch.cat([rows[p.name][p.start : p.stop] for p in shard]) for shard in shards]


def tensors_of(
    rows: Sequence[torch.Tensor], shards: Sequence[Shard], shapes: dict[str, torch.Size]
) -> Tensors:
    """The other way: named tensors from one row per server."""
    found = {name: torch.empty(shape.numel()) for name, shape in shapes.items()}
    for row, shard in zip(rows, shards, strict=True):
        parts = torch.split(row, [piece.num_values for piece in shard])
        for piece, part in zip(shard, parts, strict=True):
            found[piece.name][piece.start : piece.stop] = part
    return {name: row.view(shapes[name]) for name, row in found.items()}
