"""From lines to tokens, a piece at a time: what a worker does with one chunk of parallel text.

A piece is a file of its own, complete or absent, so that an interrupted preparation loses no more
than the pieces it was at. Putting the pieces together is `nmt_store`'s work.
"""

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from paceline.files import whole_file, write_whole
from paceline.tasks.nmt.preparation.text import REASONS, Chunk, Limits, clean, read_chunk
from paceline.tasks.nmt.vocabulary import Vocabulary, train_model

Tokens = npt.NDArray[Any]  # uint16, or uint32 where the vocabulary is larger than that
Lengths = npt.NDArray[np.int32]

SIDES: Final = ("source", "target")
LINES_PER_CHUNK: Final = 20_000
_LINES_PER_BATCH: Final = 2_000

# SentencePiece needs about seven bytes of memory for one of text when it learns pieces.
_MOST_SAMPLE_BYTES: Final = 100_000_000


@dataclass(frozen=True)
class PieceTask:
    chunk: Chunk
    limits: Limits
    model: Path
    model_sha256: str
    to: Path


@dataclass(frozen=True)
class PieceCounts:
    num_lines: int
    num_kept: int
    num_tokens: tuple[int, int]
    dropped: dict[str, int]
    was_there: bool


@dataclass(frozen=True)
class VocabularyTask:
    """A model to be made of a sample of the chunks' text."""

    chunks: tuple[Chunk, ...]
    num_bytes: int
    limits: Limits
    size: int
    is_limit: bool
    seed: int
    to: Path


def scramble(numbers: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.uint64]:
    """Distinct numbers to distinct random ones (splitmix64): a choice or an order from nothing.

    Written out because numpy does not promise that its generators stay the same for ever.
    """
    mixed = numbers + np.uint64(seed * 0xA0761D6478BD642F & 0xFFFFFFFFFFFFFFFF)
    mixed = (mixed + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def token_type(vocabulary_size: int) -> type[np.unsignedinteger[Any]]:
    return np.uint16 if vocabulary_size <= 1 << 16 else np.uint32


def flat_tokens(encoded: Sequence[Sequence[int]], dtype: Any) -> tuple[Tokens, Lengths]:
    """Sentences one after the other, and how long each is."""
    lengths = np.fromiter(map(len, encoded), np.int32, len(encoded))
    total = int(lengths.sum(dtype=np.int64))
    return np.fromiter(chain.from_iterable(encoded), dtype, total), lengths


def encode_piece(task: PieceTask) -> PieceCounts:
    """Clean and encode one chunk into `task.to`, unless that is there."""
    if (there := _counts_of(task)) is not None:
        return there
    vocabulary = _vocabulary(task.model, task.model_sha256)
    dtype = token_type(vocabulary.size)
    dropped: dict[str, int] = {}
    arrays: dict[str, list[npt.NDArray[Any]]] = {}
    for pairs in read_chunk(task.chunk, _LINES_PER_BATCH):
        for side, lines in zip(SIDES, clean(pairs, task.limits, dropped), strict=True):
            tokens, lengths = flat_tokens(vocabulary.encode(lines), dtype)
            arrays.setdefault(f"{side}_tokens", []).append(tokens)
            arrays.setdefault(f"{side}_lengths", []).append(lengths)
    joined = {name: np.concatenate(parts) for name, parts in arrays.items()}
    counts = np.array([dropped.get(reason, 0) for reason in REASONS], np.int64)
    _save(task.to, {**joined, "dropped": counts})
    return _counts(task, joined, counts, was_there=False)


def _save(to: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    with whole_file(to) as file:
        np.savez(file, allow_pickle=False, **arrays)


def _counts_of(task: PieceTask) -> PieceCounts | None:
    """What a piece from before holds; one that a power cut spoilt is as good as none."""
    try:
        with np.load(task.to) as piece:
            return _counts(task, piece, piece["dropped"], was_there=True)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        return None


def _counts(task: PieceTask, piece: Any, dropped: Any, was_there: bool) -> PieceCounts:
    lengths = [piece[f"{side}_lengths"] for side in SIDES]
    num_tokens = tuple(int(length.sum(dtype=np.int64)) for length in lengths)
    by_reason = dict(zip(REASONS, dropped.tolist(), strict=True))
    return PieceCounts(
        task.chunk.num_lines,
        len(lengths[0]),
        (num_tokens[0], num_tokens[1]),
        by_reason,
        was_there,
    )


@lru_cache(maxsize=1)
def _vocabulary(model: Path, sha256: str) -> Vocabulary:
    """Read once in each worker; the hash is there to tell models of one name apart."""
    return Vocabulary.load(model)


def learn_vocabulary(task: VocabularyTask) -> None:
    """Train on all of the text, or on a part of it chosen evenly if that would take too much."""
    if task.to.is_file():
        return
    write_whole(task.to, train_model(lambda: _sample(task), task.size, task.is_limit))


def _sample(task: VocabularyTask) -> Iterator[str]:
    """Sentences of both sides, the pairs chosen by number so that every run chooses the same."""
    share = min(1.0, _MOST_SAMPLE_BYTES / max(task.num_bytes, 1))
    highest = np.uint64(share * 0xFFFFFFFFFFFFF000)
    first = 0
    for chunk in task.chunks:
        for pairs in read_chunk(chunk, _LINES_PER_BATCH):
            numbers = np.arange(first, first + len(pairs), dtype=np.uint64)
            chosen = np.flatnonzero(scramble(numbers, ~task.seed) <= highest)
            sources, targets = clean([pairs[i] for i in chosen.tolist()], task.limits, {})
            yield from sources
            yield from targets
            first += len(pairs)
