"""Every script with every bottleneck: whether the verdict is right, and whether the time that ranks
are told to have waited is the time for which the kernel saw them wait.

A main thread with one thread of arithmetic gives up its core when it waits for a batch, for another
process or for a disk, and else it runs or queues for a core. One bottleneck is injected at a time,
so the waiting is that of the phase that the verdict names.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

from benchmarks.observe.injections import (
    INJECTIONS,
    Injection,
    before_start,
    beside_steps,
    storage_path,
)
from benchmarks.observe.lab_run import SCRIPTS, WORKERS, LabRun, practice_lab
from benchmarks.observe.scheduler import KernelTrace, traced
from paceline.record.events import Event, read_events
from paceline.record.schema import CHECKPOINT, INPUT, NETWORK, RunDirectory
from paceline.report.facts.facts import Facts
from paceline.report.own.run import read_run
from paceline.report.remedies.situation import cores_of_others

RESULTS = "results.jsonl"
_WAITING = (INPUT, NETWORK, CHECKPOINT)
_MOST_POINTS = 3.0
_MOST_SECONDS = 150.0


@dataclass(frozen=True)
class Result:
    script: str
    injection: str
    verdict: str
    wanted: str
    share: float
    told_waiting: float
    waited: float
    """As the kernel saw it."""
    note: str = ""

    @property
    def points(self) -> float:
        return 100 * abs(self.told_waiting - self.waited)

    @property
    def is_right(self) -> bool:
        return self.verdict == self.wanted and self.points <= _MOST_POINTS and not self.note


def main(given: argparse.Namespace) -> None:
    scripts = given.scripts.split(",") if given.scripts else list(SCRIPTS)
    kinds = given.injections.split(",") if given.injections else list(INJECTIONS)
    with tempfile.TemporaryDirectory(prefix="paceline-bottlenecks-") as name:
        folder = given.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        with practice_lab(Path(name) / "lab") as hosts:
            results = list(_measure_all(hosts, folder, scripts, kinds))
    num_right = sum(result.is_right for result in results)
    most = max(result.points for result in results)
    print(
        f"\n{num_right} of {len(results)} right; told and seen differ by {most:.1f} points at most"
    )
    sys.exit(0 if num_right == len(results) else 1)


def _measure_all(
    hosts: Path, folder: Path, scripts: list[str], kinds: list[str]
) -> Iterator[Result]:
    print(_row("script", "injected", "verdict", "share", "waiting told", "seen", "points", ""))
    for kind in kinds:
        for script in scripts:
            try:
                result = _measure(hosts, folder / f"{script}-{kind}", script, kind)
            except RuntimeError as error:
                wanted = INJECTIONS[kind].verdict
                result = Result(script, kind, "failed", wanted, 0, 0, 0, str(error))
            with (folder / RESULTS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(result)) + "\n")
            print(_in_words(result), flush=True)
            yield result


def _measure(hosts: Path, run: Path, script: str, name: str) -> Result:
    kind, lab = INJECTIONS[name], hosts.parent
    arguments = ["--steps", str(kind.num_steps), *kind.arguments]
    if kind.saves:
        arguments += ["--save", str(storage_path(lab))]
    with ExitStack() as stack:
        stack.enter_context(before_start(kind, lab))
        started = LabRun.start(hosts, run, script, arguments)
        started.wait_for_steps()
        workers = [started.worker(rank) for rank in range(len(WORKERS))]
        threads = [worker.pid for worker in workers]
        trace = stack.enter_context(traced(threads))
        stack.enter_context(beside_steps(kind, workers))
        code = started.wait(_MOST_SECONDS)
    if code:
        return Result(script, name, "failed", kind.verdict, 0, 0, 0, started.said[-800:])
    return _judge(run, script, name, [_waiting_of(run, *one, trace) for one in enumerate(threads)])


def _judge(run: Path, script: str, name: str, waiting: list[tuple[float, float]]) -> Result:
    facts, kind = read_run(run), INJECTIONS[name]
    told, waited = (mean(values) for values in zip(*waiting, strict=True))
    verdict = facts.verdict
    return Result(
        script, name, verdict.word, kind.verdict, verdict.share, told, waited, _note(facts, kind)
    )


def _note(facts: Facts, kind: Injection) -> str:
    """What a right verdict lacks: which rank it is, or that others use the machine."""
    late = facts.verdict.straggler
    if kind.slows_rank and (late is None or late.rank != 1):
        return "not the rank that is slow"
    is_told = cores_of_others(facts) > 0
    if kind.slows_rank or is_told == bool(kind.num_busy):
        return ""
    return "nothing about other programs" if kind.num_busy else "other programs ran as well"


def _waiting_of(run: Path, rank: int, thread: int, trace: KernelTrace) -> tuple[float, float]:
    """Shares of a rank's time from its first line of steps that was traced to the last but one:
    what it told of waiting, and what the kernel saw. DDP tells of a step when the next begins, so
    that of the last one is estimated."""
    events = read_events(RunDirectory(run).rank_events(rank))
    steps = [event for event in events if event["kind"] == "steps"]
    lines: list[Event] = [line for line in steps[:-1] if float(line["time"]) > trace.began]
    begin, end = float(lines[0]["time"]), float(lines[-1]["time"])
    told = sum(line["phases"].get(phase, 0.0) for line in lines[1:] for phase in _WAITING)
    return told / (end - begin), trace.seconds_waited(thread, begin, end) / (end - begin)


def _in_words(result: Result) -> str:
    state = "right" if result.is_right else f"WRONG {result.note}"
    return _row(
        result.script,
        result.injection,
        result.verdict,
        f"{100 * result.share:.0f} %",
        f"{100 * result.told_waiting:.1f} %",
        f"{100 * result.waited:.1f} %",
        f"{result.points:.1f}",
        state,
    )


def _row(*cells: str) -> str:
    widths = (13, 9, 11, 7, 13, 8, 7, 0)
    return " ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
