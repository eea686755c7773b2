"""Logs of many tools: what each prints becomes the same facts, with the figures of its lines."""

import random
import re
from pathlib import Path

import pytest

from paceline.errors import UserError
from paceline.report.facts.facts import Options
from paceline.report.foreign import ForeignRun, read_foreign
from paceline.report.foreign.formats import TEXT_FORMATS
from paceline.report.report import open_report
from tests.foreign_logs import FAIRSEQ, HF, JOEY, MMDET, NANOGPT, SHAPES, TITAN, Shape
from tests.log_answers import answers_of


def read_text(directory: Path, text: str, name: str = "slurm-123.out") -> ForeignRun:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return read_foreign(path)


def check(run: ForeignRun, shape: Shape) -> None:
    assert run.tool == shape.tool
    assert run.step == shape.step
    points = run.training_loss.points
    if shape.loss:
        assert [points[0], points[-1]] == [
            pytest.approx(shape.loss[0]),
            pytest.approx(shape.loss[-1]),
        ]
    if shape.mean_seconds is not None:
        assert run.step_times.mean_seconds == pytest.approx(shape.mean_seconds)
    for name, value in shape.facts.items():
        assert getattr(run, name) == pytest.approx(value), name
    for name, last in shape.scores.items():
        assert run.scores[name].last == pytest.approx(last), name
    if shape.validation_loss is not None:
        point = run.validation_loss.last
        assert point and point[1] == pytest.approx(shape.validation_loss, rel=1e-5)
    if shape.input_share is None:
        assert run.step_times.input_share is None
    else:
        assert run.step_times.input_share == pytest.approx(shape.input_share)


@pytest.mark.parametrize("name", SHAPES)
def test_what_a_tool_prints_becomes_facts(tmp_path: Path, name: str) -> None:
    check(read_text(tmp_path, SHAPES[name].text), SHAPES[name])


@pytest.mark.parametrize("name", SHAPES)
def test_every_question_is_answered_of_every_tool(tmp_path: Path, name: str) -> None:
    run = read_text(tmp_path, SHAPES[name].text)
    for answer in answers_of(run, link=1e9):
        assert answer.sentence or answer.missing, answer.key


@pytest.mark.parametrize("name", [name for name in SHAPES if name not in ("bars",)])
def test_what_surrounds_a_log_does_not_change_its_figures(tmp_path: Path, name: str) -> None:
    noise = "srun: job 7 queued\nsome warning of a library\n"
    text = noise + SHAPES[name].text.replace("\n", "\r\n") + "slurmstepd: done\n"
    check(read_text(tmp_path, text), SHAPES[name])


