"""The lines of a text log as a person would see them, read as a stream whatever its size.

Compressed or not; ended by LF, CRLF or CR (progress bars renew their line with it); without the
colours of a terminal and without what a launcher put before it. Nothing here knows what a line
means.
"""

import bz2
import codecs
import gzip
import lzma
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from paceline.errors import UserError

_CHUNK_BYTES = 1 << 20
_LONGEST_LINE = 1 << 20
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_TORN_WORD = re.compile(r"\S+$")

_BINARY_SHARE = 0.3

_PREFIX = re.compile(
    r"""\s{0,6}(?:
      (?:\w{3}\ \w{3}\ [ \d]\d\ [\d:]{8}\ \d{4})?  # mpirun --timestamp-output --tag-output
      \[(?:[^\[\]\s]*?\d,)?(\d+)\]<std(?:out|err)>:\s?
      |(\d{1,5}):\ (?=\D)                    # srun --label
      |\[(?:default|rank)(\d+)\]:\s?         # torchrun
      |\[pod/([^\]\s]+)\]\ ?                 # kubectl logs --prefix
      |([\w.-]+-\d+)\ +\|\                   # docker compose
    )""",
    re.VERBOSE,
)
_BEGINS_LIKE_A_PREFIX = frozenset(" [0123456789")
_STAMP = re.compile(
    r"\s*\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?:?\s*"
    r"(?:[-|]\s*)?(?:\[?(?:INFO|DEBUG|WARNING|ERROR)\]?\s*[-:|]?\s*)?"
)


class Line(str):
    """A line without the prefix that says which process printed it."""

    __slots__ = ("who",)
    who: str

    @classmethod
    def of(cls, text: str, who: str) -> "Line":
        line = cls(text)
        line.who = who
        return line


def who_printed(line: str) -> str:
    """The rank or the pod that a launcher's prefix named; empty where there was none."""
    return line.who if isinstance(line, Line) else ""


def without_stamp(line: str) -> str:
    """Without the date and the level that a logger put before the text."""
    if line[:1] not in _BEGINS_LIKE_A_PREFIX:
        return line
    match = _STAMP.match(line)
    return line[match.end() :] if match else line


def _without_prefix(line: str) -> str:
    begin = line[:60]
    if begin[0] not in _BEGINS_LIKE_A_PREFIX and " | " not in begin and "]<std" not in begin:
        return line
    match = _PREFIX.match(line)
    if match is None:
        return line
    who = next(group for group in match.groups() if group is not None)
    return Line.of(line[match.end() :], who)


def text_lines(path: Path) -> Iterator[str]:
    yield from lines_of(_decoded(path))


def lines_of(texts: Iterator[str]) -> Iterator[str]:
    """Every line that is not empty; a torn end loses its last word, which may be half a number."""
    rest = ""
    for text in texts:
        *whole, rest = _plain(rest + text).replace("\r", "\n").split("\n")
        yield from filter(None, map(_without_prefix, filter(None, whole)))
        if len(rest) > _LONGEST_LINE:
            yield rest
            rest = ""
    rest = _TORN_WORD.sub("", rest)
    if rest.strip():
        yield _without_prefix(rest)


def looks_like_text(path: Path) -> bool:
    """False for pictures, weights and archives, whose bytes are rarely printable."""
    begin = next(_decoded(path), "")[:4096]
    strange = sum(1 for c in begin if c == "\ufffd" or (c < " " and c not in "\t\r\n\x1b\b"))
    return not begin or strange / len(begin) < _BINARY_SHARE


def _plain(text: str) -> str:
    return _ANSI.sub("", text) if "\x1b" in text else text


def _decoded(path: Path) -> Iterator[str]:
    try:
        with _open(path) as file:
            decoder: codecs.IncrementalDecoder | None = None
            while chunk := _next_chunk(file):
                if decoder is None:
                    decoder = codecs.getincrementaldecoder(_encoding(chunk))(errors="replace")
                yield decoder.decode(chunk)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"cannot read {path}: {reason}", "check its name and permissions") from None


def _next_chunk(file: IO[bytes]) -> bytes:
    try:
        # Not `read`: it would lose what it had before it found that the file was cut off.
        return cast(bytes, file.read1(_CHUNK_BYTES))  # type: ignore[attr-defined]
    except (EOFError, zlib.error, lzma.LZMAError):
        return b""  # a compressed log that was cut off ends where it was cut


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        begin = file.read(6)
    if begin.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.open(path, "rb"))
    if begin.startswith(b"BZh"):
        return cast(IO[bytes], bz2.open(path, "rb"))
    if begin.startswith(b"\xfd7zXZ"):
        return cast(IO[bytes], lzma.open(path, "rb"))
    return path.open("rb")


def _encoding(begin: bytes) -> str:
    """PowerShell's `>` writes UTF-16."""
    if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return "utf-8-sig"


def plain_lines(text: str) -> Iterator[str]:
    """The same of a text that is in memory."""
    return filter(None, _plain(text).replace("\r", "\n").split("\n"))
