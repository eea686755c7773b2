"""The processes of a run: rank, size, device and the few collectives that training needs.

One process is a world too: every call works there and costs nothing, so no other module asks
whether a run is distributed.
"""

import inspect
import json
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

from paceline.errors import UserError
from paceline.machine.arithmetic import Capability
from paceline.machine.devices import choose_index, refuse_shared_device
from paceline.machine.torch_builds import remedy_for, without_kernels
from paceline.order import WorkerOrder

# Running averages of batch norm are combined once a step by the step itself, so DDP must not send
# them around; torch has renamed the option for that.
_ddp_options = inspect.signature(DistributedDataParallel.__init__).parameters
_KEEP_BUFFERS: dict[str, Any] = {
    "forward_sync_buffers" if "forward_sync_buffers" in _ddp_options else "broadcast_buffers": False
}


@dataclass(frozen=True)
class World:
    rank: int
    size: int
    device: torch.device
    saves: bool = False
    """Whether this process writes checkpoints: the first one, and the first of every host whose run
    directory is its own, so that no host's loss is the run's."""
    attempt: int = 1
    """How often this run has been started, counted by the launcher."""
    host: str = field(default_factory=socket.gethostname)
    """As the launcher calls it."""
    group_seconds: float = 600.0
    """Longest wait for another process."""

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def add_up(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def largest_of(self, values: list[int]) -> list[int]:
        """Each value as it is largest in any process. On the CPU, so that no device has to wait."""
        return values if self.size == 1 else self.ask_largest_of(values).read()

    def ask_largest_of(self, values: list[int]) -> "LargestOf":
        """The same, to be read later; not for a world of one process."""
        largest = torch.tensor(values, dtype=torch.int64)
        return LargestOf(largest, dist.all_reduce(largest, op=dist.ReduceOp.MAX, async_op=True))

    def send_tensor(self, tensor: torch.Tensor) -> None:
        """Give every process the first one's values, in place."""
        if self.size > 1:
            dist.broadcast(tensor, src=0)

    def send_value(self, value: Any) -> Any:
        """The first process's value (anything JSON can hold), in every process."""
        if self.size == 1:
            return value
        data = json.dumps(value).encode() if self.is_first else b""
        length = torch.tensor([len(data)])
        dist.broadcast(length, src=0)
        buffer = torch.zeros(int(length), dtype=torch.uint8)
        if self.is_first:
            buffer.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        dist.broadcast(buffer, src=0)
        return json.loads(buffer.numpy().tobytes())

    def gather_values(self, value: Any) -> list[Any]:
        """Every process's value (anything JSON can hold), by rank, in every process."""
        if self.size == 1:
            return [value]
        data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(lengths, torch.tensor([len(data)]))
        longest = max(int(length) for length in lengths)
        padded = torch.nn.functional.pad(data, (0, longest - len(data)))
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(parts, padded)
        sizes = [int(length) for length in lengths]
        return [json.loads(p[:n].numpy().tobytes()) for p, n in zip(parts, sizes, strict=True)]

    def new_group(self, ranks: Sequence[int] | None = None, backend: str | None = None) -> Any:
        """Of some processes, or of all once more, beside the group that all are in; torch would
        let it wait for half an hour. All processes must make the same groups in the same order."""
        timeout = timedelta(seconds=self.group_seconds)
        return dist.new_group(ranks and list(ranks), timeout=timeout, backend=backend)

    def wrap(self, model: nn.Module, **options: Any) -> DistributedDataParallel:
        """The model with gradients averaged over the world, which must have several processes."""
        ids = [self.device.index] if self.device.type == "cuda" else None
        wrapped = DistributedDataParallel(
            model, device_ids=ids, gradient_as_bucket_view=True, **_KEEP_BUFFERS, **options
        )
        if ids is not None:  # DDP waits for the device in every step whose times it looks at
            wrapped._set_ddp_runtime_logging_sample_rate(_NEVER)  # type: ignore[no-untyped-call]
        return wrapped

    def leave(self) -> None:
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()


@dataclass(frozen=True)
class LargestOf:
    """A question that all processes have been asked."""

    values: torch.Tensor
    work: Any

    def read(self) -> list[int]:
        """Waits for all of them."""
        wait_for_others(self.work)
        return [int(value) for value in self.values.tolist()]


def wait_for_others(work: Any, collective: str = "all_reduce") -> None:
    """The one place where a process waits for what it has sent. torch's own wait leaves no frame on
    the stack, so a watchdog knows by this one that others are waited for, and in what."""
    work.wait()


_NEVER = 2**30
BY_HAND = WorkerOrder()


def join(device: str, group_seconds: float, order: WorkerOrder = BY_HAND) -> World:
    """Take this process's place in the world from torchrun's variables; alone without them."""
    rank, size = rank_in_world(order), int(os.environ.get("WORLD_SIZE", "1"))
    chosen = choose_device(device, local_rank())
    if size > 1:
        backend = "cpu:gloo,cuda:nccl" if chosen.type == "cuda" else "gloo"
        timeout = timedelta(seconds=group_seconds)
        place = _meeting_place(order, timeout)
        dist.init_process_group(backend, rank=rank, world_size=size, timeout=timeout, **place)
    saves = rank == 0 or (order.saves and local_rank() == 0)
    host = order.host or socket.gethostname()
    world = World(rank, size, chosen, saves, host=host, group_seconds=group_seconds)
    if chosen.type == "cuda":
        refuse_shared_device(world.gather_values(device_uuid(chosen)))
    return replace(world, attempt=int(world.send_value(order.attempt)))


def new_stream(device: torch.device) -> torch.cuda.Stream | None:
    """For copies beside what a CUDA device computes; other devices have none."""
    return torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]


