"""MATLAB's files of version 5, as far as ILSVRC's `meta.mat` needs them: arrays of records.

Written from the published description of the format. Sizes that a file gives are believed only as
far as its bytes go. Which fields matter is the affair of `imagenet_devkit`.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Any, Final

_HEADER_BYTES: Final = 128
_MATRIX, _COMPRESSED = 14, 15
_ENCODINGS: Final = {16: "utf-8", 17: "utf-16", 18: "utf-32"}
# numpy's and Python's letters for each type of number
_NUMBERS: Final = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 9: "d", 12: "q", 13: "Q"}
_CELL, _STRUCT, _CHARACTERS = 1, 2, 4
_FIRST_NUMERIC, _LAST_NUMERIC = 6, 15
_MOST_BYTES: Final = 200_000_000
_DEEPEST: Final = 8


class NotMatlabError(Exception):
    """The bytes are not what the format says."""


def read_matlab(content: bytes) -> dict[str, Any]:
    """Variables by name: numbers are lists, characters text, records lists of dictionaries."""
    if len(content) < _HEADER_BYTES or content[126:128] not in (b"IM", b"MI"):
        raise NotMatlabError("it does not begin as a MATLAB 5 file does")
    order = "<" if content[126:128] == b"IM" else ">"
    try:
        return dict(_variables(content[_HEADER_BYTES:], order))
    except (struct.error, zlib.error, ValueError, IndexError, KeyError) as error:
        raise NotMatlabError(f"it is damaged ({error})") from error


def _variables(content: bytes, order: str) -> Iterator[tuple[str, Any]]:
    for kind, element in _elements(content, order):
        if kind == _COMPRESSED:
            yield from _variables(_inflated(element), order)
        elif kind == _MATRIX:
            yield _array(element, order, 0)


def _inflated(content: bytes) -> bytes:
    inflate = zlib.decompressobj()
    inflated = inflate.decompress(content, _MOST_BYTES)
    if inflate.unconsumed_tail:
        raise NotMatlabError(f"it grows to more than {_MOST_BYTES:,} bytes")
    return inflated


def _elements(content: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Type and bytes of one element after the other; up to four bytes sit in the tag itself."""
    at = 0
    while at + 8 <= len(content):
        kind, num_bytes = struct.unpack_from(f"{order}II", content, at)
        if kind >> 16:
            yield kind & 0xFFFF, content[at + 4 : at + 4 + min(kind >> 16, 4)]
            at += 8
            continue
        if at + 8 + num_bytes > len(content):
            raise NotMatlabError("it ends in the middle of an element")
        yield kind, content[at + 8 : at + 8 + num_bytes]
        at += 8 + num_bytes
        at += -at % 8 if kind != _COMPRESSED else 0


def _array(content: bytes, order: str, depth: int) -> tuple[str, Any]:
    if depth > _DEEPEST:
        raise NotMatlabError("it is nested without end")
    if not content:
        return "", []
    parts = _elements(content, order)
    flags = _numbers(*next(parts), order)
    num_items = 1
    for length in _numbers(*next(parts), order):
        num_items *= int(length)
    name = next(parts)[1].decode("latin1")
    kind = int(flags[0]) & 0xFF
    if kind == _STRUCT:
        return name, _records(parts, num_items, order, depth)
    if kind == _CELL:
        return name, [_array(part, order, depth + 1)[1] for _, part in parts]
    if kind == _CHARACTERS:
        return name, _text(*next(parts), order)
    if _FIRST_NUMERIC <= kind <= _LAST_NUMERIC:
        return name, list(_numbers(*next(parts), order))
    raise NotMatlabError(f"it holds an array of class {kind}")


def _records(
    parts: Iterator[tuple[int, bytes]], num_items: int, order: str, depth: int
) -> list[dict[str, Any]]:
    (name_bytes,) = _numbers(*next(parts), order)
    block = next(parts)[1]
    width = int(name_bytes)
    names = [
        block[start : start + width].partition(b"\0")[0].decode("latin1")
        for start in range(0, len(block), width)
    ]
    values = [_array(part, order, depth + 1)[1] for _, part in parts]
    if len(values) != num_items * len(names):
        raise NotMatlabError(f"it has {len(values)} values for {num_items} records")
    rows = (values[i : i + len(names)] for i in range(0, len(values), len(names) or 1))
    return [dict(zip(names, row, strict=True)) for row in rows]


def _numbers(kind: int, content: bytes, order: str) -> tuple[Any, ...]:
    letter = _NUMBERS[kind]
    return struct.unpack(f"{order}{len(content) // struct.calcsize(letter)}{letter}", content)


def _text(kind: int, content: bytes, order: str) -> str:
    if kind in _ENCODINGS:
        ends = ("-le" if order == "<" else "-be") if kind != 16 else ""
        return content.decode(_ENCODINGS[kind] + ends)
    return "".join(map(chr, _numbers(kind, content, order)))
