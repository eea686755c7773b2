"""What the doctor says about the storage that a run and its data are on."""

from pathlib import Path

from paceline.doctor.probe import storage_speed
from paceline.doctor.storage import judge_data_files, judge_storage

FAST = {"filesystem": "ext4 /dev/sda1", "flush_seconds": 0.004, "files_per_second": 9000.0}


def speeds(**changes: object) -> dict[str, dict[str, object]]:
    return {"a": {"speed": {**FAST, **changes}}}


def test_fast_storage_is_told_in_one_line() -> None:
    (row,) = judge_storage({**speeds(), "b": {"speed": {**FAST, "flush_seconds": 0.02}}})
    assert row.state == "ok" and "a flush takes 20" in row.found


def test_storage_that_flushes_slowly_is_a_warning() -> None:
    (row,) = judge_storage(speeds(flush_seconds=0.8, filesystem="nfs4 fs-1:/"))
    assert row.state == "warn" and "(fsync)" in row.found and "nfs4 fs-1:/" in row.found
    assert "checkpoint.every_steps" in row.remedy


def test_a_million_small_files_are_counted_in_hours() -> None:
    (row,) = judge_storage(speeds(files_per_second=100.0, filesystem="fuse.sshfs a:/"))
    assert row.state == "warn" and "a million take 2 h" in row.found


def test_a_bucket_is_told_to_show_files_late() -> None:
    (row,) = judge_storage(speeds(filesystem="fuse.gcsfuse bucket"))
    assert row.state == "warn" and "late" in row.found


def test_where_nothing_was_timed_nothing_is_said() -> None:
    assert judge_storage({"a": {"path": "/runs", "speed": None}}) == []


def test_data_of_many_files_on_the_network_is_a_warning() -> None:
    data = {"path": "/data/pictures", "num_files": 1_281_167, "filesystem": "nfs4 fs-1:/"}
    (row,) = judge_data_files({"a": {"data": data}})
    assert "1,281,167 files on nfs4" in row.found and "pack them" in row.remedy
    assert judge_data_files({"a": {"data": {**data, "filesystem": "ext4 /dev/sda1"}}}) == []
    assert judge_data_files({"a": {"data": {**data, "num_files": 7}}, "b": {"data": None}}) == []


def test_timing_leaves_nothing_behind(tmp_path: Path) -> None:
    speed = storage_speed(tmp_path, "mark")
    assert speed["files_per_second"] > 0 and speed["flush_seconds"] > 0
    assert speed["filesystem"]
    assert list(tmp_path.iterdir()) == []


def test_a_fast_server_is_named_too() -> None:
    (row,) = judge_storage(speeds(filesystem="nfs4 fs-1:/export"))
    assert row.state == "ok" and row.found.startswith("nfs4 fs-1:/export: a flush takes")
