"""Who gets which samples, and which gradients make an update, in every mode."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.settings import StrategySettings
from paceline.strategies.leases import Arrival, Lease, Pace, Positions, share_of


def pace(num_trainers: int, **settings: object) -> Pace:
    told = {"kind": "parameter-server", **settings}
    return Pace(StrategySettings.model_validate(told), num_trainers)


def arrival(place: int, version: int) -> Arrival:
    return Arrival(place + 10, place, Lease(place, range(1)), version)


def test_shares_of_a_step_are_its_micro_batches_without_a_gap() -> None:
    shares = [share_of(40, 7, place, 3) for place in range(3)]
    assert [index for share in shares for index in share] == list(range(40, 47))


@given(st.integers(0, 2**32), st.integers(1, 5))
def test_every_micro_batch_is_trained_once_whoever_comes_and_goes(seed: int, size: int) -> None:
    rng = random.Random(seed)
    positions = Positions()
    held: list[Lease] = []
    trained: list[int] = []
    for _ in range(60):
        what = rng.random()
        if what < 0.5 or not held:
            held.append(positions.take(size))
        elif what < 0.8:
            lease = held.pop(rng.randrange(len(held)))
            positions.note_trained([lease])
            trained += lease.indices
        else:
            positions.give_back(held.pop(rng.randrange(len(held))))
    going_on = Positions.of_numbers(positions.next, positions.numbers(held))
    while going_on.returned:
        trained += going_on.take(size).indices
    assert sorted(trained) == list(range(going_on.next))


def test_in_step_an_update_takes_all_in_the_order_of_their_places() -> None:
    three = pace(3)
    arrived = [arrival(2, 4), arrival(0, 4)]
    assert three.choose(arrived, [4], 4) == []
    chosen = three.choose([*arrived, arrival(1, 4)], [], 4)
    assert [each.place for each in chosen] == [0, 1, 2]


def test_with_a_backup_worker_the_slowest_is_not_waited_for_and_comes_too_late() -> None:
    three = pace(3, backup=1)
    assert three.num_shares == 2
    chosen = three.choose([arrival(2, 4), arrival(0, 4)], [4], 4)
    assert [each.place for each in chosen] == [0, 2]
    late = arrival(1, 4)
    assert three.too_late([late], 5) == [late]
    assert not three.is_wanted(4, 0, 5)
    assert not three.is_wanted(5, 2, 5)
    assert three.is_wanted(5, 1, 5)


def test_async_waits_for_nobody() -> None:
    four = pace(4, mode="async")
    assert four.may_begin([0, 0, 0], 0, 100)
    assert four.choose([arrival(1, 3)], [0, 0], 100) == [arrival(1, 3)]


@given(st.integers(0, 2**32), st.integers(2, 5), st.integers(0, 9))
def test_bounded_never_exceeds_its_staleness_and_never_stands_still(
    seed: int, num_trainers: int, most: int
) -> None:
    """Trainers of any speed, with weights of any age that they may begin with."""
    rng = random.Random(seed)
    bounded = pace(num_trainers, mode="bounded", staleness=most)
    computing: dict[int, int] = {}
    waiting: dict[int, Arrival] = {}
    version, num_updates = 0, 0
    for _ in range(300):
        idle = [n for n in range(num_trainers) if n not in computing and n not in waiting]
        others = [*computing.values(), *(a.version for a in waiting.values())]
        beginning = [n for n in idle if bounded.may_begin(others, version, version)]
        if beginning and rng.random() < 0.6:
            computing[rng.choice(beginning)] = version
        elif computing:
            done = rng.choice(list(computing))
            waiting[done] = arrival(done, computing.pop(done))
        while chosen := bounded.choose(list(waiting.values()), list(computing.values()), version):
            assert version - chosen[0].version <= most
            del waiting[chosen[0].place]
            version, num_updates = version + 1, num_updates + 1
        assert computing or not waiting, "all wait for each other"
    assert num_updates > 30


def test_the_limit_is_twice_the_number_of_others_unless_it_is_given() -> None:
    assert pace(4, mode="bounded").most_staleness == 6
    assert pace(4, mode="bounded", staleness=3).most_staleness == 3
    assert pace(4, mode="async").most_staleness is None


def test_what_may_not_be_expected_is_said() -> None:
    assert pace(4).notes(clips=True, num_micro=4) == []
    (clipping,) = pace(4, mode="async").notes(clips=True, num_micro=4)
    assert "the worker clips before it sends it" in clipping
    (uneven,) = pace(4, backup=1).notes(clips=False, num_micro=4)
    assert "3 gradients make a step, and its 4 micro-batches" in uneven
    (idle,) = pace(4, mode="bounded", staleness=1).notes(clips=False, num_micro=4)
    assert "lets 2 of 4 trainers compute at a time" in idle


def test_only_modes_that_wait_for_nobody_fetch_weights_ahead() -> None:
    assert pace(2, mode="async").overlaps
    assert not pace(2, mode="async", overlap=False).overlaps
    assert not pace(2).overlaps


@pytest.mark.parametrize(
    ("mode", "backup", "survives"),
    [("sync", 0, False), ("sync", 1, True), ("async", 0, True), ("bounded", 0, True)],
)
def test_which_modes_survive_a_lost_worker(mode: str, backup: int, survives: bool) -> None:
    settings = pace(3, mode=mode, backup=backup).settings
    assert settings.survives_lost_workers == survives
