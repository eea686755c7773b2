"""The run directory: every second in one phase, and a story that a kill cannot spoil."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import UserError
from paceline.record.directory import is_being_trained, require_run
from paceline.record.events import Event, read_events
from paceline.record.phases import PhaseClock
from paceline.record.schema import (
    CHECKPOINT,
    COMPUTE,
    EVALUATE,
    INPUT,
    PHASE_MEANING,
    PHASES,
    RESTART,
    SHUT_DOWN,
    START_UP,
    UNEXPLAINED,
    RunDirectory,
)
from paceline.record.story import Story, read_story
from paceline.record.writer import EventFile, prepare_directory, write_file

# ---- phases


def test_phases_add_up_to_the_time_that_passed() -> None:
    before = time.perf_counter()
    clock = PhaseClock()
    began = time.perf_counter()
    time.sleep(0.01)
    with clock.phase(INPUT):
        time.sleep(0.02)
    with clock.phase(COMPUTE):
        time.sleep(0.01)
    ended = time.perf_counter()
    taken = clock.take()
    after = time.perf_counter()
    assert set(taken) == {INPUT, COMPUTE, UNEXPLAINED}
    assert ended - began - 1e-6 <= sum(taken.values()) <= after - before + 1e-6
    assert taken[INPUT] >= 0.02 and taken[UNEXPLAINED] >= 0.01


def test_an_inner_phase_pauses_the_outer_one() -> None:
    clock = PhaseClock()
    began = time.perf_counter()
    with clock.phase(COMPUTE):
        time.sleep(0.01)
        with clock.phase(INPUT):
            time.sleep(0.05)
        time.sleep(0.01)
    passed = time.perf_counter() - began
    taken = clock.take()
    assert taken[INPUT] >= 0.05 and taken[COMPUTE] >= 0.02
    assert taken[INPUT] + taken[COMPUTE] <= passed + 1e-6


def test_a_phase_inside_itself_is_counted_once() -> None:
    clock = PhaseClock()
    began = time.perf_counter()
    with clock.phase(COMPUTE), clock.phase(COMPUTE):
        time.sleep(0.02)
    assert clock.take()[COMPUTE] <= time.perf_counter() - began


def test_an_error_ends_the_phase_it_leaves() -> None:
    clock = PhaseClock()
    with pytest.raises(ZeroDivisionError), clock.phase(COMPUTE):
        raise ZeroDivisionError
    clock.take()
    time.sleep(0.01)
    assert set(clock.take()) == {UNEXPLAINED}


def test_taking_inside_a_phase_books_what_passed_so_far_to_it() -> None:
    clock = PhaseClock()
    with clock.phase(EVALUATE):
        time.sleep(0.01)
        first = clock.take()
        time.sleep(0.02)
    second = clock.take()
    assert first[EVALUATE] >= 0.01 and second[EVALUATE] >= 0.02
    assert UNEXPLAINED in second


def test_time_known_only_afterwards_moves_without_changing_the_sum() -> None:
    clock = PhaseClock()
    with clock.phase(COMPUTE):
        time.sleep(0.02)
    clock.move(0.005, COMPUTE, CHECKPOINT)
    taken = clock.take()
    assert taken[CHECKPOINT] == 0.005 and taken[COMPUTE] >= 0.015


def test_every_phase_says_what_it_means() -> None:
    assert set(PHASE_MEANING) == set(PHASES)


# ---- writing


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_an_event_is_one_line_with_kind_time_and_attempt(tmp_path: Path) -> None:
    events = EventFile(tmp_path / "deep" / "er" / "rank.jsonl", attempt=3)
    before = time.time()
    events.write("note", text="two\nlines", step=4)
    (event,) = lines_of(tmp_path / "deep" / "er" / "rank.jsonl")
    assert (event["kind"], event["attempt"], event["step"]) == ("note", 3, 4)
    assert event["text"] == "two\nlines" and abs(event["time"] - before) < 60
    events.close()


def test_lines_are_there_before_the_file_is_closed_and_are_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "rank.jsonl"
    first = EventFile(path, 1)
    first.write("a")
    assert [e["kind"] for e in read_events(path)] == ["a"]
    second = EventFile(path, 2)
    second.write("b")
    first.write("c")
    assert [(e["kind"], e["attempt"]) for e in read_events(path)] == [("a", 1), ("b", 2), ("c", 1)]
    first.close()
    second.close()


def test_phases_are_rounded_to_microseconds(tmp_path: Path) -> None:
    events = EventFile(tmp_path / "rank.jsonl", 1)
    events.write("steps", step=1, seconds=0.2, phases={"input": 0.12345678901})
    assert read_events(tmp_path / "rank.jsonl")[0]["phases"] == {"input": 0.123457}
    events.close()


def test_a_line_torn_by_a_kill_spoils_neither_what_was_nor_what_comes(tmp_path: Path) -> None:
    path = tmp_path / "rank.jsonl"
    events = EventFile(path, 1)
    events.write("whole")
    events.close()
    size = path.stat().st_size
    events = EventFile(path, 1)
    events.write("torn", text="x" * 50)
    events.close()
    for cut in range(size + 1, path.stat().st_size - 1):
        torn = tmp_path / f"cut-{cut}.jsonl"
        torn.write_bytes(path.read_bytes()[:cut])
        assert [e["kind"] for e in read_events(torn)] == ["whole"]
        again = EventFile(torn, 2)
        again.write("after")
        again.close()
        assert [e["kind"] for e in read_events(torn)] == ["whole", "after"]


def test_a_small_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "recipe.yaml"
    write_file(path, "one")
    write_file(path, "ä")
    assert path.read_text(encoding="utf-8") == "ä"
    assert [p.name for p in path.parent.iterdir()] == ["recipe.yaml"]


def test_a_run_directory_is_made_and_left_clean(tmp_path: Path) -> None:
    prepare_directory(tmp_path / "runs" / "a")
    prepare_directory(tmp_path / "runs" / "a")
    assert list((tmp_path / "runs" / "a").iterdir()) == []


@pytest.mark.parametrize("inside", [".", "run"])
def test_a_run_directory_that_cannot_be_is_named_with_the_cause(
    tmp_path: Path, inside: str
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=f"{tmp_path}.*: (File exists|Not a directory)") as caught:
        prepare_directory(tmp_path / "file" / inside)
    assert "--run" in caught.value.fix


# ---- reading


@pytest.mark.parametrize(
    "rubbish",
    [
        b"",
        b"\n\n",
        b"not json\n",
        b"[1, 2]\n",
        b"3\n",
        b'{"kind": "a"}\n',
        b"\x00" * 100 + b"\n",
        b"\xff\xfe\x80\n",
        b'{"attempt": 1}\n',
        b'{"kind": "a", "attempt": 1}\n',
    ],
)
def test_lines_that_are_no_events_are_skipped(tmp_path: Path, rubbish: bytes) -> None:
    path = tmp_path / "rank.jsonl"
    good = b'{"kind": "good", "attempt": 1, "time": 0}\n'
    path.write_bytes(rubbish + good + rubbish + good)
    assert [e["kind"] for e in read_events(path)] == ["good", "good"]


def test_a_file_that_is_not_there_holds_no_events(tmp_path: Path) -> None:
    assert read_events(tmp_path / "absent.jsonl") == []


def test_what_is_no_run_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run directory") as caught:
        require_run(tmp_path)
    assert "paceline train" in caught.value.fix
    with pytest.raises(UserError):
        read_story(RunDirectory(tmp_path / "absent"))


def event(kind: str, attempt: int, when: float, **fields: Any) -> Event:
    return {"kind": kind, "attempt": attempt, "time": when, **fields}


def begin(attempt: int, when: float, step: int, seconds: float) -> Event:
    start_up = {START_UP: seconds}
    return event("begin", attempt, when, step=step, seconds=seconds, phases=start_up)


def steps(attempt: int, when: float, step: int, **phases: float) -> Event:
    return event("steps", attempt, when, step=step, seconds=sum(phases.values()), phases=phases)


def launch(attempt: int, started: float) -> Event:
    return event("launch", attempt, started + 0.5, started=started)


def exits(attempt: int, when: float, code: int = 0) -> Event:
    return event("exit", attempt, when, code=code)


def story_of(folder: Path, rank: list[Event], launcher: list[Event]) -> Story:
    run = RunDirectory(folder)
    write_file(run.recipe, "workload: cifar10\n")
    for path, events in ((run.rank_events(0), rank), (run.launcher_events, launcher)):
        if events:
            write_file(path, "".join(json.dumps(e) + "\n" for e in events))
    return read_story(run)


def assert_phases_are_wall(story: Story) -> None:
    assert sum(story.phases.values()) == pytest.approx(story.wall_seconds)


UNDISTURBED = [
    begin(1, 105, 0, 5.0),
    steps(1, 115, 10, compute=8.0, input=2.0),
    event("score", 1, 116, step=10, scores={"top1": 0.5}),
    steps(1, 127, 20, compute=8.0, input=2.0, evaluate=2.0),
    event("checkpoint", 1, 128, step=20, write_seconds=1.0),
    event("end", 1, 128, step=20, reason="finished", seconds=1.0, phases={CHECKPOINT: 1.0}),
]


def test_an_undisturbed_run_is_told_as_it_was(tmp_path: Path) -> None:
    story = story_of(tmp_path, UNDISTURBED, [launch(1, 100), exits(1, 130)])
    assert story.events == UNDISTURBED and story.lost == []
    assert story.phases == {
        START_UP: 5.0,
        COMPUTE: 16.0,
        INPUT: 4.0,
        EVALUATE: 2.0,
        CHECKPOINT: 1.0,
        SHUT_DOWN: 2.0,
    }
    assert story.wall_seconds == 30
    assert [a.exit_code for a in story.attempts] == [0]
    assert_phases_are_wall(story)


def test_without_the_launchers_file_the_start_follows_from_the_first_event(tmp_path: Path) -> None:
    story = story_of(tmp_path, UNDISTURBED, [])
    assert story.wall_seconds == 28 and story.attempts[0].exit_code is None
    assert SHUT_DOWN not in story.phases
    assert_phases_are_wall(story)


def test_steps_that_were_done_again_are_lost_and_their_time_is_restart(tmp_path: Path) -> None:
    first = [
        begin(1, 105, 0, 5.0),
        steps(1, 115, 10, compute=10.0),
        event("checkpoint", 1, 116, step=10, write_seconds=1.0),
        steps(1, 125, 20, compute=7.0, input=3.0),
        event("score", 1, 125, step=20, scores={"top1": 0.1}),
    ]
    second = [
        begin(2, 206, 10, 6.0),
        steps(2, 216, 20, compute=10.0),
        event("score", 2, 216, step=20, scores={"top1": 0.1}),
        event("end", 2, 217, step=20, reason="finished", seconds=1.0, phases={CHECKPOINT: 1.0}),
    ]
    story = story_of(tmp_path, [*first, *second], [launch(1, 100), launch(2, 200), exits(2, 218)])
    assert story.lost == first[3:]
    assert [e["step"] for e in story.of_kind("steps")] == [10, 20]
    assert len(story.of_kind("score")) == 1
    assert story.phases[RESTART] == 10.0 and story.phases[START_UP] == 11.0
    assert story.phases[COMPUTE] == 20.0
    assert story.wall_seconds == 25 + 18
    assert_phases_are_wall(story)


def test_an_attempt_that_goes_on_where_the_last_stopped_loses_nothing(tmp_path: Path) -> None:
    rank = [
        begin(1, 101, 0, 1.0),
        steps(1, 111, 10, compute=10.0),
        event("end", 1, 111, step=10, reason="stopped", seconds=0.0, phases={}),
        begin(2, 201, 10, 1.0),
        steps(2, 211, 20, compute=10.0),
    ]
    story = story_of(tmp_path, rank, [launch(1, 100), exits(1, 111, 130), launch(2, 200)])
    assert story.lost == [] and story.phases[COMPUTE] == 20.0
    assert [a.exit_code for a in story.attempts] == [130, None]
    assert_phases_are_wall(story)


def test_a_third_attempt_that_begins_earlier_loses_work_of_both_before(tmp_path: Path) -> None:
    rank = [
        begin(1, 101, 0, 1.0),
        steps(1, 111, 10, compute=10.0),
        steps(1, 121, 20, compute=10.0),
        begin(2, 202, 20, 2.0),
        steps(2, 212, 30, compute=10.0),
        begin(3, 303, 10, 3.0),
        steps(3, 313, 20, compute=10.0),
    ]
    story = story_of(tmp_path, rank, [])
    assert [(e["attempt"], e["step"]) for e in story.of_kind("steps")] == [(1, 10), (3, 20)]
    assert story.phases == {START_UP: 6.0, COMPUTE: 20.0, RESTART: 20.0}
    assert_phases_are_wall(story)


def test_an_attempt_that_never_reached_the_loop_is_start_up_and_loses_nothing(
    tmp_path: Path,
) -> None:
    rank = [
        begin(1, 101, 0, 1.0),
        steps(1, 111, 10, compute=10.0),
        event("warning", 2, 203, step=0, text="damaged checkpoint"),
    ]
    launcher = [launch(1, 100), exits(1, 111), launch(2, 200), exits(2, 204, 1), launch(3, 300)]
    story = story_of(tmp_path, rank, launcher)
    assert story.lost == []
    assert [a.number for a in story.attempts] == [1, 2, 3]
    assert story.phases[START_UP] == pytest.approx(1.0 + 4.0 + 0.5)
    assert_phases_are_wall(story)


def test_a_run_that_was_only_launched_has_a_story(tmp_path: Path) -> None:
    story = story_of(tmp_path, [], [launch(1, 100), exits(1, 103, 2)])
    assert story.events == [] and story.phases == {START_UP: 3.0} and story.wall_seconds == 3


def test_a_run_without_any_event_has_an_empty_story(tmp_path: Path) -> None:
    story = story_of(tmp_path, [], [])
    assert (story.events, story.lost, story.phases, story.attempts) == ([], [], {}, [])
    assert story.wall_seconds == 0


def test_a_clock_that_was_set_back_gives_no_negative_time(tmp_path: Path) -> None:
    story = story_of(tmp_path, [begin(1, 50, 0, 1.0)], [launch(1, 100), exits(1, 90)])
    assert story.wall_seconds >= 0 and min(story.phases.values()) >= 0


def test_phases_add_up_when_the_launcher_was_killed_after_a_save(tmp_path: Path) -> None:
    rank = [
        begin(1, 105, 0, 5.0),
        steps(1, 115, 10, compute=10.0),
        event("checkpoint", 1, 119, step=10, write_seconds=4.0),
    ]
    assert_phases_are_wall(story_of(tmp_path, rank, [launch(1, 100)]))


def test_the_unwritten_work_of_a_killed_worker_is_not_called_shut_down(tmp_path: Path) -> None:
    rank = [begin(1, 105, 0, 5.0), steps(1, 115, 10, compute=10.0)]
    story = story_of(tmp_path, rank, [launch(1, 100), exits(1, 175, 1)])
    assert_phases_are_wall(story)
    assert SHUT_DOWN not in story.phases


def test_phases_add_up_when_an_event_could_not_be_written(tmp_path: Path) -> None:
    story = story_of(
        tmp_path, [*UNDISTURBED[:1], *UNDISTURBED[3:]], [launch(1, 100), exits(1, 130)]
    )
    assert_phases_are_wall(story)
    assert story.phases[UNEXPLAINED] == 10.0 and story.phases[SHUT_DOWN] == 2.0


def test_phases_add_up_when_the_clock_was_set(tmp_path: Path) -> None:
    for shift in (-1000, 1000):
        moved = [{**e, "time": e["time"] + shift} for e in UNDISTURBED[2:]]
        rank = [*UNDISTURBED[:2], *moved]
        story = story_of(tmp_path / str(shift), rank, [launch(1, 100), exits(1, 130 + shift)])
        assert_phases_are_wall(story)
        assert story.phases[COMPUTE] == 16.0 and min(story.phases.values()) >= 0


def test_warnings_of_lost_steps_are_not_lost(tmp_path: Path) -> None:
    rank = [
        begin(1, 101, 0, 1.0),
        event("warning", 1, 111, step=10, text="no space left"),
        event("checkpoint", 1, 112, step=10, write_seconds=1.0),
        begin(2, 202, 0, 2.0),
    ]
    story = story_of(tmp_path, rank, [])
    assert [e["text"] for e in story.of_kind("warning")] == ["no space left"]
    assert story.lost == [rank[2]]


def test_a_lock_that_is_held_tells_a_running_run_from_a_killed_one(tmp_path: Path) -> None:
    import fcntl

    run = RunDirectory(tmp_path)
    assert is_being_trained(run) is None
    with run.lock.open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert is_being_trained(run) is True
    assert is_being_trained(run) is False


ON_A_SMALL_DISK = """
import pathlib, resource, sys
from paceline.record.writer import EventFile

