"""A thread in one process of each host that writes down what the host does, every few seconds.

Measuring must never hurt training: whatever goes wrong here is said once and then let be.
"""

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paceline.machine.cores import core_numbers
from paceline.machine.interfaces import interface_used
from paceline.machine.probe import HostProbe, host_names, this_machine, this_place
from paceline.record.schema import RunDirectory
from paceline.record.writer import EventFile
from paceline.world import World, device_uuid


@dataclass(frozen=True)
class Place:
    """Where this process runs, among the hosts of the world."""

    host: str
    num_hosts: int
    interface: str
    is_first_of_host: bool
    device_uuids: tuple[str, ...] = ()
    """Of the CUDA devices that processes of this host use."""

    def facts(self) -> dict[str, Any]:
        """`machine` and `cores` tell what else on the machine belongs to the run: hosts that are
        namespaces see the load of each other's processes, but not the processes."""
        return {
            "host": self.host,
            "num_hosts": self.num_hosts,
            "interface": self.interface,
            "machine": this_machine(),
            "cores": core_numbers(),
        }


def find_place(world: World) -> Place:
    told = world.gather_values([this_place(), device_uuid(world.device)])
    places = [str(place) for place, _ in told]
    names = host_names(places)
    mine = places[world.rank]
    return Place(
        host=names[mine],
        num_hosts=len(names),
        interface=interface_used(len(names)),
        is_first_of_host=places.index(mine) == world.rank,
        device_uuids=tuple(str(uuid) for place, uuid in told if uuid and place == mine),
    )


class ProbeThread:
    """Looks at the host until `stop`, which takes one last look so that sums are whole."""

    def __init__(
        self,
        probe: HostProbe,
        events: EventFile,
        seconds: float,
        step: Callable[[], int],
        warn: Callable[[str], None],
    ) -> None:
        self._probe, self._events, self._seconds = probe, events, seconds
        self._step, self._warn = step, warn
        self._over = threading.Event()
        self._failed = False
        self.cpu_seconds = 0.0
        """What looking has cost in all."""
        self._thread = threading.Thread(target=self._work, name="probe", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        self._look()  # says at which step counting began
        while not self._over.wait(self._seconds) and not self._failed:
            self._look()
            self.cpu_seconds = time.thread_time()

    def _look(self) -> None:
        try:
            self._events.write("probe", step=self._step(), **self._probe.look())
        except Exception as error:
            self._failed = True
            self._warn(f"the host is no longer probed: {error!r}")

    def stop(self) -> None:
        self._over.set()
        self._thread.join(timeout=5)
        if not self._failed and not self._thread.is_alive():
            self._look()
            self._events.close()


def start_probes(
    run: RunDirectory,
    attempt: int,
    place: Place,
    seconds: float,
    step: Callable[[], int],
    note: Callable[..., None],
) -> ProbeThread | None:
    """Only the first process of each host looks, and only where looking works."""
    if not place.is_first_of_host:
        return None

    def warn(text: str) -> None:
        note("warning", step=step(), text=text)

    try:
        events = EventFile(run.host_events(file_name(place.host)), attempt)
        probe = HostProbe(place.host, place.interface, place.device_uuids)
        return ProbeThread(probe, events, seconds, step, warn)
    except Exception as error:
        warn(f"the host is not probed: {error!r}")
        return None


def file_name(host: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", host)
