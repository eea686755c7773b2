"""Parallel text: lines of two files that belong together, and which of them are fit for training.

A line ends at a line feed and nowhere else: web text is full of form feeds, lone carriage returns
and U+2028, and a reader that splits there as well pairs the wrong sentences from then on. Nothing
here knows of tokens, archives or a particular data set.
"""

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Final, cast

import numpy as np

from paceline.data.places import writing_to
from paceline.errors import UserError
from paceline.files import whole_file, write_whole

_BLOCK_BYTES: Final = 1 << 22
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"

UNDECODABLE: Final = "not UTF-8"
EMPTY: Final = "empty"
TOO_LONG: Final = "too long"
BAD_RATIO: Final = "length ratio"
LONG_WORD: Final = "overlong word"
REASONS: Final = (UNDECODABLE, EMPTY, TOO_LONG, BAD_RATIO, LONG_WORD)


@dataclass(frozen=True)
class Limits:
    """What a pair must keep to; a word is what stands between blanks.

    The numbers are those of Moses' clean-corpus-n, which the published WMT systems used (1 to 80
    words, one side at most nine times the other, no word over 1,000 characters).
    """

    max_words: int = 80
    max_ratio: float = 9.0
    max_word_characters: int = 1000


@dataclass(frozen=True)
class LineIndex:
    """Where every `lines_per_chunk`-th line of a file starts, so that chunks can be read alone."""

    num_lines: int
    num_bytes: int
    chunk_starts: tuple[int, ...]


@dataclass(frozen=True)
class Chunk:
    """The same lines of two files."""

    source: Path
    target: Path
    source_start: int
    target_start: int
    num_lines: int


def reason_to_drop(source: str, target: str, limits: Limits) -> str | None:
    """Why a pair cannot be used for training; None if it can."""
    source_words, target_words = source.split(), target.split()
    shorter, longer = sorted((len(source_words), len(target_words)))
    if shorter == 0:
        return EMPTY
    if longer > limits.max_words:
        return TOO_LONG
    if longer > shorter * limits.max_ratio:
        return BAD_RATIO
    # only a line longer than the limit can hold a word longer than the limit
    for line, its_words in ((source, source_words), (target, target_words)):
        if len(line) > limits.max_word_characters and (
            max(map(len, its_words)) > limits.max_word_characters
        ):
            return LONG_WORD
    return None


def decode_line(line: bytes) -> str | None:
    """The line without the blanks around it; None if it is not UTF-8."""
    try:
        return line.decode().strip()
    except UnicodeDecodeError:
        return None


def clean(
    pairs: list[tuple[bytes, bytes]], limits: Limits, dropped: dict[str, int]
) -> tuple[list[str], list[str]]:
    """The pairs to keep, side by side; the others are counted in `dropped` by their reason."""
    sources: list[str] = []
    targets: list[str] = []
    reason: str | None
    for source_line, target_line in pairs:
        source, target = decode_line(source_line), decode_line(target_line)
        if source is None or target is None:
            reason = UNDECODABLE
        elif (reason := reason_to_drop(source, target, limits)) is None:
            sources.append(source)
            targets.append(target)
            continue
        dropped[reason] = dropped.get(reason, 0) + 1
    return sources, targets


def index_lines(path: Path, lines_per_chunk: int) -> LineIndex:
    """Count the lines; a last line without an end counts as well."""
    starts, num_lines, position = [0], 0, 0
    last = b"\n"
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
            # a chunk starts after the line feeds number k * lines_per_chunk, counted from one
            first = -(num_lines + 1) % lines_per_chunk
            starts += (position + 1 + ends[first::lines_per_chunk]).tolist()
            num_lines += len(ends)
            position += len(block)
            last = block[-1:]
    num_lines += last != b"\n"
    num_chunks = -(-num_lines // lines_per_chunk)
    return LineIndex(num_lines, position, tuple(starts[:num_chunks]))


def chunks(source: Path, target: Path, lines_per_chunk: int) -> list[Chunk]:
    """Two files cut at the same lines; a UserError unless both have the same number, above none."""
    indexes = (index_lines(source, lines_per_chunk), index_lines(target, lines_per_chunk))
    for path, index in zip((source, target), indexes, strict=True):
        if index.num_lines == 0:
            raise UserError(f"{path} is empty", "it should hold one sentence per line")
    first, second = indexes
    if first.num_lines != second.num_lines:
        raise UserError(
            f"{source} has {first.num_lines:,} lines and {target} has {second.num_lines:,}",
            "line n of one must be the translation of line n of the other: "
            "get both files again, or cut both to the part that is parallel",
        )
    return [
        Chunk(source, target, starts[0], starts[1], min(lines_per_chunk, first.num_lines - done))
        for done, starts in zip(
            range(0, first.num_lines, lines_per_chunk),
            zip(first.chunk_starts, second.chunk_starts, strict=True),
            strict=True,
        )
    ]


def read_chunk(chunk: Chunk, lines_per_batch: int) -> Iterator[list[tuple[bytes, bytes]]]:
    """The pairs of a chunk, a batch at a time so that memory stays small."""
    with chunk.source.open("rb") as source, chunk.target.open("rb") as target:
        _start_at(source, chunk.source_start)
        _start_at(target, chunk.target_start)
        for done in range(0, chunk.num_lines, lines_per_batch):
            num_lines = min(lines_per_batch, chunk.num_lines - done)
            yield list(zip(islice(source, num_lines), islice(target, num_lines), strict=True))


def _start_at(file: IO[bytes], start: int) -> None:
    file.seek(start)
    if start == 0 and file.read(len(_BYTE_ORDER_MARK)) != _BYTE_ORDER_MARK:
        file.seek(0)


def read_lines(path: Path) -> list[str]:
    """A small file for scoring, where no line may be lost: a bad one is an error, not dropped."""
    content = path.read_bytes().removeprefix(_BYTE_ORDER_MARK)
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    decoded = [decode_line(line) for line in lines]
    if None in decoded:
        raise UserError(
            f"{path}, line {decoded.index(None) + 1:,} is not UTF-8",
            "sentences for validation and test are never dropped: repair or convert the file",
        )
    return [line for line in decoded if line is not None]


def write_lines(path: Path, lines: list[str]) -> None:
    write_whole(path, "".join(f"{line}\n" for line in lines))


def unpack_gzip(path: Path, to: Path) -> None:
    """A gzip file as a plain one; complete or absent."""
    try:
        with gzip.open(path) as file:
            write_stream(cast(IO[bytes], file), to)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(
            f"{path} is damaged or was not downloaded to its end ({error})",
            "get it again",
        ) from error


def write_stream(file: IO[bytes], to: Path) -> None:
    """A file under its own name is always whole: a resumed preparation trusts it."""
    with writing_to(to.parent), whole_file(to) as written:
        while block := file.read(_BLOCK_BYTES):
            written.write(block)
