"""What a power cut may take: nothing that a resumed preparation or a training trusts."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paceline import files
from paceline.tasks.cifar10 import prepare as cifar10
from paceline.tasks.cifar10.standin import write_archive
from paceline.tasks.imagenet.preparation import journal
from paceline.tasks.imagenet.preparation import prepare as imagenet
from paceline.tasks.nmt.preparation import prepare as nmt

Say = Callable[[str], None]
Inode = tuple[int, int]


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[Inode]]:
    """Files that were flushed to the disk one by one, in this process."""
    seen: set[Inode] = set()
    fsync = os.fsync

    def noted(handle: int) -> None:
        status = os.fstat(handle)
        seen.add((status.st_dev, status.st_ino))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    yield seen


def _not_flushed(directory: Path, flushed: set[Inode]) -> list[str]:
    paths = [directory.parent, directory, *directory.rglob("*")]
    states = [(path, path.stat()) for path in paths]
    return [str(path) for path, s in states if (s.st_dev, s.st_ino) not in flushed]


def test_prepared_text_is_on_the_disk_when_it_is_in_its_place(
    tmp_path: Path, quiet: Say, flushed: set[Inode]
) -> None:
    options = nmt.Options(num_pairs=200, vocab_size=300, num_workers=1)
    directory = nmt.prepare("stand-in", tmp_path / "text", options, quiet)
    assert _not_flushed(directory, flushed) == []


def test_prepared_small_pictures_are_on_the_disk_when_they_are_in_their_place(
    tmp_path: Path, quiet: Say, flushed: set[Inode]
) -> None:
    archive = write_archive(tmp_path / "cifar-10-binary.tar.gz", num_train=100, num_test=20)
    directory = cifar10.prepare(str(archive), tmp_path / "out" / "pictures", quiet)
    assert _not_flushed(directory, flushed) == []


@pytest.mark.parametrize("layout", ["shards", "folders"])
def test_prepared_photos_are_on_the_disk_when_they_are_in_their_place(
    tmp_path: Path, quiet: Say, flushed: set[Inode], layout: str
) -> None:
    options = imagenet.Options(layout=layout, num_pictures=2, num_threads=1)
    directory = imagenet.prepare("stand-in", tmp_path / "photos", options, quiet)
    assert _not_flushed(directory, flushed) == []


def test_text_of_an_interrupted_preparation_is_on_the_disk(
    tmp_path: Path, quiet: Say, flushed: set[Inode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces, unpacked text, archives and the vocabulary are trusted because they are there."""

    class PowerCutError(Exception):
        pass

    def cut(*_: object) -> None:
        raise PowerCutError

    monkeypatch.setattr("paceline.tasks.nmt.preparation.steps._merge", cut)
    options = nmt.Options(num_pairs=200, vocab_size=300, num_workers=1)
    with pytest.raises(PowerCutError):
        nmt.prepare("stand-in", tmp_path / "text", options, quiet)
    begun = tmp_path / ".text.unfinished"
    kinds = {path.suffix for path in begun.rglob("*") if path.is_file()}
    assert {".npz", ".tgz", ".model", ".txt"} <= kinds
    trusted = [p for p in begun.rglob("*") if p.is_file() and p.name != "lock"]
    trusted = [p for p in trusted if p.parent.name != "new"]
    states = {path.name: path.stat() for path in trusted}
    assert [n for n, s in states.items() if (s.st_dev, s.st_ino) not in flushed] == []


def test_a_journal_promises_only_what_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[tuple[str, int]] = []
    whole, one = files.flush_filesystem, os.fsync

    def noted_whole(directory: Path) -> None:
        order.append(("files", (tmp_path / "grown").stat().st_size))
        whole(directory)

    def noted_one(handle: int) -> None:
        order.append(("journal", os.fstat(handle).st_size))
        one(handle)

    monkeypatch.setattr(journal, "flush_filesystem", noted_whole)
    monkeypatch.setattr(os, "fsync", noted_one)
    book = journal.Journal(tmp_path)
    book.append("grown", b"picture")
    book.commit({"split": "train", "unit": "a"})
    book.close()
    assert [what for what, _ in order] == ["files", "journal"]
    assert order[0][1] == len(b"picture")
    assert order[1][1] == (tmp_path / "journal.jsonl").stat().st_size > 0
