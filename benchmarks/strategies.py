"""Ways to share a step's work, side by side: all-reduce, and parameter servers in their modes.

    python -m benchmarks.strategies                       # free links, on this machine
    sudo .venv/bin/python -m benchmarks.strategies --lab  # 1 Gbit links too, on lab hosts
    python -m benchmarks.strategies --table DIR           # the table of what was measured before

The same recipe and the same number of samples everywhere, with 2 and 4 workers, with and without
one that is slow, or one that is killed now and then (three times as many steps, so that it can come
back). The network is wide and shallow (benchmarks/wide_pictures.py), and what a faster device would
compute is waited for, 0.2 s for the 48 pictures of a step and for a slow worker three times as
much: so four workers and their server fit on two cores, and what is compared is waiting, which is
what strategies differ in. Every run is kept, so that a measurement can be cut short and gone on
with; `paceline report A B` explains any two. All of it takes about 20 minutes.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import psutil

from benchmarks.wide_pictures import write_pictures
from paceline.record.events import read_events
from paceline.record.schema import RunDirectory
from paceline.report.facts.facts import Facts
from paceline.report.own.run import read_run

_REPOSITORY = Path(__file__).parents[1]
_STEPS = 60
_BATCH = 48
"""Twelve micro-batches, which 2, 3 (with one backup worker) and 4 workers can share evenly."""
_COMPUTE_SECONDS = 0.2
_SLOW_TIMES = 3
_LEAVES_TIMES = 3
_LEAVES_AT = (0.25, 0.6)
"""Shares of the steps at which a worker is killed."""
_RESULT = "figures.json"
_STRATEGIES = {
    "all-reduce": [],
    "sync": ["strategy=parameter-server"],
    "backup": ["strategy=parameter-server", "strategy.backup=1"],
    "async": ["strategy=parameter-server", "strategy.mode=async"],
    "bounded": ["strategy=parameter-server", "strategy.mode=bounded"],
}
_RECIPE = """
workload: benchmarks.wide_pictures:WidePictures
data: {data}
steps: {steps}
device: cpu
batch: {{global: 48, micro: 4}}
optimizer: {{kind: sgd, momentum: 0.9}}
schedule: {{policy: fixed, rate: 0.01}}
evaluate: {{every_steps: 10, batch: 200, train_samples: 0}}
checkpoint: {{every_steps: 10}}
log: {{every_steps: 5, probe_seconds: 1.0}}
"""


@dataclass(frozen=True)
class Case:
    strategy: str
    num_workers: int
    link: str
    """'free' or a speed."""
    trouble: str
    """none, slow (one worker, all the time) or leaves (one worker is killed, twice)."""

    @property
    def name(self) -> str:
        return f"{self.strategy}-{self.num_workers}-{self.link}-{self.trouble}"

    @property
    def has_servers(self) -> bool:
        return self.strategy != "all-reduce"

    @property
    def practice(self) -> str:
        """All computing takes as long as a step should; who shares a step has a share of that."""
        in_step = self.strategy in ("all-reduce", "sync", "backup")
        sharing = self.num_workers - (self.strategy == "backup") if in_step else 1
        seconds = _COMPUTE_SECONDS / sharing
        rank = 2 if self.link != "free" and self.has_servers else 1  # node0 has two processes then
        slow = f",compute@{rank}={(_SLOW_TIMES - 1) * seconds:.4f}"
        return f"compute={seconds:.4f}{slow if self.trouble == 'slow' else ''}"

    def words(self, run: Path, recipe: Path, steps: int, hosts: Path | None) -> list[str]:
        num_steps = steps * (_LEAVES_TIMES if self.trouble == "leaves" else 1)
        settings = [*_STRATEGIES[self.strategy], f"steps={num_steps}"]
        words = ["train", str(recipe), *settings, "--run", str(run)]
        others = range(1, self.num_workers)
        if hosts is not None:
            words += ["--hosts", str(hosts)]
            workers = ",".join(f"worker@node{n}" for n in others)
            roles = f"chief@node0,{workers},server@node0"
        else:
            roles = f"chief=1,worker={len(others)},server=1"
        if self.has_servers:
            return [*words, "--roles", roles]
        return words if hosts is not None else [*words, "--procs", str(self.num_workers)]


def cases(links: list[str], workers: list[int]) -> Iterator[Case]:
    for link in links:
        for num_workers in workers:
            troubles = ["none", "slow"]
            if link != "free" and num_workers > 2:
                troubles.append("leaves")
            for trouble in troubles:
                for strategy in _STRATEGIES:
                    if _tells_something(strategy, num_workers, trouble):
                        yield Case(strategy, num_workers, link, trouble)


def _tells_something(strategy: str, num_workers: int, trouble: str) -> bool:
    """Of two workers none is left over as a backup; and a lost worker costs sync what it costs
    all-reduce, the round."""
    if strategy == "backup":
        return num_workers > 2
    return strategy != "sync" or trouble != "leaves"


def run_case(case: Case, folder: Path, steps: int, hosts: Path | None) -> None:
    run = folder / case.name
    words = case.words(run, folder / "recipe.yaml", steps, hosts)
    with (folder / f"{case.name}.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "paceline.cli", *words],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PACELINE_PRACTICE": case.practice},
            cwd=_REPOSITORY,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        if case.trouble == "leaves":
            for share in _LEAVES_AT:
                _kill_worker_when(process, run, share)
        code = process.wait()
    if code:
        raise SystemExit(f"{case.name} failed, see {folder / case.name}.log")


def _kill_worker_when(process: subprocess.Popen[bytes], run: Path, share: float) -> None:
    """The worker of the second host, when this share of the steps is done."""
    while process.poll() is None:
        if _share_done(run) >= share and (worker := _second_worker(run)) is not None:
            worker.kill()
            return
        time.sleep(0.1)


def _share_done(run: Path) -> float:
    events = RunDirectory(run).rank_events(0)
    told = [e for e in read_events(events) if e["kind"] in ("begin", "steps")]
    wanted = next((e["steps_wanted"] for e in told if "steps_wanted" in e), None)
    return told[-1]["step"] / wanted if wanted else 0.0


def _second_worker(run: Path) -> psutil.Process | None:
    """On node1. One that was started again does not name its host, and only this one ever is."""
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        is_there = f"{run} node1 " in f"{line} " or line.endswith(str(run))
        if "paceline.train.worker" in line and is_there:
            return process
    return None


def measure(folder: Path, links: list[str], workers: list[int], steps: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data"
    if not data.exists():
        write_pictures(data, num_train=2000, num_validation=1000)
    text = _RECIPE.format(data=data.absolute(), steps=steps)
    (folder / "recipe.yaml").write_text(text, encoding="utf-8")
    left = [c for c in cases(links, workers) if not (folder / c.name / _RESULT).exists()]
    for (link, num_workers), group in groupby(left, key=lambda c: (c.link, c.num_workers)):
        with _hosts_for(link, num_workers) as hosts:
            for case in group:
                _measure_case(case, folder, steps, hosts)


def _measure_case(case: Case, folder: Path, steps: int, hosts: Path | None) -> None:
    began = time.monotonic()
    shutil.rmtree(folder / case.name, ignore_errors=True)
    run_case(case, folder, steps, hosts)
    found = figures(read_run(folder / case.name))
    (folder / case.name / _RESULT).write_text(json.dumps(found), encoding="utf-8")
    print(f"{case.name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


@contextmanager
def _hosts_for(link: str, num_hosts: int) -> Iterator[Path | None]:
    """The hosts file of a lab; nothing where links are free."""
    if link == "free":
        yield None
        return
    from paceline.lab import cluster

    directory = Path(f"/tmp/paceline-strategies-{os.getpid()}")  # noqa: S108
    try:
        yield cluster.up(num_hosts, link, directory, lambda _text: None)
    finally:
        cluster.down(directory, lambda _text: None, keeps_runs=False)


def figures(facts: Facts) -> dict[str, object]:
    """What the table needs; by the clock on the wall, from the first step on, with all that was
    lost and done again."""
    events = read_events(RunDirectory(facts.run).rank_events(0))
    began = next(event["time"] for event in events if event["kind"] == "begin")
    steps = [event for event in events if event["kind"] == "steps"]
    scores = {e["step"]: e for e in events if e["kind"] == "score"}
    sent = [use.sent_bytes_per_step for use in facts.world.hosts]
    roles = facts.roles
    return {
        "samples_per_second": _BATCH * steps[-1]["step"] / (steps[-1]["time"] - began),
        "sent_bytes_per_sample": sum(sent) / _BATCH if sent else None,
        "verdict": facts.verdict.word,
        "seconds": [event["time"] - began for event in scores.values()],
        "scores": [event["scores"]["top1"] for event in scores.values()],
        "mean_staleness": roles.mean_staleness if roles else 0.0,
        "dropped": roles.num_dropped if roles else 0,
    }


def table(folder: Path) -> None:
    print(
        "| workers | link | trouble | strategy | images/s | bytes/image | staleness "
        "| top-1 after all samples | top-1 after equal time | verdict |"
    )
    print("|---|---|---|---|---:|---:|---:|---:|---:|---|")
    known = [c for c in cases(["free", "1Gbit"], [2, 4]) if (folder / c.name / _RESULT).exists()]
    for key in dict.fromkeys((c.num_workers, c.link, c.trouble) for c in known):
        group = [c for c in known if (c.num_workers, c.link, c.trouble) == key]
        for line in _lines(folder, group):
            print(line)


def _lines(folder: Path, group: list[Case]) -> Iterator[str]:
    """Equal time is that of whoever of the group was done first."""
    told = {case: json.loads((folder / case.name / _RESULT).read_text()) for case in group}
    first_done = min(found["seconds"][-1] for found in told.values())
    for case, found in told.items():
        by_then = [
            score
            for seconds, score in zip(found["seconds"], found["scores"], strict=True)
            if seconds <= first_done
        ]
        sent = found["sent_bytes_per_sample"]
        yield (
            f"| {case.num_workers} | {case.link} | {case.trouble} "
            f"| {case.strategy} | {found['samples_per_second']:,.0f} "
            f"| {f'{sent / 1e6:.2f} MB' if sent else '-'} | {found['mean_staleness']:.1f} "
            f"| {100 * found['scores'][-1]:.1f} % "
            f"| {f'{100 * by_then[-1]:.1f} %' if by_then else '-'} | {found['verdict']} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lab", action="store_true", help="1 Gbit links too, as root")
    parser.add_argument("--only", choices=["free", "1Gbit"], help="links of this kind alone")
    parser.add_argument("--workers", type=int, action="append", help="2 and 4 unless given")
    parser.add_argument("--steps", type=int, default=_STEPS)
    parser.add_argument("--to", type=Path, default=Path("runs/strategies"))
    parser.add_argument("--table", type=Path, metavar="DIR", help="print the table of these runs")
    arguments = parser.parse_args()
    if arguments.table is None:
        links = [arguments.only] if arguments.only else ["free", *["1Gbit"] * arguments.lab]
        measure(arguments.to, links, arguments.workers or [2, 4], arguments.steps)
    table(arguments.table or arguments.to)


if __name__ == "__main__":
    main()
