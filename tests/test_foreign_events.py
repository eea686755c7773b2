"""Reports on TensorBoard event files, written here with TensorBoard's own record writer."""

import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.summary.writer.record_writer import RecordWriter

from paceline.errors import UserError
from paceline.report.answers.answer import QUESTIONS, Answer
from paceline.report.foreign import is_foreign, read_foreign
from paceline.report.foreign.event_files import Scalar, is_event_file, read_scalars
from paceline.report.foreign.tags import meaning_of
from tests.log_answers import answers_of, answers_of_log

BEGIN = 1_700_000_000.0
Row = tuple[str, int, float, float]
"""Tag, step, seconds since the begin, value."""


def by_key(given: list[Answer]) -> dict[str, Answer]:
    return {answer.key: answer for answer in given}


def scalar_event(tag: str, step: int, seconds: float, value: float) -> Any:
    summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, simple_value=value)])
    return event_pb2.Event(wall_time=BEGIN + seconds, step=step, summary=summary)


def write_events(path: Path, events: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        writer = RecordWriter(file)
        writer.write(
            event_pb2.Event(wall_time=BEGIN, file_version="brain.Event:2").SerializeToString()
        )
        for event in events:
            writer.write(event.SerializeToString())
        writer.flush()
    return path


def write_rows(path: Path, rows: Iterable[Row]) -> Path:
    return write_events(path, (scalar_event(*row) for row in rows))


def training(
    tag: str = "train/loss", steps: range = range(1, 101), seconds: float = 2.0
) -> list[Row]:
    return [(tag, step, seconds * step, 5 - step / 50) for step in steps]


def name_of(number: int = 1) -> str:
    return f"events.out.tfevents.{number}.host.1.0"


def test_losses_scores_rates_and_step_times_come_from_the_scalars(tmp_path: Path) -> None:
    rows = [
        *training(),
        *(("lr", step, 2.0 * step, 0.001 * step) for step in range(1, 101)),
        ("val/loss", 50, 101.0, 3.5),
        ("val/acc1", 50, 101.0, 40.0),
        ("val/loss", 100, 201.0, 3.0),
        ("val/acc1", 100, 201.0, 45.0),
    ]
    path = write_rows(tmp_path / name_of(), rows)
    for given in (path, tmp_path):
        run = read_foreign(given)
        assert run.step == 100
        assert run.training_loss.num_points == 100
        assert run.validation_loss.points == [(50, 3.5), (100, 3.0)]
        assert run.scores["top-1"].points == [(50, 40.0), (100, 45.0)]
        assert run.step_times.mean_seconds == pytest.approx(2.0)
        assert run.wall_seconds == pytest.approx(199.0)
        found = by_key(answers_of(run))
        assert list(found) == [key for key in QUESTIONS if key != "roles"]
        assert found["rate"].figures["peak_step"] == 100
        json.dumps([answer.figures for answer in found.values()], allow_nan=False)


def test_pauses_for_evaluation_are_not_counted_as_steps(tmp_path: Path) -> None:
    rows = [("loss", step, 2.0 * step + (500 if step > 50 else 0), 1.0) for step in range(1, 101)]
    run = read_foreign(write_rows(tmp_path / name_of(), rows))
    assert run.step_times.mean_seconds == pytest.approx(2.0)
    assert run.pause_seconds == pytest.approx(502.0)
    assert "evaluation and the rest" in by_key(answers_of(run))["duration"].sentence


@pytest.mark.parametrize("unit", [1.0, 1000.0], ids=["seconds", "milliseconds"])
def test_a_logged_wait_for_data_gives_the_share_of_input(tmp_path: Path, unit: float) -> None:
    rows = [
        row
        for step in range(1, 21)
        for row in (
            ("total_loss", step, 0.5 * step, 1.0),
            ("time", step, 0.5 * step, unit * 0.5),
            ("data_time", step, 0.5 * step, unit * 0.4),
        )
    ]
    found = by_key(answers_of_log(write_rows(tmp_path / name_of(), rows)))
    assert found["step"].figures["median_seconds"] == pytest.approx(0.5)
    assert found["input"].figures["input_share"] == pytest.approx(0.8)
    assert found["verdict"].figures["verdict"] == "input"


def test_a_scalar_called_time_that_is_no_step_time_is_not_believed(tmp_path: Path) -> None:
    rows = [*training(), *(("time", step, 2.0 * step, 1e4 * step) for step in range(1, 101))]
    run = read_foreign(write_rows(tmp_path / name_of(), rows))
    assert run.step_times.mean_seconds == pytest.approx(2.0)


def test_values_that_are_no_numbers_and_clocks_set_back_do_no_harm(tmp_path: Path) -> None:
    rows = [
        row
        for step in range(1, 101)
        for row in (
            ("loss", step, 2.0 * step - (3600 if step > 50 else 0), 1.0),
            ("data_time", step, 2.0 * step, float("nan")),
            ("val_acc", step // 50, 2.0 * step, float("nan")),
        )
    ]
    run = read_foreign(write_rows(tmp_path / name_of(), rows))
    assert run.step_times.mean_seconds == pytest.approx(2.0)
    assert run.step_times.input_share is None
    json.dumps([answer.figures for answer in answers_of(run)], allow_nan=False)


def test_the_tensorboard_directory_of_our_own_runs_can_be_read(tmp_path: Path) -> None:
    rows = [
        row
        for step in range(10, 210, 10)
        for row in (
            ("loss", step, float(step), 1.0),
            ("learning rate", step, float(step), 0.1),
            ("phase/input", step, float(step), 0.3),
            ("phase/compute", step, float(step), 0.7),
            ("validation/accuracy", step, float(step), 0.5),
        )
    ]
    run = read_foreign(write_rows(tmp_path / "tensorboard" / name_of(), rows).parent)
    assert run.step_times.input_share == pytest.approx(0.3)
    assert run.step_times.mean_seconds == pytest.approx(1.0)
    assert list(run.scores) == ["accuracy"]


@pytest.mark.parametrize(
    "tensor",
    [
        TensorProto(dtype=1, float_val=[2.5], tensor_shape=TensorShapeProto()),
        TensorProto(dtype=2, double_val=[2.5], tensor_shape=TensorShapeProto()),
        TensorProto(
            dtype=1, tensor_content=struct.pack("<f", 2.5), tensor_shape=TensorShapeProto()
        ),
        TensorProto(dtype=19, half_val=[int(np.float16(2.5).view(np.uint16))]),
    ],
    ids=["float", "double", "bytes", "half"],
)
def test_scalars_stored_as_tensors_are_scalars(tmp_path: Path, tensor: Any) -> None:
    value = summary_pb2.Summary.Value(tag="epoch_loss", tensor=tensor)
    event = event_pb2.Event(step=3, wall_time=BEGIN, summary=summary_pb2.Summary(value=[value]))
    path = write_events(tmp_path / name_of(), [event])
    assert list(read_scalars(path)) == [Scalar("epoch_loss", 3, BEGIN, 2.5)]


def test_pictures_and_texts_between_the_scalars_are_passed_over(tmp_path: Path) -> None:
    image = summary_pb2.Summary.Image(height=1, width=1, encoded_image_string=b"x" * 20_000)
    picture = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag="sample", image=image)])
    text = TensorProto(dtype=7, string_val=[b"loss"], tensor_shape=TensorShapeProto())
    words = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag="text", tensor=text)])
    events = [
        event_pb2.Event(step=1, summary=picture),
        event_pb2.Event(step=1, summary=words),
        scalar_event("loss", 1, 0.0, 2.0),
    ]
    path = write_events(tmp_path / name_of(), events)
    assert [scalar.value for scalar in read_scalars(path) if isinstance(scalar, Scalar)] == [2.0]


