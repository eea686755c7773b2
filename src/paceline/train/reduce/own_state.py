"""What differs between the processes of a run, on its way into a checkpoint and back.

Where steps are made alone, every process has its own weights and optimizer; where gradients are
sent in few bits, its own rest of what was not sent. Whoever writes a host's checkpoints gets these
from its processes, in the background, and stores one file for each; going on, each process reads
its own. Without all of them, in a world of another size, a run goes on from what all agreed on.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save as to_bytes

from paceline.errors import UserError
from paceline.record import checkpoints as stored
from paceline.train.reduce.exchange import Tensors
from paceline.world import World


class OwnStates:
    """One in every process: gives its own to who writes, or takes those of others."""

    def __init__(self, world: World) -> None:
        places = [(str(host), bool(saves)) for host, saves in _places(world)]
        writers = [writer_of(rank, places) for rank in range(world.size)]
        self._rank, self._writer = world.rank, writers[world.rank]
        self._given_by = [
            rank
            for rank, writer in enumerate(writers)
            if writer == world.rank and rank != world.rank
        ]
        # Of its own: a thread sends, while the loop exchanges other things.
        self._group = world.new_group(backend="gloo")

    def give(self, own: Tensors) -> None:
        data = torch.frombuffer(bytearray(to_bytes(own)), dtype=torch.uint8)
        dist.send(torch.tensor([len(data)]), self._writer, group=self._group)
        dist.send(data, self._writer, group=self._group)

    def take(self) -> dict[str, bytes]:
        """Those of the others, by the names of their files."""
        return {stored.own_state_name(rank): self._receive(rank) for rank in self._given_by}

    def _receive(self, rank: int) -> bytes:
        length = torch.zeros(1, dtype=torch.int64)
        dist.recv(length, rank, group=self._group)
        data = torch.empty(int(length), dtype=torch.uint8)
        dist.recv(data, rank, group=self._group)
        return data.numpy().tobytes()


def _places(world: World) -> list[list[object]]:
    found: list[list[object]] = world.gather_values([world.host, world.saves])
    return found


def writer_of(rank: int, places: Sequence[tuple[str, bool]]) -> int:
    """Who writes the state of a process: its host's writer; where storage is shared, the first."""
    if places[rank][1]:
        return rank
    here = [r for r, (host, saves) in enumerate(places) if saves and host == places[rank][0]]
    return here[0] if here else 0


def newest_common(directory: Path, world: World) -> Path | None:
    """The newest checkpoint that has the undamaged state of every process of such a world."""
    steps = world.gather_values(_steps_here(directory, world))
    for step in sorted(set(steps[0]).intersection(*steps[1:]), reverse=True):
        checkpoint = directory / stored.checkpoint_name(step)
        if all(world.gather_values(_is_whole(checkpoint, world))):
            return checkpoint
    return None


def _steps_here(directory: Path, world: World) -> list[int]:
    found = stored.all_checkpoints(directory)
    return [stored.step_of(path) for path in found if _num_states(path) == world.size]


def _num_states(checkpoint: Path) -> int:
    """Of processes in the world that saved it."""
    try:
        return int(stored.read_manifest(checkpoint).get("num_own_states") or 0)
    except (UserError, ValueError, TypeError):
        return 0


def _is_whole(checkpoint: Path, world: World) -> bool:
    """The first process reads everything else, so it also looks at everything else."""
    if world.is_first:
        return stored.damage(checkpoint) is None
    return stored.own_state_damage(checkpoint, world.rank) is None


def with_prefix(prefix: str, tensors: Mapping[str, torch.Tensor]) -> Tensors:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: Mapping[str, torch.Tensor]) -> Tensors:
    start = f"{prefix}."
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}
