"""CIFAR-10 from its archives to arrays: every way in, every way it can be wrong."""

import dataclasses
import functools
import hashlib
import json
import os
import pickle
import shutil
import struct
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from paceline.data.card import read_card, write_card
from paceline.data.places import data_directory, data_home
from paceline.errors import UserError
from paceline.tasks.cifar10 import prepare as cifar10
from paceline.tasks.cifar10 import standin as pictures

NUM_TRAIN, NUM_TEST = 500, 100
BATCHES = ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"]
BATCHES += ["test_batch"]


def ignore(_: str) -> None:
    """For messages that a test does not look at."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small stand-in in the official binary format."""
    path = tmp_path_factory.mktemp("archive") / "cifar-10-binary.tar.gz"
    return pictures.write_archive(path, NUM_TRAIN, NUM_TEST)


@pytest.fixture
def extracted(archive: Path, tmp_path: Path) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "extracted", filter="data")
    return tmp_path / "extracted" / "cifar-10-batches-bin"


@pytest.fixture
def prepared(archive: Path, tmp_path: Path) -> Path:
    return cifar10.prepare(str(archive), tmp_path / "prepared", ignore)


def in_python_2(value: Any) -> bytes:
    """The opcodes that Python 2 wrote for a value, as the official files of 2009 have them."""
    if isinstance(value, np.ndarray):
        empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\0tU\x01btR"
        kind = b"cnumpy\ndtype\n(U\x02u1K\0K\x01tR"
        kind += b"(K\x03U\x01|NNN" + in_python_2(-1) + in_python_2(-1) + b"K\0tb"
        shape = b"(" + b"".join(map(in_python_2, value.shape)) + b"t"
        return empty + b"(K\x01" + shape + kind + b"\x89" + in_python_2(value.tobytes()) + b"tb"
    if isinstance(value, dict):
        return b"(" + b"".join(in_python_2(k) + in_python_2(v) for k, v in value.items()) + b"d"
    if isinstance(value, list):
        return b"(" + b"".join(map(in_python_2, value)) + b"l"
    if isinstance(value, bytes):
        return b"T" + struct.pack("<i", len(value)) + value
    return b"J" + struct.pack("<i", value)


def pickle_as_in_2009(value: Any) -> bytes:
    return b"\x80\x02" + in_python_2(value) + b"."


def write_python_version(binary: Path, to: Path, dump: Any = pickle_as_in_2009) -> Path:
    """The same pictures as pickles, in a directory as the official archive has it."""
    to.mkdir()
    for name in BATCHES:
        records = np.fromfile(binary / f"{name}.bin", np.uint8).reshape(-1, 3073)
        values = {b"data": records[:, 1:].copy(), b"labels": records[:, 0].tolist()}
        (to / name).write_bytes(dump({**values, b"batch_label": b"a batch"}))
    classes = (binary / "batches.meta.txt").read_bytes().split()
    (to / "batches.meta").write_bytes(dump({b"label_names": classes, b"num_vis": 3072}))
    shutil.copy(binary / "stand-in.json", to)
    return to


def pack(directory: Path, path: Path) -> Path:
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        tar.add(directory, directory.name)
    return path


def fingerprint_of(source: Path, to: Path) -> str:
    return str(read_card(cifar10.prepare(str(source), to, ignore))["fingerprint"])


# ---- what comes out


