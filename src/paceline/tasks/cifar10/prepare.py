"""CIFAR-10 prepared for training: from an archive, the web or a stand-in to arrays on disk.

The official file formats are read in `cifar10_files`, the stand-in is drawn in
`synthetic.pictures`; batches and augmentation are made elsewhere.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.data.card import (
    CARD_NAME,
    describe_file,
    fingerprint,
    read_card,
    spoilt,
    write_card,
)
from paceline.data.fetch import Source, fetch
from paceline.data.places import data_directory, data_home, stand_in_name, writing_to
from paceline.data.prepared import is_done, open_array, put_in_place, refuse_foreign
from paceline.data.progress import Say
from paceline.errors import UserError
from paceline.files import expand_home
from paceline.tasks.cifar10 import standin as pictures
from paceline.tasks.cifar10.files import (
    PICTURE_SHAPE,
    RECORD_BYTES,
    Batch,
    Bytes,
    Published,
    known_files,
    read_published,
)
from paceline.units import format_bytes

WORKLOAD = "cifar10"
SPLITS = ("train", "validation", "test")
CLASSES_NAME = "classes.txt"
BINARY = Source(
    file_name="cifar-10-binary.tar.gz",
    mirrors=(
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "https://cave.cs.toronto.edu/kriz/cifar-10-binary.tar.gz",
    ),
    # its md5, which the authors publish: c32a1d4ab5d03f1284b67883e8d87530
    checksum="sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    size_bytes=170_052_171,
)
PYTHON = Source(
    file_name="cifar-10-python.tar.gz",
    mirrors=(
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "https://cave.cs.toronto.edu/kriz/cifar-10-python.tar.gz",
    ),
    # md5: c58f30108f718f92721af3b95e74349a
    checksum="sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    size_bytes=170_498_071,
)

_EXTRACTED = ("cifar-10-batches-bin", "cifar-10-batches-py")
_ARCHIVES = ("*.tar.gz", "*.tgz", "*.tar", "*.tar.xz", "*.tar.bz2")
_VALIDATION_SEED = 10
_VALIDATION_SHARE = 10  # one picture in ten: 5,000 of 50,000
_STATISTICS_CHUNK = 5_000


@dataclass(frozen=True, eq=False)
class Pictures:
    """One split: pictures (N, 3, 32, 32) uint8, read from disk as they are used."""

    images: Bytes
    labels: npt.NDArray[np.int64]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class _Origin:
    """Where data comes from; equal keys mean equal data."""

    kind: str
    location: str
    key: str
    files: tuple[dict[str, Any], ...] = ()
    is_official: bool = False


def default_directory(source: str) -> Path:
    """Where `paceline data cifar10` puts it when nothing else is said."""
    return data_directory(stand_in_name(WORKLOAD) if source == "stand-in" else WORKLOAD)


def prepare(source: str, to: Path, say: Say) -> Path:
    """Data from `web`, `stand-in` or a path, ready for training in directory `to`."""
    to = expand_home(to).resolve()
    arrays = {f"{split}-{part}.npy" for split in SPLITS for part in ("images", "labels")}
    refuse_foreign(to, WORKLOAD, {*arrays, CARD_NAME, CLASSES_NAME})
    if source == "web":
        _prepare_from_web(to, say)
    elif source == "stand-in":
        _prepare_stand_in(to, say)
    else:
        path = _find(source)
        say(f"reading {path}")
        _prepare_from(path, _origin_of(path, say), to, say)
    return to


def open_split(directory: Path, split: str) -> Pictures:
    """A split as `prepare` wrote it; sizes are compared with the card, contents are not hashed."""
    if split not in SPLITS:
        raise UserError(f"cifar10 has no split '{split}'", f"choose one of {', '.join(SPLITS)}")
    card = read_card(directory, WORKLOAD)
    images = open_array(directory, f"{split}-images.npy", card)
    labels = open_array(directory, f"{split}-labels.npy", card)
    if images.dtype != np.uint8 or images.shape != (len(labels), *PICTURE_SHAPE):
        raise spoilt(directory, WORKLOAD, f"{split}-images.npy has the shape {images.shape}")
    return Pictures(images, labels.astype(np.int64), tuple(card["classes"]))


def _prepare_from_web(to: Path, say: Say) -> None:
    key = BINARY.checksum.partition(":")[2]
    if not is_done(to, key, _summary, say):
        archive = fetch(BINARY, data_home() / "downloads", say)
        say(f"reading {archive}")
        origin = _Origin("web", BINARY.mirrors[0], key, (describe_file(archive),), True)
        _prepare_from(archive, origin, to, say)


def _prepare_stand_in(to: Path, say: Say) -> None:
    drawn = pictures.description()
    key = "stand-in " + " ".join(f"{name}={value}" for name, value in drawn.items())
    if is_done(to, key, _summary, say):
        return
    say(f"drawing {drawn['num_train'] + drawn['num_test']:,} pictures of ten figures")
    with _directory_beside(to) as work:
        archive = pictures.write_archive(work / BINARY.file_name)
        origin = _Origin("stand-in", "drawn here", key, (describe_file(archive),))
        _prepare_from(archive, origin, to, say)


def _prepare_from(path: Path, origin: _Origin, to: Path, say: Say) -> None:
    if is_done(to, origin.key, _summary, say):
        return
    published = read_published(path)
    with _directory_beside(to) as work:
        new = work / "new"
        new.mkdir()
        card = _write_data(new, published)
        write_card(new, {**_describe_origin(origin, published), **card})
        put_in_place(new, to)
    say(_summary(to))


def _summary(to: Path) -> str:
    card = read_card(to, WORKLOAD)
    counts = ", ".join(f"{card['splits'][s]['num_pictures']:,} {s}" for s in SPLITS)
    drawn = " drawn" if card["stand_in"] else ""
    return (
        f"{to} holds {counts}{drawn} pictures, {format_bytes(card['total_mb'] * 1e6)} "
        f"(fingerprint {card['fingerprint']})"
    )


def _find(source: str) -> Path:
    """The archive or extracted directory that a path leads to."""
    path = expand_home(source)
    if path.is_file() or (path.is_dir() and known_files(path)):
        return path
    if not path.is_dir():
        raise UserError(
            f"there is nothing at '{source}' to take CIFAR-10 from",
            "say --from web, --from stand-in, or --from PATH of an archive or a directory",
        )
    for name in _EXTRACTED:
        if (path / name).is_dir():
            return path / name
    return _find_archive(path)


def _find_archive(directory: Path) -> Path:
    for name in (BINARY.file_name, PYTHON.file_name):
        if (directory / name).is_file():
            return directory / name
    found = sorted(file for pattern in _ARCHIVES for file in directory.glob(pattern))
    if len(found) == 1:
        return found[0]
    names = ", ".join(file.name for file in found)
    raise UserError(
        f"{directory} holds " + (f"several archives: {names}" if found else "no CIFAR-10"),
        "name the archive itself"
        if found
        else "put cifar-10-binary.tar.gz there, or name its path",
    )


def _origin_of(path: Path, say: Say) -> _Origin:
    location = str(path.absolute())
    if path.is_dir():
        files = tuple(describe_file(file) for file in known_files(path))
        key = fingerprint({file["name"]: file["sha256"] for file in files})
        return _Origin("path", location, key, files)
    file = describe_file(path)
    is_official = f"sha256:{file['sha256']}" in (BINARY.checksum, PYTHON.checksum)
    if not is_official and _looks_official(file):
        say(f"{path}: not the official archive (checksum differs); using it as it is")
    return _Origin("path", location, file["sha256"], (file,), is_official)


def _looks_official(file: dict[str, Any]) -> bool:
    return any(
        file["name"] == official.file_name or file["bytes"] == official.size_bytes
        for official in (BINARY, PYTHON)
    )


def _write_data(directory: Path, published: Published) -> dict[str, Any]:
    """The arrays, and what the card says of them."""
    is_validation = _choose_validation(published.train.labels)
    batches = {
        "train": _rows(published.train, ~is_validation),
        "validation": _rows(published.train, is_validation),
        "test": published.test,
    }
    for split, batch in batches.items():
        np.save(directory / f"{split}-images.npy", batch.pictures.reshape(-1, *PICTURE_SHAPE))
        np.save(directory / f"{split}-labels.npy", batch.labels)
    (directory / CLASSES_NAME).write_text("".join(f"{name}\n" for name in published.classes))
    mean, std = _channel_statistics(batches["train"].pictures)
    return {
        "classes": list(published.classes),
        "splits": {
            split: {**_count(batch, published.classes), **_sizes(directory, split, batch)}
            for split, batch in batches.items()
        },
        "channel_mean": mean,
        "channel_std": std,
        **_describe_arrays(directory),
    }


def _describe_arrays(directory: Path) -> dict[str, Any]:
    arrays = {file.name: describe_file(file) for file in sorted(directory.iterdir())}
    return {
        "total_mb": round(sum(array["bytes"] for array in arrays.values()) / 1e6, 1),
        "arrays": arrays,
        "fingerprint": fingerprint({name: array["sha256"] for name, array in arrays.items()}),
    }


def _describe_origin(origin: _Origin, published: Published) -> dict[str, Any]:
    return {
        "workload": WORKLOAD,
        "source": {
            "kind": origin.kind,
            "location": origin.location,
            "key": origin.key,
            "is_official": origin.is_official,
        },
        "files": list(origin.files),
        "stand_in": published.stand_in,
    }


def _choose_validation(labels: Bytes) -> npt.NDArray[np.bool_]:
    """One picture in ten of every class, always the same ones.

    RandomState, because numpy promises never to change what a seed gives there.
    """
    random = np.random.RandomState(_VALIDATION_SEED)
    chosen = np.zeros(len(labels), np.bool_)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        num_chosen = max(len(rows) // _VALIDATION_SHARE, int(len(rows) > 1))
        chosen[rows[random.permutation(len(rows))[:num_chosen]]] = True
    return chosen


def _rows(batch: Batch, which: npt.NDArray[np.bool_]) -> Batch:
    return Batch(batch.pictures[which], batch.labels[which])


def _count(batch: Batch, classes: tuple[str, ...]) -> dict[str, Any]:
    counts = np.bincount(batch.labels, minlength=len(classes))
    per_class = {name: int(count) for name, count in zip(classes, counts, strict=True)}
    return {"num_pictures": len(batch.labels), "num_per_class": per_class}


def _sizes(directory: Path, split: str, batch: Batch) -> dict[str, Any]:
    """Of one split: as its authors publish it, before compression, and as it is stored here."""
    stored = sum(file.stat().st_size for file in directory.glob(f"{split}-*.npy"))
    given = {"bytes": RECORD_BYTES * len(batch.labels), "form": "pixels and labels"}
    return {"given": given, "stored_bytes": stored}


def _channel_statistics(rows: Bytes) -> tuple[list[float], list[float]]:
    """Mean and deviation per channel, of values from 0 to 1.

    From counts of the 256 values, which are whole numbers: the same figures on every machine.
    """
    num_channels = PICTURE_SHAPE[0]
    counts = np.zeros((num_channels, 256), np.int64)
    for start in range(0, len(rows), _STATISTICS_CHUNK):
        chunk = rows[start : start + _STATISTICS_CHUNK].reshape(-1, num_channels, 32 * 32)
        for channel in range(num_channels):
            counts[channel] += np.bincount(chunk[:, channel].ravel(), minlength=256)
    values = np.arange(256) / 255
    mean = counts @ values / counts.sum(axis=1)
    variance = counts @ values**2 / counts.sum(axis=1) - mean**2
    return [round(m, 6) for m in mean.tolist()], [round(s, 6) for s in np.sqrt(variance).tolist()]


@contextmanager
def _directory_beside(to: Path) -> Iterator[Path]:
    """On the same disk as `to`, so that renaming is all that is left to do; gone afterwards."""
    with writing_to(to.parent):
        to.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{to.name}-", dir=to.parent))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)
