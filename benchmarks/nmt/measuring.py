"""Rates of everybody, taken in turns, and their ratios."""

import json
import os
import re
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from benchmarks.nmt.peers import (
    DECODING_IN_TURNS,
    EXPORTED,
    EXPORTED_INT8,
    IN_TURNS,
    PEERS,
    Peer,
    PeerFailedError,
    install,
)
from benchmarks.nmt.text import DECODED_LENGTH, EXTRA_LENGTH, Setup
from paceline.machine.cores import num_cores
from paceline.machine.tuning import speed_environment


@dataclass(frozen=True)
class Rate:
    """Target tokens per second of wall time and of CPU time."""

    per_second: float
    per_cpu_second: float


def environment_for(peer: Peer) -> dict[str, str]:
    root = Path(__file__).resolve().parents[2]
    found = os.pathsep.join(map(str, (root, root / "src")))
    environment = {**os.environ, "OMP_NUM_THREADS": str(num_cores()), "PYTHONPATH": found}
    if peer.has_fast_allocator:
        environment |= speed_environment(1)
    quiet = {"PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false"}
    return environment | quiet | dict(peer.variables)


def output_lines(
    peer: Peer, command: list[str], setup: Setup
) -> Iterator[tuple[str, float, float]]:
    """The lines a peer writes, with the time and its CPU time when each was written."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment_for(peer),
        cwd=setup.folder,
    )
    tail: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        tail = [*tail[-20:], line.rstrip()]
        yield line, time.perf_counter(), cpu_seconds(process.pid)
    if process.wait():
        raise PeerFailedError(f"exit {process.returncode}: {' | '.join(tail[-3:])[-300:]}")


def cpu_seconds(pid: int) -> float:
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
        return float(sum(sum(one.cpu_times()[:2]) for one in family))
    except psutil.NoSuchProcess:
        return 0.0


def measure(peer: Peer, python: Path, setup: Setup) -> list[Rate]:
    """One rate per interval, but for the first, in which a peer also loads and warms up."""
    rates, then, cpu_then = [], 0.0, 0.0
    for line, now, cpu_now in output_lines(peer, peer.command(python, setup), setup):
        found = re.search(peer.rate, line)
        if found and then and cpu_now > cpu_then:
            rate = float(found[1])
            rates.append(Rate(rate, rate * (now - then) / (cpu_now - cpu_then)))
        if found:
            then, cpu_then = now, cpu_now
    if not rates:
        raise PeerFailedError("ran, but reported no rate")
    return rates


@dataclass(frozen=True)
class Comparison:
    """Paceline against a peer; `reason` is set instead of figures where there are none."""

    size: str
    peer: str
    batches: str
    wanted_ratio: float
    paceline_rate: float = 0.0
    peer_rate: float = 0.0
    ratio: float = 0.0
    cpu_ratio: float | None = 0.0
    num_pairs: int = 0
    reason: str = ""


def measure_decoding(peer: Peer, python: Path, setup: Setup) -> Rate:
    """Sentences per second as the peer itself counts them, without its start."""
    assert peer.decode is not None
    seconds, cpu = 0.0, 0.0
    for line, _, cpu_now in output_lines(peer, peer.decode(python, setup), setup):
        seconds += sum(float(number) for number in re.findall(peer.seconds, line))
        cpu = max(cpu, cpu_now)
    if not seconds:
        raise PeerFailedError("ran, but reported no time")
    if peer.output:
        require_length(setup.text / peer.output)
    return Rate(setup.num_decoded / seconds, setup.num_decoded / max(cpu, 0.01))


def require_length(translations: Path) -> None:
    """Who writes less than the others has not done the same work."""
    wanted = DECODED_LENGTH + EXTRA_LENGTH
    lengths = [len(line.split()) for line in translations.read_text().splitlines()]
    # Some join pieces to words, so that a line has fewer of these; an early end shows all the same.
    if statistics.median(lengths) < 0.5 * wanted:
        raise PeerFailedError(f"wrote {statistics.median(lengths):.0f} of {wanted} pieces a line")


def compare(blank: Comparison, ours: list[Rate], theirs: list[Rate]) -> Comparison:
    pairs = list(zip(ours, theirs, strict=False))
    ratios = [one.per_second / other.per_second for one, other in pairs]
    cpu_ratios = [one.per_cpu_second / other.per_cpu_second for one, other in pairs]
    return replace(
        blank,
        num_pairs=len(pairs),
        paceline_rate=statistics.median(rate.per_second for rate in ours),
        peer_rate=statistics.median(rate.per_second for rate in theirs),
        ratio=statistics.median(ratios),
        cpu_ratio=statistics.median(cpu_ratios),
    )


def compare_in_turns(setup: Setup, peers_folder: Path) -> list[Comparison]:
    marian = Comparison(setup.size, "Hugging Face Marian", "same", 1.15)
    torch_layers = Comparison(setup.size, "torch.nn.Transformer", "same", 1.0)
    decoding = replace(marian, batches="decoding", wanted_ratio=1.0)
    return [
        *compare_pairs(IN_TURNS, {"marian": marian, "torch.nn": torch_layers}, setup, peers_folder),
        *compare_pairs(DECODING_IN_TURNS, {"marian": decoding}, setup, peers_folder),
    ]


def compare_pairs(
    worker: Peer, blanks: dict[str, Comparison], setup: Setup, peers_folder: Path
) -> list[Comparison]:
    rates: dict[str, list[Rate]] = {name: [] for name in ("paceline", *blanks)}
    try:
        python = install(worker, peers_folder)
        for line, _, _ in output_lines(worker, worker.command(python, setup), setup):
            if line.startswith("{"):
                measured = json.loads(line)
                num_tokens = measured["tokens"][0]
                for name, its_rates in rates.items():
                    seconds, cpu = measured[name]
                    its_rates.append(Rate(num_tokens / seconds, num_tokens / cpu))
    except PeerFailedError as error:
        return [replace(blank, reason=str(error)) for blank in blanks.values()]
    return [compare(blank, rates["paceline"], rates[name]) for name, blank in blanks.items()]


def compare_alone(setup: Setup, peers_folder: Path, num_rounds: int) -> list[Comparison]:
    """All peers one after the other, then again, so that a slow minute hits more than one."""
    rates: dict[str, list[Rate]] = {peer.name: [] for peer in PEERS}
    reasons: dict[str, str] = {}
    for number in range(num_rounds):
        for peer in PEERS:
            if peer.name in reasons:
                continue
            try:
                measured = measure(peer, install(peer, peers_folder), setup)
            except PeerFailedError as error:
                reasons[peer.name] = str(error)
                measured = []
            rates[peer.name] += measured
            shown = ", ".join(f"{rate.per_second:.0f}" for rate in measured)
            say(f"  {setup.size}, round {number + 1}, {peer.name}: {shown or reasons[peer.name]}")
    return [
        replace(blank, reason=reasons.get(name, reasons.get("paceline", "no figures")))
        if not (rates[name] and rates["paceline"])
        else compare(blank, rates["paceline"], rates[name])
        for name, blank in (
            (peer.name, Comparison(setup.size, peer.name, "own", 1.5)) for peer in PEERS[1:]
        )
    ]


def compare_decoding(setup: Setup, peers_folder: Path, num_rounds: int) -> list[Comparison]:
    """The exported model's decoding against each peer's own, with the weights its training left.

    Start-up counts for nobody's seconds but for everybody's CPU time, so that has no ratio."""
    peers = [EXPORTED, EXPORTED_INT8, *(peer for peer in PEERS if peer.decode)]
    rates: dict[str, list[Rate]] = {peer.name: [] for peer in peers}
    reasons: dict[str, str] = {}
    for number in range(num_rounds):
        for peer in peers:
            if peer.name in reasons:
                continue
            try:
                rates[peer.name].append(measure_decoding(peer, install(peer, peers_folder), setup))
                shown = f"{rates[peer.name][-1].per_second:.1f} sentences/s"
            except PeerFailedError as error:
                shown = reasons[peer.name] = str(error)
            say(f"  {setup.size}, decoding, round {number + 1}, {peer.name}: {shown}")
    found = []
    for ours in (EXPORTED, EXPORTED_INT8):
        for peer in peers[2:]:
            blank = Comparison(setup.size, peer.name, f"decoding, {ours.name}", 1.0)
            reason = reasons.get(ours.name) or reasons.get(peer.name)
            found.append(
                replace(blank, reason=reason)
                if reason
                else replace(compare(blank, rates[ours.name], rates[peer.name]), cpu_ratio=None)
            )
    return found


def say(text: str) -> None:
    print(text, flush=True)
