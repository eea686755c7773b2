"""Token batches: every pair once an epoch, full batches, the same wherever they are asked for."""

import numpy as np
import pytest

from paceline.data.text_batches import TextBatches

LENGTHS = np.random.default_rng(0).integers(1, 60, size=3000).astype(np.int32)


def batches(size: int = 400, by: str = "tokens", seed: int = 1) -> TextBatches:
    return TextBatches(LENGTHS, size, by, seed)


@pytest.mark.parametrize("by", ["tokens", "sentences"])
def test_every_pair_comes_once_in_every_epoch(by: str) -> None:
    stream = batches(100, by)
    for epoch in range(3):
        first = epoch * stream.per_epoch
        seen = [stream.pairs(index) for index in range(first, first + stream.per_epoch)]
        assert sorted(np.concatenate(seen).tolist()) == list(range(len(LENGTHS)))


def test_no_batch_has_more_tokens_than_asked_for_and_most_are_nearly_full() -> None:
    stream = batches(400)
    sums = [int(LENGTHS[stream.pairs(index)].sum()) for index in range(stream.per_epoch)]
    assert max(sums) <= 400
    assert np.median(sums) > 370


def test_the_number_of_tokens_is_known_without_reading_the_batch() -> None:
    stream = batches(400)
    for index in (0, 5, stream.per_epoch, 7 * stream.per_epoch + 3):
        assert stream.num_tokens(index) == LENGTHS[stream.pairs(index)].sum()


def test_a_batch_holds_sentences_of_similar_length() -> None:
    stream = batches(400)
    spreads = [np.ptp(LENGTHS[stream.pairs(index)]) for index in range(stream.per_epoch)]
    assert np.mean(spreads) < 2


def test_epochs_differ_in_order_and_in_who_meets_whom() -> None:
    stream = batches(400)
    first = {tuple(sorted(stream.pairs(index).tolist())) for index in range(stream.per_epoch)}
    second = {
        tuple(sorted(stream.pairs(stream.per_epoch + index).tolist()))
        for index in range(stream.per_epoch)
    }
    assert len(first & second) < len(first) / 10


def test_a_batch_is_a_function_of_seed_and_number_alone() -> None:
    once, again, other = batches(), batches(), batches(seed=2)
    _ = once.pairs(0)
    assert once.pairs(500).tolist() == again.pairs(500).tolist()
    assert once.pairs(500).tolist() != other.pairs(500).tolist()


def test_a_sentence_longer_than_a_batch_is_a_batch_of_its_own() -> None:
    stream = TextBatches(np.array([3, 900, 2, 800], dtype=np.int32), 100, "tokens", 1)
    assert sorted(sorted(stream.pairs(index).tolist()) for index in range(3)) == [[0, 2], [1], [3]]


def test_sentence_batches_have_the_number_asked_for() -> None:
    stream = batches(128, "sentences")
    sizes = sorted(len(stream.pairs(index)) for index in range(stream.per_epoch))
    assert sizes == [3000 % 128, *[128] * (3000 // 128)]
