"""A thread in one process of each host that writes down what the host does, every few seconds.

Measuring must never hurt training: whatever goes wrong here is said once and then let be.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from paceline.machine.cores import core_numbers
from paceline.machine.interfaces import interface_used
from paceline.machine.probe import HostProbe, host_names, this_machine, this_place
from paceline.record.schema import RunDirectory
from paceline.record.writer import EventFile
from paceline.units import count_of
from paceline.world import World, device_uuid

_MUCH = 0.25
"""Of the cores: what others take beyond that is felt in every step."""
_LEAST_SECONDS = 0.5


@dataclass(frozen=True)
class Place:
    """Where this process runs, among the hosts of the world."""

    host: str
    num_hosts: int
    interface: str
    is_first_of_host: bool
    device_uuids: tuple[str, ...] = ()
    """Of the CUDA devices that processes of this host use."""
    shares_machine: bool = False
    """With another host of the world: then not all of the run's processes can be seen."""

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
    return place_among(world.gather_values(own_place(world)), world.rank)


def own_place(world: World) -> list[str]:
    return [this_place(), device_uuid(world.device)]


def place_among(told: Sequence[Sequence[str]], rank: int) -> Place:
    """`told`: of every process of the run, by rank, its `own_place`."""
    places = [str(place) for place, _ in told]
    names = host_names(places)
    mine = places[rank]
    return Place(
        host=names[mine],
        num_hosts=len(names),
        interface=interface_used(len(names)),
        is_first_of_host=places.index(mine) == rank,
        device_uuids=tuple(str(uuid) for place, uuid in told if uuid and place == mine),
        shares_machine=len({p for p in places if p.endswith(mine.partition(" ")[2])}) > 1,
    )


class OtherLoad:
    """What other programs take of the cores, as far as the host's counters and the processes of
    this run tell. Looked at once, in the first seconds of training."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._own_seconds = _cpu_seconds_of_run()

    def in_words(self, probe: dict[str, Any], num_cores: int) -> str | None:
        """`probe`: what the host did since this was made. None where others take little."""
        own_seconds = _cpu_seconds_of_run() - self._own_seconds
        others = other_cores(probe["cpu_share"], probe["seconds"], own_seconds, num_cores)
        if others < _MUCH * num_cores:
            return None
        cores = count_of(num_cores, "core")
        return (
            f"other programs use about {others:.1f} of {cores} of {self._host}: "
            "steps take longer, and how long depends on them"
        )


def other_cores(cpu_share: float, seconds: float, own_seconds: float, num_cores: int) -> float:
    """How many cores programs that are not of this run keep busy."""
    return max(cpu_share * num_cores - own_seconds / max(seconds, 1e-9), 0.0)


def _cpu_seconds_of_run() -> float:
    """Of this process, its siblings and who started them: all of the run on this host."""
    try:
        parent = psutil.Process(os.getppid())
        family = [parent, *parent.children(recursive=True)]
    except psutil.Error:
        family = [psutil.Process()]
    total = 0.0
    for process in family:
        try:
            times = process.cpu_times()
        except psutil.Error:  # it has ended meanwhile
            continue
        total += times.user + times.system
    return total


class ProbeThread:
    """Looks at the host until `stop`, which takes one last look so that sums are whole."""

    def __init__(
        self,
        probe: HostProbe,
        events: EventFile,
        seconds: float,
        step: Callable[[], int],
        warn: Callable[[str], None],
        other_load: OtherLoad | None = None,
    ) -> None:
        self._probe, self._events, self._seconds = probe, events, seconds
        self._step, self._warn, self._other_load = step, warn, other_load
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
            seen = self._probe.look()
            self._events.write("probe", step=self._step(), **seen)
            self._tell_other_load(seen)
        except Exception as error:
            self._failed = True
            self._warn(f"the host is no longer probed: {error!r}")

    def _tell_other_load(self, seen: dict[str, Any]) -> None:
        """Once, after the first second or more of training."""
        if self._other_load is None or seen["seconds"] < _LEAST_SECONDS:
            return
        text = self._other_load.in_words(seen, len(core_numbers()))
        self._other_load = None
        if text is not None:
            self._warn(text)

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
        other_load = None if place.shares_machine else OtherLoad(place.host)
        return ProbeThread(probe, events, seconds, step, warn, other_load)
    except Exception as error:
        warn(f"the host is not probed: {error!r}")
        return None


def file_name(host: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", host)
