"""The steps from pictures as they were downloaded to pictures as they are trained on.

Every picture is read and decoded once, on all cores: threads, for the decoders let go of Python's
lock. What happens to good ones depends on the layout; broken ones are listed. Which pictures there
are is told by `imagenet_sources`, what the outside sees of all this by `imagenet`.
"""

import json
import shutil
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from paceline.data.card import describe_file
from paceline.data.progress import BYTES, Progress, Say
from paceline.data.threads import in_order
from paceline.errors import UserError
from paceline.tasks.imagenet.preparation.journal import Journal
from paceline.tasks.imagenet.preparation.pictures import BrokenPictureError, plain_picture
from paceline.tasks.imagenet.preparation.sources import Piece, Source, Unit
from paceline.tasks.imagenet.preparation.write_shards import (
    Entry,
    ShardTask,
    bucket_name,
    bucket_record,
    read_part,
    shard_of,
    write_shard,
)
from paceline.tasks.imagenet.shards import FOLDERS, INDEX, SHARDS, SPLITS, index_name, paths_name

FOLDER_OF: Final = {"train": "train", "validation": "val"}
_MOST_SHARDS: Final = 400  # all their buckets are open at once, and 1,024 files are a usual limit
_SHARDS_AT_ONCE: Final = 2  # each takes a shard's size of memory while it is put in order


@dataclass(frozen=True)
class Work:
    """One preparation on its way; `in_place`: the pictures stay where they are."""

    directory: Path
    source: Source
    layout: str
    in_place: bool
    max_side: int | None
    shard_bytes: int
    seed: int
    num_threads: int
    say: Say

    @property
    def new(self) -> Path:
        """What is to become the directory of prepared data."""
        return self.directory / "new"

    @property
    def parts(self) -> Path:
        return self.directory / "parts"

    def units(self, split: str) -> list[Unit]:
        return [unit for unit in self.source.units if unit.split == split]

    def num_shards(self, split: str) -> int:
        num_bytes = sum(unit.num_bytes for unit in self.units(split))
        return min(max(1, round(num_bytes / self.shard_bytes)), _MOST_SHARDS)


@dataclass(frozen=True)
class Good:
    entry: Entry
    content: bytes
    """what is to be stored; empty when that is done"""
    changes: tuple[str, ...]
    path: str
    """from the root of the tree"""
    given_bytes: int
    """of the picture as it was found"""


@dataclass(frozen=True)
class Broken:
    name: str
    reason: str


def pack(work: Work) -> list[dict[str, Any]]:
    """All that the pictures become in `work.new`; the journal's entries tell what was met."""
    work.new.mkdir(exist_ok=True)
    work.parts.mkdir(exist_ok=True)
    with closing(Journal(work.directory / "growing")) as journal:
        with ThreadPoolExecutor(work.num_threads) as pool:
            _read_all(work, journal, pool)
        _check_classes(work, journal.entries)
        if work.layout == SHARDS:
            _finish_shards(work, journal)
        else:
            _finish_folders(work, journal)
    return journal.entries


def _read_all(work: Work, journal: Journal, pool: ThreadPoolExecutor) -> None:
    units = work.source.units
    total_bytes = sum(unit.num_bytes for unit in units)
    with Progress("reading pictures", BYTES, total_bytes, work.say) as progress:
        for unit in units:
            is_done = journal.is_done(unit.split, unit.name)
            if not is_done:
                _read_unit(work, unit, journal, pool)
            progress.advance(unit.num_bytes, was_there=is_done)


def _read_unit(work: Work, unit: Unit, journal: Journal, pool: ThreadPoolExecutor) -> None:
    changes: Counter[str] = Counter()
    per_class: Counter[int] = Counter()
    broken: list[Broken] = []
    given_bytes = 0

    def check(piece: Piece) -> Good | Broken:
        return _checked(work, unit, piece)

    num_shards = work.num_shards(unit.split)
    for place, result in enumerate(in_order(pool, check, unit.pieces(), 4 * work.num_threads)):
        if isinstance(result, Broken):
            broken.append(result)
            continue
        changes.update(result.changes)
        per_class[result.entry.label] += 1
        given_bytes += result.given_bytes
        if work.layout == SHARDS:
            shard = shard_of(work.seed, unit.name, place, num_shards)
            record = bucket_record(result.entry, result.content)
            journal.append(bucket_name(unit.split, shard), record)
        else:
            _list_path(journal, unit.split, result)
    journal.commit(
        {
            "split": unit.split,
            "unit": unit.name,
            "num_per_class": dict(per_class),
            "given_bytes": given_bytes,
            "changes": dict(changes),
            "broken": [[picture.name, picture.reason] for picture in broken],
        }
    )


