"""ILSVRC 2012 prepared for training: what is asked for, where it comes from, where it goes.

The steps in between are `imagenet_pack`'s; pictures are read with `shards.open_pictures`.

Everything happens in a directory beside the one asked for, which takes its name only when all is
there. So a preparation that was interrupted, however, goes on where it was, and ends with the same
bytes as one that was not.
"""

import hashlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from paceline.data.card import CARD_NAME, read_card, write_card
from paceline.data.places import data_directory, require_space, stand_in_name, writing_to
from paceline.data.prepared import (
    directory_beside,
    is_done,
    is_intact,
    put_in_place,
    refuse_foreign,
    unfinished_beside,
)
from paceline.data.progress import Say
from paceline.errors import UserError
from paceline.files import expand_home, write_whole
from paceline.machine.cores import num_cores
from paceline.tasks.imagenet.preparation.card import describe, summary, what_was_met
from paceline.tasks.imagenet.preparation.folders import find_tree, from_folders
from paceline.tasks.imagenet.preparation.pack import Work, pack
from paceline.tasks.imagenet.preparation.pictures import BrokenPictureError, plain_picture
from paceline.tasks.imagenet.preparation.sources import TRAIN_NAME, Source, from_archives
from paceline.tasks.imagenet.shards import (
    CLASSES_NAME,
    FOLDERS,
    SHARDS,
    SPLITS,
    WAYS,
    WORKLOAD,
    index_name,
    paths_name,
)
from paceline.tasks.imagenet.standin import archives as photos_archives
from paceline.units import format_bytes

_FORMAT: Final = 1
_SEED: Final = 2012
_SHARD_BYTES: Final = 512_000_000
_STAND_IN_SHARD_BYTES: Final = 4_000_000
_MOST_THREADS: Final = 64
_SHARD_PATTERN: Final = re.compile(r"(train|validation)-\d{5}\.tar")
_OVERHEAD: Final = 1.03  # heads of members and labels beside pictures, or ends of disk blocks
# Beyond this, sizes are compared and contents only if asked for: reading 148 GB takes its time.
_HASHED_AT_MOST_BYTES: Final = 4_000_000_000


@dataclass(frozen=True)
class Options:
    """What can be asked for; None leaves a choice to the source."""

    layout: str | None = None
    max_side: int | None = None
    num_pictures: int = 60
    """stand-in: training pictures of each class"""
    verify: bool = False
    """read again what is there already, however large, and compare hashes"""
    shard_bytes: int | None = None
    num_threads: int | None = None


def default_directory(source: str) -> Path:
    """Where `paceline data imagenet` puts it when nothing else is said."""
    return data_directory(stand_in_name(WORKLOAD) if source == "stand-in" else WORKLOAD)


def prepare(source: str, to: Path, options: Options, say: Say) -> Path:
    """Pictures from `stand-in` or a path in directory `to`, ready for training."""
    to = expand_home(to).resolve()
    _check(options)
    _refuse_foreign(to)
    if source == "stand-in":
        return _prepare_stand_in(to, options, say)
    found = _find(source, to)
    _refuse_to_shrink_in_place(found, options)
    key = _key(found.kind, found.identity, options)
    if is_done(to, key, summary, say, partial(_is_whole, options)):
        return to
    _require_space(found, to, options)
    _say_what_is_read(found, say)
    with writing_to(to.parent), directory_beside(to, key, say) as directory:
        _fill(found, directory, to, (key, options), say)
    return to


def _check(options: Options) -> None:
    if options.layout not in (None, SHARDS, FOLDERS):
        raise UserError(f"there is no layout '{options.layout}'", f"say {SHARDS} or {FOLDERS}")
    if options.max_side is not None and options.max_side < 32:
        raise UserError(
            f"pictures of {options.max_side} pixels show nothing", "ask for --max-side 32 or more"
        )
    if options.num_pictures < 2:
        raise UserError(f"{options.num_pictures} picture of a class is too few", "--pictures 2")


def _refuse_foreign(to: Path) -> None:
    ours = {CARD_NAME, CLASSES_NAME, *map(index_name, SPLITS), *map(paths_name, SPLITS)}
    if to.is_dir():
        ours |= {path.name for path in to.iterdir() if _SHARD_PATTERN.fullmatch(path.name)}
        if _is_our_tree(to):
            ours |= {"train", "val"}
    refuse_foreign(to, WORKLOAD, ours)


def _is_our_tree(to: Path) -> bool:
    """Folders of pictures are ours to replace only if our card says that we wrote them."""
    try:
        card = read_card(to, WORKLOAD, WAYS)
        return bool(card["layout"] == FOLDERS and card["pictures_in"] is None)
    except (UserError, KeyError):
        return False


# ----------------------------------------------------------------- where it comes from


