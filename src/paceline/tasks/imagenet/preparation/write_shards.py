"""Pictures dealt to shards, and shards written: shuffled over all classes in bounded memory.

Archives hold one class after the other. Every picture is first appended to the bucket of a shard,
dealt so that each shard gets its share of each class; a bucket, which is as large as a shard, is
then put in random order and written. Which shard and which place is a function of the seed and the
picture's place in its archive alone. How shards are read is told in `shards`.
"""

import hashlib
import json
import os
import struct
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from paceline.errors import UserError
from paceline.files import whole_file, write_whole
from paceline.tasks.imagenet.shards import INDEX, Index, read_soon, shard_name

_RECORD: Final = struct.Struct("<IIIIHH")  # bytes, crc32, width, height, label, bytes of the name
_LONGEST_NAME_BYTES: Final = 1024  # file systems end at 255
_END_OF_TAR: Final = bytes(2 * tarfile.BLOCKSIZE)


@dataclass(frozen=True)
class Entry:
    """What the index says of a picture wherever it lies."""

    name: str
    label: int
    width: int
    height: int
    crc32: int


@dataclass(frozen=True)
class ShardTask:
    bucket: Path
    num_bucket_bytes: int
    split: str
    number: int
    seed: int
    parts: Path
    to: Path

    @property
    def name(self) -> str:
        return shard_name(self.split, self.number)

    @property
    def rows(self) -> Path:
        """Written last: where it is, the shard is complete."""
        return self.parts / f"{self.name}.npy"

    @property
    def description(self) -> Path:
        return self.parts / f"{self.name}.json"


def bucket_name(split: str, number: int) -> str:
    return f"{split}-{number:05d}.bucket"


def shard_of(seed: int, unit: str, place: int, num_shards: int) -> int:
    """A deck of all shards is dealt out to the end before the next: no shard gets two more
    pictures of a class than another."""
    deck, card = divmod(place, num_shards)
    return int(_deck(seed, unit, deck, num_shards)[card])


@lru_cache(maxsize=4)
def _deck(seed: int, unit: str, deck: int, num_shards: int) -> npt.NDArray[np.intp]:
    return _random_order(num_shards, seed, zlib.crc32(unit.encode()), deck)


def _random_order(num_items: int, *key: int) -> npt.NDArray[np.intp]:
    """From raw bits: numpy promises those for a seed, and no stream of anything above them."""
    bits = np.random.SFC64(np.random.SeedSequence(key)).random_raw(num_items)
    return np.argsort(np.asarray(bits, np.uint64), kind="stable")


def bucket_record(entry: Entry, content: bytes) -> bytes:
    name = entry.name.encode("utf-8", "surrogateescape")
    head = _RECORD.pack(
        len(content), entry.crc32, entry.width, entry.height, entry.label, len(name)
    )
    return head + name + content


def write_shard(task: ShardTask) -> int:
    """The tar, its part of the index, its hash; then the bucket may go. The number of pictures."""
    if task.rows.is_file():
        task.bucket.unlink(missing_ok=True)
        return len(np.load(task.rows))
    with whole_file(task.to / task.name) as file:
        digest, rows = _write_tar(task, file)
        num_bytes = file.tell()
    described = {"name": task.name, "bytes": num_bytes, "sha256": digest}
    write_whole(task.description, json.dumps(described))
    with whole_file(task.rows) as file:
        np.save(file, rows)
    task.bucket.unlink(missing_ok=True)
    return len(rows)


def read_part(task: ShardTask) -> tuple[dict[str, Any], Index]:
    """What `write_shard` left: the description of the file, and its rows of the index."""
    rows: Index = np.load(task.rows)
    described: dict[str, Any] = json.loads(task.description.read_text())
    return described, rows


def _write_tar(task: ShardTask, file: IO[bytes]) -> tuple[str, Index]:
    digest = hashlib.sha256()
    at = 0

    def write(content: bytes) -> None:
        nonlocal at
        file.write(content)
        digest.update(content)
        at += len(content)

    with _opened(task) as bucket:
        records = list(_records(task, bucket))
        rows = np.zeros(len(records), INDEX)
        order = _random_order(len(records), task.seed, zlib.crc32(task.name.encode()))
        for place, number in enumerate(order):
            entry, start, num_bytes = records[number]
            stem = Path(entry.name).stem.replace(".", "_")
            write(_tar_head(f"{stem}.jpg", num_bytes))
            rows[place] = (
                at,
                num_bytes,
                task.number,
                entry.crc32,
                entry.width,
                entry.height,
                entry.label,
                1,
            )
            content = os.pread(bucket.fileno(), num_bytes, start)
            if zlib.crc32(content) != entry.crc32:
                raise _lost(task)
            write(content)
            label = str(entry.label).encode()
            write(_padding(num_bytes) + _tar_head(f"{stem}.cls", len(label)) + label)
            write(_padding(len(label)))
    write(_END_OF_TAR)
    write(bytes(-at % tarfile.RECORDSIZE))
    return digest.hexdigest(), rows


def _records(task: ShardTask, bucket: IO[bytes]) -> Iterator[tuple[Entry, int, int]]:
    at = 0
    while at < task.num_bucket_bytes:
        head = os.pread(bucket.fileno(), _RECORD.size + _LONGEST_NAME_BYTES, at)
        num_bytes, crc32, width, height, label, name_bytes = _RECORD.unpack_from(head)
        name = head[_RECORD.size : _RECORD.size + name_bytes].decode("utf-8", "surrogateescape")
        start = at + _RECORD.size + name_bytes
        yield Entry(name, label, width, height, crc32), start, num_bytes
        at = start + num_bytes
        if at > task.num_bucket_bytes:
            raise _lost(task)


@contextmanager
def _opened(task: ShardTask) -> Iterator[IO[bytes]]:
    """Read ahead from front to back, so that taking pictures in random order finds them in memory
    that is the system's to take back, and not this process's to hold."""
    num_bytes = task.bucket.stat().st_size if task.bucket.is_file() else 0
    if num_bytes != task.num_bucket_bytes:
        raise _lost(task)
    with (task.bucket if num_bytes else Path(os.devnull)).open("rb") as bucket:
        if num_bytes:
            read_soon(bucket.fileno(), 0, 0)
        yield bucket


def _tar_head(name: str, num_bytes: int) -> bytes:
    """Without times and owners, so that equal pictures make equal shards."""
    member = tarfile.TarInfo(name)
    member.size = num_bytes
    return member.tobuf(tarfile.GNU_FORMAT, "utf-8")


def _padding(num_bytes: int) -> bytes:
    return bytes(-num_bytes % tarfile.BLOCKSIZE)


def _lost(task: ShardTask) -> UserError:
    return UserError(
        f"{task.bucket} is not what an interrupted preparation wrote (did the machine lose power?)",
        f"remove {task.bucket.parent.parent} and run the command again: it begins anew",
    )
