"""ImageNet from its three archives, or from a tree, to pictures that can be trained on."""

import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from paceline.data.card import read_card
from paceline.data.places import data_directory
from paceline.errors import UserError
from paceline.files import sha256_of
from paceline.tasks.imagenet import shards
from paceline.tasks.imagenet.preparation import prepare as imagenet
from paceline.tasks.imagenet.preparation.matlab import NotMatlabError, read_matlab
from paceline.tasks.imagenet.preparation.pictures import BrokenPictureError, plain_picture
from paceline.tasks.imagenet.standin import archives as photos_archives
from paceline.tasks.imagenet.standin.matlab import matlab_file

REAL_SAMPLE = Path(__file__).parents[2] / "shared" / "data" / "imagenet-sample"


def ignore(_text: str) -> None:
    """For messages that a test does not look at."""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return photos_archives.write_archives(tmp_path_factory.mktemp("ilsvrc"), 6, 2, ignore)


def hashes(directory: Path) -> dict[str, str]:
    """Of everything that was prepared but the card, which also tells where it came from."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {str(f.relative_to(directory)): sha256_of(f) for f in files if f.name != "card.json"}


# ---- the stand-in


def test_the_stand_in_goes_through_three_archives_and_says_what_was_odd(tmp_path: Path) -> None:
    said: list[str] = []
    options = imagenet.Options(num_pictures=6)
    directory = imagenet.prepare("stand-in", tmp_path / "data", options, said.append)
    card = read_card(directory, "imagenet")
    assert [file["name"] for file in card["files"]] == [
        "ILSVRC2012_img_train.tar",
        "ILSVRC2012_img_val.tar",
        "ILSVRC2012_devkit_t12.tar.gz",
    ]
    assert card["changed"] == {"CMYK made RGB": 1, "PNG made JPEG": 1, "turned upright": 1}
    assert card["splits"]["train"]["smallest"] == [1, 1]
    assert card["splits"]["train"]["num_pictures"] == card["splits"]["train"]["num_expected"] == 120
    assert card["splits"]["validation"]["num_pictures"] == 20
    files = [*directory.glob("train-*.tar"), directory / "train.index.npy"]
    stored = sum(file.stat().st_size for file in files)
    assert 0 < card["splits"]["train"]["given"]["bytes"] < stored
    assert stored == card["splits"]["train"]["stored_bytes"] < 1e6 * card["total_mb"]
    assert card["broken"] == []
    assert "120 train, 20 validation drawn pictures of 20 classes" in said[-1]
    assert any("1 CMYK made RGB" in line for line in said)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_the_stand_in_is_the_same_every_time_and_done_only_once(tmp_path: Path) -> None:
    options = imagenet.Options(num_pictures=3, num_threads=1)
    first = imagenet.prepare("stand-in", tmp_path / "first", options, ignore)
    said: list[str] = []
    imagenet.prepare("stand-in", first, options, said.append)
    assert said[0].startswith("nothing to do")
    more_threads = imagenet.Options(num_pictures=3, num_threads=4)
    second = imagenet.prepare("stand-in", tmp_path / "second", more_threads, ignore)
    assert hashes(first) == hashes(second)


def test_pictures_of_the_stand_in_vary_in_size_and_aspect(archives: Path, tmp_path: Path) -> None:
    directory = imagenet.prepare(str(archives), tmp_path / "data", imagenet.Options(), ignore)
    sizes = shards.open_pictures(directory, "train").sizes
    aspects = sizes[:, 1] / sizes[:, 0]
    assert len(np.unique(sizes, axis=0)) > 100
    assert aspects.min() < 0.7
    assert aspects.max() > 1.4


def test_it_lands_where_recipes_look_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_DATA", "/data")
    assert imagenet.default_directory("stand-in") == data_directory("imagenet-stand-in")
    assert imagenet.default_directory("/downloads") == Path("/data/imagenet")


def test_preparing_never_imports_torch(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from paceline.tasks.imagenet.preparation import prepare as imagenet\n"
        f"options = imagenet.Options(num_pictures=2)\n"
        f"to = imagenet.prepare('stand-in', Path({str(tmp_path / 'data')!r}), options, print)\n"
        "sys.exit('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], timeout=120, check=False)
    assert result.returncode == 0


# ---- options


def test_shrinking_leaves_no_side_larger_than_asked(archives: Path, tmp_path: Path) -> None:
    options = imagenet.Options(max_side=128)
    directory = imagenet.prepare(str(archives), tmp_path / "data", options, ignore)
    card = read_card(directory)
    assert card["changed"]["shrunk"] > 100
    assert card["settings"]["max_side"] == 128
    for split in shards.SPLITS:
        sizes = shards.open_pictures(directory, split).sizes
        assert sizes.max() == 128
    whole = imagenet.prepare(str(archives), tmp_path / "whole", imagenet.Options(), ignore)
    before = shards.open_pictures(whole, "validation").sizes
    assert read_card(directory)["total_mb"] < read_card(whole)["total_mb"]
    assert before.max() > 128


def test_other_options_make_it_anew(archives: Path, tmp_path: Path) -> None:
    to = tmp_path / "data"
    imagenet.prepare(str(archives), to, imagenet.Options(layout="folders"), ignore)
    said: list[str] = []
    imagenet.prepare(str(archives), to, imagenet.Options(layout="shards"), said.append)
    assert "with other options: making it anew" in said[0]
    assert not (to / "train").exists()
    assert read_card(to)["layout"] == "shards"


def test_a_damaged_shard_is_made_anew(archives: Path, tmp_path: Path) -> None:
    to = imagenet.prepare(str(archives), tmp_path / "data", imagenet.Options(), ignore)
    good = hashes(to)
    shard = to / "train-00000.tar"
    content = bytearray(shard.read_bytes())
    content[1000] ^= 1
    shard.write_bytes(content)
    said: list[str] = []
    imagenet.prepare(str(archives), to, imagenet.Options(), said.append)
    assert "is damaged: making it anew" in said[0]
    assert hashes(to) == good


def test_large_data_is_compared_by_size_unless_it_is_to_be_verified(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = imagenet.prepare(str(archives), tmp_path / "data", imagenet.Options(), ignore)
    shard = to / "train-00000.tar"
    content = bytearray(shard.read_bytes())
    content[1000] ^= 1
    shard.write_bytes(content)
    monkeypatch.setattr(imagenet, "_HASHED_AT_MOST_BYTES", 1000)
    said: list[str] = []
    imagenet.prepare(str(archives), to, imagenet.Options(), said.append)
    assert said[0].startswith("nothing to do")
    imagenet.prepare(str(archives), to, imagenet.Options(verify=True), said.append)
    assert "is damaged: making it anew" in said[1]


def test_a_tree_can_be_packed_into_shards_too(archives: Path, tmp_path: Path) -> None:
    tree = imagenet.prepare(
        str(archives), tmp_path / "tree", imagenet.Options(layout="folders"), ignore
    )
    (tree / "card.json").unlink()
    options = imagenet.Options(layout="shards", max_side=100)
    directory = imagenet.prepare(str(tree), tmp_path / "data", options, ignore)
    assert len(shards.open_pictures(directory, "train")) == 120
    assert shards.classes(directory)[0] == ("n90000001", "morning disc, drawn disc")


def test_a_tree_is_read_as_it_is_and_only_an_index_is_written(
    archives: Path, tmp_path: Path
) -> None:
    tree = imagenet.prepare(
        str(archives), tmp_path / "tree", imagenet.Options(layout="folders"), ignore
    )
    for name in ("card.json", "classes.tsv"):
        (tree / name).unlink()
    before = hashes(tree)
    said: list[str] = []
    directory = imagenet.prepare(str(tree), tmp_path / "data", imagenet.Options(), said.append)
    assert hashes(tree) == before
    assert sum(path.stat().st_size for path in directory.iterdir()) < 50_000
    assert shards.classes(directory)[0] == ("n90000001", "n90000001")
    # 120 pictures are not the 1,281,167 that ILSVRC has, and that is said
    assert any("1,281,047 fewer than the 1,281,167 of ILSVRC 2012" in line for line in said)
    assert any("49,980 fewer than the 50,000 of ILSVRC 2012" in line for line in said)


def test_the_command_line_takes_all_options_and_prints_where_it_went(tmp_path: Path) -> None:
    words = [
        "data",
        "imagenet",
        "--from",
        "stand-in",
        "--layout",
        "folders",
        "--max-side",
        "120",
        "--pictures",
        "2",
    ]
    result = subprocess.run(
        [sys.executable, "-m", "paceline.cli", *words, "--to", str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(tmp_path / "data")
    assert "40 train, 20 validation drawn pictures of 20 classes as folders" in result.stderr
    with Image.open(tmp_path / "data" / "train" / "n90000012" / "n90000012_2.JPEG") as image:
        assert max(image.size) == 120


# ---- interrupted


def prepare_in_a_process(archives: Path, to: Path) -> "subprocess.Popen[bytes]":
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from paceline.tasks.imagenet.preparation import prepare as imagenet\n"
        "options = imagenet.Options(shard_bytes=40_000, num_threads=2)\n"
        "imagenet.prepare(sys.argv[1], Path(sys.argv[2]), options, print)"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, str(archives), str(to)], stdout=subprocess.DEVNULL
    )


def num_steps_done(unfinished: Path) -> int:
    """Units in the journal, and shards that are complete."""
    journal = unfinished / "growing" / "journal.jsonl"
    lines = journal.read_bytes().count(b"\n") if journal.is_file() else 0
    return lines + len(list(unfinished.glob("parts/*.npy")))


def test_killed_at_any_step_it_goes_on_and_ends_with_the_same_bytes(
    archives: Path, tmp_path: Path
) -> None:
    options = imagenet.Options(shard_bytes=40_000, num_threads=2)
    whole = imagenet.prepare(str(archives), tmp_path / "whole", options, ignore)
    to, unfinished = tmp_path / "data", tmp_path / ".data.unfinished"
    met = []
    for num_steps in (1, 5, 12, 19, 22, 28, 36):
        process = prepare_in_a_process(archives, to)
        while process.poll() is None and num_steps_done(unfinished) < num_steps:
            time.sleep(0.0005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if not to.exists():
            met.append(num_steps_done(unfinished))
    # if the machine is fast some kills come late, but most must have come in the middle
    assert len({steps for steps in met if steps}) >= 3
    assert met == sorted(met)
    assert prepare_in_a_process(archives, to).wait() == 0
    assert hashes(to) == hashes(whole)
    assert read_card(to) == read_card(whole)
    assert not unfinished.exists()


def test_what_a_killed_process_wrote_after_its_last_entry_does_not_count(
    archives: Path, tmp_path: Path
) -> None:
    options = imagenet.Options(shard_bytes=40_000)
    whole = imagenet.prepare(str(archives), tmp_path / "whole", options, ignore)
    to, unfinished = tmp_path / "data", tmp_path / ".data.unfinished"
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED_AFTER_SEVEN, str(archives), str(to)]
    )
    assert process.wait() == 9
    journal = unfinished / "growing" / "journal.jsonl"
    assert journal.read_bytes().count(b"\n") == 7
    with journal.open("ab") as file:
        file.write(b'{"split": "train", "unit": "n900')
    for bucket in unfinished.glob("growing/*.bucket"):
        with bucket.open("ab") as file:
            file.write(b"half a record")
    said: list[str] = []
    imagenet.prepare(str(archives), to, options, said.append)
    assert any("going on with what an interrupted run left" in line for line in said)
    assert hashes(to) == hashes(whole)


INTERRUPTED_AFTER_SEVEN = """
import os, sys
from pathlib import Path
from paceline.tasks.imagenet.preparation import prepare as imagenet
from paceline.tasks.imagenet.preparation.journal import Journal
commit = Journal.commit
def commit_or_die(self, entry):
    if len(self.entries) == 7:
        os._exit(9)
    commit(self, entry)