def limit(num_bytes):
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, resource.RLIM_INFINITY))

events = EventFile(pathlib.Path(sys.argv[1]), 1)
events.write('before')
for room in map(int, sys.argv[2:]):
    limit(pathlib.Path(sys.argv[1]).stat().st_size + room)
    events.write('cut', text='x' * 50)
limit(resource.RLIM_INFINITY)
events.write('after')
events.write('later')
"""


@pytest.mark.parametrize("rooms", [[40], [0], [40, 0], [0, 1, 20], [1, 1, 1]])
def test_a_full_disk_neither_ends_the_run_nor_spoils_what_comes_when_there_is_room(
    tmp_path: Path, rooms: list[int]
) -> None:
    """Run apart, because the limit on file sizes that stands in for a disk is a process's own."""
    import subprocess
    import sys

    path = tmp_path / "rank.jsonl"
    words = [sys.executable, "-c", ON_A_SMALL_DISK, str(path), *map(str, rooms)]
    subprocess.run(words, check=True)
    events = read_events(path)
    assert [e["kind"] for e in events] == ["before", "after", "later"]
    assert [e.get("num_lost") for e in events] == [None, len(rooms), None]


def test_a_file_that_could_not_be_written_leaves_the_old_one_and_nothing_else(
    tmp_path: Path,
) -> None:
    (tmp_path / "recipe.yaml").mkdir()
    with pytest.raises(OSError, match=r"recipe\.yaml"):
        write_file(tmp_path / "recipe.yaml", "text")
    assert [p.name for p in tmp_path.iterdir()] == ["recipe.yaml"]
