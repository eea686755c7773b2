"""Bottlenecks made on purpose, and whether the report finds them with the right share."""

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pytest

from paceline.errors import UserError
from paceline.record.events import read_events
from paceline.record.schema import RunDirectory
from paceline.report.facts.verdict import Verdict
from paceline.report.own.run import read_run
from paceline.train.measure.practice import pauses_of
from tests.conftest import CommandLine

POINTS = 0.05
LOOP = ["evaluate.every_steps=null", "checkpoint.every_steps=null", "batch.global=16"]


@dataclass(frozen=True)
class SeenRun:
    """A run as somebody saw it who only watched its file grow."""

    path: Path
    began: float
    ended_steps: list[float]
    """When each step, or each stretch of steps, was first seen to be over."""

    @property
    def seconds(self) -> float:
        return self.ended_steps[-1] - self.began

    @property
    def verdict(self) -> Verdict:
        return read_run(self.path).verdict


def run_and_look(paceline: CommandLine, practice: str, *settings: str, procs: int = 2) -> SeenRun:
    run = paceline.cwd / "runs" / "a"
    process = subprocess.Popen(
        paceline.command(*paceline.training(str(run), *settings, procs=procs)),
        cwd=paceline.cwd,
        env=paceline.environment(PACELINE_PRACTICE=practice),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    began, ended_steps = 0.0, list[float]()
    while process.poll() is None:
        now = time.monotonic()
        kinds = [event["kind"] for event in read_events(RunDirectory(run).rank_events(0))]
        began = began or (now if "begin" in kinds else 0.0)
        ended_steps += [now] * (kinds.count("steps") - len(ended_steps))
        time.sleep(0.005)
    assert process.returncode == 0
    return SeenRun(run, began, ended_steps)


def test_a_slow_loader_is_found_and_that_it_was_made_so_is_said(paceline: CommandLine) -> None:
    seen = run_and_look(paceline, "input=0.3", "steps=16", *LOOP)
    found = seen.verdict
    assert found.word == "input"
    assert found.share == pytest.approx(16 * 0.3 / seen.seconds, abs=POINTS)
    warnings = read_run(seen.path).warnings
    assert "slowed down on purpose: PACELINE_PRACTICE=input=0.3" in warnings


@pytest.mark.cluster
def test_a_slow_rank_is_found_and_where_its_time_goes(paceline: CommandLine) -> None:
    seen = run_and_look(paceline, "compute@1=0.6", "steps=15", "log.every_steps=5", *LOOP)
    found = seen.verdict
    assert found.word == "straggler"
    assert found.share == pytest.approx(15 * 0.6 / seen.seconds, abs=POINTS)
    assert found.straggler is not None
    assert (found.straggler.rank, found.straggler.phase) == (1, "compute")


@pytest.mark.cluster
def test_saving_every_five_steps_to_a_slow_disk_is_found(paceline: CommandLine) -> None:
    settings = ["steps=21", "checkpoint.every_steps=5"]
    seen = run_and_look(paceline, "disk=1.5", *settings, LOOP[0], LOOP[2])
    # A save is written aside; the loop stands still when the next one is due before it is done.
    # So the pauses come after steps 10, 15 and 20, and are seen as a late next step.
    gaps = [
        later - earlier
        for earlier, later in zip(seen.ended_steps, seen.ended_steps[1:], strict=False)
    ]
    usual = median(gaps)
    stood_still = sum(gaps[step - 1] - usual for step in (10, 15, 20))
    assert stood_still > 2.0
    found = seen.verdict
    assert found.word == "checkpoint"
    assert found.share == pytest.approx(stood_still / seen.seconds, abs=POINTS)


def test_with_none_of_these_it_is_compute(paceline: CommandLine) -> None:
    # One process: on a machine shared with others two wait for each other, which is no fault.
    seen = run_and_look(paceline, "", "steps=30", *LOOP, procs=1)
    found = seen.verdict
    assert found.word == "compute"
    assert found.share > 0.8


def test_seconds_are_added_by_phase_and_rank() -> None:
    text = "input=0.2, compute@1=0.5,compute=0.1,"
    assert pauses_of(0, text) == {"input": 0.2, "compute": 0.1}
    assert pauses_of(1, text) == {"input": 0.2, "compute": pytest.approx(0.6)}
    assert pauses_of(0, "") == {}


@pytest.mark.parametrize(
    "text", ["input", "input=much", "network=1", "input@x=1", "input=-1", "input=nan", "=1"]
)
def test_a_mistake_in_the_practice_is_explained(text: str) -> None:
    with pytest.raises(UserError) as caught:
        pauses_of(0, text)
    assert text in caught.value.what
    assert "PHASE=SECONDS" in caught.value.fix
