"""ILSVRC's pictures in a tree of folders: train/WNID/*.JPEG and val/WNID/*.JPEG.

Found and listed here, never changed; reading pictures is not done here.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paceline.errors import UserError
from paceline.tasks.imagenet.preparation.devkit import DEVKIT_NAME, read_devkit
from paceline.tasks.imagenet.preparation.sources import Piece, Source

_ROOTS: Final = (".", "Data/CLS-LOC", "ILSVRC/Data/CLS-LOC")
_VALIDATION_FOLDERS: Final = ("val", "validation")
_WORDS_NAMES: Final = ("LOC_synset_mapping.txt", "classes.tsv")
_ENDINGS: Final = (".jpeg", ".jpg", ".png", ".bmp", ".gif", ".webp")


@dataclass(frozen=True)
class Folder:
    """A class of a split. Its pictures are listed anew when they are needed: a million paths at
    once would take a gigabyte."""

    split: str
    name: str
    num_bytes: int
    names_hash: str
    folder: Path
    label: int

    def pieces(self) -> list[Piece]:
        return [
            Piece(self.folder / name, 0, num_bytes, name, self.label)
            for name, num_bytes in _pictures_in(self.folder)
        ]


def find_tree(path: Path) -> Path | None:
    """Where the folder `train` is, in the places where downloads have it."""
    roots = [path / root for root in _ROOTS]
    return next((root for root in roots if (root / "train").is_dir()), None)


def from_folders(root: Path, above: Path) -> Source:
    """The tree at `root`; names of classes may lie there or in `above`, which was asked for."""
    root = root.resolve()
    validation = next((root / v for v in _VALIDATION_FOLDERS if (root / v).is_dir()), None)
    if validation is None:
        raise UserError(f"{root} has a folder 'train' and no folder 'val'", "put it beside 'train'")
    wnids = _class_names(root / "train")
    foreign = sorted(set(_class_names(validation)) - set(wnids))
    if foreign:
        raise UserError(
            f"{validation / foreign[0]} is a class that {root / 'train'} does not have",
            "both must have the same folders, one for each class",
        )
    units = [
        *(_unit("train", root, root / "train" / w, label) for label, w in enumerate(wnids)),
        *(
            _unit("validation", root, validation / wnid, label)
            for label, wnid in enumerate(wnids)
            if (validation / wnid).is_dir()
        ),
    ]
    return Source(
        kind="folders",
        location=root,
        classes=tuple(_with_words(wnids, (root, above))),
        units=tuple(units),
        files=(),
        identity={"tree": [[u.split, u.name, u.names_hash] for u in units], "location": str(root)},
    )


def _class_names(folder: Path) -> list[str]:
    names = sorted(e.name for e in os.scandir(folder) if e.is_dir() and not e.name.startswith("."))
    if not names:
        raise UserError(
            f"{folder} holds no class folders",
            f"pictures must lie in one folder per class: {folder}/n01440764/*.JPEG",
        )
    return names


def _unit(split: str, root: Path, folder: Path, label: int) -> Folder:
    found = _pictures_in(folder)
    if not found:
        raise UserError(
            f"the class folder {folder} is empty: no picture is in it",
            "put its pictures there, or remove the folder: then it is no class",
        )
    lines = "".join(f"{name}\0{num_bytes}\n" for name, num_bytes in found)
    return Folder(
        split=split,
        name=folder.relative_to(root).as_posix(),
        num_bytes=sum(num_bytes for _, num_bytes in found),
        names_hash=hashlib.sha256(os.fsencode(lines)).hexdigest(),
        folder=folder,
        label=label,
    )


def _pictures_in(folder: Path) -> list[tuple[str, int]]:
    with os.scandir(folder) as entries:
        return sorted(
            (entry.name, entry.stat().st_size)
            for entry in entries
            if entry.name.lower().endswith(_ENDINGS) and entry.is_file()
        )


def _with_words(wnids: list[str], places: tuple[Path, ...]) -> list[tuple[str, str]]:
    """From the kit or from Kaggle's list if either lies about; else a WNID stands for itself."""
    words: dict[str, str] = {}
    for place in dict.fromkeys(places):
        if (place / DEVKIT_NAME).is_file():
            words |= dict(read_devkit(place / DEVKIT_NAME).classes)
        for name in _WORDS_NAMES:
            if (place / name).is_file():
                lines = (place / name).read_text(encoding="utf-8", errors="replace").splitlines()
                pairs = (line.split(maxsplit=1) for line in lines)
                words |= {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
    return [(wnid, words.get(wnid, wnid)) for wnid in wnids]
