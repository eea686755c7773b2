"""A run in the terminal: while it goes on, after it, copied, empty and torn."""

import contextlib
import itertools
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.watch import tail
from paceline.watch.live import find_straggler, open_run
from paceline.watch.screen import Paper, draw, fit, spark
from tests.conftest import CommandLine
from tests.growing_run import GrowingRun

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def drawn(path: Path, paper: Paper | None = None) -> str:
    return "\n".join(draw(open_run(path), paper or Paper()))


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[GrowingRun]:
    run = GrowingRun(tmp_path / "run")
    yield run
    run.close()


def test_a_finished_run_is_shown_once_with_all_there_is(
    paceline: CommandLine, finished_run: Path
) -> None:
    result = paceline("watch", str(finished_run))
    assert result.returncode == 0, result.stderr
    for expected in (
        "finished",
        "step 12 of 12",
        "100.0 %",
        "loss",
        "images/s",
        "validation top1",
        "train loss",
        "processor",
        "rank 0",
        "rank 1",
        "compute",
    ):
        assert expected in result.stdout
    assert "\x1b" not in result.stdout


def test_watching_never_imports_torch(paceline: CommandLine, finished_run: Path) -> None:
    program = (
        "import sys; from paceline.cli import main; sys.argv = ['paceline', 'watch', sys.argv[1]]\n"
        "try: main()\nexcept SystemExit: pass\nassert 'torch' not in sys.modules"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(finished_run)], check=True, stdout=subprocess.DEVNULL
    )


def test_a_run_that_goes_on_shows_time_left_hosts_devices_and_warnings(growing: GrowingRun) -> None:
    growing.hold_lock()
    growing.begin()
    growing.steps(10)
    growing.score(0.5)
    growing.probe()
    growing.warn("the disk is nearly full")
    shown = drawn(growing.path, Paper(width=120))
    assert "running" in shown
    assert "step 20 of 100  20.0 %  40.0 s left" in shown  # 2 steps a second
    assert re.search(r"images/s +64 ", shown)
    assert "10.0 MB/s, 10.0 MB/s (8 % of the link)" in shown
    assert "Tesla T4" in shown
    assert "65 W" in shown
    assert "the disk is nearly full" in shown
    assert "0.5 (best 0.5)" in shown


def test_the_rank_that_others_wait_for_is_named(growing: GrowingRun) -> None:
    growing.begin()
    growing.steps(5, late_rank=1)
    assert "the others wait for rank 1, which spends more in compute" in drawn(growing.path)
    assert find_straggler({0: {"compute": 1.0, "network": 0.1}}) is None
    even = {"compute": 0.5, "network": 0.5}
    assert find_straggler({0: even, 1: even}) is None


def test_steps_that_were_lost_and_done_again_count_once(growing: GrowingRun) -> None:
    growing.begin()
    growing.steps(10)
    growing.begin(step=10, attempt=2)
    growing.steps(1)
    live = open_run(growing.path)
    assert [record["step"] for record in live.steps()] == [2, 4, 6, 8, 10, 12]
    assert live.step == 12
    assert "attempt 2" in drawn(growing.path)


