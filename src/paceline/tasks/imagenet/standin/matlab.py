"""A `meta.mat` as ILSVRC's devkit has it: MATLAB version 5, one compressed array of records.

Only what that file needs: text and numbers in records. Reading is `imagenet_matlab`'s.
"""

import struct
import zlib
from collections.abc import Mapping, Sequence

_INT8, _UINT16, _INT32, _UINT32, _DOUBLE, _MATRIX, _COMPRESSED = 1, 4, 5, 6, 9, 14, 15
_STRUCT_CLASS, _CHAR_CLASS, _DOUBLE_CLASS = 2, 4, 6
_NAME_BYTES = 32


def matlab_file(name: str, records: Sequence[Mapping[str, str | float]]) -> bytes:
    """One variable: a column of records that all have the same fields."""
    text = b"MATLAB 5.0 MAT-file, a stand-in written by Paceline".ljust(116)
    header = text + bytes(8) + struct.pack("<H", 0x0100) + b"IM"
    packed = zlib.compress(_records(name, records))
    return header + struct.pack("<II", _COMPRESSED, len(packed)) + packed


def _records(name: str, records: Sequence[Mapping[str, str | float]]) -> bytes:
    fields = list(records[0])
    names = b"".join(field.encode().ljust(_NAME_BYTES, b"\0") for field in fields)
    content = _element(_INT32, struct.pack("<i", _NAME_BYTES)) + _element(_INT8, names)
    content += b"".join(_value(record[field]) for record in records for field in fields)
    return _matrix(_STRUCT_CLASS, (len(records), 1), name, content)


def _value(value: str | float) -> bytes:
    if isinstance(value, str):
        letters = value.encode("utf-16-le")
        return _matrix(_CHAR_CLASS, (1, len(letters) // 2), "", _element(_UINT16, letters))
    return _matrix(_DOUBLE_CLASS, (1, 1), "", _element(_DOUBLE, struct.pack("<d", value)))


def _matrix(kind: int, shape: tuple[int, int], name: str, content: bytes) -> bytes:
    head = _element(_UINT32, struct.pack("<II", kind, 0))
    head += _element(_INT32, struct.pack("<ii", *shape))
    return _element(_MATRIX, head + _element(_INT8, name.encode()) + content)


def _element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)
