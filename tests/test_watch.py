"""A run in the terminal: while it goes on, after it, copied, empty and torn."""

import contextlib
import fcntl
import io
import itertools
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from paceline.record.palette import PHASE_COLOURS
from paceline.watch import tail
from paceline.watch.live import open_run
from paceline.watch.screen import Look, draw, share_rows, show
from tests.conftest import CommandLine
from tests.growing_run import GrowingRun

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def drawn(path: Path, width: int = 100, colour: bool = False, encoding: str = "utf-8") -> str:
    written = io.BytesIO()
    file = io.TextIOWrapper(written, encoding=encoding)
    console = Console(
        file=file,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        markup=False,
    )
    show(open_run(path), console)
    return written.getvalue().decode(encoding)


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
        "validation top-1",
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
    shown = drawn(growing.path, width=120)
    assert "running" in shown
    assert "step 20 of 100  20.0 %  40.0 s left" in shown  # 2 steps a second
    assert re.search(r"images/s +64 ", shown)
    assert "10.0 MB/s, 10.0 MB/s (8 % of the link)" in shown
    assert "Tesla T4" in shown
    assert "65 W" in shown
    assert "the disk is nearly full" in shown
    assert "50.00 % (best 50.00 %)" in shown


@pytest.mark.parametrize(
    ("width", "link"), [(120, " (8 % of the link)"), (90, " (8 %)"), (80, ""), (60, "")]
)
def test_what_is_said_of_the_link_is_whole_or_absent(
    growing: GrowingRun, width: int, link: str
) -> None:
    growing.begin()
    growing.steps(10)
    growing.probe()
    line = next(line for line in drawn(growing.path, width=width).splitlines() if "MB/s" in line)
    assert line.rstrip().endswith(f"10.0 MB/s, 10.0 MB/s{link}")


def test_the_rank_that_others_wait_for_is_named(growing: GrowingRun) -> None:
    growing.begin()
    growing.steps(5, late_rank=1)
    assert "the others wait for rank 1, which spends more in compute" in drawn(growing.path)


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
    growing.warn("東京" * 100)
    for colour in (True, False):
        for line in drawn(growing.path, width, colour).splitlines():
            assert cell_len(COLOURS.sub("", line)) <= width


def test_a_terminal_without_unicode_gets_ascii(growing: GrowingRun) -> None:
    growing.begin()
    growing.steps(10)
    growing.probe()
    assert drawn(growing.path, encoding="ascii").isascii()
    assert drawn(growing.path, width=40, encoding="ascii").isascii()


@pytest.mark.parametrize("width", [30, 40, 60, 80, 200])
def test_state_step_and_every_rank_stay_visible_on_narrow_terminals(
    tmp_path: Path, width: int
) -> None:
    growing = GrowingRun(tmp_path / ("deep/" * 20) / "東京の実験")
    growing.hold_lock()
    growing.begin()
    growing.steps(10)
    growing.probe()
    shown = drawn(growing.path, width)
    assert "running" in shown
    assert "step 20 of 100" in shown
    assert re.search(r"rank 0 .*compute 70 %", shown)
    assert re.search(r"rank 1 .*compute 70 %", shown)
    assert "93 %" in shown  # of the processor
    growing.close()


def test_a_phase_has_the_colour_that_it_has_in_the_report(growing: GrowingRun) -> None:
    growing.begin()
    growing.steps(3)
    shown = drawn(growing.path, colour=True)
    codes = {"green": "32", "yellow": "33", "red": "31"}
    for phase in ("compute", "input", "network"):
        assert f"\x1b[{codes[PHASE_COLOURS[phase].terminal]}m  █ {phase}" in shown
    assert "i input  c compute  n network" in drawn(growing.path)  # letters where no colour is