Journal.commit = commit_or_die
options = imagenet.Options(shard_bytes=40_000)
imagenet.prepare(sys.argv[1], Path(sys.argv[2]), options, lambda text: None)
"""


def test_a_bucket_that_lost_its_contents_with_the_power_is_noticed(
    archives: Path, tmp_path: Path
) -> None:
    to, unfinished = tmp_path / "data", tmp_path / ".data.unfinished"
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED_AFTER_SEVEN, str(archives), str(to)]
    )
    assert process.wait() == 9
    bucket = sorted(unfinished.glob("growing/*.bucket"))[0]
    size = bucket.stat().st_size
    with bucket.open("r+b") as file:
        file.seek(size // 2)
        file.write(bytes(size - size // 2))
    with pytest.raises(UserError, match="is not what an interrupted preparation wrote"):
        imagenet.prepare(str(archives), to, imagenet.Options(shard_bytes=40_000), ignore)


def test_two_at_once_are_told_apart(archives: Path, tmp_path: Path) -> None:
    import fcntl

    unfinished = tmp_path / ".data.unfinished"
    unfinished.mkdir()
    with (unfinished / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process is preparing"):
            imagenet.prepare(str(archives), tmp_path / "data", imagenet.Options(), ignore)


# ---- single pictures


def saved(image: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def gradient(width: int, height: int) -> Image.Image:
    """Red grows to the right, green downwards: whatever is turned can be told."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, :, 0] = np.linspace(0, 255, width).astype(np.uint8)
    pixels[:, :, 1] = np.linspace(0, 255, height).astype(np.uint8)[:, None]
    return Image.fromarray(pixels)


