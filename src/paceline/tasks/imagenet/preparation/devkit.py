"""ILSVRC's development kit: which classes there are, and which one each validation picture shows.

Labels here and everywhere are places in the list of WNIDs in alphabetical order, as published
models have them; the kit's own numbers (1 to 1,000, in another order) end in this module.
"""

import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from paceline.data.archive import read_files
from paceline.errors import UserError
from paceline.tasks.imagenet.preparation.matlab import NotMatlabError, read_matlab

DEVKIT_NAME: Final = "ILSVRC2012_devkit_t12.tar.gz"
DEVKIT_FOLDER: Final = "ILSVRC2012_devkit_t12"
TRUTH_NAME: Final = "ILSVRC2012_validation_ground_truth.txt"
META_NAME: Final = "meta.mat"
STAND_IN_MARK: Final = "stand-in.json"
_WANTED: Final = {TRUTH_NAME, META_NAME, STAND_IN_MARK}
_MOST_FILE_BYTES: Final = 20_000_000  # the official meta.mat has 0.3 MB


@dataclass(frozen=True)
class Devkit:
    classes: tuple[tuple[str, str], ...]
    """WNID and words, in the order of labels"""
    validation_labels: tuple[int, ...]
    """of ILSVRC2012_val_00000001.JPEG and so on"""
    stand_in: dict[str, int] | None
    """how its pictures were drawn, if they were"""


def read_devkit(path: Path) -> Devkit:
    contents = {
        Path(name).name: content
        for name, content in read_files(path, lambda m: _is_wanted(path, m))
    }
    for name in (META_NAME, TRUTH_NAME):
        if name not in contents:
            raise _not_a_devkit(path, f"it holds no {name}")
    classes, label_of_id = _read_classes(path, contents[META_NAME])
    truth = contents[TRUTH_NAME].decode("ascii", "replace").split()
    labels = tuple(_label(path, line, text, label_of_id) for line, text in enumerate(truth, 1))
    return Devkit(classes, labels, _read_mark(path, contents.get(STAND_IN_MARK)))


def _is_wanted(path: Path, member: tarfile.TarInfo) -> bool:
    if Path(member.name).name not in _WANTED:
        return False
    if member.size > _MOST_FILE_BYTES:
        raise _not_a_devkit(path, f"{member.name} has {member.size:,} bytes")
    return True


def _read_classes(path: Path, content: bytes) -> tuple[tuple[tuple[str, str], ...], dict[int, int]]:
    """The kit also lists the inner nodes of WordNet's tree: those have children and no pictures."""
    try:
        synsets = read_matlab(content)["synsets"]
        leaves = [synset for synset in synsets if _number(synset["num_children"]) == 0]
        found = sorted(
            (str(leaf["WNID"]), str(leaf["words"]), _number(leaf["ILSVRC2012_ID"]))
            for leaf in leaves
        )
    except (NotMatlabError, KeyError, TypeError, IndexError, ValueError) as error:
        raise _not_a_devkit(path, f"{META_NAME} cannot be read: {error}") from error
    if not found or len({wnid for wnid, _, _ in found}) != len(found):
        raise _not_a_devkit(path, f"{META_NAME} names no classes, or one twice")
    classes = tuple((wnid, " ".join(words.split())) for wnid, words, _ in found)
    return classes, {number: label for label, (_, _, number) in enumerate(found)}


def _number(value: Sequence[float]) -> int:
    return int(value[0])


def _label(path: Path, line: int, text: str, label_of_id: dict[int, int]) -> int:
    if not text.isdecimal() or int(text) not in label_of_id:
        raise _not_a_devkit(
            path, f"line {line} of {TRUTH_NAME} is '{text}', which is no class of {META_NAME}"
        )
    return label_of_id[int(text)]


def _read_mark(path: Path, content: bytes | None) -> dict[str, int] | None:
    if content is None:
        return None
    try:
        mark: dict[str, Any] = json.loads(content)
        return {str(name): int(value) for name, value in mark.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise _not_a_devkit(path, f"{STAND_IN_MARK} is not readable ({error!r})") from error


def _not_a_devkit(path: Path, why: str) -> UserError:
    return UserError(
        f"{path} is not the development kit of ILSVRC 2012: {why}",
        f"get {DEVKIT_NAME} (tasks 1 and 2) again; task 3 has a kit of its own, which is not it",
    )
