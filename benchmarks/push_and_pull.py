"""How long gradients take to parameter servers and weights take back, against what the wire needs.

    sudo .venv/bin/python -m benchmarks.push_and_pull

On lab hosts with links of 1 Gbit/s, each role on a host of its own, 40 MB of weights, in sync mode:
one worker and one server; two workers and one server, through whose link all must go; and two
workers and two servers, each of which has half of the weights. The ideal is bytes / bandwidth one
way, by the link's nominal speed; what frames and acknowledgements take is part of the excess.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.wide_pictures import write_pictures
from paceline.lab import cluster
from paceline.record.events import Event, read_events
from paceline.record.schema import RunDirectory

_REPOSITORY = Path(__file__).parents[1]
_LINK, _BITS_PER_SECOND = "1Gbit", 1e9
_CASES = ((1, 1), (2, 1), (2, 2))
_WAITS = ("push_seconds", "pull_seconds", "update_seconds", "chief_seconds")
_RECIPE = """
workload: benchmarks.wide_pictures:WidePictures
data: {data}
hidden: 3255
steps: {steps}
device: cpu
batch: {{global: 16, micro: 8}}
schedule: {{policy: fixed, rate: 0.001}}
evaluate: {{every_steps: null}}
checkpoint: {{every_steps: null}}
log: {{every_steps: 5, probe_seconds: 1.0}}
"""


@dataclass(frozen=True)
class Exchange:
    """Seconds of one worker per step, by what it waited for, and what the wire needs."""

    num_workers: int
    num_servers: int
    seconds: dict[str, float]
    ideal_seconds: float
    """There and back."""

    @property
    def ratio(self) -> float:
        return (self.seconds["push_seconds"] + self.seconds["pull_seconds"]) / self.ideal_seconds


def measure(folder: Path, num_workers: int, num_servers: int, steps: int) -> Exchange:
    run = folder / f"workers-{num_workers}-servers-{num_servers}"
    shutil.rmtree(run, ignore_errors=True)
    data = folder / "data"
    if not data.exists():
        write_pictures(data, num_train=400, num_validation=100)
    recipe = folder / "recipe.yaml"
    recipe.write_text(_RECIPE.format(data=data.absolute(), steps=steps), encoding="utf-8")
    directory = Path(f"/tmp/paceline-wire-{os.getpid()}")  # noqa: S108
    try:
        num_hosts = 1 + num_workers + num_servers
        hosts = cluster.up(num_hosts, _LINK, directory, lambda _text: None)
        _train(run, recipe, hosts, _roles(num_workers, num_servers))
    finally:
        cluster.down(directory, lambda _text: None, keeps_runs=False)
    return _exchange_of(RunDirectory(run), num_workers, num_servers)


def _roles(num_workers: int, num_servers: int) -> str:
    workers = [f"worker@node{1 + n}" for n in range(num_workers)]
    servers = [f"server@node{1 + num_workers + n}" for n in range(num_servers)]
    return ",".join(["chief@node0", *workers, *servers])


def _train(run: Path, recipe: Path, hosts: Path, roles: str) -> None:
    settings = ["strategy=parameter-server", "strategy.chief_trains=false"]
    words = [*settings, "--run", str(run), "--hosts", str(hosts), "--roles", roles]
    done = subprocess.run(
        [sys.executable, "-m", "paceline.cli", "train", str(recipe), *words],
        cwd=_REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)


def _exchange_of(run: RunDirectory, num_workers: int, num_servers: int) -> Exchange:
    """The median of all lines but each worker's first."""
    lines = [line for rank in range(1, 1 + num_workers) for line in _lines(run, rank)[1:]]
    begin = next(event for event in read_events(run.rank_events(1)) if event["kind"] == "begin")
    seconds = {
        name: statistics.median(line[name] / line["num_steps"] for line in lines) for name in _WAITS
    }
    one_way = 8 * begin["gradient_bytes"] / _BITS_PER_SECOND * max(1.0, num_workers / num_servers)
    return Exchange(num_workers, num_servers, seconds, 2 * one_way)


def _lines(run: RunDirectory, rank: int) -> list[Event]:
    return [event for event in read_events(run.rank_events(rank)) if event["kind"] == "steps"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--to", type=Path, default=Path("runs/push-and-pull"))
    arguments = parser.parse_args()
    arguments.to.mkdir(parents=True, exist_ok=True)
    print("| workers | servers | push | pull | both / ideal | update | chief |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    found = []
    for num_workers, num_servers in _CASES:
        each = measure(arguments.to, num_workers, num_servers, arguments.steps)
        push, pull, update, chief = (f"{each.seconds[name]:.3f} s" for name in _WAITS)
        row = [num_workers, num_servers, push, pull, f"{each.ratio:.3f}", update, chief]
        print(f"| {' | '.join(map(str, row))} |", flush=True)
        found.append({**vars(each), "ratio": each.ratio})
    (arguments.to / "figures.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
