"""torch.distributed.elastic with workers that were prepared before, and a meeting without polling.

Torch's own agent starts a fresh interpreter for every worker, and its dynamic rendezvous looks
once a second whether all have come. Here the launcher has told who comes and in which order, so
the agents only wait for one another; what is left is elastic's: ranks, watching, the end.
"""

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.distributed import FileStore, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.agent.server.api import (
    RunResult,
    SimpleElasticAgent,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
)

from paceline.launch.workers import Worker, end_workers

_JOIN_SECONDS = 86_400
"""The launcher sees what every host does, and decides for how long it is waited for."""
_RUN_ID = "paceline"


@dataclass(frozen=True)
class Part:
    """This host's part of a world."""

    store: str
    """A file on one host; on many 'tcp://address:port' of a store on the first host."""
    host_rank: int
    num_hosts: int
    error_directory: Path
    variables: dict[str, str]
    """For every worker, beside those of elastic."""


def run_workers(
    part: Part, workers: Sequence[Worker], all_are_here: Callable[[], None]
) -> dict[int, ProcessFailure]:
    """Until all have ended; by rank, the failures of those that failed."""
    meeting = Meeting(part, all_are_here)
    spec = WorkerSpec(
        role="default",
        local_world_size=len(workers),
        rdzv_handler=meeting,
        entrypoint="paceline.train.worker",
        max_restarts=0,
        master_addr=meeting.address,
        master_port=meeting.port,
    )
    result = Agent(spec, part, workers).run()
    return dict(result.failures) if result is not None else {}


class Meeting(RendezvousHandler):
    """All agents of the world, as many as the launcher has said."""

    def __init__(self, part: Part, all_are_here: Callable[[], None]) -> None:
        self._part, self._all_are_here = part, all_are_here
        place, _, port = part.store.removeprefix("tcp://").rpartition(":")
        is_file = not part.store.startswith("tcp://")
        self.address, self.port = ("localhost", 0) if is_file else (place, int(port))
        self._is_file = is_file

    def _open_store(self) -> Store:
        if self._is_file:
            return FileStore(f"{self._part.store}.meeting", 1)
        # The first host's listens from before its torch is imported, and answers after that.
        wait = timedelta(seconds=_JOIN_SECONDS)
        return TCPStore(self.address, self.port, is_master=False, timeout=wait)

    def next_rendezvous(self) -> RendezvousInfo:
        store = PrefixStore("agents", self._open_store())
        part = self._part
        store.set(f"host-{part.host_rank}", "here")
        store.wait([f"host-{rank}" for rank in range(part.num_hosts)])
        self._all_are_here()
        place = RendezvousStoreInfo(self.address, self.port)
        return RendezvousInfo(store, part.host_rank, part.num_hosts, place)

    def get_backend(self) -> str:
        return "paceline"

    def get_run_id(self) -> str:
        return _RUN_ID

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """A world is complete from its beginning to its end."""

    def num_nodes_waiting(self) -> int:
        return 0

    def shutdown(self) -> bool:
        return True


class Agent(SimpleElasticAgent):
    def __init__(self, spec: WorkerSpec, part: Part, workers: Sequence[Worker]) -> None:
        super().__init__(spec)
        self._part, self._workers = part, workers

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        for member in worker_group.workers:
            self._workers[member.local_rank].begin(
                {
                    "RANK": str(member.global_rank),
                    "WORLD_SIZE": str(member.world_size),
                    "LOCAL_RANK": str(member.local_rank),
                    "LOCAL_WORLD_SIZE": str(len(self._workers)),
                    "GROUP_RANK": str(worker_group.group_rank),
                    "GROUP_WORLD_SIZE": str(worker_group.group_world_size),
                    "TORCHELASTIC_RUN_ID": _RUN_ID,
                    "TORCHELASTIC_ERROR_FILE": self._error_file(member.local_rank),
                    "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get(
                        "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"
                    ),
                    **self._part.variables,
                }
            )
        return {rank: worker.pid for rank, worker in enumerate(self._workers)}

    def _error_file(self, local_rank: int) -> str:
        return str(self._part.error_directory / f"error-{local_rank}.json")

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        codes = [worker.poll() for worker in self._workers]
        failures = {
            worker_group.workers[rank].global_rank: ProcessFailure(
                rank, self._workers[rank].pid, code, self._error_file(rank)
            )
            for rank, code in enumerate(codes)
            if code
        }
        if failures:
            return RunResult(WorkerState.FAILED, failures=failures)
        if any(code is None for code in codes):
            return RunResult(WorkerState.HEALTHY)
        nothing = {member.global_rank: None for member in worker_group.workers}
        return RunResult(WorkerState.SUCCEEDED, return_values=nothing)

    def _stop_workers(self, worker_group: WorkerGroup, *_: Any, **__: Any) -> None:
        self._shutdown()

    def _shutdown(
        self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30, *_: Any, **__: Any
    ) -> None:
        end_workers(self._workers, death_sig, timeout)
