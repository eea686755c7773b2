"""Batches of any form: moved, measured and compared."""

from collections import UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from paceline.tasks.batch_values import find_difference, num_bytes, stage, to_device
from paceline.tasks.stream import samples_of

CPU = torch.device("cpu")
Pair = namedtuple("Pair", "x y")


@dataclass(frozen=True)
class Text:
    tokens: np.ndarray
    words: tuple[str, ...] = ("a", "b")


@pytest.mark.parametrize(
    "batch",
    [
        (np.ones(3), np.zeros(3)),
        {"x": np.ones(3), "y": [np.zeros(3)]},
        Pair(np.ones(3), np.zeros(3)),
        Text(np.ones(6)),
        UserDict(x=np.ones(6)),
    ],
)
def test_arrays_become_tensors_wherever_they_are(batch: Any) -> None:
    moved = to_device(batch, CPU)
    assert num_bytes(batch) == num_bytes(moved) == 48
    assert find_difference(to_device(batch, CPU), moved) is None


def test_arrays_that_torch_would_not_take_are_copied() -> None:
    fixed = np.arange(4)
    fixed.flags.writeable = False
    moved = to_device([fixed, np.arange(4)[::-1], np.array(["a"])], CPU)
    assert moved[0].tolist() == [0, 1, 2, 3] and moved[1].tolist() == [3, 2, 1, 0]
    assert isinstance(moved[2], np.ndarray)


def test_a_staged_batch_is_one_piece_of_memory_and_the_same_batch() -> None:
    channels_last = torch.arange(24.0).view(2, 2, 2, 3).permute(0, 3, 1, 2)
    batch = {
        "pictures": channels_last,
        "every other": np.arange(10)[::2],
        "flags": np.array([True, False, True]),
        "texts": Text(np.arange(3, dtype=np.int16)),
        "empty": np.zeros((0, 4)),
    }
    staged = stage(batch, CPU)
    arrived = staged.arrive(CPU)
    assert find_difference(arrived, to_device(batch, CPU)) is None
    assert arrived["pictures"].stride() == channels_last.stride()
    start, size = staged.memory.data_ptr(), staged.memory.nbytes
    tensors = [arrived["pictures"], arrived["flags"], arrived["texts"].tokens]
    assert all(start <= tensor.data_ptr() < start + size for tensor in tensors)
    assert to_device(batch, torch.device("meta"))["pictures"].stride() == channels_last.stride()


@pytest.mark.parametrize(
    ("one", "other", "place"),
    [
        ((1, np.ones(2)), (1, np.array([1.0, 2.0])), "[1]"),
        ({"a": torch.ones(2)}, {"a": torch.zeros(2)}, "['a']"),
        (Text(np.ones(2)), Text(np.ones(2), ("a", "c")), ".words[1]"),
        ([1], [1, 2], "its form"),
        (np.ones(2, np.float32), np.ones(2), "its value"),
    ],
)
def test_the_first_difference_is_named(one: Any, other: Any, place: str) -> None:
    assert place in (find_difference(one, other) or "")


def test_what_is_no_number_equals_itself_and_small_floats_compare() -> None:
    for value in (np.array([np.nan]), torch.ones(2, dtype=torch.bfloat16), "text", None):
        assert find_difference((value,), (value,)) is None


def test_sample_numbers_index_arrays_and_tensors_and_know_their_split() -> None:
    samples = samples_of([3, 1], "validation")
    assert np.arange(10)[samples].tolist() == torch.arange(10)[samples].tolist() == [3, 1]
    first: Any = samples[:1]
    assert first.split == "validation" and samples.epochs is None
