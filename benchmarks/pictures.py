"""Speeds of two ways to train on pictures, measured in turns and compared as ratios."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from paceline.record.events import read_events
from paceline.record.schema import RunDirectory


@dataclass(frozen=True)
class Speed:
    """Images per second, and per CPU-second, which stolen time does not touch."""

    per_second: float
    per_cpu_second: float


def speed_of_run(run: Path, warm_up_steps: int) -> Speed:
    """From the run's own event lines, one step each, without the first ones."""
    ranks = [
        [e for e in read_events(path) if e["kind"] == "steps"][warm_up_steps:]
        for path in sorted(RunDirectory(run).events.glob("rank-*"))
    ]
    seconds = sum(event["seconds"] for event in ranks[0])
    cpu_seconds = sum(event["cpu_seconds"] for events in ranks for event in events)
    num = sum(event["num_units"] for event in ranks[0])
    return Speed(num / seconds, num / cpu_seconds)


def speed_of_peer(module: str, words: dict[str, object]) -> Speed:
    """What a plain loop in a process of its own prints at its end."""
    flags = [str(word) for pair in words.items() for word in pair]
    result = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *flags],
        check=True,
        capture_output=True,
        text=True,
    )
    return Speed(**json.loads(result.stdout.splitlines()[-1]))


def compare(name: str, ours: Callable[[], Speed], theirs: Callable[[], Speed], rounds: int) -> None:
    """One row of the table: the best of each side, and the median of the paired ratios."""
    pairs = []
    for number in range(rounds):
        pairs.append((theirs(), ours()))
        peer, own = pairs[-1]
        progress(f"{name}, round {number + 1}: {own.per_second / peer.per_second:.2f}")
    wall = median(own.per_second / peer.per_second for peer, own in pairs)
    cpu = median(own.per_cpu_second / peer.per_cpu_second for peer, own in pairs)
    peer_best = max(peer.per_second for peer, _ in pairs)
    own_best = max(own.per_second for _, own in pairs)
    print(f"| {name} | {peer_best:.1f} | {own_best:.1f} | {wall:.2f} | {cpu:.2f} |", flush=True)


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
