"""A run directory that a test writes event by event, as training would."""

import fcntl
from pathlib import Path
from typing import IO

from paceline.record.schema import RunDirectory
from paceline.record.writer import EventFile

RECIPE = "workload: cifar10\nsteps: 100\n"


class GrowingRun:
    def __init__(self, path: Path, num_ranks: int = 2) -> None:
        path.mkdir(parents=True)
        self.run = RunDirectory(path)
        self.run.recipe.write_text(RECIPE, encoding="utf-8")
        self.num_ranks = num_ranks
        self.step = 0
        self._lock: IO[bytes] | None = None
        self._open(attempt=1)

    @property
    def path(self) -> Path:
        return self.run.path

    def _open(self, attempt: int) -> None:
        ranks = range(self.num_ranks)
        self.ranks = [EventFile(self.run.rank_events(rank), attempt) for rank in ranks]
        self.host = EventFile(self.run.host_events("node0"), attempt)

    def hold_lock(self) -> None:
        """From now on it is being trained, as far as anybody can see."""
        self._lock = self.run.lock.open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        for file in [*self.ranks, self.host]:
            file.close()
        if self._lock is not None:
            self._lock.close()

    def begin(self, step: int = 0, attempt: int = 1) -> None:
        if attempt > 1:
            self.close()
            self._open(attempt)
        self.step = step
        for rank in self.ranks:
            rank.write(
                "begin",
                step=step,
                seconds=2.0,
                phases={"start-up": 2.0},
                host="node0",
                unit="image",
                best_by="top1",
                world_size=self.num_ranks,
            )

    def steps(self, num_lines: int = 1, late_rank: int | None = None) -> None:
        for _ in range(num_lines):
            self.step += 2
            for number, rank in enumerate(self.ranks):
                waits = late_rank is not None and number != late_rank
                busy, waiting = (0.2, 0.6) if waits else (0.7, 0.1)
                rank.write(
                    "steps",
                    step=self.step,
                    num_steps=2,
                    loss=5.0 / (1 + self.step),
                    rate=0.1,
                    num_units=64,
                    seconds=1.0,
                    step_seconds=[0.5, 0.5],
                    phases={"input": 0.2, "compute": busy, "network": waiting},
                )

    def score(self, top1: float, split: str = "validation") -> None:
        scores = {"top1": top1, "loss": 1.0}
        self.ranks[0].write("score", step=self.step, split=split, scores=scores)

    def warn(self, text: str) -> None:
        self.ranks[0].write("warning", step=self.step, text=text)

    def probe(self, sent_bytes: int = 20_000_000) -> None:
        self.host.write(
            "probe",
            step=self.step,
            host="node0",
            seconds=2.0,
            cpu_share=0.93,
            memory_bytes=3_000_000_000,
            memory_total_bytes=24_000_000_000,
            interface="eth0",
            link_bits_per_second=1e9,
            sent_bytes=sent_bytes,
            received_bytes=sent_bytes,
            sent_packets=1000,
            received_packets=1000,
            disk_read_bytes=0,
            disk_written_bytes=1000,
            devices=[
                {
                    "name": "Tesla T4",
                    "utilisation": 0.5,
                    "memory_bytes": 4_000_000_000,
                    "memory_total_bytes": 16_000_000_000,
                    "power_watts": 65.0,
                }
            ],
        )

    def end(self, reason: str = "finished") -> None:
        for rank in self.ranks:
            rank.write("end", step=self.step, reason=reason, seconds=0.1, phases={"input": 0.1})
