"""Who is to blame for the time, judged from plain seconds per step."""

import numpy as np
import pytest

from paceline.record.schema import PHASES
from paceline.report.answers.verdict import sentence
from paceline.report.facts.verdict import judge
from paceline.report.facts.world_times import WorldTimes

BASE = {"input": 0.01, "compute": 0.40, "network": 0.05, "optimizer": 0.04}


def world(*ranks: dict[str, float], num_stretches: int = 20) -> WorldTimes:
    """Ranks that do the same in every stretch of ten steps."""
    one = np.array([[rank.get(phase, 0.0) for phase in PHASES] for rank in ranks])
    return WorldTimes(
        ranks=tuple(range(len(ranks))),
        hosts=tuple(f"host{n}" for n in range(len(ranks))),
        seconds=np.repeat(one[:, None, :], num_stretches, axis=1),
        num_steps=np.full(num_stretches, 10.0),
        last_steps=np.linspace(10.0, 10.0 * num_stretches, num_stretches),
    )


def test_a_run_that_computes_most_of_the_time_is_bound_by_compute() -> None:
    found = judge(world(BASE, BASE), 200)
    assert found.word == "compute" and found.share == pytest.approx(0.88)
    assert found.straggler is None


def test_a_slow_loader_is_found_with_its_share_and_what_a_fast_one_would_give() -> None:
    slow = {**BASE, "input": 0.51}
    found = judge(world(slow, slow), 200)
    assert found.word == "input" and found.share == pytest.approx(0.51)
    assert found.step_seconds == pytest.approx(1.0)
    assert found.without_input_seconds == pytest.approx(0.49)
    assert sentence(found) == "Input: 51 % of the loop is waiting for the next batch."


def test_a_slow_link_is_found_with_its_share_and_what_a_fast_one_would_give() -> None:
    slow = {**BASE, "network": 0.55}
    found = judge(world(slow, slow, slow, slow), 200)
    assert found.word == "network" and found.share == pytest.approx(0.55)
    assert found.without_network_seconds == pytest.approx(0.45)


@pytest.mark.parametrize("phase", ["compute", "input"])
def test_a_slow_rank_is_named_with_the_phase_in_which_it_loses(phase: str) -> None:
    late = {**BASE, phase: BASE[phase] + 0.5}
    waits = {**BASE, "network": BASE["network"] + 0.5}
    found = judge(world(waits, late, waits, waits), 200)
    assert found.word == "straggler" and found.share == pytest.approx(0.5)
    assert found.straggler is not None
    assert (found.straggler.rank, found.straggler.phase) == (1, phase)
    assert found.straggler.extra_seconds == pytest.approx(0.5)
    assert "rank 1 on host1" in sentence(found)


def test_no_network_cures_a_straggler() -> None:
    late = {**BASE, "compute": BASE["compute"] + 0.5}
    waits = {**BASE, "network": BASE["network"] + 0.5}
    found = judge(world(waits, late), 200)
    assert found.without_network_seconds == pytest.approx(0.95)
    assert found.shares["network"] == pytest.approx(0.05)


def test_what_others_wait_while_one_rank_saves_is_the_cost_of_saving() -> None:
    saves = {**BASE, "checkpoint": 0.5}
    waits = {**BASE, "network": BASE["network"] + 0.5}
    found = judge(world(saves, waits), 200)
    assert found.word == "checkpoint" and found.share == pytest.approx(0.5)


def test_a_single_process_that_saves_too_often_is_held_up_by_saving() -> None:
    found = judge(world({**BASE, "network": 0.0, "checkpoint": 0.45}), 200)
    assert found.word == "checkpoint" and found.share == pytest.approx(0.5)


def test_ranks_that_are_late_by_turns_are_no_stragglers() -> None:
    late = {**BASE, "compute": BASE["compute"] + 0.5}
    waits = {**BASE, "network": BASE["network"] + 0.5}
    one, two = world(late, waits), world(waits, late)
    seconds = one.seconds.copy()
    seconds[:, ::2] = two.seconds[:, ::2]
    found = judge(WorldTimes(one.ranks, one.hosts, seconds, one.num_steps, one.last_steps), 200)
    assert found.straggler is None and found.word == "network"


def test_shares_add_up_to_one_whoever_is_blamed() -> None:
    late = {**BASE, "compute": BASE["compute"] + 0.5}
    waits = {**BASE, "network": BASE["network"] + 0.5}
    for ranks in ((BASE, BASE), (waits, late), (late,), (waits, waits, late)):
        assert sum(judge(world(*ranks), 200).shares.values()) == pytest.approx(1.0)


def test_few_steps_are_unclear_whatever_they_look_like() -> None:
    found = judge(world({**BASE, "input": 5.0}, num_stretches=1), 3)
    assert found.word == "unclear"
    assert sentence(found) == "Unclear: 3 steps are too few; 10 are the least."


def test_time_that_nobody_measured_is_unclear_rather_than_guessed() -> None:
    found = judge(world({**BASE, "unexplained": 0.5}), 200)
    assert found.word == "unclear" and "50 % of the time was not measured" in sentence(found)


def test_no_steps_are_unclear() -> None:
    found = judge(world(BASE, num_stretches=0), 0)
    assert sentence(found) == "Unclear: no step was recorded."


def test_evaluations_are_not_held_against_a_step() -> None:
    found = judge(world({**BASE, "evaluate": 3.0}), 200)
    assert found.word == "compute" and found.step_seconds == pytest.approx(0.5)
