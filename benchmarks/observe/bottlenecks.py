"""Every script with every bottleneck: whether the verdict is right, and whether the time that ranks
are told to have waited is the time for which the kernel says they slept.

A main thread with one thread of arithmetic sleeps when it waits for a batch, for another process or
for a disk, and else it runs or queues for a core. One bottleneck is injected at a time, so the
waiting is that of the phase that the verdict names.
"""

import argparse
import json
import sys
import tempfile
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

from benchmarks.observe.injections import (
    INJECTIONS,
    Injection,
    injected,
    slowed_rank,
    storage_path,
)
from benchmarks.observe.lab_run import SCRIPTS, Account, LabRun, practice_lab
from paceline.record.events import Event, read_events
from paceline.record.schema import CHECKPOINT, INPUT, NETWORK, RunDirectory
from paceline.report.answers import answers
from paceline.report.own.run import read_run

_WAITING = (INPUT, NETWORK, CHECKPOINT)
_MOST_POINTS = 3.0
_MOST_SECONDS = 240.0


@dataclass(frozen=True)
class Result:
    script: str
    injection: str
    verdict: str
    wanted: str
    share: float
    told_waiting: float
    slept: float
    """The least that the kernel's account allows, and the most: who queues may have waited."""
    slept_at_most: float
    note: str = ""

    @property
    def points(self) -> float:
        """By how much what was told is outside of what the kernel saw."""
        return 100 * max(self.slept - self.told_waiting, self.told_waiting - self.slept_at_most, 0)

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
    print(f"\n{num_right} of {len(results)} right")
    sys.exit(0 if num_right == len(results) else 1)


def _measure_all(
    hosts: Path, folder: Path, scripts: list[str], kinds: list[str]
) -> Iterator[Result]:
    print(_row("script", "injected", "verdict", "share", "waiting told", "slept", ""))
    for kind in kinds:
        for script in scripts:
            result = _measure(hosts, folder / f"{script}-{kind}", script, kind)
            with (folder / "results.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(result)) + "\n")
            print(_in_words(result), flush=True)
            yield result


def _measure(hosts: Path, run: Path, script: str, name: str) -> Result:
    kind, lab = INJECTIONS[name], hosts.parent
    arguments = ["--steps", str(kind.num_steps), *kind.arguments]
    if kind.saves:
        arguments += ["--save", str(storage_path(lab))]
    with ExitStack() as stack:
        stack.enter_context(injected(kind, lab))
        started = LabRun.start(hosts, run, script, arguments)
        if kind.slows_rank:
            stack.enter_context(slowed_rank([started.worker(0), started.worker(1)]))
        started.keep_accounts()
        code = started.wait(_MOST_SECONDS)
    if code:
        return Result(script, name, "failed", kind.verdict, 0, 0, 0, 0, started.said[-800:])
    return _judge(started, script, name, kind)


def _judge(ended: LabRun, script: str, name: str, kind: Injection) -> Result:
    facts = read_run(ended.run)
    found = [_waiting_of(ended, rank) for rank in ended.accounts]
    told, least, most = (mean(values) for values in zip(*found, strict=True))
    return Result(
        script,
        name,
        facts.verdict.word,
        kind.verdict,
        facts.verdict.share,
        told,
        least,
        most,
        _note(ended.run, kind),
    )


def _note(run: Path, kind: Injection) -> str:
    """What a right verdict lacks: which rank it is, or that others use the machine."""
    facts = read_run(run)
    late = facts.verdict.straggler
    if kind.slows_rank and (late is None or late.rank != 1):
        return "not the rank that is slow"
    said = " ".join(f"{a.sentence} {a.remedy}" for a in answers(facts) if a.key == "verdict")
    if bool(kind.num_busy) != ("other programs" in said):
        return "nothing about other programs" if kind.num_busy else "other programs ran as well"
    return ""


def _waiting_of(ended: LabRun, rank: int) -> tuple[float, float, float]:
    """Shares of a rank's time between its first line of steps and its last: what it told of
    waiting, and for how long it slept, at least and at most."""
    events = read_events(RunDirectory(ended.run).rank_events(rank))
    lines: list[Event] = [event for event in events if event["kind"] == "steps"]
    begin, end = float(lines[0]["time"]), float(lines[-1]["time"])
    told = sum(line["phases"].get(phase, 0.0) for line in lines[1:] for phase in _WAITING)
    before, after = (_at(ended.accounts[rank], moment) for moment in (begin, end))
    awake = (after.running - before.running) / (end - begin)
    queueing = (after.queueing - before.queueing) / (end - begin)
    return told / (end - begin), 1 - awake - queueing, 1 - awake


def _at(accounts: list[Account], moment: float) -> Account:
    """Between two that were taken."""
    place = min(max(bisect_left([one.at for one in accounts], moment), 1), len(accounts) - 1)
    one, two = accounts[place - 1], accounts[place]
    part = (moment - one.at) / (two.at - one.at)
    return Account(
        moment,
        one.running + part * (two.running - one.running),
        one.queueing + part * (two.queueing - one.queueing),
    )


def _in_words(result: Result) -> str:
    slept = f"{100 * result.slept:.1f}-{100 * result.slept_at_most:.1f} %"
    state = "right" if result.is_right else f"WRONG: {result.points:.1f} points {result.note}"
    return _row(
        result.script,
        result.injection,
        result.verdict,
        f"{100 * result.share:.0f} %",
        f"{100 * result.told_waiting:.1f} %",
        slept,
        state,
    )


def _row(*cells: str) -> str:
    widths = (13, 9, 11, 7, 13, 14, 0)
    return " ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