def test_the_stand_in_is_as_large_as_the_real_thing_and_split_alike(tmp_path: Path) -> None:
    said: list[str] = []
    directory = cifar10.prepare("stand-in", tmp_path / "data", said.append)
    card = read_card(directory)
    for split, num_pictures in {"train": 45_000, "validation": 5_000, "test": 10_000}.items():
        data = cifar10.open_split(directory, split)
        assert data.images.shape == (num_pictures, 3, 32, 32)
        assert np.bincount(data.labels).tolist() == [num_pictures // 10] * 10
        assert list(card["splits"][split]["num_per_class"]) == list(data.classes)
    assert "45,000 train, 5,000 validation, 10,000 test drawn pictures" in said[-1]
    assert linear_accuracy(directory) < 0.25
    assert [file.name for file in tmp_path.iterdir()] == ["data"]


def linear_accuracy(directory: Path) -> float:
    """What least squares on pixels (of half the resolution, for speed) makes of unseen pictures."""

    def features(data: cifar10.Pictures, num_pictures: int) -> npt.NDArray[np.float32]:
        small = data.images[:num_pictures].reshape(-1, 3, 16, 2, 16, 2).mean(axis=(3, 5))
        flat = small.reshape(len(small), -1).astype(np.float32) / 255
        return np.concatenate([flat, np.ones((len(flat), 1), np.float32)], axis=1)

    train, test = (cifar10.open_split(directory, split) for split in ("train", "test"))
    seen = features(train, 10_000)
    targets = np.eye(10, dtype=np.float32)[train.labels[:10_000]]
    ridge = np.eye(seen.shape[1], dtype=np.float32)
    weights = np.linalg.solve(seen.T @ seen + ridge, seen.T @ targets)
    guesses = (features(test, 2_000) @ weights).argmax(axis=1)
    return float((guesses == test.labels[:2_000]).mean())


def test_an_official_archive_needs_no_mark_but_all_of_its_60_000_pictures(tmp_path: Path) -> None:
    directory = tmp_path / "bare"
    directory.mkdir()
    records = np.zeros((10_000, 3073), np.uint8)
    records[:, 0] = np.arange(10_000) % 10
    for name in BATCHES:
        records.tofile(directory / f"{name}.bin")
    card = read_card(cifar10.prepare(str(directory), tmp_path / "data", ignore))
    assert [s["num_pictures"] for s in card["splits"].values()] == [45_000, 5_000, 10_000]
    assert card["classes"][:2] == ["airplane", "automobile"]
    records[:9_000].tofile(directory / "data_batch_3.bin")
    with pytest.raises(UserError, match="data_batch_3 has 9,000 pictures and not 10,000"):
        cifar10.prepare(str(directory), tmp_path / "other", ignore)


def test_every_picture_is_used_once_and_keeps_its_label(prepared: Path, extracted: Path) -> None:
    def as_set(images: npt.NDArray[Any], labels: npt.NDArray[Any]) -> set[tuple[int, bytes]]:
        return {(int(label), image.tobytes()) for label, image in zip(labels, images, strict=True)}

    splits = {split: cifar10.open_split(prepared, split) for split in cifar10.SPLITS}
    train, validation, test = (as_set(s.images, s.labels) for s in splits.values())
    batches = [np.fromfile(extracted / f"{n}.bin", np.uint8).reshape(-1, 3073) for n in BATCHES]
    records = np.concatenate(batches)
    assert [len(train), len(validation), len(test)] == [450, 50, 100]
    assert train | validation == as_set(records[:NUM_TRAIN, 1:], records[:NUM_TRAIN, 0])
    assert test == as_set(records[NUM_TRAIN:, 1:], records[NUM_TRAIN:, 0])


def test_the_same_pictures_are_chosen_for_validation_for_ever() -> None:
    labels = (np.arange(200) % 10).astype(np.uint8)
    chosen = [1, 9, 13, 16, 21, 28, 33, 34, 44, 45, 47, 52, 70, 79, 86, 100, 108, 162, 177, 195]
    assert np.flatnonzero(cifar10._choose_validation(labels)).tolist() == chosen


def test_the_same_seed_draws_the_same_pictures_on_every_machine() -> None:
    batch = pictures.draw(200, seed=1)
    found = hashlib.sha256(batch.pictures.tobytes() + batch.labels.tobytes()).hexdigest()
    assert found == "30ab40919984d1b0f736738f7d85afe4ffabcfd422bf3c0a6190acd8e58da0d1"
    assert not np.array_equal(pictures.draw(200, seed=2).pictures, batch.pictures)


def test_pictures_are_read_from_disk_and_cannot_be_changed(prepared: Path) -> None:
    data = cifar10.open_split(prepared, "train")
    assert isinstance(data.images, np.memmap)
    assert data.labels.dtype == np.int64
    assert data.classes == tuple((prepared / "classes.txt").read_text().split())
    with pytest.raises(ValueError, match="read-only"):
        data.images[0] = 0


def test_the_card_tells_what_the_data_is_and_came_from(prepared: Path, archive: Path) -> None:
    card = json.loads((prepared / "card.json").read_text())
    data = cifar10.open_split(prepared, "train")
    assert card["workload"] == "cifar10"
    assert card["stand_in"] == pictures.description(NUM_TRAIN, NUM_TEST)
    assert card["source"]["location"] == str(archive)
    assert card["files"][0]["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert card["splits"]["validation"]["num_per_class"]["ring"] == 5
    train = card["splits"]["train"]
    assert train["given"]["bytes"] == 3073 * len(data.labels)
    stored = sum(file.stat().st_size for file in prepared.glob("train-*.npy"))
    assert train["stored_bytes"] == stored < 1e6 * card["total_mb"]
    np.testing.assert_allclose(card["channel_mean"], data.images.mean((0, 2, 3)) / 255, atol=1e-6)
    np.testing.assert_allclose(card["channel_std"], data.images.std((0, 2, 3)) / 255, atol=1e-6)
    for name, array in card["arrays"].items():
        assert array["sha256"] == hashlib.sha256((prepared / name).read_bytes()).hexdigest()


# ---- the ways in


def test_all_forms_of_the_same_pictures_give_the_same_data(
    archive: Path, extracted: Path, tmp_path: Path
) -> None:
    as_pickles = write_python_version(extracted, tmp_path / "cifar-10-batches-py")
    python_archive = pack(as_pickles, tmp_path / "no-telling-name")
    binary_plain = tmp_path / "downloads" / "mine.tar"
    binary_plain.parent.mkdir()
    pack(extracted, binary_plain)
    sources = [archive, extracted, extracted.parent, as_pickles, python_archive]
    sources += [archive.parent, binary_plain.parent]
    found = {fingerprint_of(source, tmp_path / f"to-{i}") for i, source in enumerate(sources)}
    assert len(found) == 1


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickles_written_by_newer_pythons_are_read_too(
    extracted: Path, tmp_path: Path, protocol: int
) -> None:
    dump = functools.partial(pickle.dumps, protocol=protocol)
    newer = write_python_version(extracted, tmp_path / "newer", dump)
    assert fingerprint_of(newer, tmp_path / "a") == fingerprint_of(extracted, tmp_path / "b")


def test_an_archive_that_only_looks_official_is_used_but_called_so(
    archive: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    directory = cifar10.prepare(str(archive), tmp_path / "data", said.append)
    assert "not the official archive (checksum differs); using it as it is" in said[1]
    assert read_card(directory)["source"]["is_official"] is False


@pytest.fixture
def web(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ThreadingHTTPServer]:
    """A web server that has the small archive, pinned by its checksum as the official one is."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("PACELINE_DATA", str(tmp_path / "home"))
    handler = functools.partial(Quiet, directory=str(archive.parent))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    monkeypatch.setenv("PACELINE_MIRROR", f"http://127.0.0.1:{server.server_port}")
    pin(monkeypatch, hashlib.sha256(archive.read_bytes()).hexdigest(), archive.stat().st_size)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def pin(monkeypatch: pytest.MonkeyPatch, sha256: str, size_bytes: int) -> None:
    pinned = dataclasses.replace(cifar10.BINARY, checksum=f"sha256:{sha256}", size_bytes=size_bytes)
    monkeypatch.setattr(cifar10, "BINARY", pinned)


def test_the_web_is_asked_once(web: ThreadingHTTPServer, tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        cifar10.prepare("web", cifar10.default_directory("web"), said.append)
    assert cifar10.open_split(tmp_path / "home" / "cifar10", "test").images.shape[0] == NUM_TEST
    assert (tmp_path / "home" / "downloads" / "cifar-10-binary.tar.gz").is_file()
    assert "nothing to do" in said[-1]


def test_a_download_with_a_wrong_checksum_is_an_error_and_leaves_nothing(
    web: ThreadingHTTPServer, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(monkeypatch, "0" * 64, archive.stat().st_size)
    with pytest.raises(UserError, match="checksum differs: expected sha256:0000"):
        cifar10.prepare("web", tmp_path / "data", ignore)
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_a_place_where_nothing_is_gets_the_three_ways_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="wbe") as caught:
        cifar10.prepare("wbe", tmp_path / "data", ignore)
    assert "--from web, --from stand-in, or --from PATH" in caught.value.fix


def test_a_directory_without_cifar10_says_what_should_be_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no CIFAR-10"):
        cifar10.prepare(str(tmp_path), tmp_path / "data", ignore)
    for name in ("a.tar.gz", "b.tar.gz"):
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=r"several archives: a\.tar\.gz, b\.tar\.gz"):
        cifar10.prepare(str(tmp_path), tmp_path / "data", ignore)


# ---- what is in the way


def test_data_that_is_prepared_and_intact_is_left_alone(prepared: Path, archive: Path) -> None:
    before = (prepared / "card.json").stat().st_mtime_ns
    said: list[str] = []
    cifar10.prepare(str(archive), prepared, said.append)
    assert "nothing to do" in said[-1]
    assert (prepared / "card.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("name", ["train-images.npy", "card.json"])
def test_data_that_was_damaged_is_made_anew(prepared: Path, archive: Path, name: str) -> None:
    original = (prepared / name).read_bytes()
    (prepared / name).write_bytes(original[:-5] + b"12345")
    said: list[str] = []
    cifar10.prepare(str(archive), prepared, said.append)
    assert any("is damaged" in line for line in said)
    assert (prepared / name).read_bytes() == original


def test_data_from_another_source_is_replaced(prepared: Path, tmp_path: Path) -> None:
    other = pictures.write_archive(tmp_path / "other.tar.gz", NUM_TRAIN, NUM_TEST, seed=9)
    before = read_card(prepared)["fingerprint"]
    assert fingerprint_of(other, prepared) != before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["other.tar.gz", "prepared"]


def test_a_directory_with_other_files_is_never_replaced(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match=r"holds thesis\.tex"):
        cifar10.prepare(str(archive), tmp_path, ignore)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_file_is_never_replaced_by_a_directory(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="is not a directory"):
        cifar10.prepare(str(archive), tmp_path / "thesis.tex", ignore)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_data_of_another_workload_is_never_replaced(archive: Path, tmp_path: Path) -> None:
    write_card(tmp_path, {"workload": "nmt"})
    with pytest.raises(UserError, match="workload 'nmt'"):
        cifar10.prepare(str(archive), tmp_path, ignore)


def test_a_directory_that_cannot_be_written_is_named(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot write to"):
        cifar10.prepare(str(archive), tmp_path / "file" / "data", ignore)


# ---- archives that are not what they should be


def refused(source: Path, tmp_path: Path) -> UserError:
    """The error, after making sure that nothing was left behind."""
    room = tmp_path / "room"
    room.mkdir()
    with pytest.raises(UserError) as caught:
        cifar10.prepare(str(source), room / "data", ignore)
    assert list(room.iterdir()) == []
    return caught.value


def test_a_truncated_archive_is_refused(archive: Path, tmp_path: Path) -> None:
    short = tmp_path / "cifar-10-binary.tar.gz"
    short.write_bytes(archive.read_bytes()[:1_000_000])
    error = refused(short, tmp_path)
    assert "damaged or was not downloaded to its end" in error.what
    assert "download it again" in error.fix


def test_an_archive_with_a_path_upwards_is_refused(extracted: Path, tmp_path: Path) -> None:
    path = pack(extracted, tmp_path / "bad.tar.gz")
    with tarfile.open(tmp_path / "worse.tar", "w") as tar:
        tar.add(path, "../data_batch_1.bin")
    assert "'../data_batch_1.bin'" in refused(tmp_path / "worse.tar", tmp_path).what


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "cifar-100-binary"
    other.mkdir()
    (other / "train.bin").write_bytes(bytes(3074))
    assert "is not CIFAR-10" in refused(pack(other, tmp_path / "a.tar.gz"), tmp_path).what


def overwrite_label(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[3073] = 10
    path.write_bytes(content)


WRONG_FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "is missing": (Path.unlink, "it lacks data_batch_2.bin"),
    "is cut": (lambda p: os.truncate(p, 3073 * 100 - 1), "data_batch_2.bin has 307,299 bytes"),
    "is empty": (lambda p: os.truncate(p, 0), "data_batch_2.bin has 0 bytes"),
    "is short": (lambda p: os.truncate(p, 3073 * 99), "data_batch_2 has 99 pictures and not 100"),
    "is huge": (lambda p: os.truncate(p, 50_000_000), "more than it ever could"),
    "has a wrong label": (overwrite_label, "a label 10"),
}


@pytest.mark.parametrize("wrong", WRONG_FILES)
def test_a_batch_that_is_wrong_is_named(extracted: Path, tmp_path: Path, wrong: str) -> None:
    spoil, message = WRONG_FILES[wrong]
    spoil(extracted / "data_batch_2.bin")
    assert message in refused(extracted, tmp_path).what


def test_class_names_that_are_not_ten_are_refused(extracted: Path, tmp_path: Path) -> None:
    (extracted / "batches.meta.txt").write_text("cat\ndog\n")
    assert "2 classes and not 10" in refused(extracted, tmp_path).what


# ---- pickles that mean harm


class Harm:
    """Unpickled by an ordinary unpickler, it calls what it was given."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


HARMFUL = {
    "a command": (Harm(os.system, "touch harm.txt"), "posix.system"),
    "an evaluation": (Harm(eval, "open('harm.txt', 'w')"), ".eval"),
    "a file": (Harm(open, "harm.txt", "w"), "io.open"),
    "an array from a file": (Harm(np.load, "harm.npy"), "numpy.load"),
    "an array of objects": (np.array([{}, None]), "an array of type"),
    "a function of ours": (Harm(cifar10.prepare, "web"), "paceline.tasks.cifar10.prepare.prepare"),
}


@pytest.mark.parametrize("protocol", [0, 2, 5])
@pytest.mark.parametrize("harm", HARMFUL)
def test_a_pickle_that_asks_for_more_than_arrays_is_refused(
    extracted: Path, tmp_path: Path, harm: str, protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    value, asked_for = HARMFUL[harm]
    as_pickles = write_python_version(extracted, tmp_path / "pickles")
    (as_pickles / "data_batch_1").write_bytes(pickle.dumps({b"data": value}, protocol))
    error = refused(as_pickles, tmp_path)
    assert "is not safe to read: data_batch_1 asks for" in error.what
    assert asked_for in error.what
    assert not (tmp_path / "harm.txt").exists()


WRONG_PICKLES = {
    "cut": (pickle.dumps(list(range(1000)))[:100], "test_batch is damaged"),
    "a list": (pickle.dumps([1, 2]), "holds no dictionary"),
    "no data": (pickle.dumps({"labels": [1]}), "no 'data' and 'labels'"),
    "labels of text": (
        pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": ["cat"]}),
        "not numbers from 0 to 9",
    ),
    "another shape": (
        pickle.dumps({"data": np.zeros((2, 99), np.uint8), "labels": [1, 2]}),
        "2 labels for data of shape (2, 99)",
    ),
    "a label too large": (
        pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": [12]}),
        "a label 12",
    ),
}


@pytest.mark.parametrize("wrong", WRONG_PICKLES)
def test_a_pickle_that_is_wrong_is_named(extracted: Path, tmp_path: Path, wrong: str) -> None:
    content, message = WRONG_PICKLES[wrong]
    as_pickles = write_python_version(extracted, tmp_path / "pickles")
    (as_pickles / "test_batch").write_bytes(content)
    assert message in refused(as_pickles, tmp_path).what


# ---- opening


def opening_fails(directory: Path, split: str = "train") -> UserError:
    with pytest.raises(UserError) as caught:
        cifar10.open_split(directory, split)
    return caught.value


def test_missing_data_is_answered_with_the_command_that_makes_it(tmp_path: Path) -> None:
    error = opening_fails(tmp_path / "nowhere")
    assert str(tmp_path / "nowhere") in error.what
    command = "paceline data cifar10 --from web|stand-in|PATH --to "
    assert f"{command}{tmp_path / 'nowhere'}" in error.fix
    assert "holds no prepared data" in opening_fails(tmp_path).what


def test_data_of_another_workload_is_not_opened(tmp_path: Path) -> None:
    write_card(tmp_path, {"workload": "nmt"})
    assert "of the workload 'nmt', not of 'cifar10'" in opening_fails(tmp_path).what


@pytest.mark.parametrize("content", ["{", "[1]", '{"no": "workload"}', "\0"])
def test_a_card_that_is_not_one_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "card.json").write_text(content)
    assert "card.json" in opening_fails(tmp_path).what


def test_an_unknown_split_is_answered_with_those_there_are(prepared: Path) -> None:
    error = opening_fails(prepared, "dev")
    assert "no split 'dev'" in error.what
    assert "train, validation, test" in error.fix


@pytest.mark.parametrize("name", ["train-images.npy", "train-labels.npy"])
def test_an_array_that_was_cut_or_lost_is_named(prepared: Path, name: str) -> None:
    os.truncate(prepared / name, 300)
    assert f"damaged: {name} has 300 bytes" in opening_fails(prepared).what
    (prepared / name).unlink()
    assert f"damaged: {name} cannot be read" in opening_fails(prepared).what


# ---- places


def test_plain_names_are_in_the_data_home_and_anything_else_is_a_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("PACELINE_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert data_home() == Path("/home/me/.cache/paceline")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert data_home() == Path("/cache/paceline")
    monkeypatch.setenv("PACELINE_DATA", "/shared")
    assert data_directory("cifar10") == Path("/shared/cifar10")
    assert cifar10.default_directory("stand-in") == Path("/shared/cifar10-stand-in")
    assert data_directory("sets/cifar10") == Path("sets/cifar10")
    assert data_directory("./cifar10") == Path("cifar10")
    assert data_directory("~/cifar10") == Path("/home/me/cifar10")


# ---- the real thing


def test_the_real_archive_gives_the_known_mean_and_deviation(tmp_path: Path) -> None:
    beside = Path(__file__).parents[2] / "shared" / "data"
    real = Path(os.environ.get("PACELINE_REAL_DATA", beside)) / "cifar10"
    if not list(real.glob("cifar-10-*.tar.gz")):
        pytest.skip(f"no cifar-10-binary.tar.gz or cifar-10-python.tar.gz in {real}")
    card = read_card(cifar10.prepare(str(real), tmp_path / "data", ignore))
    assert card["splits"]["train"]["num_per_class"]["frog"] == 4_500
    np.testing.assert_allclose(card["channel_mean"], [0.4914, 0.4822, 0.4465], atol=1e-3)
    np.testing.assert_allclose(card["channel_std"], [0.2470, 0.2435, 0.2616], atol=3e-3)
