"""ImageNet's archives and folders as they should not be: told before the work, or listed after."""

import gzip
import io
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.data.card import read_card
from paceline.errors import UserError
from paceline.tasks.imagenet import shards
from paceline.tasks.imagenet.preparation import prepare as imagenet
from paceline.tasks.imagenet.standin import archives as photos_archives
from paceline.tasks.imagenet.standin import photos
from paceline.tasks.imagenet.standin.matlab import matlab_file

TRAIN = "ILSVRC2012_img_train.tar"
VALIDATION = "ILSVRC2012_img_val.tar"
DEVKIT = "ILSVRC2012_devkit_t12.tar.gz"
Change = Callable[[str, bytes], bytes | None]


def ignore(_text: str) -> None:
    """For messages that a test does not look at."""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photos_archives.write_archives(tmp_path_factory.mktemp("ilsvrc"), 3, 2, ignore)


@pytest.fixture
def archives(good: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(good, tmp_path / "archives"))


@pytest.fixture
def tree(good: Path, tmp_path: Path) -> Path:
    """train/WNID and val/WNID, without anything that says who wrote them."""
    options = imagenet.Options(layout="folders")
    directory = imagenet.prepare(str(good), tmp_path / "tree", options, ignore)
    for path in directory.iterdir():
        if path.is_file():
            path.unlink()
    return directory


def refusal(source: Path, max_side: int | None = None) -> UserError:
    """The error, after a look that nothing was made and nothing is left lying about."""
    to = source.parent / "result"
    with pytest.raises(UserError) as caught:
        imagenet.prepare(str(source), to, imagenet.Options(max_side=max_side), ignore)
    assert not to.exists()
    assert caught.value.fix
    return caught.value


def repack(path: Path, change: Change) -> None:
    """Every member as `change` gives it back; None leaves it out."""
    packed = io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=packed, mode="w") as new:
        for member in old:
            file = old.extractfile(member)
            assert file is not None
            content = change(member.name, file.read())
            if content is not None:
                member.size = len(content)
                new.addfile(member, io.BytesIO(content))
    is_zipped = path.name.endswith(".gz")
    path.write_bytes(gzip.compress(packed.getvalue()) if is_zipped else packed.getvalue())


def in_inner_tar(wnid: str, change: Change) -> Change:
    def changed(name: str, content: bytes) -> bytes:
        if name != f"{wnid}.tar":
            return content
        inner = Path(f"{wnid}.tar")
        packed = io.BytesIO()
        with (
            tarfile.open(fileobj=io.BytesIO(content)) as old,
            tarfile.open(inner, "w", fileobj=packed) as new,
        ):
            for member in old:
                file = old.extractfile(member)
                assert file is not None
                picture = change(member.name, file.read())
                if picture is not None:
                    member.size = len(picture)
                    new.addfile(member, io.BytesIO(picture))
        return packed.getvalue()

    return changed


# ---- archives


def test_a_train_archive_cut_short_is_refused_before_any_work(archives: Path) -> None:
    path = archives / TRAIN
    content = path.read_bytes()
    for share in (0.3, 0.7, 0.97):
        path.write_bytes(content[: int(len(content) * share)])
        error = refusal(archives)
        assert TRAIN in error.what
        assert "not downloaded to its end" in error.what or "it lacks" in error.what


def test_a_validation_archive_cut_short_is_refused_before_any_work(archives: Path) -> None:
    path = archives / VALIDATION
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert "was not downloaded to its end" in refusal(archives).what


def test_a_class_that_is_missing_is_named(archives: Path) -> None:
    gone = [f"{photos.wnid(label)}.tar" for label in (4, 9)]
    repack(archives / TRAIN, lambda name, content: None if name in gone else content)
    error = refusal(archives)
    assert "holds 18 of 20 classes: it lacks n90000005.tar, n90000010.tar" in error.what


def test_an_inner_tar_that_is_damaged_is_named(archives: Path) -> None:
    def spoil(name: str, content: bytes) -> bytes:
        if name != "n90000007.tar":
            return content
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            head = tar.getmembers()[1].offset
        return content[:head] + b"\1" * 512 + content[head + 512 :]

    repack(archives / TRAIN, spoil)
    assert "n90000007.tar in" in refusal(archives).what


