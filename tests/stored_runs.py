"""Run directories written by hand, in the format of training, for tests of what reads them.

Nothing here is random or depends on the clock, so that reports on these runs are the same words
every time.
"""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from paceline import config, recipe
from paceline.files import sha256_of
from paceline.record import checkpoints as stored
from paceline.record.schema import RunDirectory
from paceline.record.writer import write_file
from paceline.schedule import rate_at

Event = dict[str, Any]

FACTS = {
    "device": "cpu",
    "unit": "image",
    "best_by": "top1",
    "num_parameters": 78_042,
    "flops_per_unit": 25e6,
    "peak_flops": 80e9,
}
START = 1_700_000_000.0


def wobble(number: int, size: float = 1.0) -> float:
    """Noise that is the same every time: between -size and size, without a pattern to see."""
    return size * math.sin(number * 12.9898) * math.cos(number * 78.233)


@dataclass
class StoredRun:
    """A run directory whose ranks do the same steps, each with its own seconds by phase."""

    path: Path
    phases: list[dict[str, float]]
    """Seconds per step of each rank."""
    hosts: list[str] = field(default_factory=list)
    """Of each rank; empty puts all on one host."""
    overrides: list[str] = field(default_factory=list)
    steps_per_line: int = 10
    recipe: str = "cifar10-tiny"
    now: float = START
    attempt: int = 1
    step: int = 0
    gradient_bytes: int = 312_168
    begin_facts: Event = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.run = RunDirectory(self.path)
        self.loaded = recipe.load(self.recipe, self.overrides)
        write_file(self.run.recipe, config.to_yaml(config.dump(self.loaded)))
        self.hosts = self.hosts or ["one"] * len(self.phases)
        self.run.events.mkdir(parents=True)

    def write(self, path: Path, kind: str, **fields: Any) -> None:
        event = {"kind": kind, "time": self.now, "attempt": self.attempt, **fields}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")

    def launch(self) -> None:
        self.write(self.run.launcher_events, "launch", started=self.now)

    def exit(self, code: int = 0, after: float = 1.0) -> None:
        self.now += after
        self.write(self.run.launcher_events, "exit", code=code)

    def begin(self, step: int = 0, seconds: float = 5.0) -> None:
        self.now, self.step = self.now + seconds, step
        for rank, host in enumerate(self.hosts):
            self.write(
                self.run.rank_events(rank),
                "begin",
                step=step,
                position=step,
                seconds=seconds,
                phases={"start-up": seconds},
                world_size=len(self.phases),
                host=host,
                num_hosts=len(set(self.hosts)),
                interface=self.interface,
                steps_wanted=self.loaded.steps,
                **{**FACTS, "gradient_bytes": self.gradient_bytes, **self.begin_facts},
            )

    @property
    def interface(self) -> str:
        return "lo" if len(set(self.hosts)) == 1 else "eth0"

    def train(self, num_steps: int, loss: Any = None, **more: float) -> None:
        """Steps of every rank; `more` are seconds that this line has besides, by phase."""
        for _ in range(num_steps // self.steps_per_line):
            self.step += self.steps_per_line
            self._line(loss(self.step) if loss else 1.0, more)
            more = {}

    def _line(self, loss: float, more: dict[str, float]) -> None:
        count = self.steps_per_line
        step_seconds = sum(self.phases[0].values())
        self.now += count * step_seconds + sum(more.values())
        for rank, per_step in enumerate(self.phases):
            total = {k: count * v for k, v in per_step.items()}
            total |= {k: total.get(k, 0.0) + v for k, v in more.items()}
            seconds = [step_seconds * (1 + 0.05 * wobble(self.step + n)) for n in range(count)]
            slow = max(seconds)
            fields: Event = {
                "num_steps": count,
                "loss": loss,
                "rate": self.rate(self.step),
                "num_units": 128 * count,
                "seconds": sum(total.values()),
                "phases": total,
                "step_seconds": [round(s, 6) for s in seconds],
                "cpu_seconds": 0.9 * count * step_seconds,
                "epochs": self.step * 128 / 45_000,
                "reduced_bytes": count * self.gradient_bytes,
                "gradient_norm": 1.5,
                "slowest_step": {
                    "step": self.step - count + 1 + seconds.index(slow),
                    "seconds": slow,
                    "phases": {**per_step, "compute": per_step.get("compute", 0.0) + 0.04},
                },
            }
            if rank == 0:
                done = range(self.step - count + 1, self.step + 1)
                fields |= {"rates": [*map(self.rate, done)], "losses": [loss] * count}
            self.write(self.run.rank_events(rank), "steps", step=self.step, **fields)

    def rate(self, step: int) -> float:
        return rate_at(self.loaded.schedule, step, self.loaded.steps)

    def go_on(self, *overrides: str) -> None:
        """Another attempt from where it is, with another recipe."""
        self.loaded = recipe.load(str(self.run.recipe), list(overrides))
        write_file(self.run.recipe, config.to_yaml(config.dump(self.loaded)))
        self.attempt += 1
        self.launch()
        self.begin(step=self.step)

    def score(self, top1: float, loss: float, train_loss: float | None = None) -> None:
        file = self.run.rank_events(0)
        mark = "validation:200 pictures"
        values = {"top1": top1, "loss": loss}
        self.write(file, "score", step=self.step, split="validation", scores=values, signature=mark)
        if train_loss is not None:
            values = {"top1": min(top1 + 0.05, 1.0), "loss": train_loss}
            mark = "train:200 pictures"
            self.write(file, "score", step=self.step, split="train", scores=values, signature=mark)

    def probe(self, seconds: float, num_steps: int, sent: float, cpu: float = 0.95) -> None:
        """One look at every host, that saw so many steps and so many bytes sent per step."""
        for host in dict.fromkeys(self.hosts):
            self.write(
                self.run.events / f"host-{host}.jsonl",
                "probe",
                host=host,
                seconds=seconds,
                step=self.step,
                cpu_share=cpu,
                memory_bytes=3e9,
                memory_total_bytes=24e9,
                interface=self.interface,
                sent_bytes=sent * num_steps,
                received_bytes=sent * num_steps,
                link_bits_per_second=None if self.interface == "lo" else 1e9,
                devices=[],
            )

    def saved(self, **more: float) -> None:
        """`more` is what runs since 0.2.0 tell of a save."""
        fields = {"num_bytes": 8000, "write_seconds": 0.25, **more}
        self.write(self.run.rank_events(0), "checkpoint", step=self.step, **fields)
        path = self.run.checkpoints / stored.checkpoint_name(self.step)
        if path.exists():
            return
        path.mkdir(parents=True)
        save_file({"w": np.zeros((100, 10), np.float32)}, path / stored.WEIGHTS)
        save_file({"w.momentum": np.zeros((100, 10), np.float32)}, path / stored.OPTIMIZER)
        (path / stored.STATE).write_text(json.dumps({"progress": {"data_fingerprint": "abc"}}))
        files = {
            file.name: {"bytes": file.stat().st_size, "sha256": sha256_of(file)}
            for file in sorted(path.iterdir())
        }
        weights = stored.weights_sha256(path / stored.WEIGHTS)
        manifest = {"step": self.step, "files": files, "weights_sha256": weights}
        (path / stored.MANIFEST).write_text(json.dumps(manifest))

    def end(self, reason: str = "finished") -> None:
        for rank in range(len(self.phases)):
            self.write(
                self.run.rank_events(rank),
                "end",
                step=self.step,
                reason=reason,
                seconds=0.0,
                phases={},
            )

    def environment(self, **more: Any) -> None:
        content = {
            "paceline": "0.1.0",
            "python": "3.11.2",
            "libraries": {"torch": "2.13.0"},
            "host": "one",
            "num_cores": 2,
            "device_name": "a CPU",
            "threads": 1,
            **more,
        }
        write_file(self.run.environment, json.dumps(content))


BUSY = {"input": 0.01, "compute": 0.16, "network": 0.02, "optimizer": 0.01}


def two_busy_ranks() -> list[dict[str, float]]:
    return [dict(BUSY), dict(BUSY)]


def overfitting(path: Path) -> StoredRun:
    """1,000 steps; from step 400 on validation gets worse while training data gets better."""
    run = StoredRun(path, two_busy_ranks(), overrides=["steps=1000", "data=/absent"])
    run.environment(hosts=[{"name": "one", "price_per_hour": 1.8}])
    run.launch()
    run.begin()
    for part in range(1, 11):
        run.train(50, lambda step: 2.3 * math.exp(-step / 300), checkpoint=0.05)
        run.probe(10.0, 50, 624_336 * 1.01)
        run.train(50, lambda step: 2.3 * math.exp(-step / 300), evaluate=0.5)
        run.probe(10.5, 50, 624_336 * 1.01)
        away = abs(part - 4)
        run.score(
            0.62 - 0.012 * away - 0.002 * wobble(part),
            1.0 + 0.03 * away**1.5,
            1.6 * math.exp(-part / 4),
        )
        if part in (4, 10):
            run.saved()
    run.end()
    run.exit()
    return run


def plateaued(path: Path) -> StoredRun:
    """Four processes on two hosts with a slow link; the score has stopped rising."""
    slow = {"input": 0.01, "compute": 0.10, "network": 0.12, "optimizer": 0.01}
    run = StoredRun(
        path,
        [dict(slow) for _ in range(4)],
        ["one", "one", "two", "two"],
        ["steps=1200", "data=/absent", "schedule.policy=fixed"],
        gradient_bytes=10_000_000,
    )
    run.launch()
    run.begin()
    for part in range(1, 13):
        run.train(100, lambda step: 0.9 + 1.4 * math.exp(-step / 120) + wobble(step, 0.02))
        run.probe(24.0, 100, 15_000_000 * 1.03, cpu=0.45)
        level = 0.71 - 0.5 * math.exp(-part / 1.5)
        run.score(level + wobble(part, 0.004), 0.95 + wobble(part, 0.01), 0.93)
    run.end()
    run.exit()
    return run


def diverged(path: Path) -> StoredRun:
    run = StoredRun(path, two_busy_ranks(), overrides=["steps=1000", "data=/absent"])
    run.launch()
    run.begin()
    run.train(200, lambda step: 2.3 - step / 200)
    run.train(100, lambda step: 1.3 * math.exp((step - 200) / 40))
    run.write(
        run.run.rank_events(0),
        "warning",
        step=305,
        text="the loss diverged: 7.91 over the last steps, 2.3 at the start",
    )
    run.end("failed")
    run.exit(2)
    return run


def restarted(path: Path) -> StoredRun:
    """Killed at 400 with a checkpoint at 300, an hour of nothing, then finished."""
    run = StoredRun(path, two_busy_ranks(), overrides=["steps=600", "data=/absent"])
    run.environment(hosts=[{"name": "one", "price_per_hour": 3.6}])
    run.launch()
    run.begin()
    for _ in range(3):
        run.train(100, lambda step: 2.3 - step / 400)
        run.score(0.1 + run.step / 1000 + wobble(run.step, 0.01), 2.0 - run.step / 500)
    run.saved()
    run.train(100, lambda step: 99.0, checkpoint=0.2)
    run.exit(-9)
    run.now, run.attempt = run.now + 3600, 2
    run.launch()
    run.begin(step=300)
    for _ in range(3):
        run.train(100, lambda step: 2.3 - step / 400)
        run.score(0.1 + run.step / 1000 + wobble(run.step, 0.01), 2.0 - run.step / 500)
    run.end()
    run.exit()
    return run


def three_steps(path: Path) -> StoredRun:
    run = StoredRun(path, two_busy_ranks(), overrides=["steps=3", "data=/absent"], steps_per_line=1)
    run.launch()
    run.begin()
    run.train(3, lambda step: 2.3)
    run.end()
    run.exit()
    return run


def one_of_a_pair(path: Path, num_hosts: int, *overrides: str) -> StoredRun:
    """The same training on one host or two; the second waits for the network."""
    alone = {"input": 0.01, "compute": 0.36, "optimizer": 0.02}
    shared = {"input": 0.005, "compute": 0.19, "network": 0.06, "optimizer": 0.02}
    run = StoredRun(
        path,
        [dict(alone)] if num_hosts == 1 else [dict(shared), dict(shared)],
        ["one", "two"][:num_hosts],
        ["steps=400", "data=/absent", *overrides],
    )
    run.environment()
    run.launch()
    run.begin()
    for part in range(1, 5):
        run.train(100, lambda step: 2.3 - step / 400)
        run.score(0.3 + part / 10, 2.0 - part / 5)
    run.end()
    run.exit()
    return run


def only_a_recipe(path: Path) -> StoredRun:
    return StoredRun(path, two_busy_ranks(), overrides=["data=/absent"])


SCENES = {
    "overfitting": overfitting,
    "plateaued": plateaued,
    "diverged": diverged,
    "restarted": restarted,
    "three-steps": three_steps,
    "only-a-recipe": only_a_recipe,
}
