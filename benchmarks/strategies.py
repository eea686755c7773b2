"""Ways to share a step's work, side by side: all-reduce, and parameter servers in their modes.

    python -m benchmarks.strategies                       # free links, on this machine
    sudo .venv/bin/python -m benchmarks.strategies --lab  # 1 Gbit links too, on lab hosts
    python -m benchmarks.strategies --table DIR           # the table of what was measured before

The same recipe and the same number of samples everywhere, with 2 and 4 workers, with and without
one that is slow. The network is wide and shallow (benchmarks/wide_pictures.py), and what a faster
device would compute is waited for, 0.1 s a step of 32 pictures and of a slow worker three times as
much: so four workers and their servers fit on two cores, and what is compared is waiting, which is
what strategies differ in. Every run is one directory, so a measurement can be cut short and gone on
with; `paceline report A B` explains any two of them.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.wide_pictures import write_pictures
from paceline.report.facts.facts import Facts
from paceline.report.facts.learning import series
from paceline.report.own.run import read_run
from paceline.report.worth import seconds_to

_REPOSITORY = Path(__file__).parents[1]
_STEPS = 120
_COMPUTE_SECONDS = 0.1
_SLOW_TIMES = 3
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
batch: {{global: 32, micro: 8}}
optimizer: {{kind: sgd, momentum: 0.9}}
schedule: {{policy: fixed, rate: 0.01}}
evaluate: {{every_steps: 10, batch: 200, train_samples: 0}}
checkpoint: {{every_steps: null}}
log: {{every_steps: 5, probe_seconds: 1.0}}
"""


@dataclass(frozen=True)
class Case:
    strategy: str
    num_workers: int
    link: str
    """'free' or a speed."""
    is_slow: bool

    @property
    def name(self) -> str:
        slow = "-slow" if self.is_slow else ""
        return f"{self.strategy}-{self.num_workers}-{self.link}{slow}"

    @property
    def practice(self) -> str:
        """All computing takes as long as a step of four micro-batches should; a worker that shares
        a step has its share of it."""
        in_step = self.strategy in ("all-reduce", "sync", "backup")
        sharing = self.num_workers - (self.strategy == "backup") if in_step else 1
        seconds = _COMPUTE_SECONDS / sharing
        rank = 2 if self.link != "free" and self.strategy != "all-reduce" else 1  # node0 has two
        slow = f",compute@{rank}={(_SLOW_TIMES - 1) * seconds:.4f}" if self.is_slow else ""
        return f"compute={seconds:.4f}{slow}"

    def words(self, run: Path, recipe: Path) -> list[str]:
        return ["train", str(recipe), *_STRATEGIES[self.strategy], "--run", str(run)]


def cases(links: list[str], workers: list[int]) -> Iterator[Case]:
    for link in links:
        for num_workers in workers:
            for is_slow in (False, True):
                for strategy in _STRATEGIES:
                    if strategy != "backup" or num_workers > 2:
                        yield Case(strategy, num_workers, link, is_slow)


def run_case(case: Case, folder: Path, hosts: Path | None) -> None:
    run, recipe = folder / case.name, folder / "recipe.yaml"
    words = case.words(run, recipe)
    if hosts is not None:
        words += ["--hosts", str(hosts)]
        if case.strategy != "all-reduce":
            others = ",".join(f"worker@node{n}" for n in range(1, case.num_workers))
            words += ["--roles", f"chief@node0,{others},server@node0"]
    elif case.strategy == "all-reduce":
        words += ["--procs", str(case.num_workers)]
    else:
        words += ["--roles", f"chief=1,worker={case.num_workers - 1},server=1"]
    ended = subprocess.run(
        [sys.executable, "-m", "paceline.cli", *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PACELINE_PRACTICE": case.practice},
        cwd=_REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise SystemExit(f"{case.name} failed\n{ended.stderr}")


def measure(folder: Path, links: list[str], workers: list[int], steps: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data"
    if not data.exists():
        write_pictures(data, num_train=2000, num_validation=500)
    (folder / "recipe.yaml").write_text(
        _RECIPE.format(data=data.absolute(), steps=steps), encoding="utf-8"
    )
    for case in cases(links, workers):
        if (folder / case.name / "report.json").exists():
            continue
        print(case.name, flush=True)
        with _lab(folder, case) as hosts:
            run_case(case, folder, hosts)
        facts = read_run(folder / case.name)
        (folder / case.name / "report.json").write_text(json.dumps(figures(facts)))


class _lab:  # noqa: N801  (a context, not a thing)
    """The hosts file of a lab for this case, or nothing where links are free."""

    def __init__(self, folder: Path, case: Case) -> None:
        self._directory = Path(f"/tmp/paceline-strategies-{os.getpid()}")  # noqa: S108
        self._case, self._folder = case, folder

    def __enter__(self) -> Path | None:
        if self._case.link == "free":
            return None
        from paceline.lab import cluster

        return cluster.up(
            self._case.num_workers, self._case.link, self._directory, lambda _text: None
        )

    def __exit__(self, *_error: object) -> None:
        if self._case.link != "free":
            from paceline.lab import cluster

            cluster.down(self._directory, lambda _text: None, keeps_runs=False)


def figures(facts: Facts) -> dict[str, object]:
    """What the table needs; seconds count from the first step."""
    curve = series(facts.learning.scores, "top1")
    seconds = seconds_to(facts, curve.steps) - facts.phases.get("start-up", 0.0)
    sent = [use.sent_bytes_per_step for use in facts.world.hosts]
    total = float(facts.rows["seconds"].sum()) if facts.rows is not None else 0.0
    return {
        "samples_per_second": facts.num_units / total if total else 0.0,
        "sent_bytes_per_sample": sum(sent) / 32 if sent else None,
        "verdict": facts.verdict.word,
        "seconds": seconds.tolist(),
        "scores": curve.values.tolist(),
        "mean_staleness": facts.roles.mean_staleness if facts.roles else 0.0,
        "dropped": facts.roles.num_dropped if facts.roles else 0,
    }


def table(folder: Path) -> None:
    print(
        "| workers | link | slow worker | strategy | images/s | bytes/image | staleness "
        "| top-1 after all samples | top-1 after equal time | verdict |"
    )
    print("|---|---|---|---|---:|---:|---:|---:|---:|---|")
    for link in ("free", "1Gbit"):
        for num_workers in (2, 4):
            for is_slow in (False, True):
                group = [c for c in cases([link], [num_workers]) if c.is_slow == is_slow]
                for line in _group(folder, group):
                    print(line)


def _group(folder: Path, group: list[Case]) -> Iterator[str]:
    """Equal time is that of whoever of the group was done first."""
    paths = {case: folder / case.name / "report.json" for case in group}
    told = {case: json.loads(path.read_text()) for case, path in paths.items() if path.exists()}
    if not told:
        return
    first_done = min(found["seconds"][-1] for found in told.values())
    for case, found in told.items():
        by_then = [
            score
            for seconds, score in zip(found["seconds"], found["scores"], strict=True)
            if seconds <= first_done
        ]
        sent = found["sent_bytes_per_sample"]
        yield (
            f"| {case.num_workers} | {case.link} | {'yes' if case.is_slow else 'no'} "
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
