"""CIFAR-10 as its authors publish it: the binary and the python version, read and checked.

Splits, cards and downloads are not made here; neither is anything believed that a file says about
itself: sizes, counts and labels are checked, and pickles may build nothing but plain values.
"""

import io
import json
import pickle
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.data.archive import read_files
from paceline.errors import UserError

Bytes = npt.NDArray[np.uint8]

PICTURE_SHAPE = (3, 32, 32)
PICTURE_BYTES = 3 * 32 * 32
RECORD_BYTES = 1 + PICTURE_BYTES
NUM_TRAIN = 50_000
NUM_TEST = 10_000
CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)

TRAIN_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST_BATCH = "test_batch"
BATCHES = (*TRAIN_BATCHES, TEST_BATCH)
BINARY_SUFFIX = ".bin"
BINARY_NAMES = "batches.meta.txt"
PYTHON_NAMES = "batches.meta"
STAND_IN_MARK = "stand-in.json"

_KNOWN_FILES = frozenset(
    [*BATCHES, *(b + BINARY_SUFFIX for b in BATCHES), BINARY_NAMES, PYTHON_NAMES, STAND_IN_MARK]
)
# the largest official one has 31.1 MB; contents are held in memory
_MOST_FILE_BYTES = 40_000_000


@dataclass(frozen=True, eq=False)
class Batch:
    """Pictures as rows of 3,072 bytes (red, green and blue planes), and their labels."""

    pictures: Bytes
    labels: Bytes


@dataclass(frozen=True, eq=False)
class Published:
    train: Batch
    test: Batch
    classes: tuple[str, ...]
    stand_in: dict[str, int] | None  # how it was drawn, if it was


