"""Exchanges that send a part of the gradients and remember the rest: error feedback.

What a process did not send is added to its gradients of the next step, so that nothing is lost,
only late (Karimireddy et al. 2019). All happens after backward: these exchanges send so little that
there is nothing to hide behind it. Gradients of fp16 are divided by the loss scale before, because
the scale may change until the rest is sent; a step whose gradients overflow sends nothing.
"""

from abc import abstractmethod

import torch
import torch.distributed as dist
from torch import nn

from paceline.train.reduce.exchange import (
    Exchange,
    Tensors,
    Updating,
    laid_out_like,
    send_first_weights,
)
from paceline.world import World


class FeedbackExchange(Exchange):
    has_own_state = True

    def __init__(self, network: nn.Module, world: World) -> None:
        super().__init__(network, world)
        self._weights = {n: p for n, p in network.named_parameters() if p.requires_grad}
        self.rest = {name: torch.zeros_like(weight) for name, weight in self._weights.items()}
        """By name, what of this process's gradients nobody has had yet."""

    def begin(self) -> None:
        send_first_weights(self.network, self.world)

    def attach(self, updating: Updating) -> None:
        self._scaler = updating.scaler

    @abstractmethod
    def exchange(self, gradients: Tensors) -> tuple[Tensors, Tensors]:
        """The mean over processes of what is sent, and the rest of this process's own."""

    @torch.no_grad()
    def reduce_gradients(self) -> None:
        gradients = {
            name: torch.zeros_like(weight) if weight.grad is None else weight.grad
            for name, weight in self._weights.items()
        }
        if self._scaler.is_enabled():
            self._reduce_scaled(gradients)
            return
        for name, gradient in gradients.items():
            gradient.add_(self.rest[name])
        sent, self.rest = self.exchange(gradients)
        for name, weight in self._weights.items():
            weight.grad = laid_out_like(weight, sent[name])

    def _reduce_scaled(self, gradients: Tensors) -> None:
        """No value is read on the host, which would wait for the device."""
        scale = self._scaler.scale(torch.ones((), device=self.world.device))
        overflow = torch.stack([~torch.isfinite(g).all() for g in gradients.values()]).any()
        overflow = overflow.to(torch.int32)
        dist.all_reduce(overflow, op=dist.ReduceOp.MAX)
        is_lost = overflow > 0
        zero = torch.zeros((), device=self.world.device)
        whole = {
            name: torch.where(is_lost, zero, gradient / scale) + self.rest[name]
            for name, gradient in gradients.items()
        }
        before = {name: rest.clone() for name, rest in self.rest.items()}
        sent, rest = self.exchange(whole)
        for name, weight in self._weights.items():
            scaled = torch.where(is_lost, torch.inf, sent[name] * scale)
            weight.grad = laid_out_like(weight, scaled)
            self.rest[name] = torch.where(is_lost, before[name], rest[name])

    def _average(self, values: torch.Tensor) -> torch.Tensor:
        """Over all processes, in place."""
        values.div_(self.world.size)
        dist.all_reduce(values)
        self.watch.reduced_bytes += values.numel() * values.element_size()
        return values

    def own_tensors(self) -> Tensors:
        return {f"rest.{name}": rest for name, rest in self.rest.items()}

    def load_own(self, own: Tensors, shared: Tensors) -> None:
        for name, rest in self.rest.items():
            rest.copy_(own[f"rest.{name}"])


def flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def like(tensors: list[torch.Tensor], values: torch.Tensor) -> list[torch.Tensor]:
    """Pieces of a flat tensor in the shapes of these."""
    pieces = torch.split(values, [tensor.numel() for tensor in tensors])
    return [piece.view(tensor.shape) for piece, tensor in zip(pieces, tensors, strict=True)]
