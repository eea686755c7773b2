"""ImageNet's stand-in on disk: drawn pictures in three archives named and laid out like ILSVRC's.

The pictures come from `photos`; reading the archives back is `imagenet_sources`' work, which cannot
tell them from the real ones but for a file in the kit that says what they are.
"""

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Final, cast

import numpy as np

from paceline.data.progress import Progress, Say
from paceline.data.threads import in_order
from paceline.files import whole_file
from paceline.tasks.imagenet.preparation.devkit import (
    DEVKIT_FOLDER,
    DEVKIT_NAME,
    META_NAME,
    STAND_IN_MARK,
    TRUTH_NAME,
)
from paceline.tasks.imagenet.preparation.sources import TRAIN_NAME, VALIDATION_NAME
from paceline.tasks.imagenet.standin import photos
from paceline.tasks.imagenet.standin.matlab import matlab_file

_TRAIN, _VALIDATION = 0, 1
_VALIDATION_SHARE: Final = 6  # as many training pictures for each validation picture
_PICTURE_BYTES: Final = 16_000
_README: Final = (
    b"Not ILSVRC 2012: drawn pictures in its file formats. Scores on them mean nothing."
)


def description(num_pictures: int) -> dict[str, int]:
    """All that decides what is drawn; the kit carries it, and so does the card."""
    return {
        "drawing": photos.DRAWING,
        "seed": photos.SEED,
        "num_train": num_pictures * photos.NUM_CLASSES,
        "num_validation": _num_validation(num_pictures) * photos.NUM_CLASSES,
    }


def needed_bytes(num_pictures: int) -> int:
    """Archives, buckets and shards."""
    counts = description(num_pictures)
    return 3 * _PICTURE_BYTES * (counts["num_train"] + counts["num_validation"])


def write_archives(directory: Path, num_pictures: int, num_threads: int, say: Say) -> Path:
    """The three archives, each complete or absent; those that are there already are kept."""
    directory.mkdir(parents=True, exist_ok=True)
    counts = description(num_pictures)
    total = counts["num_train"] + counts["num_validation"]
    names = (TRAIN_NAME, VALIDATION_NAME, DEVKIT_NAME)
    if all((directory / name).is_file() for name in names):
        return directory
    say(f"drawing {total:,} pictures of {photos.NUM_CLASSES} classes")
    with (
        Progress("drawing", "pictures", total, say) as progress,
        ThreadPoolExecutor(num_threads) as pool,
    ):
        easel = _Easel(pool, num_threads, progress)
        _whole(directory / TRAIN_NAME, lambda file: _write_train(file, num_pictures, easel))
        _whole(
            directory / VALIDATION_NAME, lambda file: _write_validation(file, num_pictures, easel)
        )
    _whole(directory / DEVKIT_NAME, lambda file: _write_devkit(file, num_pictures))
    return directory


class _Easel:
    """Draws on all cores, in order."""

    def __init__(self, pool: ThreadPoolExecutor, num_threads: int, progress: Progress) -> None:
        self._pool, self._ahead, self._progress = pool, 4 * num_threads, progress

    def draw(self, wanted: list[tuple[int, int, int]]) -> list[bytes]:
        drawn = []
        for picture in in_order(self._pool, lambda w: photos.draw(*w), wanted, self._ahead):
            drawn.append(picture)
            self._progress.advance(1)
        return drawn


def _num_validation(num_pictures: int) -> int:
    return max(1, num_pictures // _VALIDATION_SHARE)


def _write_train(file: IO[bytes], num_pictures: int, easel: _Easel) -> None:
    with tarfile.open(fileobj=file, mode="w") as outer:
        for label in range(photos.NUM_CLASSES):
            wnid = photos.wnid(label)
            drawn = easel.draw([(label, number, _TRAIN) for number in range(num_pictures)])
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w") as inner:
                for number, content in enumerate(drawn):
                    _add(inner, f"{wnid}_{number + 1}.JPEG", content)
            _add(outer, f"{wnid}.tar", packed.getvalue())


def _write_validation(file: IO[bytes], num_pictures: int, easel: _Easel) -> None:
    labels = _validation_labels(num_pictures)
    drawn = easel.draw([(label, number, _VALIDATION) for number, label in enumerate(labels)])
    with tarfile.open(fileobj=file, mode="w") as tar:
        for number, content in enumerate(drawn, 1):
            _add(tar, f"ILSVRC2012_val_{number:08d}.JPEG", content)


def _write_devkit(file: IO[bytes], num_pictures: int) -> None:
    ids = _kit_ids()
    truth = "".join(f"{ids[label]}\n" for label in _validation_labels(num_pictures))
    contents = {
        "readme.txt": _README,
        STAND_IN_MARK: json.dumps(description(num_pictures)).encode(),
        f"data/{META_NAME}": matlab_file("synsets", _synsets(ids, num_pictures)),
        f"data/{TRUTH_NAME}": truth.encode(),
    }
    with (
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as zipped,
        tarfile.open(fileobj=cast(IO[bytes], zipped), mode="w") as tar,
    ):
        for name, content in contents.items():
            _add(tar, f"{DEVKIT_FOLDER}/{name}", content)


def _synsets(ids: list[int], num_pictures: int) -> list[dict[str, str | float]]:
    """In the order of the kit's own numbers, and with a node of the tree above at the end."""
    rows: list[dict[str, str | float]] = []
    for label in sorted(range(photos.NUM_CLASSES), key=lambda label: ids[label]):
        rows.append(_synset(ids[label], photos.wnid(label), photos.WORDS[label], num_pictures))
    above = _synset(photos.NUM_CLASSES + 1, "n99999999", "drawn thing", 0)
    return [*rows, {**above, "num_children": float(photos.NUM_CLASSES)}]


def _synset(number: int, wnid: str, words: str, num_pictures: int) -> dict[str, str | float]:
    return {
        "ILSVRC2012_ID": float(number),
        "WNID": wnid,
        "words": words,
        "gloss": f"a picture drawn to show: {words}",
        "num_children": 0.0,
        "num_train_images": float(num_pictures),
    }


def _kit_ids() -> list[int]:
    """The kit numbers classes from 1 and not in the order of their WNIDs; so does this one."""
    return [(label * 7 + 3) % photos.NUM_CLASSES + 1 for label in range(photos.NUM_CLASSES)]


def _validation_labels(num_pictures: int) -> list[int]:
    labels = np.arange(_num_validation(num_pictures) * photos.NUM_CLASSES) % photos.NUM_CLASSES
    bits = np.random.SFC64(photos.SEED).random_raw(len(labels))
    mixed: list[int] = labels[np.argsort(np.asarray(bits, np.uint64), kind="stable")].tolist()
    return mixed


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """Without times and owners, so that equal pictures make equal archives."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def _whole(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    if not path.is_file():
        with whole_file(path) as file:
            write(file)
