"""Where ILSVRC's pictures lie: in the three archives as downloaded, or in a tree of folders.

Everything that can be told without decoding is told here, before any work is done: archives cut
short, classes missing, a kit that belongs to other pictures, empty folders. A picture is a range
of bytes of a file, so nothing is unpacked. What is done with the bytes is not known here.
"""

import hashlib
import io
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from paceline.data.archive import members, open_archive
from paceline.data.card import describe_file
from paceline.errors import UserError
from paceline.tasks.imagenet.preparation.devkit import DEVKIT_NAME, Devkit, read_devkit

TRAIN_NAME: Final = "ILSVRC2012_img_train.tar"
VALIDATION_NAME: Final = "ILSVRC2012_img_val.tar"
OFFICIAL_BYTES: Final = {TRAIN_NAME: 147_897_477_120, VALIDATION_NAME: 6_744_924_160}
OFFICIAL_COUNTS: Final = {"train": 1_281_167, "validation": 50_000}

_VALIDATION_PATTERN: Final = re.compile(r"ILSVRC2012_val_(\d{8})\.JPEG")
_PICTURES_PER_UNIT: Final = 1_000
_SAMPLES: Final = 64
_SAMPLE_BYTES: Final = 1 << 16
_SHOWN: Final = 3


@dataclass(frozen=True)
class Piece:
    """The bytes of one picture: a range of a file."""

    path: Path
    offset: int
    num_bytes: int
    name: str
    label: int


