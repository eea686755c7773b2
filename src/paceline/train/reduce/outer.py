"""Steps that every process makes alone, and the exchange of what came of them: local SGD, DiLoCo.

All processes hold the same `agreed` weights. Every `every` steps each part of the model is brought
to agreement: the mean over processes of (agreed - own) is the gradient of an outer step (Nesterov),
and own weights follow. A part may be `delay` steps on its way while training goes on; what a
process learned meanwhile is kept. With one part, no delay and a plain outer step this is local SGD.
Douillard et al., "DiLoCo" (2023) and "Streaming DiLoCo" (2025); Stich, "Local SGD" (2019).
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from paceline.train.reduce.exchange import Exchange, Tensors, send_first_weights
from paceline.world import World


@dataclass(frozen=True)
class OuterPlan:
    """When and how agreement is reached."""

    every: int
    """Steps from one exchange of a part to the next."""
    parts: int = 1
    delay: int = 0
    """Steps that a part may be on its way."""
    rate: float = 1.0
    momentum: float = 0.0
    number_type: torch.dtype = torch.float32
    """On the wire."""

    def arriving(self, step: int) -> int | None:
        """The part whose exchange ends after this step."""
        slot = self.every // self.parts
        return (step // slot - 1) % self.parts if step % slot == 0 else None

    def leaving(self, step: int) -> int | None:
        """The part whose exchange begins after this step."""
        return self.arriving(step + self.delay)


@dataclass
class Part:
    """Some of the model's parameters by their names, and the weights that all agree on."""

    own: dict[str, torch.Tensor]
    agreed: dict[str, torch.Tensor]
    momentum: dict[str, torch.Tensor] = field(default_factory=dict)
    """Of the outer step; there is none before the first."""

    def step(self, gradients: Iterable[torch.Tensor], rate: float, momentum: float) -> None:
        """As torch's SGD with Nesterov's momentum."""
        for (name, weight), gradient in zip(self.agreed.items(), gradients, strict=True):
            if momentum:
                before = self.momentum.get(name)
                kept = gradient.clone() if before is None else before.mul_(momentum).add_(gradient)
                self.momentum[name] = kept
                gradient = gradient + momentum * kept  # noqa: PLW2901
            weight.sub_(gradient, alpha=rate)


@dataclass
class InFlight:
    """A part on its way."""

    number: int
    averaged: torch.Tensor
    """The mean of what all processes moved away from agreement, once `works` are done."""
    buffers: torch.Tensor
    left_with: list[torch.Tensor]
    """The own weights when it left; none where it is waited for at once."""
    works: list[Any]