def _find(source: str, to: Path) -> Source:
    path = expand_home(source)
    if source == "web":
        raise UserError(
            "ILSVRC 2012 is given out by image-net.org to those who have agreed to its terms, and "
            "cannot be fetched from here",
            f"download {TRAIN_NAME} and the two files beside it, then say --from THEIR-DIRECTORY",
        )
    if path.is_file():
        path = path.parent
    if not path.is_dir():
        raise UserError(
            f"there is nothing at '{source}' to take ImageNet from",
            "say --from stand-in, or --from PATH of the directory with the three archives",
        )
    if path.resolve() == to:
        raise UserError(f"{to} cannot be both source and result", "name another place with --to")
    tree = find_tree(path)
    if tree is not None and not (path / TRAIN_NAME).is_file():
        return from_folders(tree, path)
    return from_archives(path)


def _prepare_stand_in(to: Path, options: Options, say: Say) -> Path:
    identity = photos_archives.description(options.num_pictures)
    key = _key("stand-in", identity, options)
    if is_done(to, key, summary, say, partial(_is_whole, options)):
        return to
    require_space(to, photos_archives.needed_bytes(options.num_pictures))
    with writing_to(to.parent), directory_beside(to, key, say) as directory:
        archives = directory / "archives"
        photos_archives.write_archives(archives, options.num_pictures, _num_threads(options), say)
        _fill(from_archives(archives), directory, to, (key, options), say)
    return to


def _key(kind: str, identity: dict[str, Any], options: Options) -> str:
    """One string for everything that decides about the bytes in the end."""
    layout = options.layout or (FOLDERS if kind == "folders" else SHARDS)
    asked = [layout, options.max_side, options.shard_bytes]
    decides = {"format": _FORMAT, "kind": kind, "pictures": identity, "asked": asked}
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def _stays_in_place(found: Source, options: Options) -> bool:
    return found.kind == "folders" and options.layout != SHARDS


def _refuse_to_shrink_in_place(found: Source, options: Options) -> None:
    if _stays_in_place(found, options) and options.max_side is not None:
        raise UserError(
            f"pictures in {found.location} are read as they are, and cannot be made smaller there",
            "add --layout shards, which makes a copy, or leave out --max-side",
        )


def _require_space(found: Source, to: Path, options: Options) -> None:
    """Before hours of work. Shrinking may need less: how much, a few pictures tell."""
    if _stays_in_place(found, options):
        return
    num_bytes = sum(unit.num_bytes for unit in found.units) * _OVERHEAD
    if options.max_side is not None:
        num_bytes *= _share_after_shrinking(found, options.max_side)
    # each picture lies in a bucket or in a shard, and for two shards at a time in both
    needed = round(num_bytes) + 2 * min(_shard_bytes(found, options), round(num_bytes))
    unfinished = unfinished_beside(to)
    if unfinished.is_dir():
        needed -= sum(file.stat().st_size for file in unfinished.rglob("*") if file.is_file())
    require_space(to, max(0, needed))


def _share_after_shrinking(found: Source, max_side: int) -> float:
    before = after = 0
    for piece in found.units[0].pieces()[:50]:
        with piece.path.open("rb") as file:
            file.seek(piece.offset)
            content = file.read(piece.num_bytes)
        try:
            after += len(plain_picture(content, max_side).content)
            before += len(content)
        except BrokenPictureError:
            continue
    return min(1.0, 1.2 * after / before) if before else 1.0


def _say_what_is_read(found: Source, say: Say) -> None:
    total = format_bytes(sum(unit.num_bytes for unit in found.units))
    say(f"reading {found.location}: {len(found.classes):,} classes, {total}")


# ------------------------------------------------------------------------ where it goes


def _num_threads(options: Options) -> int:
    return options.num_threads or min(num_cores(), _MOST_THREADS)


def _shard_bytes(found: Source, options: Options) -> int:
    return options.shard_bytes or (_STAND_IN_SHARD_BYTES if found.stand_in else _SHARD_BYTES)


def _fill(found: Source, directory: Path, to: Path, asked: tuple[str, Options], say: Say) -> None:
    key, options = asked
    in_place = _stays_in_place(found, options)
    work = Work(
        directory=directory,
        source=found,
        layout=FOLDERS if in_place else options.layout or SHARDS,
        in_place=in_place,
        max_side=options.max_side,
        shard_bytes=_shard_bytes(found, options),
        seed=_SEED,
        num_threads=_num_threads(options),
        say=say,
    )
    if not (work.new / CARD_NAME).is_file():
        entries = pack(work)
        lines = "".join(f"{wnid}\t{words}\n" for wnid, words in found.classes)
        write_whole(work.new / CLASSES_NAME, lines)
        write_card(work.new, describe(work, entries, key))
    put_in_place(work.new, to)
    for line in what_was_met(read_card(to, WORKLOAD, WAYS)):
        say(line)
    say(summary(to))


def _is_whole(options: Options, to: Path, card: dict[str, Any]) -> bool:
    arrays: dict[str, dict[str, Any]] = card["arrays"]
    total_bytes = sum(file["bytes"] for file in arrays.values())
    if not options.verify and total_bytes > _HASHED_AT_MOST_BYTES:
        return all((to / name).stat().st_size == file["bytes"] for name, file in arrays.items())
    with ThreadPoolExecutor(_num_threads(options)) as pool:
        return all(pool.map(lambda name: is_intact(to / name, arrays[name]), arrays))
