"""Prepared pictures, read where they lie: from shards or from a tree of folders, by number.

A shard is a plain tar of JPEG files, written in the order of the index and large enough (half a
gigabyte) for shared storage. Beside the shards lies one index per split: a `.npy` array, mapped
into memory, with the place, the label and the size of every picture. Why both: a tar of
`000123.jpg` and `000123.cls` is what WebDataset, `tar` and any script can read, so nobody is bound
to this program; but without an index it can only be read from front to back, and a picture could
not be taken by its number at the speed of a flat file. The index makes it one: the bytes of a
picture are a plain range of the file.

For a tree of folders the index holds the place of each path in a list of paths instead. Whatever
the layout, `jpeg` gives a JPEG that is upright and decodes to RGB. Making all this is done in
`imagenet_*`; pixels are made of it in `decode`.
"""

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from paceline.data.card import read_card, spoilt
from paceline.data.prepared import check_size, open_array
from paceline.errors import UserError

WORKLOAD: Final = "imagenet"
WAYS: Final = ("stand-in", "PATH")
"""The photographs are given out only to those who sign their terms, so not from the web."""
SPLITS: Final = ("train", "validation")
CLASSES_NAME: Final = "classes.tsv"
SHARDS: Final = "shards"
FOLDERS: Final = "folders"

INDEX: Final = np.dtype(
    [
        ("offset", "<u8"),  # in the shard, or in the list of paths
        ("num_bytes", "<u4"),  # of the picture, or of its path
        ("shard", "<u4"),
        ("crc32", "<u4"),  # of the file's bytes
        ("width", "<u4"),
        ("height", "<u4"),
        ("label", "<u2"),
        ("is_plain", "u1"),  # 0: must be made an upright RGB JPEG when it is read
    ]
)
Index = npt.NDArray[Any]


def index_name(split: str) -> str:
    return f"{split}.index.npy"


def paths_name(split: str) -> str:
    return f"{split}.paths"


def shard_name(split: str, number: int) -> str:
    return f"{split}-{number:05d}.tar"


def classes(directory: Path) -> list[tuple[str, str]]:
    """(WNID, words) of every class; the place in the list is the label."""
    read_card(directory, WORKLOAD, WAYS)
    try:
        lines = (directory / CLASSES_NAME).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise _spoilt(directory, f"{CLASSES_NAME} cannot be read ({error})") from error
    pairs = [line.partition("\t") for line in lines]
    return [(wnid, words or wnid) for wnid, _, words in pairs]


def require_classes(directory: Path, num_classes: int) -> list[tuple[str, str]]:
    """The classes, if they are as many as a network was made for."""
    found = classes(directory)
    if len(found) != num_classes:
        raise UserError(
            f"{directory} has {len(found):,} classes, and model.num_classes is {num_classes:,}",
            f"give model.num_classes={len(found)}, or name other data with data=DIR",
        )
    return found


def open_pictures(directory: Path, split: str) -> "Pictures":
    """A split as it was prepared; sizes are compared with the card, contents are not hashed."""
    return Pictures(Path(directory), split)


class Pictures:
    """One split. Any number of threads may read from it, and it can be pickled: only the place
    goes along, and the files are opened again where it arrives."""

    def __init__(self, directory: Path, split: str) -> None:
        if split not in SPLITS:
            raise UserError(
                f"imagenet has no split '{split}'",
                f"choose one of {', '.join(SPLITS)} (the labels of the test set are not published)",
            )
        self.directory = directory
        self.split = split
        card = read_card(directory, WORKLOAD, WAYS)
        index = _open_index(directory, split, card)
        self.labels: npt.NDArray[np.int64] = index["label"].astype(np.int64)
        # (N, 2): height and width of each picture, upright
        self.sizes: npt.NDArray[np.int32] = np.stack(
            [index["height"], index["width"]], axis=1
        ).astype(np.int32)
        self._index = index
        self._store = _open_store(directory, split, card)

    def __len__(self) -> int:
        return len(self.labels)

    def jpeg(self, number: int) -> bytes:
        """The bytes of a JPEG that is upright and decodes to RGB."""
        entry = self._index[number]
        content = self._store.read(entry)
        if entry["is_plain"]:
            return content
        return _made_plain(content)

    def announce(self, numbers: Iterable[int]) -> None:
        """Tell the system what is read soon: it fetches from slow or distant disks meanwhile."""
        for number in numbers:
            self._store.announce(self._index[number])


