"""Files and directories that are complete or absent, whatever happens to their writer."""

import errno
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from paceline import files
from paceline.errors import EXIT_USER_ERROR, UserError
from paceline.files import (
    expand_home,
    flush_filesystem,
    move_into_place,
    remove_directory,
    sha256_of,
    whole_directory,
    whole_file,
    write_whole,
)
from tests.conftest import CommandLine

_WRITER = """
import sys, time
from pathlib import Path
from paceline.files import whole_file
with whole_file(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("written", flush=True)
    time.sleep(60)
"""


class _InterruptedError(Exception):
    pass


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were flushed to the disk, and `rename` where something got its name."""
    seen: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(handle: int) -> None:
        seen.append(Path(f"/dev/fd/{handle}").resolve().name)
        fsync(handle)

    def noted_replace(source: Path, target: Path) -> None:
        seen.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    return seen


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    write_whole(path, "old")
    with whole_file(path) as file:
        file.write(b"ne")
        file.flush()
        assert path.read_text() == "old"
        file.write(b"w")
    assert path.read_text() == "new"
    assert _names(tmp_path) == ["card.json"]


def test_text_is_written_as_utf_8_and_lines_stay_as_they_are(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", "ä\nb\r\n")
    assert (tmp_path / "a").read_bytes() == "ä\nb\r\n".encode()


def test_a_crash_before_the_rename_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    write_whole(path, "old")
    with pytest.raises(_InterruptedError), whole_file(path) as file:
        file.write(b"half")
        raise _InterruptedError
    assert path.read_text() == "old"
    assert _names(tmp_path) == ["card.json"]


def test_a_file_is_on_the_disk_before_it_has_its_name_and_the_name_after(
    tmp_path: Path, flushed: list[str]
) -> None:
    write_whole(tmp_path / "card.json", "new")
    assert flushed == [".card.json.0.part", "rename", tmp_path.name]


def test_what_is_written_every_second_does_not_wait_for_the_disk(
    tmp_path: Path, flushed: list[str]
) -> None:
    write_whole(tmp_path / "pulse.json", "new", durable=False)
    assert flushed == ["rename"]


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_permissions_are_what_the_umask_says(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_whole(tmp_path / "a", "text")
        (tmp_path / "b").touch()
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def _start_writer(path: Path) -> subprocess.Popen[str]:
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "written\n"
    return writer


def _kill(writer: subprocess.Popen[str]) -> None:
    with writer:
        writer.send_signal(signal.SIGKILL)


def test_leftovers_of_killed_writers_do_not_pile_up(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    write_whole(path, "old")
    for _ in range(3):
        _kill(_start_writer(path))
        assert path.read_text() == "old"
        assert len(_names(tmp_path)) == 2
    write_whole(path, "new")
    assert path.read_text() == "new"
    assert _names(tmp_path) == ["card.json"]


def test_a_living_writer_is_not_disturbed_by_another(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    writer = _start_writer(path)
    write_whole(path, "new")
    aside = tmp_path / ".card.json.0.part"
    assert aside.read_bytes() == b"half"
    assert path.read_text() == "new"
    _kill(writer)


def test_many_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "pulse.json"
    texts = [str(number) * 10_000 for number in range(8)]
    errors: list[BaseException] = []

    def write_often(text: str) -> None:
        try:
            for _ in range(40):
                write_whole(path, text, durable=False)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write_often, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if path.exists():
            assert path.read_text() in texts
        time.sleep(0.001)
    assert not errors
    assert path.read_text() in texts
    assert _names(tmp_path) == ["pulse.json"]


def test_storage_without_locks_gets_its_files_whole_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_handle: int, _operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(files.fcntl, "flock", refuse)  # type: ignore[attr-defined]
    write_whole(tmp_path / "a", "one")
    write_whole(tmp_path / "a", "two")
    assert (tmp_path / "a").read_text() == "two"


def test_a_link_planted_under_the_passing_name_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".a.0.part").symlink_to(victim)
    write_whole(tmp_path / "a", "text")
    assert victim.read_text() == "precious"
    assert (tmp_path / "a").read_text() == "text"


def test_a_disk_that_takes_no_more_names_the_file_and_keeps_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    write_whole(path, "old")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        with pytest.raises(OSError, match=re.escape(str(path))) as caught:
            write_whole(path, "new" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert caught.value.errno == errno.EFBIG
    assert path.read_text() == "old"
    assert _names(tmp_path) == ["card.json"]


def test_a_directory_is_replaced_as_a_whole(tmp_path: Path) -> None:
    home = tmp_path / "model"
    for text in ("old", "new"):
        with whole_directory(home) as aside:
            (aside / "inner").mkdir()
            (aside / "inner" / "weights").write_text(text)
    assert (home / "inner" / "weights").read_text() == "new"
    assert _names(tmp_path) == ["model"]


def test_a_crash_while_a_directory_is_filled_leaves_the_old_one(tmp_path: Path) -> None:
    home = tmp_path / "model"
    with whole_directory(home) as aside:
        (aside / "weights").write_text("old")
    (tmp_path / ".model.4711.part").mkdir()  # of a killed process
    with pytest.raises(_InterruptedError), whole_directory(home) as aside:
        (aside / "weights").write_text("half")
        raise _InterruptedError
    assert (home / "weights").read_text() == "old"
    assert _names(tmp_path) == ["model"]


def test_all_of_a_directory_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, flushed: list[str]
) -> None:
    with whole_directory(tmp_path / "model") as aside:
        (aside / "weights").write_text("w")
        (aside / "inner").mkdir()
        (aside / "inner" / "card").write_text("c")
    assert {"weights", "card", "inner", tmp_path.name} < set(flushed)
    assert flushed[-1] == tmp_path.name


def test_a_directory_with_signs_of_patterns_in_its_name_keeps_its_neighbours(
    tmp_path: Path,
) -> None:
    (tmp_path / ".ma.1.part").mkdir()
    with whole_directory(tmp_path / "m[a]"):
        pass
    assert _names(tmp_path) == [".ma.1.part", "m[a]"]


def test_a_removed_directory_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "step-1" / "inner").mkdir(parents=True)
    remove_directory(tmp_path / "step-1")
    assert _names(tmp_path) == []


def test_a_finished_download_is_flushed_before_it_has_its_name(
    tmp_path: Path, flushed: list[str]
) -> None:
    (tmp_path / "a.part").write_text("all")
    move_into_place(tmp_path / "a.part", tmp_path / "a")
    assert flushed == ["a.part", "rename", tmp_path.name]


def test_a_whole_filesystem_can_be_flushed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("text")
    flush_filesystem(tmp_path)
    with pytest.raises(FileNotFoundError):
        flush_filesystem(tmp_path / "nowhere")


def test_a_hash_is_that_of_the_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256_of(tmp_path / "a").startswith("ba7816bf8f01cfea")


def test_no_other_module_renames_files_aside_by_hand() -> None:
    """What is written aside and renamed is written by `files`, so that none forgets to flush."""
    source = Path(files.__file__).parent
    by_hand = re.compile(r"aside\.(replace|rename)\(|os\.(replace|rename)\(|hashlib\.file_digest")
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if by_hand.search(path.read_text(encoding="utf-8"))
    }
    # A link has no content to flush; a checksum may be another than SHA-256; the observer runs in
    # strangers' processes, imports nothing of Paceline's, and never makes a script wait for a disk.
    observer = {"observe/facts.py", "observe/pulse.py"}
    assert found <= {"files.py", "train/save.py", "data/fetch.py"} | observer


def test_a_user_without_a_home_is_told_what_to_set() -> None:
    with pytest.raises(UserError, match="home directory") as caught:
        expand_home("~nobody-of-that-name/data")
    assert "set HOME" in caught.value.fix


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user that does not exist")
@pytest.mark.parametrize("words", [["data", "cifar10", "--from", "stand-in"], ["runs"]])
def test_a_container_without_a_home_gets_a_message_and_no_traceback(words: list[str]) -> None:
    """The real user is asked for a home; the effective one must still read Python's files."""
    code = "import os, sys; os.setreuid(54_321, -1); from paceline.cli import main; main()"
    nameless = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG")}
    result = subprocess.run(
        [sys.executable, "-c", code, *words],
        env=nameless,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == EXIT_USER_ERROR, result.stderr
    assert "home directory is not known" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_command_that_meets_a_full_disk_says_so_and_what_to_do(
    paceline: CommandLine,
) -> None:
    (paceline.cwd / "run").mkdir()
    words = paceline.command(*paceline.training("run", "steps=1"))
    result = subprocess.run(
        ["bash", "-c", 'ulimit -f 0; exec "$@"', "bash", *words],
        cwd=paceline.cwd,
        env=paceline.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == EXIT_USER_ERROR, result.stderr
    assert "cannot write to the disk: File too large" in result.stderr
    assert "make room" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.cluster
def test_a_disk_that_is_really_full_keeps_the_old_file(tmp_path: Path) -> None:
    """Needs root: a file system of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=True)
    try:
        write_whole(disk / "a", "old")
        with pytest.raises(OSError, match="No space left") as caught:
            write_whole(disk / "a", "new" * 100_000)
        assert caught.value.filename == str(disk / "a")
        assert (disk / "a").read_text() == "old"
        assert _names(disk) == ["a"]
        words = ["data", "nmt", "--from", "stand-in", "--pairs", "1000", "--to", str(disk / "x")]
        result = subprocess.run(
            [sys.executable, "-m", "paceline.cli", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == EXIT_USER_ERROR
        assert "no space left on the disk" in result.stderr or "free" in result.stderr
        assert "Traceback" not in result.stderr
    finally:
        subprocess.run(["umount", str(disk)], check=True)
