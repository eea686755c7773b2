"""TensorBoard's event files: their framing, and the scalars in them. No TensorFlow, no torch.

A file is a row of records: 8 bytes of length, a checksum of those, the content, a checksum of it.
TensorBoard's own reader spends its time on those checksums in plain Python and needs half a second
to import; here numpy checks many records at once, and only small ones, because scalars are small.
"""

import re
import struct
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from paceline.errors import UserError

_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_LARGEST_CHECKED = 4096
_LARGEST_READ = 1 << 24
_BATCH = 4096
_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8
_SESSION_START = 1


class Scalar(NamedTuple):
    tag: str
    step: int
    time: float
    value: float


class Start(NamedTuple):
    """A writer took up a run again: what it had logged from this step on was lost."""

    step: int


def is_event_file(path: Path) -> bool:
    """By its content: the first record of every event file holds the version of the format."""
    try:
        with path.open("rb") as file:
            begin = file.read(_HEADER.size + 64)
    except OSError:
        return False
    return b"brain.Event:" in begin and _length_of(begin[: _HEADER.size]) is not None


def read_scalars(path: Path) -> Iterator[Scalar | Start]:
    """Every scalar up to the end, or up to where the file is torn or damaged."""
    try:
        with path.open("rb") as file:
            yield from scalars_of(file)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", "check its permissions") from None


def scalars_of(file: IO[bytes]) -> Iterator[Scalar | Start]:
    """From where the file stands, which must be the begin of a record."""
    from tensorboard.compat.proto import event_pb2  # noqa: PLC0415  (protobuf is slow to import)

    batch: list[bytes] = []
    for content in _records(file):
        batch.append(content)
        if len(batch) == _BATCH:
            yield from _scalars(batch, event_pb2.Event)
            batch = []
    yield from _scalars(batch, event_pb2.Event)


def _records(file: IO[bytes]) -> Iterator[bytes]:
    """The contents with their checksum at the end; large ones (pictures, graphs) are left out."""
    while (length := _length_of(file.read(_HEADER.size))) is not None:
        if length > _LARGEST_READ:
            file.seek(length + _CHECKSUM.size, 1)
            continue
        content = file.read(length + _CHECKSUM.size)
        if len(content) < length + _CHECKSUM.size:
            return
        yield content


def _length_of(header: bytes) -> int | None:
    """None at the end, and where the length is not the one whose checksum follows."""
    if len(header) < _HEADER.size:
        return None
    length, checksum = _HEADER.unpack(header)
    return length if _checksum_of_length(length) == checksum else None


def _scalars(contents: list[bytes], event_type: Any) -> Iterator[Scalar | Start]:
    whole, plain = _whole(contents), _PLAIN.fullmatch
    for content, is_whole in zip(contents, whole, strict=True):
        if not is_whole:
            continue
        if (match := plain(content)) and len(match[4]) == match[3][0]:
            time, step, _, tag, number = match.groups()
            found = (_tag(tag), _varint(step), *_DOUBLE.unpack(time), *_FLOAT.unpack(number))
            yield tuple.__new__(Scalar, found)  # its own constructor takes three times as long
            continue
        try:
            event = event_type.FromString(content[: -_CHECKSUM.size])
        except Exception:  # noqa: S112  (protobuf's error differs between its backends)
            continue
        if event.HasField("summary"):
            yield from _values(event)
        elif event.HasField("session_log") and event.session_log.status == _SESSION_START:
            yield Start(event.step)


_PLAIN = re.compile(
    rb"\x09(.{8})\x10([\x80-\xff]{0,8}[\x00-\x7f])\x2a[\x00-\x7f]"
    rb"\x0a[\x00-\x7f]\x0a([\x01-\x7f])(.{1,127})\x15(.{4}).{4}",
    re.DOTALL,
)
"""An event with one number, as nearly all are: time, step, the tag's length, the tag, the number,
and the checksum. Taking it apart like this is three times as fast as protobuf's way."""
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


@lru_cache(maxsize=65536)
def _tag(content: bytes) -> str:
    return content.decode("utf-8", errors="replace")


@lru_cache(maxsize=1024)
def _varint(content: bytes) -> int:
    number = 0
    for byte in reversed(content):
        number = number << 7 | (byte & 0x7F)
    return number


def _values(event: Any) -> Iterator[Scalar]:
    for value in event.summary.value:
        kind = value.WhichOneof("value")
        if kind == "simple_value":
            yield Scalar(value.tag, event.step, event.wall_time, value.simple_value)
        elif kind == "tensor" and (number := _number(value.tensor)) is not None:
            yield Scalar(value.tag, event.step, event.wall_time, number)


_TENSOR_TYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2"}
"""TensorFlow's numbers for the types of a tensor that can hold a scalar."""


def _number(tensor: Any) -> float | None:
    """The value of a tensor that holds one number; TensorFlow 2 logs scalars like this."""
    if any(dim.size != 1 for dim in tensor.tensor_shape.dim) or tensor.dtype not in _TENSOR_TYPES:
        return None
    if tensor.tensor_content:
        values = np.frombuffer(tensor.tensor_content, _TENSOR_TYPES[tensor.dtype])
        return float(values[0]) if len(values) == 1 else None
    if tensor.half_val:
        return float(np.array(tensor.half_val[:1], np.uint16).view(np.float16)[0])
    for values in (tensor.float_val, tensor.double_val, tensor.int_val, tensor.int64_val):
        if len(values) == 1:
            return float(values[0])
    return None


def _whole(contents: list[bytes]) -> list[bool]:
    """Which of the small records have the checksum that follows them; records of one length at
    a time, so that numpy takes a byte of all of them in one step."""
    whole = [True] * len(contents)
    by_length: dict[int, list[int]] = {}
    for place, content in enumerate(contents):
        if len(content) <= _LARGEST_CHECKED:
            by_length.setdefault(len(content), []).append(place)
    for length, places in by_length.items():
        block = np.frombuffer(b"".join(contents[place] for place in places), np.uint8)
        rows = block.reshape(len(places), length)
        wanted = np.ascontiguousarray(rows[:, -_CHECKSUM.size :]).view("<u4")[:, 0]
        found = masked_checksums(rows[:, : -_CHECKSUM.size])
        for number in np.flatnonzero(wanted != found):
            whole[places[int(number)]] = False
    return whole


def masked_checksums(rows: "np.ndarray[Any, np.dtype[np.uint8]]") -> Any:
    """CRC-32C of every row, turned and shifted as the format wants it."""
    table = _table()
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in range(rows.shape[1]):
        crc = table[(crc ^ rows[:, column]) & 0xFF] ^ (crc >> np.uint32(8))
    crc = ~crc
    turned = (crc >> np.uint32(15)) | (crc << np.uint32(17))
    return turned + np.uint32(_MASK_DELTA)


@lru_cache(maxsize=1)
def _table() -> Any:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table.astype(np.uint32)


@lru_cache(maxsize=4096)
def _checksum_of_length(length: int) -> int:
    row = np.frombuffer(struct.pack("<Q", length), np.uint8).reshape(1, 8)
    return int(masked_checksums(row)[0])
