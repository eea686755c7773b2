"""Steps that every process makes alone, and the exchange of what came of them: local SGD, DiLoCo.

All processes hold the same `agreed` weights. Every `every` steps each part of the model is brought
to agreement: the mean over processes of (agreed - own) is the gradient of an outer step (Nesterov),
and own weights follow. A part may be `delay` steps on its way while training goes on; what a
process learned meanwhile is kept. With one part, no delay and a plain outer step this is local SGD.
Douillard et al., "DiLoCo" (2023) and "Streaming DiLoCo" (2025); Stich, "Local SGD" (2019).
"""

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from paceline.train.reduce.exchange import Exchange, Tensors, send_first_weights
from paceline.train.reduce.four_bits import add_unpacked, pack
from paceline.world import World, wait_for_others


@dataclass(frozen=True)
class OuterPlan:
    """When and how agreement is reached."""

    every: int
    """Steps from one exchange of a part to the next."""
    parts: int = 1
    delay: int = 0
    """Steps that a part may be on its way."""
    inner_rate: float = 1.0
    """Times the learning rate, for the steps between exchanges."""
    rate: float = 1.0
    momentum: float = 0.0
    number_type: torch.dtype = torch.float32
    """On the wire."""
    is_packed: bool = False
    """Whether it takes four bits instead, but for the last exchange of a run."""

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
    """The mean of what the norms of all processes have seen."""
    left_with: list[torch.Tensor] = field(default_factory=list)
    """The own weights when it left, as the others were told; none where it is waited for at once
    and they were told exactly."""
    left_buffers: torch.Tensor | None = None
    """What the own norms had seen by then; none where it is waited for at once."""
    works: list[Any] = field(default_factory=list)
    packed: list[torch.Tensor] = field(default_factory=list)
    """Of all processes, where values go in four bits; `averaged` is zero until they are there."""


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

    @property
    def rate_factor(self) -> float:
        return self.plan.inner_rate

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
            self._leave(leaving, self.plan.is_packed)
            self._arrive(is_due=self.plan.delay == 0)

    def _leave(self, number: int, is_packed: bool) -> None:
        part = self._parts[number]
        moved = _flat(_differences(part.agreed.values(), part.own.values()))
        # Once in a period is enough of what norms have seen: no step of training reads it.
        seen = _flat(_stored_floats(self.network) if number == 0 else [])
        flight = InFlight(number, moved, seen / self.world.size)
        if is_packed:
            self._send_packed(flight, part)
        else:
            flight.averaged = moved.div_(self.world.size).to(self.plan.number_type)
            self._send(flight, flight.averaged)
            if self.plan.delay:
                flight.left_with = [own.clone() for own in part.own.values()]
        self._send(flight, flight.buffers)
        flight.left_buffers = seen if self.plan.delay else None
        self._in_flight = flight

    def _send_packed(self, flight: InFlight, part: Part) -> None:
        """What rounding takes away stays in the own weights, and so in what is sent next."""
        own = pack(flight.averaged)
        flight.packed = [torch.empty_like(own) for _ in range(self.world.size)]
        work = dist.all_gather(flight.packed, own, group=self._group, async_op=True)
        flight.works.append(work)
        # Counted as an all-reduce that would send as much: it sends 2 (N-1)/N of its bytes.
        self.watch.reduced_bytes += len(own) * self.world.size // 2
        told = torch.zeros_like(flight.averaged)
        add_unpacked(told, own, 1.0)
        agreed = part.agreed.values()
        flight.left_with = list(_differences(agreed, _like(agreed, told)))
        flight.averaged = torch.zeros_like(told)

    def _send(self, flight: InFlight, values: torch.Tensor) -> None:
        if len(values):
            self.watch.reduced_bytes += values.numel() * values.element_size()
            flight.works.append(dist.all_reduce(values, group=self._group, async_op=True))

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
        self._take_buffers(flight)

    def _wait(self, flight: InFlight) -> None:
        for work in flight.works:
            wait_for_others(work, "exchange of weights")
        flight.works.clear()
        for packed in flight.packed:  # in the order of ranks, so that sums are the same everywhere
            add_unpacked(flight.averaged, packed, 1 / self.world.size)
        flight.packed.clear()

    def _follow(self, part: Part, left_with: Sequence[torch.Tensor]) -> None:
        """Own weights are the agreed ones, with what was learned since the part left."""
        if not left_with:
            for own, agreed in zip(part.own.values(), part.agreed.values(), strict=True):
                own.copy_(agreed)
            return
        pairs = zip(part.own.values(), part.agreed.values(), left_with, strict=True)
        for own, agreed, left in pairs:
            own.add_(agreed - left)

    def _take_buffers(self, flight: InFlight) -> None:
        """Running averages of norms, which come with the first part: their mean, and on top of it
        what own norms have seen since it left. Counters are the same everywhere anyway."""
        if flight.number != 0:
            return
        for agreed, own in zip(self._agreed.buffers(), self.network.buffers(), strict=True):
            agreed.copy_(own)
        agreed_buffers = _stored_floats(self._agreed)
        for buffer, value in zip(
            agreed_buffers, _like(agreed_buffers, flight.buffers), strict=True
        ):
            buffer.copy_(value)
        own_buffers = _stored_floats(self.network)
        now = flight.buffers
        if flight.left_buffers is not None:
            now = _flat(own_buffers) + (flight.buffers - flight.left_buffers)
        for buffer, value in zip(own_buffers, _like(own_buffers, now), strict=True):
            buffer.copy_(value)

    def _average_all(self) -> None:
        """After the last step of a run: nothing that any process learned is left out."""
        for number, part in enumerate(self._parts):
            self._leave(number, is_packed=False)
            flight, self._in_flight = self._in_flight, None
            assert flight is not None  # noqa: S101  (it has just left)
            self._wait(flight)
            part.step(_like(part.agreed.values(), flight.averaged.float()), 1.0, 0.0)
            self._follow(part, [])
            flight.left_buffers = None
            self._take_buffers(flight)

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
        tensors = {f"left_with.{name}": t for name, t in zip(names, flight.left_with, strict=True)}
        if flight.left_buffers is not None:
            tensors["left_buffers"] = flight.left_buffers
        return tensors

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
        left_buffers = own["left_buffers"].to(device) if "left_buffers" in own else None
        averaged, buffers = shared["averaged"].to(device), shared["buffers"].to(device)
        self._in_flight = InFlight(number, averaged, buffers, left_with, left_buffers)