def test_rows_are_shared_out_so_that_warnings_are_not_cut_off(tmp_path: Path) -> None:
    growing = GrowingRun(tmp_path / "run", num_ranks=30)
    growing.begin()
    growing.steps(3, late_rank=7)
    growing.probe()
    growing.warn("the disk is nearly full")
    console = Console(file=io.StringIO(), width=100, height=24)
    lines = console.render_lines(draw(open_run(growing.path), Look(100, 24)))
    shown = ["".join(segment.text for segment in line).rstrip() for line in lines]
    assert len(shown) <= 24
    assert "the disk is nearly full" in shown[-1]
    assert any(line.startswith("the others wait for rank 7") for line in shown)
    listed = sum(line.startswith("rank ") for line in shown)
    assert f"and {30 - listed} more processes" in shown
    assert drawn(growing.path).count("\nrank ") == 16
    growing.close()


def test_rows_go_to_those_who_need_them() -> None:
    assert share_rows([3, 3, 3], 20) == [3, 3, 3]
    assert share_rows([1, 30, 2], 10) == [1, 6, 2]  # and one line says how many are left out
    assert share_rows([0, 30, 5], 6) == [1, 2, 2]
    assert share_rows([5, 5, 5], -3) == [1, 1, 1]


HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31m\r[bold]text[/bold] \u202eevil"


def test_no_text_of_a_run_drives_the_terminal(tmp_path: Path) -> None:
    growing = GrowingRun(tmp_path / "run\x1b[2J[red]x[/red]")
    growing.run.recipe.write_text(f"workload: {json.dumps(HOSTILE)}\nsteps: 100\n", "utf-8")
    strange = {"host": HOSTILE, "unit": HOSTILE, "seconds": 1.0, "phases": {HOSTILE: 1.0}}
    for rank in growing.ranks:
        rank.write("begin", step=0, **strange)
        rank.write("steps", step=2, num_steps=2, loss=1.0, rate=0.1, num_units=4, **strange)
    growing.ranks[0].write("score", step=2, split="validation", scores={HOSTILE: 1.0})
    growing.ranks[0].write("warning", step=2, text=HOSTILE)
    device = {"name": HOSTILE, "utilisation": 0.5}
    growing.host.write("probe", host=HOSTILE, interface=HOSTILE, devices=[device])
    growing.ranks[0].write("end", step=2, reason=HOSTILE, seconds=0.0, phases={})
    for width in (40, 200):
        shown = COLOURS.sub("", drawn(growing.path, width, colour=True))
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)
    assert shown.count("\\u001b[2J") >= 7  # path, task, state, unit, score, host, ...
    assert shown.count("[bold]text[/bold]") >= 7
    growing.close()


PROBE_FIELDS = [
    "cpu_share",
    "memory_bytes",
    "memory_total_bytes",
    "interface",
    "link_bits_per_second",
    "sent_bytes",
    "received_bytes",
    "disk_read_bytes",
    "devices",
]


@pytest.mark.parametrize("field", PROBE_FIELDS)
@pytest.mark.parametrize("value", ["left out", None, "text", [], {}, -1, 10**400, float("nan")])
def test_a_probe_may_lack_any_value_or_hold_nonsense(
    growing: GrowingRun, field: str, value: object
) -> None:
    growing.begin()
    growing.steps(2)
    growing.probe()
    path = growing.run.host_events("node0")
    event = json.loads(path.read_text(encoding="utf-8"))
    event.pop(field) if value == "left out" else event.update({field: value})
    path.write_text(json.dumps(event) + "\n", encoding="utf-8")
    for width in (40, 100):
        assert "node0" in drawn(growing.path, width)


def test_steps_and_devices_may_lack_values(growing: GrowingRun) -> None:
    growing.begin()
    growing.ranks[0].write("steps", step=4, seconds=1.0, phases={})
    growing.ranks[0].write("warning", step=4, text="early", time=1e300)
    growing.host.write("probe", host="node0", seconds=5.0, devices=[{}, {"name": "T4"}, None])
    shown = drawn(growing.path)
    assert "step 4 of 100" in shown
    assert "? of ?" in shown
    assert "T4" in shown


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