class Unit(Protocol):
    """Pictures that are prepared, or not yet, as one; listed when their turn comes."""

    @property
    def split(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def num_bytes(self) -> int: ...
    def pieces(self) -> Sequence[Piece]: ...


@dataclass(frozen=True)
class Listed:
    """Some pictures of the validation archive."""

    split: str
    name: str
    listed: tuple[Piece, ...]

    @property
    def num_bytes(self) -> int:
        return sum(piece.num_bytes for piece in self.listed)

    def pieces(self) -> Sequence[Piece]:
        return self.listed


@dataclass(frozen=True)
class InnerTar:
    """The pictures of a class: a tar in the tar of all classes."""

    split: str
    name: str
    num_bytes: int
    archive: Path
    offset: int
    label: int

    def pieces(self) -> Sequence[Piece]:
        with self.archive.open("rb") as file:
            window = io.BufferedReader(_Window(file, self.offset, self.num_bytes))
            try:
                with tarfile.open(str(self.archive), fileobj=window, mode="r:") as tar:
                    pieces = [self._piece(member) for member in members(tar) if _is_picture(member)]
            except tarfile.TarError as error:
                raise UserError(
                    f"{self.name} in {self.archive} is damaged ({error})",
                    f"download {self.archive.name} again; what was prepared so far is kept",
                ) from error
        if not pieces:
            raise UserError(
                f"{self.name} in {self.archive} holds no pictures",
                f"download {self.archive.name} again",
            )
        return pieces

    def _piece(self, member: tarfile.TarInfo) -> Piece:
        start = self.offset + member.offset_data
        return Piece(self.archive, start, member.size, Path(member.name).name, self.label)


@dataclass(frozen=True)
class Source:
    """Equal `identity` means equal pictures, names and labels."""

    kind: str
    location: Path
    classes: tuple[tuple[str, str], ...]
    units: tuple[Unit, ...]
    files: tuple[dict[str, Any], ...]
    identity: dict[str, Any]
    stand_in: dict[str, int] | None = None

    @property
    def is_official(self) -> bool:
        sizes = {file["name"]: file["bytes"] for file in self.files}
        return all(sizes.get(name) == size for name, size in OFFICIAL_BYTES.items())

    def expected_counts(self) -> dict[str, int]:
        if self.stand_in is None:
            return OFFICIAL_COUNTS
        return {split: self.stand_in[f"num_{split}"] for split in OFFICIAL_COUNTS}


def from_archives(directory: Path) -> Source:
    """All three must be there, fit each other, and go to their ends."""
    paths = {name: directory / name for name in (TRAIN_NAME, VALIDATION_NAME, DEVKIT_NAME)}
    missing = [name for name, path in paths.items() if not path.is_file()]
    if missing:
        raise UserError(
            f"{directory} lacks {', '.join(missing)}",
            "all three files are needed, under the names that image-net.org gives them",
        )
    devkit = read_devkit(paths[DEVKIT_NAME])
    units: tuple[Unit, ...] = (
        *_train_units(paths[TRAIN_NAME], devkit),
        *_validation_units(paths[VALIDATION_NAME], devkit),
    )
    files = (
        _describe_large(paths[TRAIN_NAME]),
        _describe_large(paths[VALIDATION_NAME]),
        describe_file(paths[DEVKIT_NAME]),
    )
    return Source(
        kind="archives",
        location=directory.absolute(),
        classes=devkit.classes,
        units=units,
        files=files,
        identity={"files": list(files)},
        stand_in=devkit.stand_in,
    )


def _train_units(archive: Path, devkit: Devkit) -> list[InnerTar]:
    label_of = {wnid: label for label, (wnid, _) in enumerate(devkit.classes)}
    units = []
    for member in _plain_members(archive):
        wnid = Path(member.name).name.removesuffix(".tar")
        if wnid not in label_of:
            raise _mismatch(archive, f"the kit knows no class '{wnid}', which the archive has")
        units.append(
            InnerTar(
                "train", f"{wnid}.tar", member.size, archive, member.offset_data, label_of[wnid]
            )
        )
    there = {unit.name for unit in units}
    missing = [f"{wnid}.tar" for wnid in label_of if f"{wnid}.tar" not in there]
    if missing:
        raise UserError(
            f"{archive} holds {len(there):,} of {len(label_of):,} classes: "
            f"it lacks {_some(missing)}",
            "it was cut short or packed anew: download it again",
        )
    return units


def _validation_units(archive: Path, devkit: Devkit) -> list[Listed]:
    labels = devkit.validation_labels
    pieces = []
    for member in _plain_members(archive):
        found = _VALIDATION_PATTERN.fullmatch(Path(member.name).name)
        if not found or not 1 <= int(found[1]) <= len(labels):
            raise _mismatch(archive, f"the kit has no label for '{member.name}'")
        label = labels[int(found[1]) - 1]
        pieces.append(
            Piece(archive, member.offset_data, member.size, Path(member.name).name, label)
        )
    if len({piece.name for piece in pieces}) != len(labels) or len(pieces) != len(labels):
        raise _mismatch(
            archive, f"the kit has {len(labels):,} labels for its {len(pieces):,} pictures"
        )
    starts = range(0, len(pieces), _PICTURES_PER_UNIT)
    return [
        Listed("validation", f"{start:08d}", tuple(pieces[start : start + _PICTURES_PER_UNIT]))
        for start in starts
    ]


def _plain_members(archive: Path) -> Iterator[tarfile.TarInfo]:
    """Headers only: a file of 148 GB is passed over in a second, and must go to its end."""
    with archive.open("rb") as file:
        start = file.read(6)
    if start.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0")):
        raise UserError(
            f"{archive} is compressed, and so could only be read from front to back",
            "decompress it first: the file that image-net.org gives out is a plain tar",
        )
    with open_archive(archive) as tar:
        yield from (member for member in members(tar) if _is_picture(member))


def _is_picture(member: tarfile.TarInfo) -> bool:
    """Files that some systems add on their own begin with a dot."""
    return member.isfile() and not Path(member.name).name.startswith(".")


def _mismatch(archive: Path, why: str) -> UserError:
    return UserError(
        f"{archive} and {DEVKIT_NAME} beside it do not belong together: {why}",
        "get both from the same page of image-net.org (ILSVRC 2012, tasks 1 and 2)",
    )


def _describe_large(path: Path) -> dict[str, Any]:
    """Size, and a hash of 64 places: reading all of 148 GB first would take as long as the work."""
    size = path.stat().st_size
    places = {max(0, size - _SAMPLE_BYTES) * number // (_SAMPLES - 1) for number in range(_SAMPLES)}
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for place in sorted(places):
            file.seek(place)
            digest.update(file.read(_SAMPLE_BYTES))
    return {"name": path.name, "bytes": size, "sampled_sha256": digest.hexdigest()}


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


class _Window(io.RawIOBase):
    """A range of a file that looks like a file."""

    def __init__(self, file: io.BufferedReader, start: int, num_bytes: int) -> None:
        self._file, self._start, self._num_bytes, self._at = file, start, num_bytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._num_bytes}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        left = max(0, self._num_bytes - self._at)
        self._file.seek(self._start + self._at)
        count = self._file.readinto(memoryview(buffer)[:left])
        self._at += count
        return count
