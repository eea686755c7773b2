"""An all-reduce that leaves each host once: inside of hosts first, then between them.

A ring through N processes sends 2 (N-1)/N of the gradients over each host's link, whatever hosts
they are on. Here the processes of a host first add up among themselves, each a share of its own;
then each adds its share up with its counterparts on the other H hosts, so that 2 (H-1)/H go over
the link; then the host's processes gather the shares. With 2 hosts of 8 devices that is 1.9 times
less. 16 bits, where asked for, are used between hosts only.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist

from paceline.errors import UserError
from paceline.world import World, new_stream

Sent = torch.futures.Future[torch.Tensor]


class Hierarchy:
    """The two groups that a process is in."""

    def __init__(self, world: World, number_type: torch.dtype | None) -> None:
        """`number_type`: of what goes between hosts, where it is not that of the gradients."""
        hosts = hosts_of(world.gather_values(world.host))
        refuse_uneven(hosts)
        self.num_hosts, self.num_inside = len(hosts), len(hosts[0])
        self._number_type, self._world = number_type, world
        self._inside = _own_group(hosts, world)
        self._between = _own_group(list(zip(*hosts, strict=True)), world)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="all-reduce")
        """One, because all processes must begin the same collectives in the same order."""
        self._stream = new_stream(world.device)

    def ring_share(self) -> float:
        """What leaves a host, as a multiple of what a ring through all processes sends."""
        return _ring_share(self.num_hosts, self._world.size)

    def average(self, values: torch.Tensor) -> Sent:
        """Over the world, in place; beside whatever else the process does."""
        sent: Sent = torch.futures.Future(devices=_devices(values))
        if self._stream is None:
            self._thread.submit(self._work, values, sent)
        else:  # the device does the waiting; written for CUDA and not measured on it by us
            self._stream.wait_stream(torch.cuda.current_stream(values.device))
            with torch.cuda.stream(self._stream):
                self._work(values, sent)
        return sent

    def _work(self, values: torch.Tensor, sent: Sent) -> None:
        try:
            self._average(values)
            sent.set_result(values)
        except Exception as error:
            sent.set_exception(error)  # type: ignore[arg-type]

    @torch.no_grad()
    def _average(self, values: torch.Tensor) -> None:
        values.div_(self._world.size)
        padded = torch.nn.functional.pad(values, (0, -len(values) % self.num_inside))
        shares = list(padded.chunk(self.num_inside))
        own = torch.empty_like(shares[0])
        dist.reduce_scatter(own, shares, group=self._inside)
        narrow = own.to(self._number_type) if self._number_type else own
        dist.all_reduce(narrow, group=self._between)
        dist.all_gather(shares, narrow.to(own.dtype), group=self._inside)
        values.copy_(padded[: len(values)])


def hierarchical_share(world: World) -> float | None:
    """What leaves a host against a ring through all processes; None where it brings nothing."""
    hosts = hosts_of(world.gather_values(world.host))
    is_even = len({len(ranks) for ranks in hosts}) == 1
    return _ring_share(len(hosts), world.size) if is_even and is_useful(hosts) else None


def _ring_share(num_hosts: int, size: int) -> float:
    return ((num_hosts - 1) / num_hosts) / ((size - 1) / size)


def _devices(values: torch.Tensor) -> list[Any]:
    return [values.device] if values.device.type == "cuda" else []


def hosts_of(names: Sequence[str]) -> list[list[int]]:
    """The ranks on each host."""
    return [
        [rank for rank, name in enumerate(names) if name == host] for host in dict.fromkeys(names)
    ]


def refuse_uneven(hosts: Sequence[Sequence[int]]) -> None:
    counts = sorted({len(ranks) for ranks in hosts})
    if len(counts) > 1:
        raise UserError(
            f"reduce.hierarchical needs as many processes on every host, and there are from "
            f"{counts[0]} to {counts[-1]}",
            "leave it out, or start as many on every host",
        )


def is_useful(hosts: Sequence[Sequence[int]]) -> bool:
    """Several hosts with several processes each."""
    return len(hosts) > 1 and min(len(ranks) for ranks in hosts) > 1


def _own_group(groups: Sequence[Sequence[int]], world: World) -> Any:
    made = [(ranks, world.new_group(ranks)) for ranks in groups]
    return next(group for ranks, group in made if world.rank in ranks)