def test_an_inner_tar_without_pictures_is_named(archives: Path) -> None:
    repack(archives / TRAIN, in_inner_tar("n90000003", lambda _name, _content: None))
    assert "n90000003.tar in" in refusal(archives).what


def test_a_kit_for_other_validation_pictures_does_not_match(archives: Path, tmp_path: Path) -> None:
    other = photos_archives.write_archives(tmp_path / "other", 12, 1, ignore)
    shutil.copy(other / DEVKIT, archives / DEVKIT)
    error = refusal(archives)
    assert "do not belong together: the kit has 40 labels for its 20 pictures" in error.what


def test_a_kit_for_other_classes_does_not_match(archives: Path) -> None:
    rows: list[dict[str, str | float]] = [
        {"ILSVRC2012_ID": i + 1.0, "WNID": f"n0{i:07d}", "words": "x", "num_children": 0.0}
        for i in range(20)
    ]
    meta = matlab_file("synsets", rows)
    repack(archives / DEVKIT, lambda n, content: meta if n.endswith("meta.mat") else content)
    assert "the kit knows no class 'n90000001'" in refusal(archives).what


@pytest.mark.parametrize(
    ("member", "content", "expected"),
    [
        ("meta.mat", None, "holds no meta.mat"),
        ("meta.mat", b"something else", "meta.mat cannot be read"),
        ("ground_truth.txt", None, "holds no ILSVRC2012_validation_ground_truth.txt"),
        ("ground_truth.txt", b"1\n2\n1001\n", "line 3 of"),
        ("ground_truth.txt", b"1\ncat\n", "line 2 of"),
    ],
)
def test_what_is_not_the_kit_is_told(
    archives: Path, member: str, content: bytes | None, expected: str
) -> None:
    repack(archives / DEVKIT, lambda name, old: content if name.endswith(member) else old)
    assert expected in refusal(archives).what


def test_a_missing_archive_is_named(archives: Path) -> None:
    (archives / DEVKIT).unlink()
    (archives / VALIDATION).unlink()
    assert f"lacks {VALIDATION}, {DEVKIT}" in refusal(archives).what


def test_a_compressed_archive_would_be_slow_and_is_refused(archives: Path) -> None:
    path = archives / TRAIN
    path.write_bytes(gzip.compress(path.read_bytes(), 1))
    assert "is compressed" in refusal(archives).what


def test_a_web_page_instead_of_an_archive_is_told(archives: Path) -> None:
    (archives / TRAIN).write_text("<html>please sign in</html>")
    assert "is not a tar archive" in refusal(archives).what


def test_it_cannot_be_fetched_and_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"image-net\.org") as caught:
        imagenet.prepare("web", tmp_path / "data", imagenet.Options(), ignore)
    assert TRAIN in caught.value.fix


# ---- pictures


def test_what_is_no_picture_is_listed_and_left_out(archives: Path, tmp_path: Path) -> None:
    def spoil(name: str, content: bytes) -> bytes:
        if name == "n90000008_1.JPEG":
            return b"<html>404</html>"
        return content[: len(content) // 2] if name == "n90000008_3.JPEG" else content

    repack(archives / TRAIN, in_inner_tar("n90000008", spoil))
    said: list[str] = []
    to = imagenet.prepare(str(archives), tmp_path / "data", imagenet.Options(), said.append)
    card = read_card(to)
    assert [(b["in"], b["name"]) for b in card["broken"]] == [
        ("n90000008.tar", "n90000008_1.JPEG"),
        ("n90000008.tar", "n90000008_3.JPEG"),
    ]
    assert card["broken"][0]["reason"] == "not a picture"
    assert card["splits"]["train"]["num_broken"] == 2
    assert len(shards.open_pictures(to, "train")) == 58
    assert "2 pictures broken and left out:" in said
    assert any("n90000008_1.JPEG: not a picture" in line for line in said)


def test_pictures_that_are_missing_are_counted(archives: Path, tmp_path: Path) -> None:
    first = "n90000002_1.JPEG"
    repack(archives / TRAIN, in_inner_tar("n90000002", lambda n, old: None if n == first else old))
    said: list[str] = []
    imagenet.prepare(str(archives), tmp_path / "data", imagenet.Options(), said.append)
    assert "train has 59 pictures: 1 fewer than the 60 that were drawn" in said


def test_a_class_of_which_nothing_decodes_is_refused(archives: Path) -> None:
    repack(archives / TRAIN, in_inner_tar("n90000008", lambda _name, _old: b"nothing"))
    assert "no training picture of the class n90000008 can be decoded" in refusal(archives).what


# ---- folders


def test_an_empty_class_folder_is_named(tree: Path) -> None:
    folder = tree / "train" / "n90000006"
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "readme.txt").write_text("nothing here")
    assert f"the class folder {folder} is empty" in refusal(tree).what