def cut(network: nn.Module, agreed: nn.Module, num_parts: int) -> list[Part]:
    """Neighbouring parameters, so that parts have about the same size; one that is larger than a
    part, as embeddings are, is in several."""
    own = {name: p.detach() for name, p in network.named_parameters() if p.requires_grad}
    same = {name: p.detach() for name, p in agreed.named_parameters()}
    total = sum(weight.numel() for weight in own.values())
    parts: list[Part] = [Part({}, {}) for _ in range(num_parts)]
    most, before = -(-total // num_parts), 0
    for name, weight in own.items():
        pieces = zip(_pieces(name, weight, most), _pieces(name, same[name], most), strict=True)
        for (piece, values), (_, agreed_values) in pieces:
            middle = before + values.numel() / 2
            part = parts[min(int(middle * num_parts / total), num_parts - 1)]
            part.own[piece], part.agreed[piece] = values, agreed_values
            before += values.numel()
    return parts


def _pieces(name: str, weight: torch.Tensor, most: int) -> list[tuple[str, torch.Tensor]]:
    """The weight, or views of it that have at most so many values each."""
    if weight.numel() <= most or not weight.is_contiguous():
        return [(name, weight)]
    pieces = torch.split(weight.view(-1), most)
    return [(f"{name}.{number}", piece) for number, piece in enumerate(pieces)]


def _stored_floats(network: nn.Module) -> list[torch.Tensor]:
    """Buffers that are part of a checkpoint: the running averages of norms."""
    stored = network.state_dict().keys()
    named = network.named_buffers()
    return [b for name, b in named if name in stored and b.is_floating_point()]


def _differences(
    left: Iterable[torch.Tensor], right: Iterable[torch.Tensor]
) -> Iterator[torch.Tensor]:
    return (one - other for one, other in zip(left, right, strict=True))


def _flat(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    flat = [tensor.reshape(-1) for tensor in tensors]
    return torch.cat(flat) if flat else torch.empty(0)


def _like(tensors: Iterable[torch.Tensor], flat: torch.Tensor) -> list[torch.Tensor]:
    """Pieces of a flat tensor in the shapes of these."""
    shapes = [tensor.shape for tensor in tensors]
    pieces = torch.split(flat, [shape.numel() for shape in shapes])
    return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]