def pixels_of(content: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(content)) as image:
        assert image.format == "JPEG"
        return np.asarray(image.convert("RGB")).astype(int)


def test_a_plain_jpeg_keeps_its_bytes() -> None:
    content = saved(gradient(60, 40), quality=70)
    picture = plain_picture(content)
    assert picture.content == content
    assert (picture.width, picture.height, picture.changes) == (60, 40, ())


@pytest.mark.parametrize("turn", range(2, 9))
def test_a_picture_on_its_side_is_turned_as_viewers_show_it(turn: int) -> None:
    back = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}[turn]
    upright = gradient(96, 64)
    exif = Image.Exif()
    exif[0x0112] = turn
    stored = upright.transpose(Image.Transpose(back))
    picture = plain_picture(saved(stored, quality=95, exif=exif))
    assert picture.changes == ("turned upright",)
    assert (picture.width, picture.height) == (96, 64)
    assert np.abs(pixels_of(picture.content) - np.asarray(upright)).mean() < 3
    assert plain_picture(picture.content).changes == ()


@pytest.mark.parametrize(
    ("kind", "mode", "change"),
    [
        ("PNG", "RGB", "PNG made JPEG"),
        ("PNG", "RGBA", "PNG made JPEG"),
        ("PNG", "P", "PNG made JPEG"),
        ("GIF", "P", "GIF made JPEG"),
        ("JPEG", "CMYK", "CMYK made RGB"),
    ],
)
def test_other_formats_and_colours_become_rgb_jpegs(kind: str, mode: str, change: str) -> None:
    picture = plain_picture(saved(gradient(64, 48).convert(mode), kind))
    assert picture.changes == (change,)
    assert np.abs(pixels_of(picture.content) - np.asarray(gradient(64, 48))).mean() < 14


