"""Does a plan that is made from a run on one host hold on two and four?

In a lab of four hosts on this machine. Each host gets the same share of the processors and no more
(a quota of the kernel), so that four hosts compute at one time as fast as one alone; without that,
hosts would take each other's cores. One run on one host is planned from; then the same training
runs on two and four hosts at each speed of the links, and what it took is held against the plan's
interval. Remedies that a plan offers are tried, too. Needs root and a quiet machine.

    python -m benchmarks.plan --to results.json [--models cnn,transformer,slow-input]
                              [--links 100Mbit,1Gbit] [--hosts 2,4] [--cases runs|remedies]
    python -m benchmarks.plan --table results.json
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from paceline.lab import cluster, state
from paceline.machine.cores import num_cores
from paceline.plan.plan import Question, plan_from
from paceline.report.own.run import read_run
from paceline.units import parse_link_speed

_NUM_HOSTS = 4
_RULE = "|---|---|---|---|---|---|"
_SHARE_OF_CORES = 0.9
"""The rest is left to what else the machine does: sshd, the launcher, the kernel."""
_PERIOD_MICROSECONDS = 20_000
_QUIET = [
    "schedule.rate=0.0001",
    "evaluate.every_steps=null",
    "checkpoint.every_steps=null",
    "device=cpu",
]
_RECORDED = ["log.every_steps=1", "log.probe_seconds=2"]


@dataclass(frozen=True)
class Model:
    workload: str
    settings: tuple[str, ...]
    steps: int
    """Of the run that is planned from."""
    steps_by_link: dict[str, int]


MODELS = {
    "cnn": Model(
        "benchmarks.plan_tasks:Pictures",
        ("batch.global=64", "batch.micro=16", "optimizer=sgd"),
        20,
        {"100Mbit": 12, "1Gbit": 20},
    ),
    "transformer": Model(
        "benchmarks.plan_tasks:Sentences",
        ("batch.global=4", "batch.micro=1", "optimizer=adamw"),
        14,
        {"100Mbit": 6, "1Gbit": 12},
    ),
    "slow-input": Model(
        "benchmarks.plan_tasks:Pictures",
        (
            "batch.global=64",
            "batch.micro=16",
            "optimizer=sgd",
            "seconds_per_image=0.05",
            "input.workers=1",
        ),
        16,
        {"100Mbit": 12, "1Gbit": 16},
    ),
}


@dataclass(frozen=True)
class Case:
    model: str
    link: str
    hosts: int
    predicted: float
    low: float
    high: float
    measured: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def is_inside(self) -> bool:
        return self.low <= self.measured <= self.high


class Lab:
    """Four hosts with equal shares of the processors."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        cluster.up(_NUM_HOSTS, "1Gbit", directory / "lab", _tell)
        self.lab = cluster.read_lab(directory / "lab")
        self.groups: list[Path] = []
        for name in self.lab.names:
            self._limit(name, _SHARE_OF_CORES * num_cores() / _NUM_HOSTS)

    def _limit(self, name: str, num_processors: float) -> None:
        """Whatever is started in the host is a child of its sshd and belongs to the group."""
        group = Path(f"/sys/fs/cgroup/cpu/paceline-{os.getpid()}-{name}")
        group.mkdir()
        self.groups.append(group)
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD_MICROSECONDS))
        (group / "cpu.cfs_quota_us").write_text(str(int(num_processors * _PERIOD_MICROSECONDS)))
        for pid in state.processes(self.lab.directory, name):
            (group / "tasks").write_text(str(pid))

    def set_links(self, link: str) -> None:
        for name in self.lab.names:
            cluster.set_link(self.lab.directory, name, link)

    def hosts_file(self, num_hosts: int) -> Path:
        settings = yaml.safe_load(self.lab.hosts_file.read_text(encoding="utf-8"))
        for name in ("key", "known_hosts"):
            settings[name] = str(self.lab.directory / settings[name])
        settings["hosts"] = settings["hosts"][:num_hosts]
        path = self.directory / f"hosts-{num_hosts}.yaml"
        path.write_text(yaml.safe_dump(settings), encoding="utf-8")
        return path

    def close(self) -> None:
        cluster.down(self.lab.directory, _tell, keeps_runs=False)
        for group in self.groups:
            group.rmdir()


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def lab_of_four() -> Iterator[Lab]:
    with tempfile.TemporaryDirectory(prefix="paceline-plan-") as directory:
        lab = Lab(Path(directory))
        try:
            yield lab
        finally:
            lab.close()


