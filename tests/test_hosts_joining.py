"""Hosts that have not joined a round: what they report, and how long they are waited for."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from paceline.launch.remote.joining import (
    WAITING,
    HostStage,
    LateNews,
    StageWatch,
    find_end_of_patience,
    importing,
    write_stage,
)

READY = HostStage("a", WAITING, 70, 0)
SLOW = HostStage("b", "importing torch from /shared/venv", 70, 0.5)
STILL = HostStage("b", "importing torch from /shared/venv", 310, 310)


def test_a_host_that_makes_progress_is_waited_for_beyond_the_join_time() -> None:
    assert find_end_of_patience([READY, SLOW], waited_seconds=600, join_seconds=60) is None


def test_a_host_that_is_alive_but_quiet_is_waited_for_five_times_as_long() -> None:
    quiet = HostStage("b", "importing torch", 280, 280)
    assert find_end_of_patience([READY, quiet], 280, join_seconds=60) is None
    end = find_end_of_patience([READY, STILL], 310, join_seconds=60)
    assert end is not None and end.hosts == ("b",)
    assert "b not joined, and no progress for 5 min 10 s" in end.text
    assert "importing torch from /shared/venv, for 5 min 10 s" in end.text
    assert "local disk" in end.text


def test_waiting_has_a_bound_even_with_progress_and_names_only_those_waited_for() -> None:
    end = find_end_of_patience([READY, SLOW], waited_seconds=1201, join_seconds=60)
    assert end is not None and end.hosts == ("b",)
    assert "b not joined within 20 min 01 s" in end.text


def test_hosts_that_all_wait_for_each_other_do_not_wait_forever() -> None:
    both = [READY, HostStage("b", WAITING, 70, 0)]
    assert find_end_of_patience(both, 600, join_seconds=60) is None
    end = find_end_of_patience(both, 1300, join_seconds=60)
    assert end is not None and end.hosts == ("a", "b")


def test_a_host_without_a_word_is_named_too() -> None:
    silent = HostStage.of("c", None, waited_seconds=320)
    end = find_end_of_patience([READY, silent], 320, join_seconds=60)
    assert end is not None and "no word from it yet" in end.text


def test_who_is_waited_for_is_said_after_the_join_time_and_then_less_and_less_often() -> None:
    news = LateNews(join_seconds=60)
    said = [second for second in range(600) if news.about([READY, SLOW], second)]
    assert said == [60, 120, 240, 480]
    text = LateNews(60).about([READY, SLOW], 70)
    assert text is not None
    assert "b: importing torch from /shared/venv, for 1 min 10 s" in text
    assert "a:" not in text


def test_the_path_that_torch_comes_from_is_told_without_importing_it() -> None:
    code = (
        "import sys; from paceline.launch.remote.joining import importing; "
        "print(importing('torch')); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("importing torch from /")
    assert done.stdout.strip().endswith("site-packages/torch")
    assert importing("no_such_module") == "importing no_such_module"


@pytest.mark.parametrize(("work", "moves"), [("while True: pass", True), ("input()", False)])
def test_a_stage_is_told_with_whether_anything_moves_there(
    tmp_path: Path, work: str, moves: bool
) -> None:
    words = [sys.executable, "-c", f"print('here', flush=True)\n{work}"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        watch = StageWatch(tmp_path, process.pid)
        assert watch.look()["text"] == f"starting {sys.executable}"
        write_stage(tmp_path, WAITING)
        assert watch.look()["text"] == WAITING
        time.sleep(1.5)
        found = watch.look()
        process.kill()
    assert found["seconds"] > 1.4
    assert (found["idle_seconds"] < 1) is moves
