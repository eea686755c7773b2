"""What follows when a round of a run on many hosts has ended; plain data in, a decision out."""

import signal

import pytest

from paceline.launch.remote.restart import (
    Gathering,
    History,
    Kind,
    Missing,
    Outcome,
    decide,
    exit_code_of,
    why_not_gathered,
)

FAULT = Outcome("fault", "lost b")


@pytest.mark.parametrize(
    ("kind", "exit_code", "code_when_stopped"),
    [
        ("finished", 0, 0),
        ("mistake", 2, 130),
        ("left", None, 130),
        ("rejoin", None, 130),
        ("fault", None, 130),
    ],
)
def test_every_way_a_round_ends_has_its_exit_code(
    kind: Kind, exit_code: int | None, code_when_stopped: int
) -> None:
    outcome = Outcome(kind, "why")
    history = History().after(outcome, -1)
    assert decide(outcome, history, 5, None).exit_code == exit_code
    assert decide(outcome, history, 5, signal.SIGINT).exit_code == code_when_stopped


def test_faults_without_a_new_checkpoint_between_them_end_the_run_at_last() -> None:
    history = History()
    for _ in range(2):
        history = history.after(FAULT, 10)
        assert decide(FAULT, history, 2, None).exit_code is None
    history = history.after(FAULT, 10)
    decision = decide(FAULT, history, 2, None)
    assert decision.exit_code == 1
    assert "lost b" in decision.text
    assert "3 faults in a row without a new checkpoint" in decision.text


def test_a_new_checkpoint_makes_earlier_faults_forgotten() -> None:
    history = History().after(FAULT, 10).after(FAULT, 20)
    assert history.faults == (FAULT,)
    assert decide(FAULT, history, 1, None).exit_code is None


def test_the_same_fault_at_the_same_place_is_not_tried_a_third_time() -> None:
    same = Outcome("fault", "rank 1 failed", key=(1, 7))
    other = Outcome("fault", "rank 1 failed", key=(1, 8))
    assert decide(other, History((same, other), 10), 5, None).exit_code is None
    decision = decide(same, History((same, other, same), 10), 5, None)
    assert decision.exit_code == 1
    assert "the same happened before" in decision.text
    assert decide(FAULT, History((FAULT, FAULT), 10), 5, None).exit_code is None, "no key"


def test_the_events_tell_how_the_round_itself_ended() -> None:
    assert exit_code_of(Outcome("finished"), None) == 0
    assert exit_code_of(Outcome("mistake"), None) == 2
    assert exit_code_of(FAULT, None) == 1
    assert exit_code_of(Outcome("stopped"), signal.SIGTERM) == 143


def gathering(
    num_ready: int, *missing: Missing, is_there: bool = True, is_too_late: bool = False
) -> Gathering:
    return Gathering(num_ready, missing, 2, is_there, is_too_late)


def test_lost_hosts_are_waited_for_until_it_is_too_late() -> None:
    lost = Missing("b", is_leaving=False)
    assert why_not_gathered(gathering(1, lost), "/run", 120) is None
    why = why_not_gathered(gathering(1, lost, is_too_late=True), "/run", 120)
    assert why == ("b did not come back within 120 s; 1 of 2 hosts are left, and hosts.min is 2")
    assert why_not_gathered(gathering(2, lost, is_too_late=True), "/run", 120) is None


def test_a_host_that_was_told_to_leave_is_not_waited_for() -> None:
    why = why_not_gathered(gathering(1, Missing("b", is_leaving=True)), "/run", 120)
    assert why == "b was told to leave, and hosts.min is 2"
    mixed = [Missing("b", is_leaving=True), Missing("c", is_leaving=False)]
    assert why_not_gathered(gathering(1, *mixed), "/run", 120) is None


def test_a_run_directory_that_is_away_is_waited_for_as_well() -> None:
    assert why_not_gathered(gathering(2, is_there=False), "/run", 120) is None
    why = why_not_gathered(gathering(2, is_there=False, is_too_late=True), "/run", 120)
    assert why == "the run directory /run is gone"
