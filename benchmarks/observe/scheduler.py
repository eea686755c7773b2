"""How long a thread waited, as the kernel saw it.

Who gives up its core waits for something: a batch, another process, a disk. Until it runs again,
it is waiting. Whose core was taken away for another program is not: it had work to do. DDP's end
of a backward pass (waiting for the gradients, and copying them to where they belong) is waiting as
a whole, and so are the collectives that FSDP calls: probes tell when the library's functions are
entered and left. Needs root, and a kernel with tracefs.
"""

import functools
import importlib.util
import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_TRACEFS = Path("/sys/kernel/tracing")
_BUFFER_KIB = 8192
"""For each core; of a longer run the last events are kept."""
_EVENT = re.compile(r"-(?P<thread>\d+) +\[\d+\] .*? (?P<at>\d+\.\d+): (?P<name>\w+): (?P<rest>.*)")
_SWITCH = re.compile(r"prev_pid=(\d+) .*prev_state=(\S+) ==> .*next_pid=(\d+) ")
_WOKEN = re.compile(r"\bpid=(\d+) ")
_PREEMPTED = ("R", "R+")
_INSIDE = (
    r"_ZN4c10d7Reducer17finalize_backwardEv",
    r"_ZN4c10d4Work4waitE\w+",
    r"_ZN4c10d16ProcessGroupGloo15_allgather_baseE\w+",
    r"_ZN4c10d16ProcessGroupGloo20_reduce_scatter_baseE\w+",
)
"""Functions in which a thread exchanges something with other processes, whatever it does there."""


@dataclass(frozen=True)
class Wait:
    begin: float
    """Seconds since the epoch, as in a run's events."""
    end: float


@dataclass
class KernelTrace:
    waits: dict[int, list[Wait]] = field(default_factory=dict)
    """By the number of the thread."""
    began: float = 0.0
    """Seconds since the epoch, when all was being recorded."""

    def seconds_waited(self, thread: int, begin: float, end: float) -> float:
        """Waits may lie in one another."""
        seconds, until = 0.0, begin
        for wait in sorted(self.waits.get(thread, []), key=lambda wait: wait.begin):
            upto = min(wait.end, end)
            seconds += max(upto - max(wait.begin, until), 0.0)
            until = max(until, upto)
        return seconds


@contextmanager
def traced(threads: Sequence[int]) -> Iterator[KernelTrace]:
    """What is yielded holds the waits of these threads afterwards."""
    found, name = KernelTrace(), f"paceline_{os.getpid()}"
    place = _make_instance(name)
    try:
        with _probed(name) as has_probes:
            _begin(place, threads, name if has_probes else "")
            found.began = time.time()
            yield found
            (place / "tracing_on").write_text("0", encoding="ascii")
            to_epoch = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
            lines = (place / "trace").read_text(encoding="utf-8", errors="replace").splitlines()
            found.waits = waits_in(lines, threads, to_epoch)
            (place / "events" / "enable").write_text("0", encoding="ascii")
    finally:
        place.rmdir()


def waits_in(
    lines: Sequence[str], threads: Sequence[int], to_epoch: float
) -> dict[int, list[Wait]]:
    since: dict[tuple[int, str], float] = {}
    woken: dict[int, float] = {}
    waits: dict[int, list[Wait]] = {thread: [] for thread in threads}
    for line in lines:
        if (event := _EVENT.search(line)) is None:
            continue
        at = float(event["at"]) + to_epoch
        if event["name"] == "sched_wakeup":
            woken |= {int(thread): at for thread in _WOKEN.findall(event["rest"])}
            continue
        for thread, what, begins in _changes(event):
            # Some kernels do not tell when an idle core begins to run a thread: then it did so as
            # soon as it was woken, before it went to sleep again.
            ran = woken.pop(thread, at) if begins and what == "sleep" else at
            if thread in waits and (begin := since.pop((thread, what), None)) is not None:
                waits[thread].append(Wait(begin, ran))
            if begins:
                since[thread, what] = at
    return waits


def _changes(event: "re.Match[str]") -> Iterator[tuple[int, str, bool]]:
    """Which thread begins or ends what kind of waiting."""
    inside, _, edge = event["name"].partition("_")
    if inside.startswith("inside"):
        yield int(event["thread"]), inside, edge == "begin"
    elif switch := _SWITCH.search(event["rest"]):
        out, state, into = switch.groups()
        yield int(into), "sleep", False
        if state not in _PREEMPTED:
            yield int(out), "sleep", True


def _make_instance(name: str) -> Path:
    """A trace of our own, so that nobody else's is disturbed."""
    if not (_TRACEFS / "instances").is_dir():
        subprocess.run(["mount", "-t", "tracefs", "nodev", str(_TRACEFS)], check=True)
    place = _TRACEFS / "instances" / name
    place.mkdir()
    return place


@contextmanager
def _probed(group: str) -> Iterator[bool]:
    """Events for entering and leaving the functions; none if torch has no such."""
    places = [place for symbol in _INSIDE if (place := _place_in_library(symbol))]
    for number, place in enumerate(places):
        begin, end = f"{group}/inside{number}_begin", f"{group}/inside{number}_end"
        _define(f"p:{begin} {place}", f"r:{end} {place}")
    try:
        yield bool(places)
    finally:
        for number in range(len(places)):
            _define(f"-:{group}/inside{number}_begin", f"-:{group}/inside{number}_end")


def _define(*probes: str) -> None:
    """Added to those of others; Python's own way of appending would first look for the end."""
    for probe in probes:
        file = os.open(_TRACEFS / "uprobe_events", os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, probe.encode("ascii"))
        finally:
            os.close(file)


@functools.cache
def _place_in_library(symbol: str) -> str | None:
    """`path:offset`, from the library's own tables."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    library = Path(spec.origin).resolve().parent / "lib" / "libtorch_cpu.so"
    names = _output("nm", "-D", "--defined-only", str(library))
    found = re.search(rf"^(\w+) T {symbol}$", names, re.MULTILINE)
    if found is None:
        return None
    address = int(found[1], 16)
    for line in _output("readelf", "-lW", str(library)).splitlines():
        words = line.split()
        if words[:1] == ["LOAD"]:
            offset, begin, size = (int(words[place], 16) for place in (1, 2, 4))
            if begin <= address < begin + size:
                return f"{library}:{address - begin + offset:#x}"
    return None


def _output(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def _begin(place: Path, threads: Sequence[int], probes: str) -> None:
    """The clock is the one that does not jump; a run's is set beside it at the end."""
    either = "||".join(f"prev_pid=={thread}||next_pid=={thread}" for thread in threads)
    settings = {
        "trace_clock": "mono",
        "buffer_size_kb": str(_BUFFER_KIB),
        "events/sched/sched_switch/filter": either,
        "events/sched/sched_switch/enable": "1",
        "events/sched/sched_wakeup/filter": "||".join(f"pid=={thread}" for thread in threads),
        "events/sched/sched_wakeup/enable": "1",
    }
    if probes:
        settings[f"events/{probes}/enable"] = "1"
    for name, value in settings.items():
        (place / name).write_text(value, encoding="ascii")
