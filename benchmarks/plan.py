"""Does a plan that is made from a run on one host hold on two and four?

In a lab of four hosts on this machine. Each host gets the same share of the processors and no more
(a quota of the kernel), so that four hosts compute at one time as fast as one alone; without that,
hosts would take each other's cores. One run on one host is planned from; then the same training
runs on two and four hosts at each speed of the links, and what it took is held against the plan's
interval. Remedies that a plan offers are tried, too. Needs root and a quiet machine.

    python -m benchmarks.plan DIRECTORY [--models cnn,transformer,slow-input]
                              [--links 100Mbit,1Gbit] [--hosts 2,4]
    python -m benchmarks.plan DIRECTORY --remedies
    python -m benchmarks.plan DIRECTORY --table --phases

What DIRECTORY holds already is not measured again.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import yaml

from paceline.lab import cluster, state
from paceline.machine.cores import num_cores
from paceline.pace.predict import Prediction
from paceline.plan.basis import basis_of_path
from paceline.plan.plan import Question, plan
from paceline.report.own.run import read_run
from paceline.report.remedies.job import typical_step
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
    "checkpoint.at_end=false",
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
        14,
        {"100Mbit": 10, "1Gbit": 14},
    ),
    "transformer": Model(
        "benchmarks.plan_tasks:Sentences",
        ("batch.global=4", "batch.micro=1", "optimizer=adamw"),
        12,
        {"100Mbit": 4, "1Gbit": 10},
    ),
    "slow-input": Model(
        "benchmarks.plan_tasks:Pictures",
        (
            "batch.global=64",
            "batch.micro=16",
            "optimizer=sgd",
            "seconds_per_image=0.08",
            "input.workers=1",
        ),
        12,
        {"100Mbit": 8, "1Gbit": 12},
    ),
}


_REMEDIES = {
    ("slow-input", "1Gbit", 2): ("workers",),
    ("cnn", "100Mbit", 2): ("bf16", "overlap"),
    ("transformer", "1Gbit", 2): ("overlap", "local", "diloco"),
}
"""Of which training: those that a setting does and that a report on it may offer, which wants to
see ten steps."""


@dataclass(frozen=True)
class Case:
    model: str
    link: str
    hosts: int
    directory: Path

    @property
    def name(self) -> str:
        return f"{self.model}-{self.hosts}" + (f"-{self.link}" if self.hosts > 1 else "")

    @property
    def kept(self) -> Path:
        return self.directory / self.name

    @property
    def alone(self) -> Path:
        """The run that is planned from."""
        return replace(self, hosts=1).kept


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
        """Whatever is started in the host is a child of its sshd and belongs to the group; sshd
        itself is found as a child only, because it writes its title over its environment."""
        group = Path(f"/sys/fs/cgroup/cpu/paceline-{os.getpid()}-{name}")
        group.mkdir()
        self.groups.append(group)
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD_MICROSECONDS))
        (group / "cpu.cfs_quota_us").write_text(str(int(num_processors * _PERIOD_MICROSECONDS)))
        for pid in state.processes(self.lab.directory, name):
            for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
                (group / "tasks").write_text(str(process.pid))

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
            with suppress(OSError):  # a process of the host is still being buried
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


def train(lab: Lab, case: Case, steps: int) -> None:
    """A run on the first hosts of the lab; what it recorded is kept."""
    model = MODELS[case.model]
    run, recipe = lab.directory / case.name, lab.directory / f"{case.model}.yaml"
    recipe.write_text(f"workload: {model.workload}\nsteps: {steps}\nbatch: {{per_device: 1}}\n")
    words = [str(recipe), f"steps={steps}", "batch.per_device=null", *model.settings]
    words = ["train", *words, *_QUIET, *_RECORDED]
    words += ["--run", str(run), "--hosts", str(lab.hosts_file(case.hosts))]
    done = _paceline(words)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    shutil.rmtree(case.kept, ignore_errors=True)
    shutil.copytree(run, case.kept, ignore=shutil.ignore_patterns("checkpoints", "tensorboard"))
    shutil.rmtree(run)


def try_remedies(cases: list[Case]) -> None:
    """Those that are worth trying of each training that was kept, on the lab's hosts."""
    with lab_of_four() as lab:
        for case, remedy in _to_try(cases):
            if _tried_file(case, remedy).is_file():
                continue
            lab.set_links(case.link)
            words = ["try", str(case.kept), remedy, "--steps", "10", "--json"]
            words += ["--hosts", str(lab.hosts_file(case.hosts))]
            done = _paceline(words)
            if done.returncode:  # a report that does not offer it is no reason to try no other
                _tell(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
                continue
            _tried_file(case, remedy).write_text(done.stdout, encoding="utf-8")
            _tell(_tried_row(case, remedy))


def _to_try(cases: list[Case]) -> list[tuple[Case, str]]:
    return [
        (case, remedy)
        for case in cases
        if case.kept.is_dir()
        for remedy in _REMEDIES.get((case.model, case.link, case.hosts), ())
    ]


def _paceline(words: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "paceline.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _tried_file(case: Case, remedy: str) -> Path:
    return case.directory / f"{case.name}-{remedy}.json"


def _tried_row(case: Case, remedy: str) -> str:
    told = json.loads(_tried_file(case, remedy).read_text(encoding="utf-8"))
    predicted, measured = told["predicted"], told["measured"]
    return (
        f"| {case.model} | {case.link} | {case.hosts} | {remedy} | {measured:.2f} | "
        f"{predicted['middle']:.2f} ({predicted['low']:.2f} to {predicted['high']:.2f}) | "
        f"{100 * (predicted['middle'] - measured):+.0f} |"
    )


def tried_table(cases: list[Case]) -> str:
    head = [
        "| training | links | hosts | remedy | measured | predicted (90 %) | points |",
        "|---|---|---|---|---|---|---|",
    ]
    known = [
        _tried_row(case, remedy)
        for case, remedy in _to_try(cases)
        if _tried_file(case, remedy).is_file()
    ]
    return "\n".join([*head, *known])


def measure(cases: list[Case]) -> None:
    """What is kept of an earlier call is not measured again."""
    with lab_of_four() as lab:
        for case in cases:
            lab.set_links(case.link)
            model = MODELS[case.model]
            if not case.alone.is_dir():
                train(lab, replace(case, hosts=1), model.steps)
            if not case.kept.is_dir():
                train(lab, case, model.steps_by_link[case.link])
            _tell(judged(case).row)


@dataclass(frozen=True)
class Judged:
    """A plan beside what came of it."""

    case: Case
    measured: float
    predicted: Prediction

    @property
    def error(self) -> float:
        return self.predicted.step_seconds.middle / self.measured - 1

    @property
    def is_inside(self) -> bool:
        return self.predicted.step_seconds.low <= self.measured <= self.predicted.step_seconds.high

    @property
    def row(self) -> str:
        step = self.predicted.step_seconds
        outside = "" if self.is_inside else ", outside"
        return (
            f"| {self.case.model} | {self.case.link} | {self.case.hosts} | {self.measured:.3f} s | "
            f"{step.middle:.3f} s ({step.low:.3f} to {step.high:.3f}{outside}) | "
            f"{100 * self.error:+.1f} % |"
        )


def judged(case: Case) -> Judged:
    """The median of steps: one that something else disturbed is no error of the plan."""
    times = read_run(case.kept).step_times
    assert times is not None
    asked = Question((case.hosts,), bits_per_second=parse_link_speed(case.link))
    (predicted,) = plan(basis_of_path(case.alone, None, None), asked).predictions
    return Judged(case, times.median_seconds, predicted)


def phases(found: Judged) -> str:
    """Predicted and measured, to see which part of the model errs."""
    times = read_run(found.case.kept).world.times
    assert times is not None
    measured = typical_step(times)
    shown = [
        f"{phase} {found.predicted.phases[phase]:.3f} ({measured[phase]:.3f})"
        for phase in found.predicted.phases
        if phase in measured
    ]
    return f"  predicted (measured): {', '.join(shown)}"


def table(found: list[Judged]) -> str:
    head = ["| training | links | hosts | measured | predicted (90 %) | error |", _RULE]
    errors = [abs(one.error) for one in found]
    inside = sum(one.is_inside for one in found)
    last = (
        f"\nmean error {100 * sum(errors) / len(errors):.1f} %, worst {100 * max(errors):.1f} %; "
        f"{inside} of {len(found)} inside of their interval"
    )
    return "\n".join([*head, *(one.row for one in found), last])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="where the runs are kept")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--links", default="100Mbit,1Gbit")
    parser.add_argument("--hosts", default="2,4")
    parser.add_argument("--table", action="store_true", help="of runs that are kept, run none")
    parser.add_argument(
        "--remedies", action="store_true", help="try remedies of runs that are kept"
    )
    parser.add_argument("--phases", action="store_true", help="what was predicted by phase")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the lab goes down with us
    cases = [
        Case(model, link, int(hosts), arguments.directory)
        for model in arguments.models.split(",")
        for link in arguments.links.split(",")
        for hosts in arguments.hosts.split(",")
    ]
    if arguments.remedies:
        try_remedies(cases)
    elif not arguments.table:
        arguments.directory.mkdir(parents=True, exist_ok=True)
        measure(cases)
    found = [judged(case) for case in cases if case.kept.is_dir()]
    if not found:
        raise SystemExit(f"{arguments.directory} holds no runs yet")
    print(table(found))
    print(tried_table(cases))
    if arguments.phases:
        print("\n".join(f"{one.row}\n{phases(one)}" for one in found))


if __name__ == "__main__":
    main()