def test_wherever_a_file_is_torn_what_came_before_is_read(tmp_path: Path) -> None:
    path = write_rows(tmp_path / name_of(), training(steps=range(1, 6)))
    whole = list(read_scalars(path))
    content = path.read_bytes()
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        found = list(read_scalars(path))
        assert found == whole[: len(found)]
    path.write_bytes(content[: len(content) - 5])
    assert len(list(read_scalars(path))) == len(whole) - 1


def test_a_damaged_record_is_left_out_and_those_after_it_are_read(tmp_path: Path) -> None:
    path = write_rows(tmp_path / name_of(), training(steps=range(1, 6)))
    content = bytearray(path.read_bytes())
    size = (len(content) - len(write_rows(tmp_path / "none", []).read_bytes())) // 5
    content[-size - 5] ^= 1  # the last byte of the fourth record's content
    path.write_bytes(content)
    assert [scalar.step for scalar in read_scalars(path)] == [1, 2, 3, 5]


def test_directories_for_training_and_validation_are_one_run(tmp_path: Path) -> None:
    write_rows(tmp_path / "train" / name_of(), training("epoch_loss"))
    write_rows(tmp_path / "validation" / name_of(), [("epoch_loss", 100, 201.0, 3.0)])
    run = read_foreign(tmp_path)
    assert run.training_loss.num_points == 100
    assert run.validation_loss.points == [(100, 3.0)]


def test_of_several_runs_in_a_directory_the_longest_is_told(tmp_path: Path) -> None:
    write_rows(tmp_path / "version_0" / name_of(), training(steps=range(1, 11)))
    write_rows(tmp_path / "version_1" / name_of(), training(steps=range(1, 51)))
    run = read_foreign(tmp_path)
    assert run.step == 50
    assert any("there are 2 runs here" in note for note in run.notes)
    assert any("version_1" in note for note in run.notes)


def test_a_resumed_run_drops_what_was_done_again(tmp_path: Path) -> None:
    write_rows(tmp_path / name_of(1), training(steps=range(1, 61)))
    again = [(t, s, x + 1000, v - 1) for t, s, x, v in training(steps=range(41, 101))]
    write_rows(tmp_path / name_of(2), again)
    points = read_foreign(tmp_path).training_loss.points
    assert [step for step, _ in points] == list(range(1, 101))
    assert points[49][1] == pytest.approx(5 - 50 / 50 - 1)


