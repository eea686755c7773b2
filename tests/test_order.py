"""The order of samples: a function of seed and position, and of nothing else."""

import itertools

import numpy as np
import pytest

from paceline.data.order import generator, micro_batch_generator, samples_at, torch_seed


def stream(num_samples: int, cuts: list[int], seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """The stream up to the last cut, read in pieces."""
    pieces = [samples_at(num_samples, seed, a, b) for a, b in itertools.pairwise([0, *cuts])]
    return np.concatenate([p[0] for p in pieces]), np.concatenate([p[1] for p in pieces])


@pytest.mark.parametrize("num_samples", [1, 2, 7, 13, 64])
@pytest.mark.parametrize("micro", [1, 3, 8, 50])
def test_every_epoch_has_every_sample_once_also_across_its_borders(
    num_samples: int, micro: int
) -> None:
    num_epochs = 5
    cuts = list(range(micro, num_epochs * num_samples + micro, micro))
    samples, epochs = stream(num_samples, cuts)
    for epoch in range(num_epochs):
        assert sorted(samples[epochs == epoch]) == list(range(num_samples))


def test_the_stream_is_the_same_however_it_is_cut() -> None:
    whole = samples_at(13, 1, 0, 100)
    for cuts in ([100], [1, 100], [13, 26, 100], [50, 51, 99, 100], list(range(1, 101))):
        pieces = stream(13, cuts)
        assert np.array_equal(pieces[0], whole[0]) and np.array_equal(pieces[1], whole[1])


def test_it_does_not_matter_what_was_read_before() -> None:
    expected = samples_at(11, 3, 40, 60)[0].copy()
    samples_at(11, 3, 0, 500)
    samples_at(11, 4, 40, 60)
    assert np.array_equal(samples_at(11, 3, 40, 60)[0], expected)


def test_what_is_handed_out_may_be_changed_without_harm() -> None:
    first, _ = samples_at(9, 1, 0, 9)
    expected = first.copy()
    first[:] = -1
    assert np.array_equal(samples_at(9, 1, 0, 9)[0], expected)


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = [
        tuple(samples_at(100, seed, e * 100, e * 100 + 100)[0])
        for seed in (0, 1, 2)
        for e in range(4)
    ]
    assert len(set(orders)) == len(orders)


def test_an_order_is_no_pattern() -> None:
    """Where a sample stands is uniform over epochs: the mean of 400 places is near the middle."""
    places = [
        int(np.where(samples_at(21, 1, e * 21, e * 21 + 21)[0] == 0)[0][0]) for e in range(400)
    ]
    assert abs(np.mean(places) - 10) < 5 * 6.06 / 20
    assert set(places) == set(range(21))


def test_nothing_is_asked_and_nothing_given() -> None:
    samples, epochs = samples_at(5, 1, 12, 12)
    assert len(samples) == len(epochs) == 0


def test_far_positions_are_as_good_as_near_ones() -> None:
    samples, epochs = samples_at(50_000, 1, 10**12, 10**12 + 3)
    assert set(epochs) == {10**12 // 50_000} and samples.max() < 50_000


def test_the_order_will_not_change_from_version_to_version() -> None:
    """Written down, because a run that goes on after an upgrade relies on it."""
    assert samples_at(10, 1, 5, 15)[0].tolist() == [8, 4, 9, 2, 6, 6, 8, 3, 5, 2]


def test_random_streams_are_the_same_for_a_key_and_others_for_another() -> None:
    def draw(*key: int) -> int:
        return int(generator(*key).integers(0, 2**62))

    keys = [(s, k, i) for s in range(3) for k in range(3) for i in range(5)]
    drawn = [draw(*key) for key in keys]
    assert drawn == [draw(*key) for key in keys] and len(set(drawn)) == len(keys)


def test_augmentation_of_a_micro_batch_is_not_that_of_another() -> None:
    first = micro_batch_generator(1, 0).integers(0, 2**62, 4)
    again = micro_batch_generator(1, 0).integers(0, 2**62, 4)
    second = micro_batch_generator(1, 1).integers(0, 2**62, 4)
    assert np.array_equal(first, again) and not np.array_equal(first, second)


def test_seeds_for_torch_are_valid_and_all_different() -> None:
    seeds = {torch_seed(seed, index) for seed in range(10) for index in range(200)}
    assert len(seeds) == 2000
    assert all(0 <= seed < 2**63 for seed in seeds)
