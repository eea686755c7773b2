"""Noticing a hang where no launcher of ours sees all processes: under mpirun, srun or torchrun.

Each process has a parent (the command line) that copies what its worker tells into the run
directory and reads what the others tell. So it needs a run directory that all hosts share; where
there is none, a parent judges by what it sees, which is then only its own host.
"""

import json
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.errors import Say
from paceline.files import write_whole
from paceline.launch.hang import Hang, RankState, find_hang, without_replaceable
from paceline.launch.remote.host_facts import read_pulses
from paceline.record.schema import RunDirectory
from paceline.settings import GuardSettings

_EVERY_SECONDS = 2.0
_STACK_SECONDS = 2.0


class Peers:
    """What all processes of the world last told, through files in the run directory."""

    def __init__(self, folder: Path, own_pulses: Path, host: str, run: Path) -> None:
        self._stop_request = RunDirectory(run).stop_request
        self._folder, self._own, self._host = folder, own_pulses, host
        self.stop_was_wanted = False
        self._changed: dict[str, tuple[str, float]] = {}
        """Per file its content and when it was first seen: clocks of hosts may differ."""

    def stop_is_wanted(self) -> bool:
        """`paceline stop`, from a host that cannot send this process a signal."""
        if not self._stop_request.exists():
            return False
        self._stop_request.unlink(missing_ok=True)
        self.stop_was_wanted = True
        return True

    def tell(self) -> None:
        self._folder.mkdir(exist_ok=True)
        for beat, silent_seconds in read_pulses(self._own):
            told = {**beat, "host": self._host, "silent_seconds": silent_seconds}
            path = self._folder / f"rank-{beat['rank']:05d}.json"
            write_whole(path, json.dumps({**told, "time": time.time()}), durable=False)

    def states(self) -> list[RankState]:
        found = []
        for path in sorted(self._folder.glob("rank-*.json")):
            try:
                text = path.read_text(encoding="utf-8")
                beat: dict[str, Any] = json.loads(text)
            except (OSError, ValueError):
                continue
            known, since = self._changed.get(path.name, ("", 0.0))
            if text != known:
                since = time.monotonic()
                self._changed[path.name] = (text, since)
            unheard_seconds = max(time.monotonic() - since - 2 * _EVERY_SECONDS, 0.0)
            beat["silent_seconds"] += unheard_seconds
            found.append(RankState.of(beat["host"], beat))
        return found


def wait_watching(
    worker: subprocess.Popen[bytes],
    peers: Peers,
    rank: int,
    replaceable: Sequence[int],
    guard: GuardSettings,
    say: Say,
) -> int:
    """The worker's exit code; when the world hangs, all stacks are printed and it is killed."""
    told = 0.0
    while (code := worker.poll()) is None:
        time.sleep(0.1)
        if time.monotonic() - told < _EVERY_SECONDS:
            continue
        told = time.monotonic()
        if rank == 0 and peers.stop_is_wanted():
            worker.terminate()
        hang = _look(peers, replaceable, guard.hang_seconds)
        if hang is not None:
            return _end(worker, peers, rank, hang, say)
    return code


def _look(peers: Peers, replaceable: Sequence[int], hang_seconds: float) -> Hang | None:
    try:
        peers.tell()
        states = without_replaceable(peers.states(), replaceable)
        return find_hang(states, hang_seconds, slowest_step_seconds=0.0)
    except OSError:  # the run directory is away for a while
        return None


def _end(worker: subprocess.Popen[bytes], peers: Peers, rank: int, hang: Hang, say: Say) -> int:
    """A stopped process prints its stack too, once it is woken."""
    if rank == min(state.rank for state in hang.guilty):
        say(f"hang: {hang.text}; where every process is:")
        for state in peers.states():
            say(f"  {state.place}, for {state.quiet_seconds:.0f} s")
    worker.send_signal(signal.SIGUSR1)
    worker.send_signal(signal.SIGCONT)
    time.sleep(_STACK_SECONDS)
    worker.kill()
    worker.wait()
    return 1