def test_a_validation_class_that_training_lacks_is_named(tree: Path) -> None:
    shutil.rmtree(tree / "train" / "n90000006")
    assert "n90000006 is a class that" in refusal(tree).what


def test_a_tree_without_validation_or_without_classes_is_told(tree: Path) -> None:
    (tree / "val").rename(tree / "elsewhere")
    assert "no folder 'val'" in refusal(tree).what
    (tree / "val").mkdir()
    assert "holds no class folders" in refusal(tree).what


def test_shrinking_where_nothing_is_copied_is_refused(tree: Path) -> None:
    error = refusal(tree, max_side=200)
    assert "read as they are" in error.what
    assert "--layout shards" in error.fix


def test_broken_pictures_of_a_tree_are_left_out(tree: Path, tmp_path: Path) -> None:
    (tree / "train" / "n90000001" / "n90000001_2.JPEG").write_bytes(b"not one")
    to = imagenet.prepare(str(tree), tmp_path / "data", imagenet.Options(), ignore)
    assert read_card(to)["broken"][0]["name"] == "n90000001_2.JPEG"
    assert len(shards.open_pictures(to, "train")) == 59


# ---- places


def test_too_little_disk_is_said_before_any_work(archives: Path) -> None:
    """A class that says it has more bytes than the disk: its hole of a file takes no space."""
    huge_bytes = 4 * shutil.disk_usage(archives).total
    path = archives / TRAIN
    with tarfile.open(path) as tar:
        last = tar.getmembers()[-1]
    with path.open("r+b") as file:
        file.truncate(last.offset_data)
        last.size = huge_bytes
        file.seek(last.offset)
        file.write(last.tobuf(tarfile.GNU_FORMAT))
        file.truncate(last.offset_data + huge_bytes + 10_240)
    error = refusal(archives)
    assert "and its disk has only" in error.what
    assert not (archives.parent / ".result.unfinished").exists()
    assert "needs" in refusal(archives, max_side=500).what


def test_a_stand_in_larger_than_the_disk_is_refused_before_it_is_drawn(tmp_path: Path) -> None:
    options = imagenet.Options(num_pictures=10**10)
    with pytest.raises(UserError, match="and its disk has only"):
        imagenet.prepare("stand-in", tmp_path / "data", options, ignore)
    assert list(tmp_path.iterdir()) == []


def test_nothing_of_a_stranger_is_replaced(tree: Path, good: Path, tmp_path: Path) -> None:
    """A tree looks like our own result in folders; without our card it is the user's."""
    with pytest.raises(UserError, match="is not empty: it holds train, val"):
        imagenet.prepare(str(good), tree, imagenet.Options(layout="folders"), ignore)
    assert (tree / "train" / "n90000001" / "n90000001_1.JPEG").is_file()
    with pytest.raises(UserError, match="is not empty"):
        imagenet.prepare(str(tree), tree, imagenet.Options(), ignore)


def test_the_command_line_prints_one_message_and_ends_with_2(tmp_path: Path) -> None:
    words = ["data", "imagenet", "--from", str(tmp_path / "nowhere"), "--to", str(tmp_path / "to")]
    result = subprocess.run(
        [sys.executable, "-m", "paceline.cli", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.startswith("error: there is nothing at")
    assert "Traceback" not in result.stderr