def test_gray_and_tiny_pictures_are_as_good_as_any() -> None:
    for image in (gradient(50, 30).convert("L"), gradient(1, 1), gradient(1, 300)):
        picture = plain_picture(saved(image))
        assert (picture.width, picture.height) == image.size
        assert picture.changes == ()


def test_shrinking_keeps_the_aspect_and_at_least_a_pixel() -> None:
    assert size_of(plain_picture(saved(gradient(800, 600)), 400)) == (400, 300)
    assert size_of(plain_picture(saved(gradient(600, 800), "PNG"), 400)) == (300, 400)
    assert size_of(plain_picture(saved(gradient(2000, 1)), 400)) == (400, 1)
    assert size_of(plain_picture(saved(gradient(300, 200)), 400)) == (300, 200)


def size_of(picture: Any) -> tuple[int, int]:
    return picture.width, picture.height


def header_of_a_huge_picture() -> bytes:
    """A good JPEG whose header claims 60,000 x 60,000: 10 GB if it were believed."""
    content = bytearray(saved(gradient(64, 64)))
    at = content.index(b"\xff\xc0") + 5
    content[at : at + 4] = (60_000).to_bytes(2, "big") * 2
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a picture"),
        (b"<html>404</html>", "not a picture"),
        (saved(gradient(300, 300))[:2000], "truncated"),
        (saved(gradient(300, 300), "PNG")[:500], "truncated|broken"),
        (header_of_a_huge_picture(), "60,000 x 60,000 pixels"),
    ],
    ids=["empty", "html", "half a JPEG", "half a PNG", "a huge one"],
)
def test_what_is_no_picture_is_told_with_a_reason(content: bytes, reason: str) -> None:
    with pytest.raises(BrokenPictureError, match=reason):
        plain_picture(content)


def test_real_pictures_keep_their_bytes(tmp_path: Path) -> None:
    home = os.environ.get("PACELINE_REAL_DATA")
    sample = Path(home) / "imagenet-sample" if home else REAL_SAMPLE
    if not sample.is_dir():
        pytest.skip(f"no real pictures in {sample}")
    for path in sorted(sample.glob("*.JPEG"))[:40]:
        picture = plain_picture(path.read_bytes())
        assert picture.changes == ()
        assert min(picture.width, picture.height) > 50


# ---- the kit's MATLAB file


def test_what_is_written_as_matlab_is_read_back() -> None:
    records: list[dict[str, str | float]] = [
        {"WNID": f"n{i:08d}", "words": "é" * i, "ILSVRC2012_ID": float(i)} for i in range(5)
    ]
    read = read_matlab(matlab_file("synsets", records))["synsets"]
    assert [row["WNID"] for row in read] == [record["WNID"] for record in records]
    assert [row["words"] for row in read] == [record["words"] for record in records]
    assert [row["ILSVRC2012_ID"] for row in read] == [[i] for i in range(5)]


def test_a_damaged_matlab_file_is_refused_wherever_it_is_cut() -> None:
    whole = matlab_file("synsets", [{"WNID": "n00000001", "num_children": 0.0}])
    for end in range(0, len(whole), 7):
        try:
            assert read_matlab(whole[:end]) == {}
        except NotMatlabError:
            continue


def test_the_kit_of_the_stand_in_has_the_official_files(archives: Path) -> None:
    with tarfile.open(archives / "ILSVRC2012_devkit_t12.tar.gz") as tar:
        names = tar.getnames()
    assert "ILSVRC2012_devkit_t12/data/meta.mat" in names
    assert "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt" in names
