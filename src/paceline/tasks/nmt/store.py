"""The store of prepared parallel text: flat arrays of tokens on disk, read where they lie.

Pair i of a split is `tokens[offsets[i] : offsets[i + 1]]` on either side, without start and end
tokens. A batcher needs no more than the lengths to decide on batches, and slices to fill them; the
validation and test splits also carry their raw text, for scores are computed on that.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from paceline.data.card import CARD_NAME, read_card, spoilt
from paceline.data.prepared import open_array
from paceline.errors import UserError
from paceline.tasks.nmt.preparation.pieces import (
    SIDES,
    Lengths,
    Tokens,
    flat_tokens,
    scramble,
    token_type,
)
from paceline.tasks.nmt.preparation.text import read_lines, write_lines
from paceline.tasks.nmt.vocabulary import MODEL_NAME, Vocabulary

WORKLOAD: Final = "nmt"
SPLITS: Final = ("train", "validation", "test")
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pairs:
    """One split; the token arrays are mapped from disk and cost no memory until they are read."""

    source_tokens: Tokens
    source_offsets: Offsets
    target_tokens: Tokens
    target_offsets: Offsets
    directory: Path
    split: str

    def __len__(self) -> int:
        return len(self.source_offsets) - 1

    @cached_property
    def source_lengths(self) -> Lengths:
        return np.diff(self.source_offsets).astype(np.int32)

    @cached_property
    def target_lengths(self) -> Lengths:
        return np.diff(self.target_offsets).astype(np.int32)

    def source(self, index: int) -> Tokens:
        return self.source_tokens[self.source_offsets[index] : self.source_offsets[index + 1]]

    def target(self, index: int) -> Tokens:
        return self.target_tokens[self.target_offsets[index] : self.target_offsets[index + 1]]

    def source_text(self) -> list[str]:
        return self._text("source")

    def target_text(self) -> list[str]:
        return self._text("target")

    def _text(self, side: str) -> list[str]:
        path = self.directory / text_name(self.split, side)
        if not path.is_file():
            raise UserError(
                f"there is no raw text of the {self.split} split in {self.directory}",
                "only validation and test keep it; if it was removed, prepare the data again",
            )
        return read_lines(path)


@dataclass(frozen=True)
class MergeTask:
    """One side of the training split, put together from its pieces in the order of the store."""

    side: str
    pieces: tuple[Path, ...]
    vocabulary_size: int
    seed: int
    to: Path


def tokens_name(split: str, side: str) -> str:
    return f"{split}.{side}.tokens.npy"


def offsets_name(split: str, side: str) -> str:
    return f"{split}.{side}.offsets.npy"


def text_name(split: str, side: str) -> str:
    return f"{split}.{side}.txt"


def file_names(split: str) -> list[str]:
    """Every name that a directory of prepared data may hold for a split, or for all of them."""
    kinds = (tokens_name, offsets_name, text_name)
    return [CARD_NAME, MODEL_NAME, *(name(split, side) for name in kinds for side in SIDES)]


def pairs_within_limit(pairs: Pairs, limit: int) -> npt.NDArray[np.int64]:
    """The numbers of the pairs that have at most so many pieces on both sides."""
    usable = np.flatnonzero(np.maximum(pairs.source_lengths, pairs.target_lengths) <= limit)
    if not len(usable):
        raise UserError(
            f"no pair in {pairs.directory} has at most {limit} pieces on both sides",
            "raise max_length",
        )
    return usable


def split_counts(directory: Path, split: str) -> dict[str, int]:
    """What the card says of a split."""
    counts: dict[str, int] = {}
    for side in SIDES:
        lengths = np.diff(np.load(directory / offsets_name(split, side)))
        counts["num_pairs"] = len(lengths)
        counts[f"num_{side}_tokens"] = int(lengths.sum())
        counts[f"longest_{side}"] = int(lengths.max(initial=0))
    return counts


def merge_side(task: MergeTask) -> None:
    """Every piece is read once and its sentences are written to their places."""
    by_piece = [_from_piece(piece, f"{task.side}_lengths") for piece in task.pieces]
    lengths = np.concatenate(by_piece).astype(np.int32)
    order = np.argsort(scramble(np.arange(len(lengths), dtype=np.uint64), task.seed))
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths[order], out=offsets[1:])
    starts = np.empty(len(lengths), np.int64)
    starts[order] = offsets[:-1]
    tokens = np.lib.format.open_memmap(
        task.to / tokens_name("train", task.side),
        "w+",
        token_type(task.vocabulary_size),
        (int(offsets[-1]),),
    )
    first = 0
    for piece, piece_lengths in zip(task.pieces, by_piece, strict=True):
        last = first + len(piece_lengths)
        _scatter(
            tokens, _from_piece(piece, f"{task.side}_tokens"), starts[first:last], piece_lengths
        )
        first = last
    tokens.flush()
    np.save(task.to / offsets_name("train", task.side), offsets)


def _from_piece(piece: Path, name: str) -> npt.NDArray[Any]:
    with np.load(piece) as arrays:
        array: npt.NDArray[Any] = arrays[name]
    return array


def _scatter(tokens: Tokens, piece: Tokens, starts: Offsets, lengths: Lengths) -> None:
    here = np.zeros(len(lengths), np.int64)
    np.cumsum(lengths[:-1], out=here[1:])
    tokens[np.repeat(starts - here, lengths) + np.arange(len(piece))] = piece


def write_evaluation_split(
    directory: Path, split: str, texts: tuple[list[str], list[str]], vocabulary: Vocabulary
) -> None:
    """Every sentence in its order, nothing cleaned: scores are for all of a test set."""
    for side, lines in zip(SIDES, texts, strict=True):
        tokens, lengths = flat_tokens(vocabulary.encode(lines), token_type(vocabulary.size))
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        np.save(directory / tokens_name(split, side), tokens)
        np.save(directory / offsets_name(split, side), offsets)
        write_lines(directory / text_name(split, side), lines)


def open_split(directory: Path, split: str) -> Pairs:
    """A split as it was prepared; sizes are compared with the card, contents are not hashed."""
    card = read_card(directory, WORKLOAD)
    there = [name for name in SPLITS if name in card.get("splits", {})]
    if split not in there:
        raise UserError(
            f"the data in {directory} has no split '{split}'", f"choose one of {', '.join(there)}"
        )
    pairs = Pairs(
        open_array(directory, tokens_name(split, "source"), card),
        open_array(directory, offsets_name(split, "source"), card),
        open_array(directory, tokens_name(split, "target"), card),
        open_array(directory, offsets_name(split, "target"), card),
        directory,
        split,
    )
    if len(pairs.target_offsets) != len(pairs.source_offsets):
        raise spoilt(directory, WORKLOAD, f"the two sides of '{split}' have different lengths")
    return pairs