def batch_sizes(num_train: int) -> list[int]:
    """How training pictures are spread over the five files: evenly, 10,000 each in the real one."""
    edges = [num_train * number // len(TRAIN_BATCHES) for number in range(len(TRAIN_BATCHES) + 1)]
    return [end - start for start, end in pairwise(edges)]


def known_files(directory: Path) -> list[Path]:
    """The files in an extracted directory that matter, in a fixed order."""
    return sorted(directory / n for n in _KNOWN_FILES if (directory / n).is_file())


def read_published(path: Path) -> Published:
    """An archive or an extracted directory of either version, told by what it holds."""
    contents = dict(_contents(path))
    has_binary = any(batch + BINARY_SUFFIX in contents for batch in BATCHES)
    suffix = BINARY_SUFFIX if has_binary else ""
    missing = [batch + suffix for batch in BATCHES if batch + suffix not in contents]
    if len(missing) == len(BATCHES):
        raise UserError(
            f"{path} is not CIFAR-10: neither data_batch_1.bin nor data_batch_1 is in it",
            "name cifar-10-binary.tar.gz, cifar-10-python.tar.gz, or a directory that holds either",
        )
    if missing:
        raise _broken(path, f"it lacks {', '.join(missing)}")
    stand_in = _read_mark(path, contents.get(STAND_IN_MARK))
    decode = _decode_binary if has_binary else _decode_pickle
    batches = [decode(path, batch + suffix, contents.pop(batch + suffix)) for batch in BATCHES]
    _check_counts(path, [len(batch.labels) for batch in batches], stand_in)
    return Published(
        train=_join(batches[:-1]),
        test=batches[-1],
        classes=_read_classes(path, contents),
        stand_in=stand_in,
    )


def _contents(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.is_dir():
        for file in known_files(path):
            _refuse_if_large(path, file.name, file.stat().st_size)
            yield file.name, file.read_bytes()
        return

    def is_wanted(member: tarfile.TarInfo) -> bool:
        if Path(member.name).name not in _KNOWN_FILES:
            return False
        _refuse_if_large(path, member.name, member.size)
        return True

    for name, content in read_files(path, is_wanted):
        yield Path(name).name, content


def _refuse_if_large(path: Path, name: str, num_bytes: int) -> None:
    if num_bytes > _MOST_FILE_BYTES:
        raise _broken(path, f"{name} has {num_bytes:,} bytes, more than it ever could")


def _broken(path: Path, why: str) -> UserError:
    return UserError(
        f"{path} is not a complete CIFAR-10: {why}",
        "download it again (paceline data cifar10 --from web)",
    )


def _join(batches: list[Batch]) -> Batch:
    return Batch(
        np.concatenate([batch.pictures for batch in batches]),
        np.concatenate([batch.labels for batch in batches]),
    )


def _check_counts(path: Path, found: list[int], stand_in: dict[str, int] | None) -> None:
    """A stand-in says how many pictures it has; anything else has as many as the real one."""
    counts = stand_in or {"num_train": NUM_TRAIN, "num_test": NUM_TEST}
    expected = [*batch_sizes(counts["num_train"]), counts["num_test"]]
    for batch, num_found, num_expected in zip(BATCHES, found, expected, strict=True):
        if num_found != num_expected:
            raise _broken(path, f"{batch} has {num_found:,} pictures and not {num_expected:,}")


def _read_mark(path: Path, content: bytes | None) -> dict[str, int] | None:
    if content is None:
        return None
    try:
        mark = json.loads(content)
        return {str(name): int(mark[name]) for name in ("drawing", "seed", "num_train", "num_test")}
    except (ValueError, TypeError, KeyError) as error:
        raise _broken(path, f"{STAND_IN_MARK} is not readable ({error!r})") from error


def _read_classes(path: Path, contents: dict[str, bytes]) -> tuple[str, ...]:
    if BINARY_NAMES in contents:
        names = contents[BINARY_NAMES].decode("utf-8", "replace").split()
    elif PYTHON_NAMES in contents:
        values = _unpickle(path, PYTHON_NAMES, contents[PYTHON_NAMES])
        names = [_text(name) for name in values.get("label_names", ())]
    else:
        return CLASSES
    if len(names) != len(CLASSES) or len(set(names)) != len(CLASSES):
        raise _broken(path, f"it names {len(names)} classes and not {len(CLASSES)}: {names}")
    return tuple(names)


def _decode_binary(path: Path, name: str, content: bytes) -> Batch:
    if not content or len(content) % RECORD_BYTES:
        raise _broken(
            path, f"{name} has {len(content):,} bytes, no multiple of {RECORD_BYTES:,} a picture"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD_BYTES)
    return _checked(path, name, Batch(records[:, 1:], records[:, 0]))


def _decode_pickle(path: Path, name: str, content: bytes) -> Batch:
    values = _unpickle(path, name, content)
    pictures, labels = values.get("data"), values.get("labels")
    if isinstance(pictures, _Array):
        pictures = pictures.value
    if isinstance(labels, _Array):
        labels = labels.value.tolist()
    if not isinstance(pictures, np.ndarray) or not isinstance(labels, list):
        raise _broken(path, f"{name} has no 'data' and 'labels' of the right kind")
    if pictures.ndim != 2 or pictures.shape[1] != PICTURE_BYTES or len(pictures) != len(labels):
        raise _broken(path, f"{name} has {len(labels)} labels for data of shape {pictures.shape}")
    if not all(type(label) is int and 0 <= label <= 255 for label in labels):
        raise _broken(path, f"{name} has labels that are not numbers from 0 to 9")
    return _checked(path, name, Batch(pictures, np.array(labels, np.uint8)))


def _checked(path: Path, name: str, batch: Batch) -> Batch:
    if batch.labels.size and batch.labels.max() >= len(CLASSES):
        raise _broken(path, f"{name} has a label {batch.labels.max()}; they go from 0 to 9")
    return batch


class _ForbiddenError(Exception):
    """A pickle asked for something that CIFAR-10 does not need."""


class _Dtype:
    """Stands for numpy.dtype in a pickle; bytes are all that pictures are made of."""

    def __init__(self, name: object, *_: object) -> None:
        if _text(name) not in ("u1", "uint8", "|u1"):
            raise _ForbiddenError(f"an array of type {name!r}")

    def __setstate__(self, state: object) -> None:
        """Byte order and alignment mean nothing for bytes."""


class _Array:
    """Stands for numpy.ndarray in a pickle, so that no numpy code sees a state it was handed."""

    value: Bytes

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, is_column_major, content = state
        self.value = _to_array(content, dtype, shape, "F" if is_column_major else "C")


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _from_buffer(content: Any, dtype: Any, shape: Any, order: Any = "C", *_: object) -> Bytes:
    return _to_array(content, dtype, shape, "F" if _text(order) == "F" else "C")


def _to_array(content: Any, dtype: Any, shape: Any, order: Any) -> Bytes:
    if not isinstance(dtype, _Dtype):
        raise _ForbiddenError("an array without a type")
    return np.frombuffer(bytes(content), np.uint8).reshape(shape, order=order)


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """What Python 3 writes for bytes in pickles that Python 2 should read."""
    if encoding not in ("latin1", "latin-1"):
        raise _ForbiddenError(f"the encoding {encoding!r}")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return _ALLOWED[module_name, global_name]
        except KeyError:
            raise _ForbiddenError(f"{module_name}.{global_name}") from None


def _unpickle(path: Path, name: str, content: bytes) -> dict[str, Any]:
    try:
        values = _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
    except _ForbiddenError as error:
        raise UserError(
            f"{path} is not safe to read: {name} asks for {error}, which CIFAR-10 does not need",
            "do not use this copy; download the official one (paceline data cifar10 --from web)",
        ) from error
    except Exception as error:  # a damaged pickle may raise anything at all
        raise _broken(path, f"{name} is damaged ({type(error).__name__}: {error})") from error
    if not isinstance(values, dict):
        raise _broken(path, f"{name} holds no dictionary")
    return {_text(key): value for key, value in values.items()}


def _text(value: object) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)