@dataclass
class _Shards:
    """`pread` and not a map of the file: it waits without Python's lock, any number of threads
    share one descriptor, and a file cut short is an error message and not a dead process."""

    directory: Path
    split: str

    def __post_init__(self) -> None:
        self._descriptors: dict[int, int] = {}
        self._opening = threading.Lock()

    def announce(self, entry: Any) -> None:
        place = int(entry["offset"]), int(entry["num_bytes"])
        read_soon(self._file(int(entry["shard"])), *place)

    def read(self, entry: Any) -> bytes:
        number, num_bytes = int(entry["shard"]), int(entry["num_bytes"])
        content = os.pread(self._file(number), num_bytes, int(entry["offset"]))
        if len(content) != num_bytes:
            raise _spoilt(self.directory, f"{shard_name(self.split, number)} is cut short")
        return content

    def _file(self, number: int) -> int:
        descriptor = self._descriptors.get(number)
        return self._open(number) if descriptor is None else descriptor

    def _open(self, number: int) -> int:
        with self._opening:
            if number not in self._descriptors:
                path = self.directory / shard_name(self.split, number)
                try:
                    self._descriptors[number] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                except OSError as error:
                    why = f"{path.name}: {error.strerror}"
                    raise _spoilt(self.directory, why) from error
            return self._descriptors[number]

    def __del__(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)


@dataclass(frozen=True)
class _Folders:
    root: Path
    paths: npt.NDArray[np.uint8]

    def announce(self, entry: Any) -> None:
        """Opening a file is most of the cost of reading it: doing it twice gains nothing."""

    def read(self, entry: Any) -> bytes:
        start = int(entry["offset"])
        path = self.root / os.fsdecode(
            self.paths[start : start + int(entry["num_bytes"])].tobytes()
        )
        try:
            return path.read_bytes()
        except OSError as error:
            raise UserError(
                f"the picture {path} cannot be read: {error.strerror}",
                "put it back, or prepare the data again: paceline data imagenet --from PATH",
            ) from error


def read_soon(handle: int, offset: int, num_bytes: int) -> None:
    """Ask the system to have this part of a file in memory; a Mac has no way to ask."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(handle, offset, num_bytes, os.POSIX_FADV_WILLNEED)


def _open_store(directory: Path, split: str, card: dict[str, Any]) -> _Shards | _Folders:
    if card["layout"] == SHARDS:
        for name in card["splits"][split]["shards"]:
            check_size(directory, name, card)
        return _Shards(directory, split)
    check_size(directory, paths_name(split), card)
    paths = np.memmap(directory / paths_name(split), np.uint8, "r")
    root = Path(card["pictures_in"]) if card["pictures_in"] else directory
    return _Folders(root, paths)


def _open_index(directory: Path, split: str, card: dict[str, Any]) -> Index:
    name = index_name(split)
    index: Index = open_array(directory, name, card)
    if index.dtype != INDEX or index.ndim != 1:
        raise _spoilt(directory, f"{name} is not an index of pictures")
    return index


def _made_plain(content: bytes) -> bytes:
    from paceline.tasks.imagenet.preparation.pictures import plain_jpeg  # noqa: PLC0415 (Pillow, rarely needed)

    return plain_jpeg(content)


def _spoilt(directory: Path, why: str) -> UserError:
    return spoilt(directory, WORKLOAD, why, WAYS)
