"""The binary file of a W&B run: framing and the few records that matter, without wandb.

The framing is that of LevelDB's log: blocks of 32 KiB with records of a checksum, a length and a
kind (whole, first, middle, last). Inside are protocol buffers; the fields that are read here have
kept their numbers since the format exists.
"""

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

_MAGIC = b":W&B"
_HEAD = 7
_BLOCK = 32768
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_LARGEST_RECORD = 8 << 20
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_KEY, _NESTED_KEY, _VALUE_JSON = 1, 2, 16
_INTEGER, _NUMBER, _JSON = 5, 6, 8
"""Newer versions write numbers as such, not as text."""


class Record(NamedTuple):
    kind: str
    """history, stats, config or exit."""
    values: dict[str, Any]


def is_run_file(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def records(path: Path) -> Iterator[Record]:
    """Every record up to the end, or up to where the file is torn."""
    for content in _contents(path):
        found = _record(content)
        if found is not None:
            yield found


def _contents(path: Path) -> Iterator[bytes]:
    parts: list[bytes] = []
    with path.open("rb") as file:
        place = _HEAD
        file.seek(_HEAD)
        while True:
            left = _BLOCK - place % _BLOCK
            if left < _HEAD:
                file.seek(left, 1)
                place += left
                continue
            head = file.read(_HEAD)
            if len(head) < _HEAD:
                return
            length, kind = int.from_bytes(head[4:6], "little"), head[6]
            content = file.read(length)
            place += _HEAD + length
            if len(content) < length or not _WHOLE <= kind <= _LAST:
                return
            if kind in (_WHOLE, _FIRST):
                parts = []
            if sum(map(len, parts)) + length <= _LARGEST_RECORD:
                parts.append(content)
            if kind in (_WHOLE, _LAST):
                yield b"".join(parts)


def _record(content: bytes) -> Record | None:
    try:
        for number, value in _fields(content):
            if not isinstance(value, bytes):
                continue
            if number in _READ:
                kind, read = _READ[number]
                return Record(kind, read(value))
    except (IndexError, ValueError, RecursionError, struct.error):
        return None  # a damaged record
    return None


def _run_config(content: bytes) -> dict[str, Any]:
    config = _first(content, 4)
    return _items(config, 1) if isinstance(config, bytes) else {}


def _history(content: bytes) -> dict[str, Any]:
    return _items(content, 1)


def _stats(content: bytes) -> dict[str, Any]:
    return {**_items(content, 3), "_timestamp": _stamp(content)}


def _exit(content: bytes) -> dict[str, Any]:
    return {"exit_code": _first(content, 1) or 0}


_READ: dict[int, tuple[str, Callable[[bytes], dict[str, Any]]]] = {
    2: ("history", _history),
    5: ("config", _history),
    7: ("stats", _stats),
    17: ("config", _run_config),
    18: ("exit", _exit),
}
"""By the number of the field in a record."""


def _stamp(content: bytes) -> float | None:
    """Seconds and nanoseconds since 1970."""
    stamp = _first(content, 2)
    if not isinstance(stamp, bytes):
        return None
    seconds, nanos = _first(stamp, 1), _first(stamp, 2)
    whole = seconds if isinstance(seconds, int) else 0
    return whole + (nanos if isinstance(nanos, int) else 0) / 1e9


def _items(content: bytes, field: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in _fields(content):
        if number == field and isinstance(value, bytes):
            name, given = _item(value)
            if name:
                found[name] = given
    return found


def _item(content: bytes) -> tuple[str, Any]:
    names: list[str] = []
    given: Any = None
    for number, value in _fields(content):
        if number in (_KEY, _NESTED_KEY) and isinstance(value, bytes):
            names.append(value.decode("utf-8", "replace"))
        elif number in (_VALUE_JSON, _JSON) and isinstance(value, bytes):
            given = json.loads(value)
        elif number == _INTEGER and isinstance(value, int):
            given = (value >> 1) ^ -(value & 1)
        elif number == _NUMBER and isinstance(value, float):
            given = value
    return "/".join(filter(None, names)), given


def _first(content: bytes, field: int) -> int | float | bytes | None:
    return next((value for number, value in _fields(content) if number == field), None)


def _fields(content: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        kind = key & 7
        if kind == _VARINT:
            value, place = _varint(content, place)
            yield key >> 3, value
        elif kind == _FIXED_64:
            yield key >> 3, float(struct.unpack_from("<d", content, place)[0])
            place += 8
        elif kind == _FIXED_32:
            place += 4
        elif kind == _BYTES:
            length, place = _varint(content, place)
            if place + length > len(content):
                raise ValueError("a field is longer than its record")
            yield key >> 3, content[place : place + length]
            place += length
        else:
            raise ValueError("not a field")


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[place]
        place += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, place
        if shift > 63:
            raise ValueError("not a number")