def test_an_empty_directory_is_a_run_that_has_not_started(
    paceline: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    result = paceline("watch", "empty", "--once")
    assert result.returncode == 0
    assert "not started" in result.stdout


def test_what_is_no_run_is_refused(paceline: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").touch()
    for place in ("nowhere", "other"):
        result = paceline("watch", place)
        assert result.returncode == 2
        assert f"{place} is not a run directory" in result.stderr


def test_a_copied_run_looks_like_the_original(finished_run: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_run, tmp_path / "copy", symlinks=True)
    (tmp_path / "copy" / ".lock").unlink()
    one, two = drawn(finished_run).splitlines(), drawn(tmp_path / "copy").splitlines()
    assert one[1:] == two[1:]
    assert "finished" in two[0]


def test_a_run_that_was_killed_long_ago_is_silent(growing: GrowingRun) -> None:
    growing.begin()
    growing.steps(3)
    for path in growing.run.events.iterdir():
        lines = path.read_text(encoding="utf-8")
        path.write_text(re.sub(r'"time": \d+', '"time": 1000', lines), encoding="utf-8")
    assert "silent" in drawn(growing.path).splitlines()[0]


def test_torn_and_senseless_lines_and_missing_files_are_borne(growing: GrowingRun) -> None:
    growing.begin()
    growing.steps(4)
    growing.probe()
    first = growing.run.rank_events(0)
    whole = first.read_bytes()
    senseless = b'\x00\xff\n[]\n{"kind": "steps", "time": 1, "attempt": 1}\n{"kind": "score", '
    first.write_bytes(whole + senseless)
    growing.run.rank_events(1).unlink()
    shown = drawn(growing.path)
    assert "step 8 of 100" in shown
    assert "rank 0" in shown


def test_a_line_written_in_halves_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    reader = tail.Tail(path)
    assert reader.read_new() == []
    line = b'{"kind": "a", "time": 1, "attempt": 1}\n'
    path.write_bytes(line + line[:10])
    assert len(reader.read_new()) == 1
    path.write_bytes(line + line + line)
    assert len(reader.read_new()) == 2
    path.write_bytes(line)  # another file of this name
    assert len(reader.read_new()) == 1


def test_a_long_file_is_read_in_windows_and_up_to_its_end(
    growing: GrowingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing.begin()
    growing.steps(2000)
    whole = len(open_run(growing.path).steps())
    monkeypatch.setattr(tail, "_MOST_BYTES", 100_000)
    monkeypatch.setattr(tail, "_WINDOW_BYTES", 2_000)
    monkeypatch.setattr(tail, "_NUM_WINDOWS", 20)
    steps = [record["step"] for record in open_run(growing.path).steps()]
    live = open_run(growing.path)
    assert [rank.host for rank in live.ranks.values()] == ["node0", "node0"]
    assert live.facts["unit"] == "image"
    assert whole == 2000
    assert len(steps) < 300
    assert steps[-1] == growing.step
    assert steps == sorted(steps)
    assert max(b - a for a, b in itertools.pairwise(steps)) < 500


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(growing: GrowingRun, width: int) -> None:
    growing.begin()
    growing.steps(10, late_rank=0)
    growing.probe()
    growing.warn("long " * 100)
    for colour in (True, False):
        for line in drawn(growing.path, Paper(width, colour)).splitlines():
            assert len(COLOURS.sub("", line)) <= width


def test_a_terminal_without_unicode_gets_ascii(growing: GrowingRun) -> None:
    growing.begin()
    growing.steps(10)
    growing.probe()
    assert drawn(growing.path, Paper(plain=True)).isascii()


def test_small_parts() -> None:
    assert fit("\x1b[1mabc\x1b[0mdef", 4) == "\x1b[1mabc\x1b[0md"
    assert spark([0, 1, 2, 3], 4, Paper()) == "▁▃▆█"
    assert spark([5, 5 + 1e-12, 5], 3, Paper()) == "▁▁▁"
    assert spark([1], 5, Paper()) == ""


def read_until(handle: int, text: str, seconds: float = 20) -> str:
    seen, deadline = "", time.monotonic() + seconds
    while text not in seen:
        assert time.monotonic() < deadline, f"no {text!r} in {seen!r}"
        if select.select([handle], [], [], 0.1)[0]:
            seen += os.read(handle, 65536).decode(errors="replace")
    return seen


def read_rest(handle: int) -> str:
    """What is left once the other side has closed the terminal, which reading calls an error."""
    seen = ""
    with contextlib.suppress(OSError):
        while part := os.read(handle, 65536):
            seen += part.decode(errors="replace")
    return seen


def test_on_a_terminal_it_follows_the_run_and_ends_with_it(
    paceline: CommandLine, growing: GrowingRun
) -> None:
    growing.hold_lock()
    growing.begin()
    growing.steps(1)
    ours, theirs = pty.openpty()
    words = paceline.command("watch", str(growing.path), "--seconds", "0.1")
    environment = paceline.environment(COLUMNS="100", LINES="40", TERM="xterm")
    watching = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    read_until(ours, "step 2 of 100")
    growing.steps(3)
    read_until(ours, "step 8 of 100")
    growing.end()
    last = read_until(ours, "\x1b[?1049l")  # the terminal gets its first screen back
    assert "\x1b[?25h" in last  # and its cursor
    assert watching.wait(10) == 0
    last += read_rest(ours)
    assert "finished" in last
    assert "rank 1" in last
    os.close(ours)
