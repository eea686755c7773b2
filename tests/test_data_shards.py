"""Prepared pictures, read by number: from shards and from folders, by threads and processes."""

import io
import shutil
import tarfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from paceline.data.card import read_card
from paceline.errors import UserError
from paceline.tasks.imagenet import shards
from paceline.tasks.imagenet.preparation import prepare as imagenet
from paceline.tasks.imagenet.standin import archives as photos_archives
from paceline.tasks.imagenet.standin import photos

Say = Callable[[str], None]
SMALL_SHARDS = imagenet.Options(shard_bytes=100_000, num_threads=2)


def ignore(_text: str) -> None:
    """For messages that a test does not look at."""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("ilsvrc")
    return photos_archives.write_archives(directory, 12, 2, ignore)


@pytest.fixture(scope="module")
def packed(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("packed") / "data"
    return imagenet.prepare(str(archives), to, SMALL_SHARDS, ignore)


@pytest.fixture(scope="module")
def unpacked(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("unpacked") / "data"
    return imagenet.prepare(str(archives), to, imagenet.Options(layout="folders"), ignore)


def everything(pictures: shards.Pictures) -> list[tuple[int, bytes]]:
    return [(int(pictures.labels[i]), pictures.jpeg(i)) for i in range(len(pictures))]


def read_some(task: tuple[shards.Pictures, list[int]]) -> list[bytes]:
    pictures, numbers = task
    return [pictures.jpeg(number) for number in numbers]


def test_every_picture_decodes_to_the_size_that_the_index_says(packed: Path) -> None:
    for split, num_pictures in {"train": 240, "validation": 40}.items():
        pictures = shards.open_pictures(packed, split)
        assert len(pictures) == len(pictures.labels) == num_pictures
        for number in range(num_pictures):
            pixels = simplejpeg.decode_jpeg(pictures.jpeg(number))
            assert pixels.shape == (*pictures.sizes[number], 3)


def test_labels_are_places_in_the_sorted_list_of_classes(packed: Path) -> None:
    classes = shards.classes(packed)
    assert classes == sorted(classes)
    assert classes[3] == ("n90000004", "morning frame, drawn frame")
    with tarfile.open(packed / "train-00000.tar") as tar:
        names = [member.name for member in tar if member.name.endswith(".jpg")]
    labels = shards.open_pictures(packed, "train").labels[: len(names)]
    assert [classes[label][0] for label in labels] == [name.split("_")[0] for name in names]


def test_validation_labels_come_from_the_kit_and_name_what_is_drawn(packed: Path) -> None:
    """The kit numbers classes in another order: mixing the two up would not go unnoticed here."""
    found = everything(shards.open_pictures(packed, "validation"))
    labels = photos_archives._validation_labels(12)
    drawn = {photos.draw(label, number, 1): label for number, label in enumerate(labels)}
    assert {content: label for label, content in found} == drawn


def test_a_shard_is_a_tar_that_other_tools_read_in_the_order_of_the_index(packed: Path) -> None:
    index = np.load(packed / "train.index.npy")
    pictures = shards.open_pictures(packed, "train")
    place = 0
    for name in read_card(packed)["splits"]["train"]["shards"]:
        with tarfile.open(packed / name) as tar:
            members = tar.getmembers()
            for picture, label in zip(members[::2], members[1::2], strict=True):
                assert picture.name.removesuffix(".jpg") == label.name.removesuffix(".cls")
                content, text = (tar.extractfile(m) for m in (picture, label))
                assert content is not None
                assert text is not None
                assert content.read() == pictures.jpeg(place)
                assert int(text.read()) == index[place]["label"]
                place += 1
    assert place == len(pictures)


def test_each_shard_has_its_share_of_each_class_in_mixed_order(packed: Path) -> None:
    index = np.load(packed / "train.index.npy")
    num_shards = len(read_card(packed)["splits"]["train"]["shards"])
    assert num_shards > 5
    for label in range(20):
        per_shard = np.bincount(index["shard"][index["label"] == label], minlength=num_shards)
        assert per_shard.max() - per_shard.min() <= 1
    neighbours = np.mean(index["label"][1:] == index["label"][:-1])
    assert neighbours < 0.15  # one in twenty if mixed well, nearly all if not at all


def test_folders_hold_the_same_pictures_as_shards(packed: Path, unpacked: Path) -> None:
    for split in shards.SPLITS:
        ours = everything(shards.open_pictures(packed, split))
        theirs = everything(shards.open_pictures(unpacked, split))
        assert sorted(ours) == sorted(theirs)
    classic = unpacked / "train" / "n90000001" / "n90000001_1.JPEG"
    assert classic.read_bytes() == photos.draw(0, 0, 0)


def test_threads_read_what_one_thread_reads(packed: Path) -> None:
    pictures = shards.open_pictures(packed, "train")
    numbers = list(range(0, len(pictures), 3))
    alone = read_some((pictures, numbers))
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(pictures.jpeg, numbers)) == alone


def test_odd_pictures_in_a_tree_that_is_left_as_it_is_come_out_plain(
    archives: Path, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    unpack_archives(archives, tree)
    directory = imagenet.prepare(str(tree), tmp_path / "data", imagenet.Options(), ignore)
    pictures = shards.open_pictures(directory, "train")
    assert Counter(pictures.labels.tolist()) == dict.fromkeys(range(20), 12)
    for number in range(len(pictures)):
        with Image.open(io.BytesIO(pictures.jpeg(number))) as image:
            assert image.format == "JPEG"
            assert image.mode in ("RGB", "L")
            assert (image.height, image.width) == tuple(pictures.sizes[number])
            assert image.getexif().get(0x0112, 1) == 1
    assert not list(directory.glob("*.tar"))


def unpack_archives(archives: Path, tree: Path) -> Path:
    """train/WNID/*.JPEG and val/WNID/*.JPEG with the bytes as they are in the archives."""
    labels = photos_archives._validation_labels(12)
    with tarfile.open(archives / "ILSVRC2012_img_train.tar") as outer:
        for member in outer:
            inner = outer.extractfile(member)
            with tarfile.open(fileobj=inner) as tar:
                tar.extractall(tree / "train" / member.name.removesuffix(".tar"), filter="data")
    with tarfile.open(archives / "ILSVRC2012_img_val.tar") as tar:
        for label, member in zip(labels, tar, strict=True):
            tar.extract(member, tree / "val" / photos.wnid(label), filter="data")
    return tree


# ---- what can be wrong with it


def test_there_is_no_test_split(packed: Path) -> None:
    with pytest.raises(UserError, match="imagenet has no split 'test'") as caught:
        shards.open_pictures(packed, "test")
    assert "train, validation" in caught.value.fix


def test_a_shard_that_lost_its_end_is_noticed_when_it_is_opened(
    packed: Path, tmp_path: Path
) -> None:
    broken = Path(shutil.copytree(packed, tmp_path / "broken"))
    shard = broken / "train-00001.tar"
    shard.write_bytes(shard.read_bytes()[:-10_000])
    with pytest.raises(UserError, match=r"train-00001\.tar has .* bytes and not"):
        shards.open_pictures(broken, "train")
    shard.unlink()
    with pytest.raises(UserError, match=r"train-00001\.tar cannot be read"):
        shards.open_pictures(broken, "train")


def test_a_shard_cut_while_it_is_read_is_an_error_and_not_a_crash(
    packed: Path, tmp_path: Path
) -> None:
    broken = Path(shutil.copytree(packed, tmp_path / "broken"))
    pictures = shards.open_pictures(broken, "train")
    for shard in broken.glob("*.tar"):
        shard.write_bytes(b"")
    with pytest.raises(UserError, match="is cut short"):
        pictures.jpeg(0)


def test_an_index_of_another_kind_is_refused(packed: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(packed, tmp_path / "broken"))
    index = broken / "train.index.npy"
    num_bytes = index.stat().st_size
    index.write_bytes(b"\0" * num_bytes)
    with pytest.raises(UserError, match=r"train\.index\.npy cannot be read"):
        shards.open_pictures(broken, "train")


def test_a_picture_missing_from_folders_is_named(unpacked: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(unpacked, tmp_path / "broken"))
    (broken / "train" / "n90000001" / "n90000001_1.JPEG").unlink()
    with pytest.raises(UserError, match=r"n90000001_1\.JPEG cannot be read"):
        shards.open_pictures(broken, "train").jpeg(0)