def train(lab: Lab, name: str, num_hosts: int, steps: int, *more: str) -> Path:
    """A run on the first hosts of the lab."""
    model = MODELS[name]
    run = lab.directory / f"{name}-{num_hosts}-{len(list(lab.directory.iterdir()))}"
    recipe = lab.directory / f"{name}.yaml"
    recipe.write_text(f"workload: {model.workload}\nsteps: {steps}\nbatch: {{per_device: 1}}\n")
    words = [str(recipe), f"steps={steps}", "batch.per_device=null", *model.settings, *more]
    command = [sys.executable, "-m", "paceline.cli", "train", *words, *_QUIET, *_RECORDED]
    command += ["--run", str(run), "--hosts", str(lab.hosts_file(num_hosts))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return run


def step_seconds(run: Path) -> float:
    """The median: a step that something else disturbed is no error of the plan."""
    times = read_run(run).step_times
    assert times is not None
    return times.median_seconds


def cases_of(lab: Lab, name: str, links: list[str], sizes: list[int]) -> Iterator[Case]:
    model = MODELS[name]
    alone = train(lab, name, 1, model.steps)
    _tell(f"{name} alone: {step_seconds(alone):.3f} s")
    for link in links:
        lab.set_links(link)
        found = plan_from(alone, Question(tuple(sizes), bits_per_second=parse_link_speed(link)))
        for predicted in found.predictions:
            hosts, step = predicted.size.hosts, predicted.step_seconds
            run = train(lab, name, hosts, model.steps_by_link[link])
            case = Case(name, link, hosts, step.middle, step.low, step.high, step_seconds(run))
            _tell(f"{case} {predicted.phases}")
            _tell(f"  {_phases(run)}")
            yield case


def _phases(run: Path) -> dict[str, float]:
    times = read_run(run).world.times
    assert times is not None
    return {phase: round(seconds, 4) for phase, seconds in typical_step(times).items()}


def table(cases: list[Case]) -> str:
    lines = ["| training | links | hosts | measured | predicted (90 %) | error |", _RULE]
    for case in cases:
        outside = "" if case.is_inside else ", outside"
        lines.append(
            f"| {case.model} | {case.link} | {case.hosts} | {case.measured:.3f} s | "
            f"{case.predicted:.3f} s ({case.low:.3f} to {case.high:.3f}{outside}) | {100 * case.error:+.1f} % |"
        )
    errors = [abs(case.error) for case in cases]
    inside = sum(case.is_inside for case in cases)
    lines.append(
        f"\nmean error {100 * sum(errors) / len(errors):.1f} %, worst {100 * max(errors):.1f} %; "
        f"{inside} of {len(cases)} inside of their interval"
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--links", default="100Mbit,1Gbit")
    parser.add_argument("--hosts", default="2,4")
    parser.add_argument("--to", type=Path)
    parser.add_argument("--table", type=Path)
    arguments = parser.parse_args()
    if arguments.table:
        print(table([Case(**one) for one in json.loads(arguments.table.read_text())]))
        return
    cases: list[Case] = []
    with lab_of_four() as lab:
        for name in arguments.models.split(","):
            sizes = [int(number) for number in arguments.hosts.split(",")]
            for case in cases_of(lab, name, arguments.links.split(","), sizes):
                cases.append(case)
                _keep(arguments.to, case)
    print(table(cases))


def _keep(path: Path | None, case: Case) -> None:
    """Beside what other calls measured; the same case is measured anew."""
    if path is None:
        return
    known = json.loads(path.read_text()) if path.exists() else []
    same = (case.model, case.link, case.hosts)
    others = [one for one in known if (one["model"], one["link"], one["hosts"]) != same]
    path.write_text(json.dumps([*others, asdict(case)], indent=1) + "\n")


if __name__ == "__main__":
    main()