def _checked(work: Work, unit: Unit, piece: Piece) -> Good | Broken:
    with piece.path.open("rb") as file:
        file.seek(piece.offset)
        content = file.read(piece.num_bytes)
    try:
        picture = plain_picture(content, work.max_side)
    except BrokenPictureError as error:
        return Broken(piece.name, str(error))
    wnid = work.source.classes[piece.label][0]
    stored = content if work.in_place else picture.content
    name = piece.name if unit.split != "train" or wnid in piece.name else f"{wnid}_{piece.name}"
    entry = Entry(name, piece.label, picture.width, picture.height, zlib.crc32(stored))
    path = f"{FOLDER_OF[unit.split]}/{wnid}/{piece.name}"
    if work.in_place:
        path = piece.path.relative_to(work.source.location).as_posix()
    elif work.layout == FOLDERS:
        _write_file(work.new / path, stored)
    keep = stored if work.layout == SHARDS else b""
    return Good(entry, keep, picture.changes, path, len(content))


def _write_file(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _check_classes(work: Work, entries: list[dict[str, Any]]) -> None:
    """A class of which nothing can be used would make every score wrong without a word."""
    good = {split: Counter[int]() for split in SPLITS}
    for entry in entries:
        good[entry["split"]].update({int(label): n for label, n in entry["num_per_class"].items()})
    useless = [
        wnid for label, (wnid, _) in enumerate(work.source.classes) if not good["train"][label]
    ]
    if useless:
        raise _nothing_decodes(work, f"training picture of the class {useless[0]}")
    if not good["validation"]:
        raise _nothing_decodes(work, "validation picture")


def _nothing_decodes(work: Work, what: str) -> UserError:
    return UserError(
        f"no {what} can be decoded", f"look at those in {work.source.location}: what are they?"
    )


# ------------------------------------------------------------------------------ shards


def shard_tasks(work: Work, journal: Journal, split: str) -> list[ShardTask]:
    return [
        ShardTask(
            bucket=journal.path(bucket_name(split, number)),
            num_bucket_bytes=journal.sizes.get(bucket_name(split, number), 0),
            split=split,
            number=number,
            seed=work.seed,
            parts=work.parts,
            to=work.new,
        )
        for number in range(work.num_shards(split))
    ]


def _finish_shards(work: Work, journal: Journal) -> None:
    tasks = {split: shard_tasks(work, journal, split) for split in SPLITS}
    all_tasks = [task for split in SPLITS for task in tasks[split]]
    with (
        Progress("shuffling and storing", "shards", len(all_tasks), work.say) as progress,
        ThreadPoolExecutor(min(work.num_threads, _SHARDS_AT_ONCE)) as pool,
    ):
        for _ in in_order(pool, write_shard, all_tasks, _SHARDS_AT_ONCE):
            progress.advance(1)
    for split in SPLITS:
        rows = [read_part(task)[1] for task in tasks[split]]
        np.save(work.new / index_name(split), np.concatenate(rows))


def described_files(work: Work) -> dict[str, dict[str, Any]]:
    """Hashes of shards were taken while they were written; reading them all again is saved."""
    known = {}
    for file in work.parts.glob("*.json"):
        described: dict[str, Any] = json.loads(file.read_text())
        known[described["name"]] = described
    names = sorted(path.name for path in work.new.iterdir() if path.is_file())
    return {name: known.get(name) or describe_file(work.new / name) for name in names}


# ----------------------------------------------------------------------------- folders


def _rows_name(split: str) -> str:
    return f"{split}.rows"


def _list_path(journal: Journal, split: str, good: Good) -> None:
    """The place in the list is set when the list is complete."""
    path = good.path.encode("utf-8", "surrogateescape")
    entry = good.entry
    row = np.zeros(1, INDEX)
    is_plain = not good.changes
    row[0] = (0, len(path), 0, entry.crc32, entry.width, entry.height, entry.label, is_plain)
    journal.append(_rows_name(split), row.tobytes())
    journal.append(paths_name(split), path)


def _finish_folders(work: Work, journal: Journal) -> None:
    for split in SPLITS:
        rows = np.fromfile(journal.path(_rows_name(split)), INDEX)
        rows["offset"][1:] = np.cumsum(rows["num_bytes"].astype(np.uint64))[:-1]
        if not work.in_place:
            rows["is_plain"] = 1
        shutil.copyfile(journal.path(paths_name(split)), work.new / paths_name(split))
        np.save(work.new / index_name(split), rows)
