"""Checkpoints as files: damage is found before anything is loaded, and an older one is used."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from paceline.errors import UserError
from paceline.files import sha256_of
from paceline.record import checkpoints as stored
from paceline.record.checkpoints import (
    all_checkpoints,
    checkpoint_name,
    choose,
    damage,
    newest_whole,
    stored_tensors,
    weights_sha256,
)
from paceline.record.schema import RunDirectory
from paceline.report.own.checkpoint import contents
from paceline.report.render import checkpoint as render_checkpoint
from paceline.settings import CheckpointSettings

Arrays = dict[str, np.ndarray]


def some_weights(seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    return {
        "conv.weight": rng.normal(size=(4, 3, 3, 3)).astype(np.float32),
        "head.bias": rng.normal(size=10).astype(np.float32),
        "count": np.array(7, dtype=np.int64),
    }


def write(run: Path, step: int, **manifest: Any) -> Path:
    """A whole checkpoint, as training leaves it."""
    checkpoint = run / "checkpoints" / checkpoint_name(step)
    checkpoint.mkdir(parents=True)
    save_file(some_weights(step), checkpoint / stored.WEIGHTS)
    save_file({"conv.weight.momentum": np.ones(108, np.float32)}, checkpoint / stored.OPTIMIZER)
    (checkpoint / stored.STATE).write_text(json.dumps({"progress": {"step": step}}))
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
        for path in sorted(checkpoint.iterdir())
    }
    weights = weights_sha256(checkpoint / stored.WEIGHTS)
    content = {"step": step, "files": files, "weights_sha256": weights, **manifest}
    (checkpoint / stored.MANIFEST).write_text(json.dumps(content, indent=1))
    return checkpoint


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x10
    path.write_bytes(content)


def test_a_whole_checkpoint_has_no_damage(tmp_path: Path) -> None:
    assert damage(write(tmp_path, 10)) is None


@pytest.mark.parametrize("name", [stored.WEIGHTS, stored.OPTIMIZER, stored.STATE])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    checkpoint = write(tmp_path, 10)
    (checkpoint / name).unlink()
    assert damage(checkpoint) == f"{checkpoint / name} is missing"


@pytest.mark.parametrize("change", [-1, 1])
def test_a_wrong_size_is_named_with_both_sizes(tmp_path: Path, change: int) -> None:
    checkpoint = write(tmp_path, 10)
    path = checkpoint / stored.WEIGHTS
    size = path.stat().st_size
    path.write_bytes((path.read_bytes() + b"x")[: size + change])
    assert damage(checkpoint) == f"{path} has {size + change:,} bytes instead of {size:,}"


@pytest.mark.parametrize("name", [stored.WEIGHTS, stored.OPTIMIZER, stored.STATE])
@pytest.mark.parametrize("offset", [0, 20, -1])
def test_a_flipped_bit_is_found_wherever_it_is(tmp_path: Path, name: str, offset: int) -> None:
    checkpoint = write(tmp_path, 10)
    flip(checkpoint / name, offset)
    found = damage(checkpoint)
    assert found is not None and name in found and "sha256" in found


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'"x"', b"{}", b'{"files": 3}', b"\xff\x80"])
def test_a_manifest_that_says_nothing_is_damage(tmp_path: Path, content: bytes) -> None:
    checkpoint = write(tmp_path, 10)
    (checkpoint / stored.MANIFEST).write_bytes(content)
    found = damage(checkpoint)
    assert found is not None and "no readable manifest.json" in found
    with pytest.raises(UserError):
        stored.read_manifest(checkpoint)


def test_a_missing_manifest_is_damage(tmp_path: Path) -> None:
    checkpoint = write(tmp_path, 10)
    (checkpoint / stored.MANIFEST).unlink()
    assert "no readable manifest.json" in (damage(checkpoint) or "")


@pytest.mark.parametrize("files", [{"weights.safetensors": 3}, {"weights.safetensors": {}}, []])
def test_a_manifest_with_strange_entries_is_damage_and_no_crash(tmp_path: Path, files: Any) -> None:
    assert damage(write(tmp_path, 10, files=files)) is not None


def test_a_manifest_that_names_no_weights_is_damage(tmp_path: Path) -> None:
    assert "weights.safetensors" in (damage(write(tmp_path, 10, files={})) or "")


@pytest.mark.parametrize("name", [stored.WEIGHTS, stored.OPTIMIZER, stored.STATE])
def test_a_manifest_names_what_every_checkpoint_has(tmp_path: Path, name: str) -> None:
    checkpoint = write(tmp_path, 10)
    manifest = stored.read_manifest(checkpoint)
    del manifest["files"][name]
    (checkpoint / stored.MANIFEST).write_text(json.dumps(manifest))
    assert name in (damage(checkpoint) or "")


def test_a_name_that_no_file_system_takes_is_damage_and_no_crash(tmp_path: Path) -> None:
    checkpoint = write(tmp_path, 10)
    manifest = stored.read_manifest(checkpoint)
    for number, name in enumerate(("x" * 5000, "a\0b", "\ud800")):
        entry = {"bytes": 1, "sha256": ""}
        content = {**manifest, "files": {**manifest["files"], name: entry}}
        (checkpoint / stored.MANIFEST).write_text(json.dumps(content))
        assert damage(checkpoint) is not None, number


def test_a_file_that_is_a_directory_or_a_file_for_a_directory_is_damage(tmp_path: Path) -> None:
    checkpoint = write(tmp_path, 10)
    (checkpoint / stored.STATE).unlink()
    (checkpoint / stored.STATE).mkdir()
    assert stored.STATE in (damage(checkpoint) or "")
    (tmp_path / "checkpoints" / checkpoint_name(20)).write_text("a file")
    assert damage(tmp_path / "checkpoints" / checkpoint_name(20)) is not None


def test_no_flipped_bit_of_a_manifest_is_a_crash(tmp_path: Path) -> None:
    checkpoint = write(tmp_path, 10)
    path = checkpoint / stored.MANIFEST
    crashes = []
    for offset in range(0, path.stat().st_size, 3):
        flip(path, offset)
        try:
            damage(checkpoint)
        except Exception as error:
            crashes.append((offset, repr(error)))
        flip(path, offset)
    assert not crashes


def test_only_finished_checkpoints_are_listed_oldest_first(tmp_path: Path) -> None:
    for step in (200, 5, 12_345_678):
        write(tmp_path, step)
    directory = tmp_path / "checkpoints"
    for leftover in (".step-0000300.77", ".removed.step-0000001.77", "step-old", "other"):
        (directory / leftover).mkdir()
    assert [stored.step_of(path) for path in all_checkpoints(directory)] == [5, 200, 12_345_678]


def test_a_run_without_checkpoints_has_none(tmp_path: Path) -> None:
    assert all_checkpoints(tmp_path / "absent") == []
    assert newest_whole(tmp_path / "absent") == (None, [])


def test_damaged_ones_are_skipped_and_reported_newest_first(tmp_path: Path) -> None:
    good, *_ = write(tmp_path, 10), write(tmp_path, 20), write(tmp_path, 30)
    directory = tmp_path / "checkpoints"
    flip(directory / checkpoint_name(30) / stored.WEIGHTS, -1)
    (directory / checkpoint_name(20) / stored.STATE).unlink()
    found, problems = newest_whole(directory)
    assert found == good
    assert len(problems) == 2
    assert checkpoint_name(30) in problems[0] and checkpoint_name(20) in problems[1]


def test_damage_of_older_ones_does_not_matter(tmp_path: Path) -> None:
    flip(write(tmp_path, 10) / stored.WEIGHTS, -1)
    newest = write(tmp_path, 20)
    assert newest_whole(tmp_path / "checkpoints") == (newest, [])


def test_when_all_are_damaged_there_is_none(tmp_path: Path) -> None:
    for step in (10, 20):
        flip(write(tmp_path, step) / stored.WEIGHTS, -1)
    found, problems = newest_whole(tmp_path / "checkpoints")
    assert found is None and len(problems) == 2


# ---- tensors and their one hash


def save_in_order(path: Path, arrays: Arrays, order: list[str]) -> Path:
    """safetensors, written by hand: the library sorts as it likes, and this test may not."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name in order:
        data = arrays[name].tobytes()
        kind = {"float32": "F32", "int64": "I64"}[str(arrays[name].dtype)]
        header[name] = {
            "dtype": kind,
            "shape": list(arrays[name].shape),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return path


def test_the_hash_over_weights_does_not_depend_on_how_the_file_lays_them_out(
    tmp_path: Path,
) -> None:
    weights = some_weights()
    names = list(weights)
    save_file(weights, tmp_path / "library")
    hashes = {
        weights_sha256(tmp_path / "library"),
        weights_sha256(save_in_order(tmp_path / "a", weights, names)),
        weights_sha256(save_in_order(tmp_path / "b", weights, names[::-1])),
    }
    assert len(hashes) == 1


def test_the_hash_over_weights_changes_with_value_name_shape_and_type(tmp_path: Path) -> None:
    weights = {"a": np.zeros(4, np.float32), "b": np.zeros((2, 2), np.float32)}
    variants: list[Arrays] = [
        weights,
        {**weights, "a": np.array([0, 0, 0, 1e-30], np.float32)},
        {**weights, "a": np.zeros((2, 2), np.float32)},
        {**weights, "a": np.zeros(2, np.int64)},
        {"c": weights["a"], "b": weights["b"]},
        {"a": weights["a"]},
        {**weights, "z": np.zeros(0, np.float32)},
    ]
    hashes = []
    for number, variant in enumerate(variants):
        path = save_in_order(tmp_path / str(number), variant, list(variant))
        hashes.append(weights_sha256(path))
    assert len(set(hashes)) == len(variants)


def test_the_hash_over_weights_takes_tensors_larger_than_a_chunk(tmp_path: Path) -> None:
    big = {"w": np.arange(700_000, dtype=np.float32)}
    path = save_in_order(tmp_path / "big", big, ["w"])
    expected = hashlib.sha256(b"w F32 [700000]\n" + big["w"].tobytes()).hexdigest()
    assert weights_sha256(path) == expected


def test_tensors_are_listed_by_name_with_shape_and_bytes(tmp_path: Path) -> None:
    save_file(some_weights(), tmp_path / "w")
    found = [(t.name, t.shape, t.num_bytes) for t in stored_tensors(tmp_path / "w")]
    assert found == [("conv.weight", (4, 3, 3, 3), 432), ("count", (), 8), ("head.bias", (10,), 40)]


@pytest.mark.parametrize(
    "header",
    [
        [],
        {"w": 3},
        {"w": {"dtype": "F32", "shape": [2]}},
        {"w": {"dtype": "F32", "shape": 2, "data_offsets": [0, 8]}},
        {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0]}},
        {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 9]}},
        {"w": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}},
        {"w": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}},
        {"w": {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 8]}},
    ],
)
def test_a_header_that_makes_no_sense_is_a_value_error(tmp_path: Path, header: Any) -> None:
    text = json.dumps(header).encode()
    (tmp_path / "w").write_bytes(len(text).to_bytes(8, "little") + text + b"\0" * 8)
    with pytest.raises(ValueError, match="header"):
        stored_tensors(tmp_path / "w")