def start_on_terminal(
    paceline: CommandLine, *words: str, columns: int = 100, **environment: str
) -> tuple[subprocess.Popen[bytes], int]:
    """The process, and our end of a terminal of that size."""
    ours, theirs = pty.openpty()
    resize(theirs, columns)
    settled = {"TERM": "xterm", **environment}
    whole = {k: v for k, v in paceline.environment(**settled).items() if k not in _SIZES}
    process = subprocess.Popen(
        paceline.command(*words), stdin=theirs, stdout=theirs, stderr=theirs, env=whole
    )
    os.close(theirs)
    return process, ours


_SIZES = ("COLUMNS", "LINES")


def resize(handle: int, columns: int, rows: int = 40) -> None:
    fcntl.ioctl(handle, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@pytest.fixture
def going_on(growing: GrowingRun) -> GrowingRun:
    growing.hold_lock()
    growing.begin()
    growing.steps(1)
    return growing


def test_on_a_terminal_it_follows_the_run_and_ends_with_it(
    paceline: CommandLine, going_on: GrowingRun
) -> None:
    watching, ours = start_on_terminal(paceline, "watch", str(going_on.path), "--seconds", "0.1")
    read_until(ours, "step 2 of 100")
    going_on.steps(3)
    read_until(ours, "step 8 of 100")
    going_on.end()
    last = read_until(ours, "\x1b[?1049l")  # the terminal gets its first screen back
    assert "\x1b[?25h" in last  # and its cursor
    assert watching.wait(10) == 0
    last += read_rest(ours)
    assert "finished" in last
    assert "rank 1" in last
    os.close(ours)


def test_a_window_that_changes_its_size_is_drawn_anew(
    paceline: CommandLine, going_on: GrowingRun
) -> None:
    watching, ours = start_on_terminal(paceline, "watch", str(going_on.path), "--seconds", "3600")
    read_until(ours, "where the last minute went")
    resize(ours, 40)
    assert "step 2 of 100" in read_until(ours, "last minute")
    watching.send_signal(signal.SIGTERM)
    assert "\x1b[?25h" in read_until(ours, "\x1b[?1049l")
    assert watching.wait(10) == 128 + signal.SIGTERM
    os.close(ours)


def test_ctrl_c_gives_the_terminal_back(paceline: CommandLine, going_on: GrowingRun) -> None:
    watching, ours = start_on_terminal(paceline, "watch", str(going_on.path))
    read_until(ours, "step 2 of 100")
    watching.send_signal(signal.SIGINT)
    assert "\x1b[?25h" in read_until(ours, "\x1b[?1049l")
    assert watching.wait(10) == 130
    os.close(ours)


def test_without_colour_phases_are_letters(paceline: CommandLine, going_on: GrowingRun) -> None:
    words = ["watch", str(going_on.path), "--once"]
    watching, ours = start_on_terminal(paceline, *words, NO_COLOR="1")
    shown = read_rest(ours)
    assert watching.wait(10) == 0
    assert "i input  c compute  n network" in shown
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", shown)
    os.close(ours)


def test_a_dumb_terminal_gets_one_plain_picture(
    paceline: CommandLine, going_on: GrowingRun
) -> None:
    words = ["watch", str(going_on.path)]
    watching, ours = start_on_terminal(paceline, *words, columns=50, TERM="dumb")
    shown = read_rest(ours)
    assert watching.wait(10) == 0
    assert "step 2 of 100" in shown
    assert "\x1b" not in shown
    assert all(cell_len(line) <= 50 for line in shown.splitlines())
    os.close(ours)


def test_a_pipe_gets_no_escape_codes_even_where_colour_is_forced(
    paceline: CommandLine, going_on: GrowingRun
) -> None:
    shown = paceline("watch", str(going_on.path), FORCE_COLOR="1", TERM="xterm-256color").stdout
    assert "step 2 of 100" in shown
    assert "\x1b" not in shown
    assert all(line == line.rstrip() for line in shown.splitlines())
