"""Preparing parallel text against SentencePiece's encoder alone: speed as a ratio, and peak memory.

    python -m benchmarks.prepare_text --pairs 1000000 --rounds 3

One run does both, in turns, on the same text, vocabulary and cores:

  prepare  archives to finished data: unpack, clean, encode, shuffle, store, hash
  encoder  SentencePieceProcessor.encode(lines, num_threads=cores) with all lines in memory already

Seconds suffer from whoever else is at work on the machine, CPU-seconds less so; both are given. The
peak is the sum of the resident memory of all processes, sampled; shared pages count in each.
Before the turns, one whole `--from stand-in` (composing the sentences and learning the vocabulary
as well) is run and measured.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from paceline.tasks.nmt.preparation.prepare import Options, prepare
from paceline.tasks.nmt.standin import corpus as nmt_stand_in
from paceline.tasks.nmt.vocabulary import MODEL_NAME, Vocabulary

_SAMPLE_SECONDS = 0.02
_GIGABYTE = 1e9


@dataclass(frozen=True)
class Measured:
    seconds: float
    cpu_seconds: float
    peak_gb: float


class Watcher(threading.Thread):
    """Memory and CPU time of a process and everything below it, looked at all the time.

    The workers' CPU time cannot be asked for afterwards: they are not waited for by who uses them.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self.cpu_seconds: dict[int, float] = {}
        self._process = psutil.Process(pid)
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.wait(_SAMPLE_SECONDS):
            with contextlib.suppress(psutil.NoSuchProcess):
                family = [self._process, *self._process.children(recursive=True)]
                self.peak_bytes = max(self.peak_bytes, sum(map(self._look_at, family)))

    def _look_at(self, process: psutil.Process) -> int:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            self.cpu_seconds[process.pid] = times.user + times.system
            return int(process.memory_info().rss)
        return 0

    def end(self) -> None:
        self._is_over.set()
        self.join()


def measure(*arguments: str) -> Measured:
    """This file again as a process of its own; it prints what it spent before the work began."""
    command = [sys.executable, __file__, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        watcher = Watcher(process.pid)
        watcher.start()
        output, _ = process.communicate()
        watcher.end()
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed")
    last = json.loads(output.splitlines()[-1])
    cpu_seconds = sum(watcher.cpu_seconds.values()) - last["cpu_seconds_before"]
    return Measured(last["seconds"], cpu_seconds, watcher.peak_bytes / _GIGABYTE)


def run_prepare(source: str, to: Path, spm: Path | None, num_pairs: int) -> None:
    start, start_cpu = time.perf_counter(), time.process_time()
    prepare(source, to, Options(spm=spm, num_pairs=num_pairs), say=lambda _text: None)
    report(start, start_cpu)


def run_encoder(text: Path, model: Path) -> None:
    vocabulary = Vocabulary.load(model)
    lines = text.read_text(encoding="utf-8").splitlines()
    num_threads = len(os.sched_getaffinity(0))
    start, start_cpu = time.perf_counter(), time.process_time()
    encoded = vocabulary.processor.encode(lines, num_threads=num_threads)
    assert len(encoded) == len(lines)
    report(start, start_cpu)


def report(start: float, start_cpu: float) -> None:
    spent = {"seconds": time.perf_counter() - start, "cpu_seconds_before": start_cpu}
    print(json.dumps(spent), flush=True)
    # CPU time is read from outside; what the end of a process with millions of objects costs is
    # not of interest
    time.sleep(5 * _SAMPLE_SECONDS)
    os._exit(0)


def write_text(archives: Path, work: Path) -> Path:
    """All lines of both sides in one file, for the encoder."""
    text = work / "all.txt"
    with text.open("wb") as file:
        for archive in sorted(archives.glob("training-*.tgz")):
            subprocess.run(["tar", "-xzOf", archive], stdout=file, check=True)
    return text


def compare(work: Path, num_pairs: int, num_rounds: int) -> None:
    whole = measure("--task", "prepare", "stand-in", str(work / "whole"), "-", str(num_pairs))
    model = work / "whole" / MODEL_NAME
    print(f"{num_pairs:,} pairs, {len(os.sched_getaffinity(0))} cores")
    print_row("whole stand-in", num_pairs, whole)
    archives = work / "archives"
    nmt_stand_in.write_archives(
        archives, num_pairs, 0, num_workers=len(os.sched_getaffinity(0)), say=lambda _text: None
    )
    text = write_text(archives, work)
    rounds = []
    for number in range(num_rounds):
        to = str(work / f"round-{number}")
        ours = measure("--task", "prepare", str(archives), to, str(model), str(num_pairs))
        theirs = measure("--task", "encoder", str(text), str(model))
        print_row("prepare", num_pairs, ours)
        print_row("encoder alone", num_pairs, theirs)
        rounds.append((ours, theirs))
    print_ratios(rounds, whole)


def print_row(name: str, num_pairs: int, measured: Measured) -> None:
    print(
        f"{name:<15} {measured.seconds:7.1f} s {num_pairs / measured.seconds:9,.0f} pairs/s "
        f"{measured.cpu_seconds:7.1f} CPU-s {num_pairs / measured.cpu_seconds:9,.0f} pairs/CPU-s "
        f"peak {measured.peak_gb:.2f} GB",
        flush=True,
    )


def print_ratios(rounds: list[tuple[Measured, Measured]], whole: Measured) -> None:
    speed = statistics.median(theirs.seconds / ours.seconds for ours, theirs in rounds)
    cpu = statistics.median(theirs.cpu_seconds / ours.cpu_seconds for ours, theirs in rounds)
    peak = max(whole.peak_gb, *(ours.peak_gb for ours, _ in rounds))
    print(f"speed of prepare / speed of the encoder alone: {speed:.2f} (by CPU-seconds {cpu:.2f})")
    print(f"wanted: 0.5 or more. Peak memory: {peak:.2f} GB; wanted: under 2 GB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--task", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task:
        task, first, second, *rest = arguments.task
        if task == "encoder":
            run_encoder(Path(first), Path(second))
        else:
            spm = None if rest[0] == "-" else Path(rest[0])
            run_prepare(first, Path(second), spm, int(rest[1]))
        return
    with tempfile.TemporaryDirectory(prefix="prepare-text-") as work:
        compare(Path(work), arguments.pairs, arguments.rounds)


if __name__ == "__main__":
    main()