def test_an_empty_file_holds_no_tensors(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(b"")
    with pytest.raises(ValueError, match="header"):
        stored_tensors(tmp_path / "w")


# ---- what a user names


def point_best(run: Path, step: int) -> None:
    (run / "best").symlink_to(Path("checkpoints") / checkpoint_name(step))


def test_best_newest_and_steps_can_be_chosen(tmp_path: Path) -> None:
    ten, twenty, thirty = (write(tmp_path, step) for step in (10, 20, 30))
    point_best(tmp_path, 20)
    assert choose(tmp_path, "best") == twenty
    assert choose(tmp_path, "newest") == thirty
    assert choose(tmp_path, "10") == choose(tmp_path, "0000010") == ten


def test_without_a_best_one_the_newest_stands_for_it(tmp_path: Path) -> None:
    write(tmp_path, 10)
    newest = write(tmp_path, 20)
    assert choose(tmp_path, "best") == newest
    point_best(tmp_path, 999)
    assert choose(tmp_path, "best") == newest


def test_newest_is_the_newest_whole_one(tmp_path: Path) -> None:
    ten = write(tmp_path, 10)
    flip(write(tmp_path, 20) / stored.WEIGHTS, -1)
    heard: list[str] = []
    assert choose(tmp_path, "newest", heard.append) == ten
    assert len(heard) == 1 and "damaged" in heard[0] and checkpoint_name(20) in heard[0]
    assert choose(tmp_path, "newest") == ten


@pytest.mark.parametrize("which", ["11", "-1", "last", "", "1.5", "../x", "\u00b2"])
def test_a_checkpoint_that_is_not_there_is_refused_with_those_that_are(
    tmp_path: Path, which: str
) -> None:
    write(tmp_path, 10)
    write(tmp_path, 20)
    with pytest.raises(UserError, match="no checkpoint") as caught:
        choose(tmp_path, which)
    assert caught.value.fix == "there are: best, newest, 10, 20"


def test_a_run_without_a_checkpoint_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no undamaged checkpoint"):
        choose(tmp_path, "best")
    with pytest.raises(UserError) as caught:
        choose(tmp_path, "10")
    assert "none" in caught.value.fix


def test_best_is_found_in_a_run_copied_without_links(tmp_path: Path) -> None:
    import shutil

    write(tmp_path / "a", 10)
    write(tmp_path / "a", 20)
    point_best(tmp_path / "a", 10)
    shutil.copytree(tmp_path / "a", tmp_path / "b")  # follows links, as many tools do
    chosen = choose(tmp_path / "b", "best")
    assert damage(chosen) is None and stored.step_of(chosen) == 10


def test_a_copy_of_the_best_one_that_cannot_be_read_leaves_the_newest(tmp_path: Path) -> None:
    newest = write(tmp_path, 10)
    (tmp_path / "best").mkdir()
    assert choose(tmp_path, "best") == newest


# ---- what is shown of one


def test_what_a_checkpoint_holds_is_shown_by_bytes_and_adds_up(tmp_path: Path) -> None:
    checkpoint = write(tmp_path, 1000)
    held = contents(checkpoint)
    assert held.total_bytes == sum(path.stat().st_size for path in checkpoint.iterdir())
    assert list(held.bytes_by_part) == ["weights", "optimizer state", "the rest"]
    assert (held.step, held.num_weights) == (1000, 108 + 10 + 1)
    text = render_checkpoint.render(checkpoint)
    assert "step 1,000" in text and "119 weights" in text
    assert f"sha256 over all weights: {held.weights_sha256}" in text


def test_a_damaged_checkpoint_is_not_shown(tmp_path: Path) -> None:
    checkpoint = write(tmp_path, 10)
    flip(checkpoint / stored.OPTIMIZER, -1)
    with pytest.raises(UserError, match="damaged checkpoint"):
        render_checkpoint.render(checkpoint)


@pytest.mark.parametrize("offset", [0, 2, 6, 7, 8])
def test_a_flipped_bit_in_a_header_is_an_error_for_the_user(tmp_path: Path, offset: int) -> None:
    checkpoint = write(tmp_path, 10)
    flip(checkpoint / stored.WEIGHTS, offset)
    with pytest.raises(UserError):
        contents(checkpoint)


# ---- what saving leaves behind


def saver(run: RunDirectory, noted: list[dict[str, Any]]) -> Any:
    from paceline.train.save import CheckpointSaver

    def note(kind: str, **fields: Any) -> None:
        hidden = [p.name for p in run.checkpoints.glob(".*")] if run.checkpoints.is_dir() else []
        noted.append({"kind": kind, "hidden": hidden, **fields})

    return CheckpointSaver(run, CheckpointSettings(), note)


def snapshot(step: int, best_step: int | None = None) -> Any:
    import torch

    from paceline.train.save import Snapshot

    weights = {"w": torch.ones(3)}
    return Snapshot(step, best_step, {stored.WEIGHTS: weights, stored.OPTIMIZER: weights}, {})


def test_a_failed_save_is_noted_as_one_after_making_room(tmp_path: Path) -> None:
    run, noted = RunDirectory(tmp_path), list[dict[str, Any]]()
    writing = saver(run, noted)
    broken = snapshot(10)
    broken.files["sub/dir"] = broken.files[stored.WEIGHTS]  # cannot be written: no such directory
    writing._write(broken)
    (event,) = noted
    assert (event["kind"], event["failed_save"], event["hidden"]) == ("warning", True, [])
    writing._write(snapshot(20))
    writing.close()
    assert noted[-1]["kind"] == "checkpoint" and damage(choose(tmp_path, "20")) is None


def test_a_run_copied_with_links_followed_goes_on_saving(tmp_path: Path) -> None:
    run, noted = RunDirectory(tmp_path), list[dict[str, Any]]()
    write(tmp_path, 10)
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "copy").write_text("of step 10")
    writing = saver(run, noted)
    writing._write(snapshot(20, best_step=20))
    writing.close()
    assert [event["kind"] for event in noted] == ["checkpoint"]
    assert stored.step_of(choose(tmp_path, "best")) == 20