class OuterExchange(Exchange):
    is_synchronous = False
    runs_ahead = True
    has_own_state = True

    def __init__(self, network: nn.Module, world: World, plan: OuterPlan) -> None:
        super().__init__(network, world)
        self.plan = plan
        self._agreed = copy.deepcopy(network).requires_grad_(requires_grad=False)
        self._parts = cut(network, self._agreed, plan.parts)
        self._group = world.new_group()
        self._in_flight: InFlight | None = None

    @property
    def agreed(self) -> nn.Module:
        return self._agreed

    def begin(self) -> None:
        send_first_weights(self.network, self.world)
        self.adopt()

    def close(self) -> None:
        dist.destroy_process_group(self._group)

    def adopt(self) -> None:
        self._agreed.load_state_dict(self.network.state_dict())

    @torch.no_grad()
    def after_update(self, step: int, is_last: bool) -> None:
        self._arrive(is_due=is_last or self.plan.arriving(step) is not None)
        if is_last:
            self._average_all()
            return
        leaving = self.plan.leaving(step)
        if leaving is not None:
            self._leave(leaving)
            self._arrive(is_due=self.plan.delay == 0)

    def _leave(self, number: int) -> None:
        part = self._parts[number]
        pairs = zip(part.agreed.values(), part.own.values(), strict=True)
        averaged = _flat([agreed - own for agreed, own in pairs])
        averaged = averaged.div_(self.world.size).to(self.plan.number_type)
        buffers = _flat(_stored_floats(self.network)).div_(self.world.size)
        left_with = [own.clone() for own in part.own.values()] if self.plan.delay else []
        works = [self._send(values) for values in (averaged, buffers) if len(values)]
        self._in_flight = InFlight(number, averaged, buffers, left_with, works)

    def _send(self, values: torch.Tensor) -> Any:
        self.watch.reduced_bytes += values.numel() * values.element_size()
        return dist.all_reduce(values, group=self._group, async_op=True)

    def _arrive(self, is_due: bool) -> None:
        """The outer step of the part in flight, and own weights after it."""
        flight = self._in_flight
        if flight is None or not is_due:
            return
        self._in_flight = None
        self._wait(flight)
        part = self._parts[flight.number]
        moved = _like(part.agreed.values(), flight.averaged.float())
        part.step(moved, self.plan.rate, self.plan.momentum)
        self._follow(part, flight.left_with)
        self._take_buffers(flight.buffers)

    def _wait(self, flight: InFlight) -> None:
        for work in flight.works:
            work.wait()
        flight.works.clear()

    def _follow(self, part: Part, left_with: Sequence[torch.Tensor]) -> None:
        """Own weights are the agreed ones, with what was learned since the part left."""
        if not left_with:
            for own, agreed in zip(part.own.values(), part.agreed.values(), strict=True):
                own.copy_(agreed)
            return
        pairs = zip(part.own.values(), part.agreed.values(), left_with, strict=True)
        for own, agreed, left in pairs:
            own.add_(agreed - left)

    def _take_buffers(self, averaged: torch.Tensor) -> None:
        """Running averages of norms: their mean. Counters are the same everywhere anyway."""
        own = _stored_floats(self.network)
        for buffer, value in zip(own, _like(own, averaged), strict=True):
            buffer.copy_(value)
        for agreed, buffer in zip(self._agreed.buffers(), self.network.buffers(), strict=True):
            agreed.copy_(buffer)

    def _average_all(self) -> None:
        """After the last step of a run: nothing that any process learned is left out."""
        for number, part in enumerate(self._parts):
            self._leave(number)
            flight, self._in_flight = self._in_flight, None
            assert flight is not None  # noqa: S101  (it has just left)
            self._wait(flight)
            part.step(_like(part.agreed.values(), flight.averaged.float()), 1.0, 0.0)
            self._follow(part, [])
            self._take_buffers(flight.buffers)

    def shared_tensors(self) -> Tensors:
        """Waits for the part in flight, which then counts as arrived early."""
        tensors = {
            f"momentum.{name}": kept for part in self._parts for name, kept in part.momentum.items()
        }
        flight = self._in_flight
        if flight is not None:
            self._wait(flight)
            number = torch.tensor(flight.number)
            tensors |= {"part": number, "averaged": flight.averaged, "buffers": flight.buffers}
        return tensors

    def own_tensors(self) -> Tensors:
        flight = self._in_flight
        if flight is None:
            return {}
        names = self._parts[flight.number].own
        return {f"left_with.{name}": t for name, t in zip(names, flight.left_with, strict=True)}

    def load_shared(self, tensors: Tensors) -> None:
        for part in self._parts:
            part.momentum = {
                name: tensors[f"momentum.{name}"].to(weight.device).view_as(weight)
                for name, weight in part.agreed.items()
                if f"momentum.{name}" in tensors
            }

    def load_own(self, own: Tensors, shared: Tensors) -> None:
        if "part" not in shared:
            return
        number, device = int(shared["part"]), self.world.device
        left_with = [own[f"left_with.{name}"].to(device) for name in self._parts[number].own]
        averaged, buffers = shared["averaged"].to(device), shared["buffers"].to(device)
        self._in_flight = InFlight(number, averaged, buffers, left_with, [])


def cut(network: nn.Module, agreed: nn.Module, num_parts: int) -> list[Part]:
    """Neighbouring parameters, so that parts have about the same size."""
    own = {name: p.detach() for name, p in network.named_parameters() if p.requires_grad}
    same = {name: p.detach() for name, p in agreed.named_parameters()}
    total = sum(weight.numel() for weight in own.values())
    parts: list[Part] = [Part({}, {}) for _ in range(num_parts)]
    before = 0
    for name, weight in own.items():
        middle = before + weight.numel() / 2
        part = parts[min(int(middle * num_parts / total), num_parts - 1)]
        part.own[name], part.agreed[name] = weight, same[name]
        before += weight.numel()
    return parts


def _stored_floats(network: nn.Module) -> list[torch.Tensor]:
    """Buffers that are part of a checkpoint: the running averages of norms."""
    stored = network.state_dict().keys()
    named = network.named_buffers()
    return [b for name, b in named if name in stored and b.is_floating_point()]


def _flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([t.reshape(-1) for t in tensors]) if tensors else torch.empty(0)


def _like(tensors: Iterable[torch.Tensor], flat: torch.Tensor) -> list[torch.Tensor]:
    """Pieces of a flat tensor in the shapes of these."""
    shapes = [tensor.shape for tensor in tensors]
    pieces = torch.split(flat, [shape.numel() for shape in shapes])
    return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]