def test_a_start_mark_drops_later_steps_even_before_new_ones_come(tmp_path: Path) -> None:
    write_rows(tmp_path / name_of(1), training(steps=range(1, 61)))
    log = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    start = event_pb2.Event(step=41, wall_time=BEGIN, session_log=log)
    write_events(tmp_path / name_of(2), [start])
    assert read_foreign(tmp_path).step == 40


def test_steps_that_begin_anew_every_epoch_are_counted_on(tmp_path: Path) -> None:
    rows = [
        ("loss", batch, float(50 * epoch + batch), 1.0) for epoch in range(3) for batch in range(50)
    ]
    run = read_foreign(write_rows(tmp_path / name_of(), rows))
    assert [step for step, _ in run.training_loss.points] == list(range(150))


def test_scores_logged_by_epoch_are_placed_by_their_time(tmp_path: Path) -> None:
    rows = [*training(), ("val_accuracy", 0, 100.5, 0.25), ("val_accuracy", 1, 200.5, 0.5)]
    run = read_foreign(write_rows(tmp_path / name_of(), rows))
    assert run.scores["accuracy"].points == [(50, 0.25), (100, 0.5)]


@pytest.mark.parametrize(
    ("tag", "kind", "is_validation", "name"),
    [
        ("Loss/train", "loss", False, ""),
        ("train_loss_step", "loss", False, ""),
        ("eval/loss", "loss", True, ""),
        ("lm loss validation", "loss", True, ""),
        ("validation/epoch_loss", "loss", True, ""),
        ("progress/xent", "loss", False, ""),
        ("acc1/val", "score", True, "top-1"),
        ("valid/bleu", "score", True, "BLEU"),
        ("Eval_BLEU_Score", "score", True, "BLEU"),
        ("eval/accuracy", "score", True, "accuracy"),
        ("val_f1", "score", True, "F1"),
        ("train/learning_rate", "rate", False, ""),
        ("lr-AdamW/pg1", "rate", False, ""),
        ("learning-rate", "rate", False, ""),
        ("data_time", "input seconds", False, ""),
        ("iteration-time", "step seconds", False, ""),
        ("global_step/sec", "steps per second", False, ""),
        ("train/train_runtime", "wall seconds", False, ""),
        ("eval/runtime", "wall seconds", True, ""),
        ("eval/wer", "score", True, "WER"),
        ("eval_perplexity", "score", True, "perplexity"),
    ],
)
def test_tags_of_many_tools_are_understood(
    tag: str, kind: str, is_validation: bool, name: str
) -> None:
    meaning = meaning_of(tag)
    assert meaning is not None
    assert (meaning.kind, meaning.is_validation, meaning.name) == (kind, is_validation, name)


@pytest.mark.parametrize("tag", ["grad_norm", "loss_scale", "epoch", "weights/fc1"])
def test_tags_that_are_something_else_are_not_taken_for_a_curve(tag: str) -> None:
    assert meaning_of(tag) is None


def test_scalars_that_are_not_understood_are_named(tmp_path: Path) -> None:
    rows = [*training(), ("temperature", 1, 1.0, 3.0)]
    run = read_foreign(write_rows(tmp_path / name_of(), rows))
    assert any("temperature" in note for note in run.notes)


def test_a_very_long_run_keeps_few_points_and_its_last(tmp_path: Path) -> None:
    rows = (("loss", step, 0.1 * step, 1 / (1 + step)) for step in range(30_000))
    run = read_foreign(write_rows(tmp_path / name_of(), rows))
    assert run.step == 29_999
    assert len(run.training_loss.points) <= 8001
    assert run.training_loss.num_points == 30_000
    assert run.step_times.mean_seconds == pytest.approx(0.1)
    trained = by_key(answers_of(run))["trained"]
    assert len(trained.figures["training_loss"]) <= 501
    assert trained.figures["training_loss"][-1][0] == 29_999


def test_a_directory_of_our_own_runs_is_not_foreign(tmp_path: Path) -> None:
    board = write_rows(tmp_path / "a" / "tensorboard" / name_of(), training()).parent
    (tmp_path / "a" / "recipe.yaml").write_text("workload: cifar10\n")
    assert not is_foreign(tmp_path)
    assert is_foreign(board)


def test_an_event_file_is_known_by_its_content_not_its_name(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "copy-of-events", training())
    assert is_event_file(path)
    assert read_foreign(path).step == 100


def test_event_files_without_scalars_are_refused_with_what_can_be_read(tmp_path: Path) -> None:
    write_rows(tmp_path / name_of(), [])
    assert is_foreign(tmp_path)
    with pytest.raises(UserError, match="holds nothing that can be reported") as caught:
        read_foreign(tmp_path)
    assert "OpenSeq2Seq" in caught.value.fix