# Sockeye counts batches where it has not come to a checkpoint: other points, not wrong ones.
@pytest.mark.parametrize("name", [name for name in SHAPES if name != "Sockeye"])
def test_a_log_cut_anywhere_is_read_up_to_there(tmp_path: Path, name: str) -> None:
    text = SHAPES[name].text
    whole = read_text(tmp_path, text)
    known = set(whole.training_loss.points)
    for cut in range(0, len(text), max(1, len(text) // 23)):
        try:
            run = read_text(tmp_path, text[:cut])
        except UserError:
            continue  # nothing of the tool was left
        assert run.step <= whole.step
        if run.tool == whole.tool and not any("names no steps" in note for note in run.notes):
            assert set(run.training_loss.points) <= known


@pytest.mark.parametrize("name", ["mmdetection", "timm", "DETR"])
def test_a_data_time_gives_the_input_verdict(tmp_path: Path, name: str) -> None:
    run = read_text(tmp_path, SHAPES[name].text)
    answer = next(one for one in answers_of(run) if one.key == "input")
    assert answer.figures["input_share"] == pytest.approx(SHAPES[name].input_share)


def test_ranks_of_torchrun_are_one_run(tmp_path: Path) -> None:
    second = TITAN.replace("[rank0]", "[rank1]").replace("loss: 7", "loss: 6")
    lines = [
        line for pair in zip(TITAN.split("\n"), second.split("\n"), strict=True) for line in pair
    ]
    run = read_text(tmp_path, "\n".join(lines))
    assert run.world == 2
    assert [rank.name for rank in run.ranks] == ["rank 0", "rank 1"]
    assert run.step_times.mean_seconds == pytest.approx(2.0)


def test_processes_that_print_every_line_are_counted(tmp_path: Path) -> None:
    lines = []
    for step in range(10, 110, 10):
        for rank in range(4):
            lines.append(f"step {step} loss {3 - step / 100 + rank / 1000:.4f} lr 0.1")
    assert read_text(tmp_path, "\n".join(lines) + "\n").world == 4


def test_a_log_that_was_copied_twice_has_no_more_processes(tmp_path: Path) -> None:
    twice = "".join(f"{line}\n{line}\n" for line in JOEY.splitlines())
    run = read_text(tmp_path, twice)
    assert run.world is None
    assert run.step_times.mean_seconds == pytest.approx(0.2)


def test_lines_that_were_cut_out_are_not_invented(tmp_path: Path) -> None:
    """Steps 100 to 300, then nothing until 9,000: four lines of 50 steps are 200 steps."""
    lines = [f"x Epoch [1][{step}/9999]\tlr: 1, time: 1.0, data_time: 0.1, loss: 1.0" for step in
             (50, 100, 150, 9000)]  # fmt: skip
    run = read_text(tmp_path, "\n".join(lines) + "\n")
    assert run.step == 9000
    assert run.step_times.num_steps == 200
    assert run.step_times.total_seconds == pytest.approx(200.0)


def test_steps_take_no_longer_than_the_stamps_show(tmp_path: Path) -> None:
    """Lines tell of the slow first half of every epoch; the clock tells of all."""
    text = MMDET.replace("12:02:10", "12:01:41").replace("12:03:00", "12:02:05")
    text = text.replace("12:03:50", "12:02:30").replace("12:04:20", "12:02:31")
    run = read_text(tmp_path, text)
    assert run.step_times.total_seconds <= 100.0  # 12:00:50 to 12:02:30


def test_a_log_from_the_middle_says_where_it_begins(tmp_path: Path) -> None:
    lines = [f"iter {step}: loss 2.0, time 50.00ms, mfu 9.00%" for step in range(56000, 56100, 10)]
    run = read_text(tmp_path, "\n".join(lines) + "\n")
    assert run.first_step == 56000
    assert run.step_times.total_seconds == pytest.approx(100 * 0.05)


def test_a_second_start_in_a_log_is_another_run(tmp_path: Path) -> None:
    run = read_text(tmp_path, NANOGPT + NANOGPT.replace("iter 40", "iter 35"))
    assert run.step == 40
    assert any("2 runs" in note for note in run.notes)


def test_epochs_with_two_digits_are_put_on_whole_logging_steps(tmp_path: Path) -> None:
    """10,000 steps an epoch: 0.01 is a hundred steps, but a line comes every 50."""
    head = HF.replace("Num Epochs = 3", "Num Epochs = 1").replace("= 300", "= 10,000")
    begin = head[: head.index("{")]
    lines = [f"{{'loss': 1.0, 'learning_rate': 1e-5, 'epoch': {n * 50 / 10000:.2f}}}\n" for n in
             range(1, 201)]  # fmt: skip
    run = read_text(tmp_path, begin + "".join(lines))
    assert [step for step, _ in run.training_loss.points[:3]] == [50, 100, 150]


def test_without_steps_lines_are_counted_and_it_is_said(tmp_path: Path) -> None:
    lines = [f"{{'loss': {3 - n}, 'learning_rate': 1e-05, 'epoch': {n / 2}}}\n" for n in (1, 2)]
    run = read_text(tmp_path, "".join(lines))
    assert run.step == 2
    assert any("names no steps" in note for note in run.notes)


def test_fairseq_through_an_evaluation_is_no_step(tmp_path: Path) -> None:
    slow = FAIRSEQ.splitlines()[2].replace("epoch 001:    100", "epoch 002:    100")
    slow = slow.replace("num_updates=100", "num_updates=300").replace("wps=20000", "wps=2000")
    run = read_text(tmp_path, FAIRSEQ.rsplit("\n", 2)[0] + "\n" + slow + "\n")
    assert run.step == 300
    assert run.step_times.mean_seconds == pytest.approx(0.4)


@pytest.mark.parametrize(
    "text",
    [
        "a poem\nof two lines\n",
        "step by step the loss of the connection was 3 times reported\n",
        "GET /step/12 200\n" * 50,
        "",
    ],
)
def test_other_text_gets_the_clear_message(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match="not a log that Paceline knows"):
        read_text(tmp_path, text)


def test_unknown_text_says_how_it_was_read(tmp_path: Path) -> None:
    run = read_text(tmp_path, SHAPES["unknown"].text)
    assert any("10 of its 10 lines" in note and "guess" in note for note in run.notes)
    assert any("guess" in note for note in read_text(tmp_path, SHAPES["bars"].text).notes)


def test_every_hint_is_in_the_lines_that_a_format_is_sure_of() -> None:
    """Else a log would be passed over without a word."""
    for shape in SHAPES.values():
        for line in shape.text.replace("\r", "\n").split("\n"):
            for one in TEXT_FORMATS:
                if one.sureness(line):
                    assert any(hint in line for hint in one.hints), (one.name, line)


def test_control_characters_stay_in_the_log(tmp_path: Path) -> None:
    text = UNKNOWN_WITH_ESCAPES
    run = read_text(tmp_path, text)
    assert run.step == 100


UNKNOWN_WITH_ESCAPES = SHAPES["unknown"].text.replace("INFO", "\x1b[31mINFO\x1b[0m")


def damaged(text: str, chance: random.Random) -> str:
    """Cut, with lines lost, in another order, among another tool's, or with strange numbers."""
    lines = text.splitlines(keepends=True)
    kind = chance.randrange(5)
    if kind == 0:
        begin = chance.randrange(len(text))
        return text[begin : chance.randrange(begin, len(text))]
    if kind == 1:
        return "".join(line for line in lines if chance.random() > 0.3)
    if kind == 2:
        return "".join(chance.sample(lines, len(lines)))
    if kind == 3:
        other = SHAPES[chance.choice(list(SHAPES))].text.splitlines(keepends=True)
        return "".join(line for pair in zip(lines, other * 9, strict=False) for line in pair)
    strange = ["nan", "inf", "0", "-1", "9" * 25, "1e400"]
    return re.sub(
        r"\d+(\.\d+)?", lambda m: chance.choice(strange) if chance.random() < 0.3 else m[0], text
    )


@pytest.mark.parametrize("name", SHAPES)
def test_a_damaged_log_never_gives_a_traceback(tmp_path: Path, name: str) -> None:
    chance = random.Random(name)
    path = tmp_path / "damaged.log"
    for _ in range(5):
        path.write_text(damaged(SHAPES[name].text, chance), encoding="utf-8")
        try:
            assert open_report([path], Options(1e9, 1.0)).text()
        except UserError as error:
            assert str(error)


def test_a_mean_without_single_times_is_not_called_a_median(tmp_path: Path) -> None:
    run = read_text(tmp_path, HF)
    step = next(one for one in answers_of(run) if one.key == "step")
    assert step.sentence == "0.40 s, the mean over 300 steps. That is 74.97 samples a second."


def test_a_slow_first_step_counts_once_and_not_in_every_running_mean(tmp_path: Path) -> None:
    """Six steps of 1 s, the first of 7 s with 6 s of waiting: 6 of 12 s, whatever lines show."""
    lines = [
        f"Epoch: [0]  [{n}/6]  eta: 0:00:06  lr: 0.1  loss: 2.0 (2.0)  "
        f"time: {(7 + n) / (n + 1):.4f}  data: {6 / (n + 1):.4f}  max mem: 9"
        for n in range(6)
    ]
    run = read_text(
        tmp_path, "\n".join([*lines, "Epoch: [0] Total time: 0:00:12 (2.0 s / it)", ""])
    )
    assert run.step_times.total_seconds == pytest.approx(12.0)
    assert run.step_times.input_share == pytest.approx(0.5)
