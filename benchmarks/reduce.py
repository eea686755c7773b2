"""How fast two hosts train a network of 60.8 M parameters over a slow link, by kind of exchange.

    sudo python -m benchmarks.reduce --link 1Gbit --rows 8,12 --network tied,untied
    sudo python -m benchmarks.reduce --link 100Mbit --kinds alone,auto --steps 80 \\
        reduce.may_change_result=true

Two hosts of a practice cluster, one core and one process each. In turns, so that what else the
machine does meets all alike: `alone`, a plain loop on both hosts without any communication; `ddp`,
the same loop with DistributedDataParallel and its defaults; and `paceline train` with each kind.
`--rows` are the sequences of 32 tokens that a process has in a step: more of them mean longer
compute, and the same gradients. The embedding of the network is its output layer as well (`tied`),
or it has two (`untied`).
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.reduce_task import TIED, UNTIED
from paceline.hosts.file import Host, load_hosts
from paceline.hosts.ssh import on_all, run_on
from paceline.lab import cluster as practice
from paceline.record.events import read_events
from paceline.record.schema import RunDirectory

ROOT = Path(__file__).parent.parent
PORT = "29507"
SETTLING_STEPS = 4
DDP, ALONE = "ddp", "alone"
PEERS = (DDP, ALONE)
_TASKS = {TIED: "Sixty", UNTIED: "UntiedSixty"}
_RECIPE = """workload: reduce_task:{task}
about: 60.8 M parameters on random tokens
steps: 100
data: ""
batch: {{per_device: 4, micro: 1}}
optimizer: {{kind: adam}}
schedule: {{policy: fixed, rate: 0.0001}}
evaluate: {{every_steps: null, train_samples: 0}}
checkpoint: {{every_steps: null}}
log: {{every_steps: 8}}
"""


@dataclass(frozen=True)
class Timing:
    """Of one kind of exchange."""

    step_seconds: float
    sent_bytes_per_step: float = 0.0


@dataclass(frozen=True)
class Lab:
    directory: Path
    hosts_file: Path

    @property
    def hosts(self) -> tuple[Host, ...]:
        return load_hosts(self.hosts_file).hosts

    @property
    def project(self) -> Path:
        return self.directory / "shared" / "project"


@contextmanager
def two_hosts(link: str, directory: Path) -> Iterator[Lab]:
    hosts_file = practice.up(2, link, directory, lambda _text: None)
    try:
        lab = Lab(directory, hosts_file)
        lab.project.mkdir()
        source = (ROOT / "benchmarks" / "reduce_task.py").read_text(encoding="utf-8")
        (lab.project / "reduce_task.py").write_text(source, encoding="utf-8")
        for network, task in _TASKS.items():
            text = _RECIPE.format(task=task)
            (lab.project / f"{network}.yaml").write_text(text, encoding="utf-8")
        yield lab
    finally:
        practice.down(directory, lambda _text: None, keeps_runs=False)


@dataclass(frozen=True)
class Case:
    network: str
    rows: int


def plain_loop(lab: Lab, case: Case, num_steps: int, alone: bool = False) -> Timing:
    """On both hosts at once, talking to each other unless `alone`."""

    def work(host: Host) -> list[float]:
        world = {"RANK": lab.hosts.index(host), "WORLD_SIZE": 1 if alone else len(lab.hosts)}
        place = {"MASTER_ADDR": lab.hosts[0].address, "MASTER_PORT": PORT}
        settings = {**world, **place, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": 1}
        variables = [f"{name}={value}" for name, value in settings.items()]
        options = ["--rows", str(case.rows), "--steps", str(num_steps), "--network", case.network]
        command = [sys.executable, "-m", "benchmarks.plain_ddp", *options]
        words = ["env", "-C", str(ROOT), *variables, f"PYTHONPATH={ROOT}", *command]
        answer = run_on(host, words, timeout_seconds=1200)
        if answer.code != 0:
            raise SystemExit(answer.stderr)
        seconds: list[float] = json.loads(answer.stdout.splitlines()[-1])
        return seconds

    return Timing(max(statistics.median(seconds) for seconds in on_all(lab.hosts, work)))


def trained(lab: Lab, kind: str, case: Case, num_steps: int, settings: Sequence[str]) -> Timing:
    run = lab.project / "runs" / f"{kind}-{len(list(lab.project.glob('runs/*')))}"
    words = [f"reduce={kind}", f"steps={num_steps}", f"batch.per_device={case.rows}"]
    words += [f"batch.micro={case.rows}", *settings]
    command = [sys.executable, "-m", "paceline.cli", "train", f"{case.network}.yaml", *words]
    command += ["--hosts", str(lab.hosts_file), "--run", str(run)]
    done = subprocess.run(
        command,
        cwd=lab.project,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{lab.project}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    return timing_of(run)


def timing_of(run: Path) -> Timing:
    """The slower rank's seconds, the first rank's bytes."""
    ranks = [_middle_lines(run, rank) for rank in range(2)]
    seconds = [
        statistics.mean(s for line in lines for s in line["step_seconds"]) for lines in ranks
    ]
    num_steps = sum(line["num_steps"] for line in ranks[0])
    return Timing(max(seconds), sum(line["reduced_bytes"] for line in ranks[0]) / num_steps)


def _middle_lines(run: Path, rank: int) -> list[dict[str, Any]]:
    """Of the events: not the first steps, nor the last, after which all weights are averaged once
    in a run; whole lines, so that an exchange that comes once in many steps has its share."""
    events = read_events(RunDirectory(run).rank_events(rank))
    lines = [e for e in events if e["kind"] == "steps" and e["step"] > 2 * SETTLING_STEPS]
    return lines[:-1]


def timed(lab: Lab, kind: str, case: Case, asked: argparse.Namespace) -> Timing:
    if kind in PEERS:
        return plain_loop(lab, case, min(asked.steps, asked.plain_steps), alone=kind == ALONE)
    return trained(lab, kind, case, asked.steps, asked.settings)


def compare(lab: Lab, asked: argparse.Namespace, case: Case) -> None:
    kinds = asked.kinds.split(",")
    found: dict[str, list[Timing]] = {kind: [] for kind in kinds}
    for number in range(asked.rounds):
        for kind in kinds:
            found[kind].append(timed(lab, kind, case, asked))
            seconds = found[kind][-1].step_seconds
            print(f"round {number + 1}: {kind} {seconds:.3f} s/step", flush=True)
    told = f"{asked.link}, {case.network}, {case.rows} rows of 32 tokens a process"
    print(f"\n{told}, {asked.rounds} rounds")
    print(f"{'':10} {'s/step':>8} {'x ddp':>7} {'% of alone':>11} {'MB/step':>9}   rounds")
    for name, timings in found.items():
        print(_row(name, timings, found.get(DDP), found.get(ALONE)), flush=True)


def _row(
    name: str,
    timings: Sequence[Timing],
    ddp: Sequence[Timing] | None,
    free: Sequence[Timing] | None,
) -> str:
    seconds = [timing.step_seconds for timing in timings]
    sent = timings[0].sent_bytes_per_step / 1e6
    shown = ", ".join(f"{second:.2f}" for second in seconds)
    return (
        f"{name:10} {statistics.median(seconds):8.2f} {_ratio(ddp, seconds):7.2f} "
        f"{100 * _ratio(free, seconds):11.0f} {sent:9.2f}   {shown}"
    )


def _ratio(peer: Sequence[Timing] | None, seconds: Sequence[float]) -> float:
    """The median over rounds of how many times as fast as the peer of the same round."""
    if not peer:
        return float("nan")
    return statistics.median(p.step_seconds / s for p, s in zip(peer, seconds, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--link", default="1Gbit")
    parser.add_argument("--kinds", default="alone,ddp,plain,overlap")
    parser.add_argument("--network", default=TIED, help="tied, untied, or both with a comma")
    parser.add_argument("--rows", default="4", help="per process, several with commas")
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--plain-steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--dir", type=Path, default=Path(f"/tmp/paceline-reduce-{os.getpid()}"))  # noqa: S108
    parser.add_argument("settings", nargs="*", help="of all kinds, e.g. reduce.every=32")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the lab goes down with us
    with two_hosts(asked.link, asked.dir) as lab:
        for network in asked.network.split(","):
            for rows in map(int, asked.rows.split(",")):
                compare(lab, asked, Case(network, rows))


if __name__ == "__main__":
    main()
