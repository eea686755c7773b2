"""The checks of `paceline selftest` and tests/gpu, run on the processor: they work, and they can
fail. What the profiler of a device would say is a trace with known answers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.selftest import faults, states, timing, training
from paceline.selftest.bench import Bench, CheckError, open_attempt
from paceline.selftest.checks import FAILED, NOT_RUN, OK, Check, Result, all_checks, run_check
from paceline.selftest.page import (
    describe_machine,
    hidden_words,
    render_json,
    render_text,
    verdict,
    without_private,
)
from paceline.selftest.timing import PASSES, UPDATE, traced_seconds
from paceline.task_finder import task_names
from paceline.tasks.imagenet.preparation import prepare as imagenet
from paceline.tasks.imagenet.standin import archives as photos
from paceline.tasks.nmt.preparation import prepare as nmt
from tests.conftest import CommandLine

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> dict[str, Path]:
    """Small ones of every task."""
    home = tmp_path_factory.mktemp("stand-ins")

    def ignore(_text: str) -> None:
        """Nobody looks on."""

    archives = photos.write_archives(home / "archives", 6, 2, ignore)
    return {
        "cifar10": pictures,
        "imagenet": imagenet.prepare(str(archives), home / "p", imagenet.Options(), ignore),
        "nmt": nmt.prepare("stand-in", home / "t", nmt.Options(num_pairs=2000), ignore),
    }


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two would spin for each other on a machine that has other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def bench(tmp_path: Path, stand_ins: dict[str, Path]) -> Bench:
    return Bench(tmp_path, CPU, 0, stand_ins)


@pytest.mark.parametrize("task", task_names())
def test_a_task_trains_evaluates_and_resumes(bench: Bench, task: str) -> None:
    assert training.trains_and_resumes(bench, task, "fp32").startswith("loss ")


def test_a_resumed_run_with_other_losses_is_a_failure() -> None:
    with pytest.raises(CheckError, match=r"step 2: loss 2 in one go, 2\.1 in two"):
        training._refuse_other_losses([3.0, 2.0], [3.0, 2.1], 0.01)


@pytest.mark.parametrize("task", task_names())
def test_the_step_that_is_watched_for_reads_runs(bench: Bench, task: str) -> None:
    assert "micro-batches" in timing.step_reads_nothing(bench, task, "fp32")


def test_states_of_batch_norm_and_adam_are_compared_after_a_move(bench: Bench) -> None:
    assert states.state_moves(bench, "cifar10", "adam") == "the same bits between cpu alone"


def test_deterministic_runs_are_compared(bench: Bench) -> None:
    assert training.repeats_itself(bench, "cifar10").startswith("4 losses and 4 scores")
    assert torch.backends.cudnn.benchmark and not torch.are_deterministic_algorithms_enabled()


def test_a_state_that_changed_on_its_way_is_a_failure() -> None:
    one = {"w": {"a": torch.zeros(2)}}
    with pytest.raises(CheckError, match="a has other values after the move"):
        states._refuse_other_state(one, {"w": {"a": torch.ones(2)}})


def test_lack_of_memory_is_named(bench: Bench) -> None:
    assert faults.lack_of_memory_is_named(bench, "cifar10") == "rank, phase and setting"


def test_step_times_add_up(bench: Bench) -> None:
    assert timing.steps_add_up(bench, "cifar10").startswith("20 steps")


def test_step_times_that_leave_something_out_do_not_add_up() -> None:
    def interval(step: float) -> dict[str, Any]:
        phases = {"compute": 1.0, "evaluate": 2.0}
        return {"kind": "steps", "step_seconds": [step] * 5, "seconds": 3.0, "phases": phases}

    begin = {"kind": "begin"}
    assert timing.step_and_loop_seconds([begin, interval(9.0), interval(0.2)]) == (1.0, 1.0)
    assert timing.step_and_loop_seconds([begin, interval(0.2), interval(0.1)]) == (0.5, 1.0)


def test_a_hang_of_two_real_processes_is_named(bench: Bench) -> None:
    assert "rank 1" in faults.hang_is_named(bench)


# ---- the profiler


def test_booked_phases_agree_with_a_real_trace(bench: Bench) -> None:
    assert timing.agrees_with_profiler(bench, "cifar10").startswith("within ")


def annotation(name: str, ts: float, dur: float) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": name, "ts": ts, "dur": dur}


def launched(number: int, ts: float, begins: float, dur: float) -> list[dict[str, Any]]:
    """The call on the host, and the kernel that the device ran for it, later."""
    args = {"correlation": number}
    call = {"ph": "X", "cat": "cuda_runtime", "name": "launch", "ts": ts, "dur": 1, "args": args}
    kernel = {**call, "cat": "kernel", "name": "k", "ts": begins, "dur": dur}
    return [call, kernel]


def test_a_span_on_a_device_is_that_of_the_kernels_launched_in_it() -> None:
    """The host queues both spans in 20 microseconds; the device takes milliseconds."""
    events = [
        annotation(PASSES, 0, 10),
        *launched(1, 2, begins=100, dur=1000),
        *launched(2, 8, begins=1100, dur=2000),
        annotation(UPDATE, 10, 10),
        *launched(3, 12, begins=3100, dur=500),
        *launched(4, 50, begins=9000, dur=500),  # of nobody
        {"ph": "i", "name": "an instant"},
    ]
    assert traced_seconds(events) == pytest.approx({PASSES: 0.003, UPDATE: 0.0005})


def test_without_a_device_a_span_is_the_hosts() -> None:
    events = [annotation(PASSES, 0, 3000), annotation(PASSES, 9000, 1000)]
    assert traced_seconds(events) == pytest.approx({PASSES: 0.004, UPDATE: 0.0})


def test_phases_that_are_off_are_told_as_a_share_of_the_step() -> None:
    seen = {PASSES: 0.9, UPDATE: 0.1}
    assert timing.largest_difference({PASSES: 0.9, UPDATE: 0.2}, seen) == pytest.approx(0.1)
    with pytest.raises(CheckError, match="saw none"):
        timing.largest_difference(seen, {PASSES: 0.0, UPDATE: 0.0})


def test_marks_that_are_annotated_book_the_same_phases(bench: Bench) -> None:
    loaded = bench.recipe("cifar10", "evaluate.every_steps=null")
    with open_attempt(loaded, bench.new_run(), CPU) as attempt:
        attempt.stepper.marks = timing.AnnotatedMarks(CPU)
        timing.run_steps(attempt, 2)
        booked = timing.booked_seconds(attempt)
        assert attempt.state.progress.step == 2
    assert booked[PASSES] > booked[UPDATE] > 0


# ---- the page


def test_every_check_of_a_device_is_listed_and_says_what_it_needs(bench: Bench) -> None:
    needing = [check for check in all_checks(bench) if check.needs_devices]
    for check in needing:
        result = run_check(check, bench)
        assert (result.outcome, result.text) == (NOT_RUN, "needs a GPU")
    assert {"a kernel runs on every device", "the demonstration runs"} <= {c.name for c in needing}


def test_an_error_of_a_check_is_on_the_page_without_host_user_and_paths(bench: Bench) -> None:
    hidden = {**hidden_words(bench.folder), "box-17": "HOST", "ada": "USER"}

    def fail(_bench: Bench) -> str:
        raise RuntimeError(
            f"no file {bench.folder}/x and /srv/secret/place/y on box-17 of ada at 10.0.0.7,\n"
            "GPU-8f2a11cd-1111 is lost"
        )

    result = run_check(Check("it works", fail), bench)
    assert result.outcome == FAILED
    text = without_private(result.text, hidden)
    assert text.startswith("RuntimeError: no file SCRATCH/x and .../y on HOST of USER at ADDRESS,")
    assert "DEVICE is lost" in text and "in fail, HERE/tests/test_selftest.py line" in text
    page = render_text(describe_machine(bench), [Result("it works", FAILED, 1.0, text)])
    for private in (str(bench.folder), str(Path.cwd()), "/srv", "box-17"):
        assert private not in page
    assert "0 ok, 1 failed, 0 not run. Please send this whole page" in page


def test_the_page_for_programs_has_the_same_results(bench: Bench) -> None:
    results = [Result("a", OK, 1.5, "fine"), Result("b", NOT_RUN, 0.0, "needs a GPU")]
    document = json.loads(render_json(describe_machine(bench), results))
    assert document["is_healthy"]
    assert document["machine"]["checked on"] == "cpu"
    assert [check["outcome"] for check in document["checks"]] == ["ok", "not run"]
    assert verdict(results).startswith("1 ok, 0 failed, 1 not run: what was not run needs")


def test_a_device_that_is_not_here_is_refused(paceline: CommandLine) -> None:
    result = paceline("selftest", "--quick", "--device", "cuda")
    assert result.returncode == 2
    assert "torch finds no CUDA here" in result.stderr
    assert not result.stdout