def device_uuid(device: torch.device) -> str:
    """That no other device has; a processor has none."""
    if device.type != "cuda":
        return ""
    return str(torch.cuda.get_device_properties(device).uuid)


def local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def rank_in_world(order: WorkerOrder) -> int:
    if order.first_rank is not None:
        return order.first_rank + local_rank()
    return int(os.environ.get("RANK", "0"))


def _meeting_place(order: WorkerOrder, timeout: timedelta) -> dict[str, Any]:
    """Where the processes find each other: a file on one host, so that no port is opened for it;
    on many a store that listens on one private address, where torch's own would take all."""
    place = order.store
    if not place:
        return {"init_method": "env://"}
    if not place.startswith("tcp://"):
        return {"init_method": f"file://{place}"}
    address, _, port = place.removeprefix("tcp://").rpartition(":")
    if order.store_listener is None:
        return {"store": TCPStore(address, int(port), is_master=False, timeout=timeout)}
    return {"store": serve_store(address, int(port), order.store_listener, timeout)}


def serve_store(address: str, port: int, listener: int, timeout: timedelta) -> TCPStore:
    """A store behind an open file that already listens."""
    return TCPStore(
        address,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timeout,
        master_listen_fd=listener,
    )


def choose_device(device: str, local_rank: int) -> torch.device:
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UserError("device=cuda, but torch finds no CUDA here", "use device=auto or cpu")
    index = choose_index(local_rank, torch.cuda.device_count(), os.environ)
    refuse_without_kernels(
        torch.cuda.get_device_name(index),
        torch.cuda.get_device_capability(index),
        torch.cuda.get_arch_list(),
    )
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def refuse_without_kernels(name: str, capability: Capability, built_for: Sequence[str]) -> None:
    """Before the first kernel would say 'no kernel image is available', to nobody's help. AMD's
    builds name their devices otherwise, and are left to themselves."""
    is_for_nvidia = any(each.startswith(("sm_", "compute_")) for each in built_for)
    problem = without_kernels(name, capability, built_for) if is_for_nvidia else None
    if problem:
        raise UserError(problem, remedy_for(capability))


def settle_this_process(deterministic: bool = False) -> None:
    """Denormals cost a hundred times a normal multiplication and mean nothing in training.

    cuDNN tries out its kernels and takes the fastest, which need not be the same one every time.
    Exactness is asked of CUDA alone: processors have it without.
    """
    torch.set_flush_denormal(True)
    torch.backends.cudnn.benchmark = not deterministic
    torch.backends.cudnn.deterministic = deterministic
    if deterministic and torch.cuda.is_available():
        torch.use_deterministic_algorithms(True, warn_only=True)
