"""Shapes that were found in real logs of public repositories, with figures computed by hand."""

import json
from pathlib import Path

import pytest

from paceline.errors import UserError
from paceline.report.foreign import ForeignRun, read_foreign
from tests.log_answers import answers_of, heading_of
from tests.test_foreign_events import Row, write_rows


def read_text(directory: Path, text: str, name: str = "train.log") -> ForeignRun:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return read_foreign(path)


def answer_of(run: ForeignRun, key: str) -> str:
    return next(answer.sentence for answer in answers_of(run) if answer.key == key)


GLUON_SETTINGS = "Namespace(batch_size=10, epochs=3, num_samples=1090, num_workers=4)\n"


def gluon_detection(costs: tuple[float, ...] = (109.0, 109.0, 109.0)) -> str:
    """Batches 49 and 99 of 109 are printed, each with its own speed: 1 picture a second."""
    text = GLUON_SETTINGS
    for epoch, cost in enumerate(costs):
        for batch in (49, 99):
            text += f"[Epoch {epoch}][Batch {batch}], Speed: 1.000 samples/sec, ObjLoss=9.5\n"
        text += f"[Epoch {epoch}] Training cost: {cost}, ObjLoss=9.1\n"
        text += f"[Epoch {epoch}] Validation: \ndog=0.5\nmAP=0.{epoch + 4}\n"
    return text


def test_the_time_of_whole_epochs_wins_over_the_speed_of_single_batches(tmp_path: Path) -> None:
    run = read_text(tmp_path, gluon_detection())
    # 1,090 pictures by 10 are 109 batches, 109 s each epoch: 1 s a step, not 10 s.
    assert (run.step, run.steps_per_epoch) == (327, 109)
    assert run.step_times.mean_seconds == pytest.approx(1.0)
    assert run.units_per_second == pytest.approx(10.0)
    assert run.scores["mAP"].points == [(109, 0.4), (218, 0.5), (327, 0.6)]
    sentence = answer_of(run, "step")
    assert "1.00 s, the mean over 327 steps" in sentence
    assert "are a sample: their median is 10.0 s" in sentence


def test_coco_prints_its_mean_precision_below_a_heading(tmp_path: Path) -> None:
    heading = "~~~~ MeanAP @ IoU=[0.50,0.95] ~~~~\n=35.8\n"
    run = read_text(tmp_path, gluon_detection() + heading)
    assert run.scores["mAP"].last == (327, 0.6)  # one of a step is enough
    boxes = "~~~~ Mean AP for bbox ~~~~\n=38.2\n~~~~ Mean AP for segm ~~~~\n=34.2\n"
    run = read_text(tmp_path, gluon_detection() + boxes)
    assert run.scores["box mAP"].last == (327, 38.2)
    assert run.scores["mask mAP"].last == (327, 34.2)


def test_epochs_of_different_length_are_one_run(tmp_path: Path) -> None:
    text = "Namespace(batch_size=16, num_epochs=4)\nTotal batch size is set to 128 on 8 GPUs\n"
    for epoch, size in enumerate((18, 17, 18, 17)):  # what is left over is kept for the next
        for batch in (9, size - 1):
            text += f"Epoch[{epoch:03d}] Batch [{batch:04d}]/[{size:04d}]\tSpeed: 64 samples/sec\t"
            text += f"accuracy=1.0\t loss={4 - epoch}.{batch}\n"
        text += f"[Epoch {epoch:03d}] speed: 64 samples/sec\ttime cost: 40.0\n"
    run = read_text(tmp_path, text)
    # 18 + 17 + 18 + 17; 128 pictures at 64 a second; four times 40 s.
    assert (run.step, run.steps_wanted, run.has_end) == (70, 70, True)
    assert run.step_times.mean_seconds == pytest.approx(2.0)
    assert run.wall_seconds == pytest.approx(160.0)
    assert run.global_batch == 128
    assert not any("runs here" in note for note in run.notes)


def test_a_rank_that_begins_to_print_after_many_others_is_read(tmp_path: Path) -> None:
    text = "".join(f"[1,{rank}]<stderr>:loading data\n" for rank in reversed(range(192)))
    for step in range(10, 60, 10):
        text += f"[1,0]<stdout>:step {step} loss {3 - step / 100:.2f}\n"
    run = read_text(tmp_path, text)
    assert run.training_loss.last == (50, 2.5)


def test_what_ended_another_rank_ended_the_run(tmp_path: Path) -> None:
    steps = "".join(f"0: step {n} loss {3 - n / 100:.2f}\n" for n in range(10, 60, 10))
    failed = "3: torch.cuda.OutOfMemoryError: CUDA out of memory.\n"
    run = read_text(tmp_path, steps + failed)
    assert run.failure is not None and run.failure.kind == "it ran out of memory"
    assert read_text(tmp_path, failed + steps).failure is None  # the run outlived it


def test_a_log_that_prints_its_own_source_failed_nowhere(tmp_path: Path) -> None:
    source = '    raise FileNotFoundError(f"No files found for pattern: {name}")\n'
    steps = "".join(
        f"step:{n}/40 val_loss:{4 - n / 100:.2f} train_time:{n / 10:.3f}s step_avg:100.00ms\n"
        for n in range(10, 50, 10)
    )
    run = read_text(tmp_path, source + steps)
    assert run.failure is None and run.has_end
    assert run.step_times.mean_seconds == pytest.approx(0.1)
    assert run.validation_loss.points == [(10, 3.9), (20, 3.8), (30, 3.7), (40, 3.6)]


def test_an_error_after_the_end_is_not_how_it_ended(tmp_path: Path) -> None:
    steps = "".join(f"step:{n}/2 train_loss:4 train_time:1ms step_avg:1ms\n" for n in (1, 2))
    run = read_text(tmp_path, steps + "RuntimeError: cannot join a thread at shutdown\n")
    assert run.has_end and run.failure is None
    assert any("when it was over: RuntimeError" in note for note in run.notes)


def test_a_later_start_that_lacks_a_package_is_not_how_the_run_ended(tmp_path: Path) -> None:
    steps = "".join(f"step {n} loss {3 - n / 100:.2f}\n" for n in range(10, 60, 10))
    run = read_text(tmp_path, steps + "ModuleNotFoundError: No module named 'datasets'\n")
    assert run.failure is None
    assert any("another start into the same log failed" in note for note in run.notes)


def test_joeynmt_that_writes_no_colon_after_its_result_is_understood(tmp_path: Path) -> None:
    head = "2024-05-04 12:{} - INFO - joeynmt.{} - "
    step = "Epoch   1, Step:      {}, Batch Loss:     4.5, Tokens per Sec:    1000, Lr: 0.000300\n"
    evaluated = (
        "Evaluation result (greedy) loss:   2.00, ppl:  7.389056, acc:   0.12, generation: "
        "600.0[sec], evaluation: 0.0[sec]\n"
    )
    lines = [
        head.format("00:00,000", "training") + step.format(100),
        head.format("01:40,000", "training") + step.format(200),
        head.format("11:40,000", "prediction") + evaluated,
        head.format("13:20,000", "training") + step.format(300),
        head.format("15:00,000", "training") + step.format(400),
    ]
    run = read_text(tmp_path, "".join(lines))
    # 100 s for 100 steps wherever nothing was evaluated between two lines.
    assert run.step_times.mean_seconds == pytest.approx(1.0)
    assert run.evaluation_seconds == pytest.approx(600.0)
    assert run.validation_loss.last == pytest.approx((200, 2.0))


def test_a_night_in_which_a_laptop_slept_is_in_no_rate(tmp_path: Path) -> None:
    lines, second = [], 0
    for n in range(1, 13):
        second += 36_000 if n == 7 else 100
        day, rest = divmod(second, 86_400)
        clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
        rate = 10 if n == 7 else 3600
        lines.append(
            f"2024-05-{day + 4:02d} {clock},500 - INFO - joeynmt.training - Epoch   1, Step: "
            f"     {100 * n}, Batch Loss:     4.5, Tokens per Sec:    {rate}, Lr: 0.0003\n"
        )
    run = read_text(tmp_path, "".join(lines))
    assert run.step_times.mean_seconds == pytest.approx(1.0)
    assert run.units_per_second == pytest.approx(3600.0)
    assert run.wall_seconds == pytest.approx(36_000 + 10 * 100)


def keras_bar(loss: float) -> str:
    return f"10/10 [======] - 20s 2s/step - loss: {loss} - val_loss: {loss + 1}\n"


def test_keras_of_two_processes_that_step_together_is_one_run(tmp_path: Path) -> None:
    text = "Epoch 1/2\nEpoch 1/2\n"
    text += keras_bar(5.0) + "Epoch 2/2\n" + keras_bar(5.5) + "Epoch 2/2\n"
    text += keras_bar(4.0) + keras_bar(4.5)
    run = read_text(tmp_path, text)
    assert (run.step, run.world) == (20, 2)
    # The process that ended an epoch last; 20 s each epoch.
    assert run.training_loss.points == [(10, 5.5), (20, 4.5)]
    assert run.wall_seconds == pytest.approx(40.0)


def test_keras_of_programs_that_do_not_step_together_has_no_curve(tmp_path: Path) -> None:
    text = "Epoch 2/3\n" + keras_bar(5.0) + "Epoch 3/3\n" + keras_bar(7.0)
    text += "Epoch 2/3\n" + keras_bar(4.0) + keras_bar(6.0) + "Epoch 3/3\n" + keras_bar(5.5)
    run = read_text(tmp_path, text)
    assert not run.training_loss and not run.scores
    assert run.step_times.mean_seconds == pytest.approx(2.0)
    assert any("several programs printed into this log" in note for note in run.notes)


def hugging_face(num_lines: int, end: str = "") -> str:
    """1,907 batches, 4 for a step: 476 steps of an epoch that is 476.75 steps long."""
    text = "  Num Epochs = 50\n  Total optimization steps = 23,800\n"
    for n in range(1, num_lines + 1):
        epoch = round(10 * n / 476.75, 2)
        text += f"{{'loss': {4 - n / 1000:.4f}, 'learning_rate': 1e-05, 'epoch': {epoch}}}\n"
    return text + end


def test_steps_follow_from_epochs_that_are_not_of_whole_steps(tmp_path: Path) -> None:
    end = "{'train_runtime': 23800.0, 'train_loss': 0.1, 'epoch': 49.92}\n"
    run = read_text(tmp_path, hugging_face(2380, end))
    assert run.step == 23_800 and run.has_end
    assert run.training_loss.first == pytest.approx((10, 3.999))
    assert run.training_loss.last == pytest.approx((23_800, 1.62))
    assert run.step_times.mean_seconds == pytest.approx(1.0)
    assert read_text(tmp_path, hugging_face(600)).step == 6000


def test_a_log_that_begins_in_the_middle_tells_the_time_of_all_its_steps(tmp_path: Path) -> None:
    text = "".join(
        f"2022-07-19 07:{n}:00 | INFO | train_inner | epoch 006:   {n} / 200 loss=4.5, wps=10000, "
        f"ups=2.5, wpb=4000, num_updates={8000 + 100 * n}, lr=0.0001\n"
        for n in range(10, 16)
    )
    text += "2022-07-19 07:16:42 | INFO | fairseq_cli.train | done training in 3370.2 seconds\n"
    run = read_text(tmp_path, text)
    assert (run.first_step, run.wall_seconds) == (9000, 3370.2)
    sentence = answer_of(run, "duration")
    assert "56 min 10 s for all 9,500 steps, of which the log shows those from 9,000 on" in sentence
    assert "6 min 40 s per 1,000 steps" in sentence  # 4,000 words at 10,000 a second: 0.4 s
    assert "%" not in sentence  # no share of a time of which the log shows the end


def notebook(*cells: str) -> str:
    made = [
        {
            "cell_type": "code",
            "source": ["!train\n"],
            "outputs": [{"output_type": "stream", "text": text.splitlines(keepends=True)}],
        }
        for text in cells
    ]
    return json.dumps({"cells": made, "nbformat": 4})


def test_two_cells_that_train_are_two_runs(tmp_path: Path) -> None:
    first = "".join(f"step {n} loss {5 - n / 100:.2f}\n" for n in range(10, 60, 10))
    second = "".join(f"step {n} loss {9 - n / 100:.2f}\n" for n in range(40, 100, 10))
    run = read_text(tmp_path, notebook(first, second), "both.ipynb")
    assert run.training_loss.first == (40, 8.6)
    assert not any("resumed" in note for note in run.notes)
    assert any("2 runs here" in note for note in run.notes)


def test_the_table_of_a_notebook_counts_epochs_from_zero(tmp_path: Path) -> None:
    rows = "".join(
        f"<tr><td>{epoch}</td><td>{loss}</td><td>0.6</td></tr>"
        for epoch, loss in enumerate((0.64, 0.61, 0.62))
    )
    page = (
        "<div>[2718/2718 23:19, Epoch 2/3]</div><table><tr><th>Epoch</th><th>Training Loss</th>"
        f"<th>Validation Loss</th></tr>{rows}</table>"
    )
    output = {"output_type": "display_data", "data": {"text/html": [page]}}
    cell = {"cell_type": "code", "source": [], "outputs": [output]}
    run = read_text(tmp_path, json.dumps({"cells": [cell]}), "trainer.ipynb")
    assert run.training_loss.points == [(906, 0.64), (1812, 0.61), (2718, 0.62)]
    assert run.has_end and run.wall_seconds == 23 * 60 + 19


def detr_line(epoch: int, loss: float) -> str:
    return json.dumps(
        {
            "train_lr": 0.0001,
            "train_loss": loss,
            "test_loss": loss + 1,
            "test_coco_eval_bbox": [0.1 * (epoch + 1), 0.5],
            "epoch": epoch,
            "n_parameters": 41_302_368,
        }
    )


def test_the_json_of_detr_counts_epochs_and_keeps_its_runs_apart(tmp_path: Path) -> None:
    lines = [detr_line(n, 9.0 - n) for n in range(5)] + [detr_line(n, 4.0 - n) for n in range(2)]
    run = read_text(tmp_path, "\n".join(lines) + "\n", "log.txt")
    assert run.tool == "log.txt of DETR, DeiT and relatives"
    assert run.training_loss.points == [(n + 1, 9.0 - n) for n in range(5)]
    assert run.validation_loss.last == (5, 6.0)
    assert run.scores["box AP"].last == pytest.approx((5, 0.5))
    assert run.num_parameters == 41_302_368
    assert any("what is called a step here is an epoch" in note for note in run.notes)
    assert any("2 runs here" in note for note in run.notes)


def openmmlab_json(path: Path, with_text: bool) -> None:
    lines: list[dict[str, object]] = [
        {"env_info": "GPU 0: Tesla V100\n", "config": "data = dict(workers_per_gpu=4)\n"}
    ]
    for epoch in (1, 2):
        for index in (50, 100):
            at = {"mode": "train", "epoch": epoch, "iter": index, "lr": 0.01}
            lines.append({**at, "data_time": 0.1, "loss": 3.0 - epoch, "time": 0.4})
        lines.append({"mode": "val", "epoch": epoch, "iter": 80, "mAP": 0.25 * epoch})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (path / "None.log.json").write_text(text, encoding="utf-8")
    if with_text:
        (path / "None.log").write_text(
            "".join(
                f"2021-01-01 12:00:00 - mmdet - INFO - Epoch [1][{n}/200]\tlr: 0.01, eta: 0:01:00, "
                f"time: 0.4, data_time: 0.1, loss: 2.0\n"
                for n in (50, 100, 150)
            ),
            encoding="utf-8",
        )


def test_the_json_of_openmmlab_tells_the_wait_for_input(tmp_path: Path) -> None:
    openmmlab_json(tmp_path, with_text=False)
    run = read_foreign(tmp_path / "None.log.json")
    assert run.step == 200
    assert run.step_times.mean_seconds == pytest.approx(0.4)
    assert run.step_times.input_share == pytest.approx(0.25)
    assert run.scores["mAP"].points == [(100, 0.25), (200, 0.5)]
    assert (run.loader_workers, run.devices) == (4, ("Tesla V100",))


def test_text_and_json_of_one_run_are_one_run(tmp_path: Path) -> None:
    openmmlab_json(tmp_path, with_text=True)
    run = read_foreign(tmp_path)
    assert run.step == 150
    assert not any("runs here" in note for note in run.notes)


def test_the_scalars_of_mmengine_are_placed_by_their_step(tmp_path: Path) -> None:
    lines = [
        {"lr": 0.1, "data_time": 0.01, "loss": 3.0 - n / 100, "time": 0.1, "epoch": 1, "step": n}
        for n in range(10, 60, 10)
    ]
    lines.append({"accuracy/top1": 25.5, "data_time": 0.3, "time": 0.4, "step": 1})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    run = read_text(tmp_path, text, "scalars.json")
    assert run.step == 50
    assert run.step_times.mean_seconds == pytest.approx(0.1)
    assert run.step_times.input_share == pytest.approx(0.1)
    assert run.scores["top-1"].points == [(50, 25.5)]


def test_other_json_lines_are_read_by_the_names_of_their_values(tmp_path: Path) -> None:
    text = "".join(
        json.dumps({"current_steps": n, "total_steps": 100, "loss": 4 - n / 100}
                   | {"elapsed_time": f"0:{n // 10:02d}:00"}) + "\n"
        for n in range(10, 110, 10)
    )  # fmt: skip
    run = read_text(tmp_path, text, "trainer_log.jsonl")
    assert (run.step, run.steps_wanted, run.has_end) == (100, 100, True)
    assert run.step_times.mean_seconds == pytest.approx(6.0)  # ten steps a minute
    assert run.wall_seconds == pytest.approx(9 * 60)
    assert not run.began  # a clock that counts from the start has no date


def test_a_table_that_two_runs_wrote_is_two_runs(tmp_path: Path) -> None:
    rows = [(n, 5.0 - n) for n in range(3)] + [(n, 9.0 - n) for n in range(5)]
    text = "epoch,acc,loss,val_loss\n" + "".join(f"{n},0.5,{loss},{loss}\n" for n, loss in rows)
    run = read_text(tmp_path, text, "training.log")
    assert run.training_loss.points == [(n + 1, 9.0 - n) for n in range(5)]
    assert any("2 runs here" in note for note in run.notes)


def test_event_files_of_runs_in_one_directory_are_not_mixed(tmp_path: Path) -> None:
    """Three starts into the same directory, days apart; the second logs every 100 steps."""
    for number, (every, last) in enumerate(((10, 400), (100, 1000), (10, 200))):
        begin = 86_400.0 * number
        rows: list[Row] = [
            ("loss", step, begin + step, 5 - step / 1000) for step in range(every, last + 1, every)
        ]
        write_rows(tmp_path / f"events.out.tfevents.{1_600_000_000 + number}.host.1.0", rows)
    run = read_foreign(tmp_path)
    assert run.step == 1000
    assert run.training_loss.first == pytest.approx((100, 4.9))
    assert run.wall_seconds == pytest.approx(900.0)
    assert any("3 runs here" in note for note in run.notes)


def test_a_curve_of_one_point_tells_no_time(tmp_path: Path) -> None:
    write_rows(tmp_path / "events.out.tfevents.1600000000.h.1.0", [("loss", 0, 5.0, 1.0)])
    run = read_foreign(tmp_path)
    assert answer_of(run, "duration") == "The log holds no times."


def test_a_pointer_of_git_lfs_is_named_as_one(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12345\n"
    path = tmp_path / "events.out.tfevents.1600000000.h.1.0"
    path.write_text(pointer, encoding="utf-8")
    for given in (path, tmp_path):
        with pytest.raises(UserError, match="only a pointer of Git LFS"):
            read_foreign(given)


def test_a_store_beside_pointers_of_git_lfs_is_read(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12345\n"
    (tmp_path / "events.out.tfevents.1600000000.h.1.0").write_text(pointer, encoding="utf-8")
    entries = [{"loss": 5 - n, "step": 10 * n, "epoch": n} for n in range(1, 4)]
    state = {"log_history": entries, "global_step": 30, "max_steps": 30}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    run = read_foreign(tmp_path)
    assert (run.step, run.training_loss.last) == (30, (30, 2))
    assert any("1 event file, only pointers of Git LFS" in note for note in run.notes)


def test_an_evaluation_that_is_counted_as_a_step_is_put_back(tmp_path: Path) -> None:
    """mmcv logs training at 10, 20, ..., 360, and what it evaluates after 120 steps at 121."""
    rows: list[Row] = [("train/loss", s, float(s), 5 - s / 100) for s in range(10, 361, 10)]
    for step in (121, 241, 361):
        rows += [("val/mAP", step, step - 0.5, step / 1000), ("learning_rate", step, step, 0.1)]
    write_rows(tmp_path / "events.out.tfevents.1600000000.h.1.0", rows)
    run = read_foreign(tmp_path)
    assert run.step == 360
    assert [step for step, _ in run.scores["mAP"].points] == [120, 240, 360]


@pytest.mark.parametrize("is_timed", [True, False])
def test_an_evaluation_after_every_logged_step_is_in_no_step(
    tmp_path: Path, is_timed: bool
) -> None:
    """As Hugging Face logs it: 100 steps of 0.2 s, then a minute of evaluation, twelve times."""
    rows: list[Row] = []
    for n in range(1, 13):
        trained = 20.0 * n + 60.0 * (n - 1)
        rows += [("train/loss", 100 * n, trained, 2 - n / 100)]
        rows += [("eval/loss", 100 * n, trained + 60, 2.0)]
        rows += [("eval/runtime", 100 * n, trained + 60, 60.0)] if is_timed else []
    write_rows(tmp_path / "events.out.tfevents.1600000000.h.1.0", rows)
    run = read_foreign(tmp_path)
    assert run.step_times.mean_seconds == pytest.approx(0.2)
    assert run.evaluation_seconds == (720.0 if is_timed else None)
    assert "does not fit" not in answer_of(run, "duration")


def test_values_that_were_written_together_have_one_stamp_and_no_step_is_lost(
    tmp_path: Path,
) -> None:
    """As trackio writes them: ten at once, every half second."""
    rows: list[Row] = [("loss", step, (step // 10) * 0.5, 3 - step / 100) for step in range(80)]
    run = read_foreign(write_rows(tmp_path / "events.out.tfevents.1600000000.h.1.0", rows))
    assert run.step_times.mean_seconds == pytest.approx(0.05)
    assert run.step_times.num_steps == 70


KERAS_LINE = "1250/1250 [====] - 3039s 2s/step - loss: 6.3047 - accuracy: 0.6843{}\n"
KERAS_VALIDATED = KERAS_LINE.format(" - val_loss: 1.0754 - val_accuracy: 0.9010")


def test_keras_that_trains_for_one_epoch_prints_no_heading(tmp_path: Path) -> None:
    """3039 s over 1,250 steps; without validation it may as well have been an evaluation."""
    early = "  90/1250 [=>..] - ETA: 46:23 - loss: 16.1024 - accuracy: 0.5021\n"
    run = read_text(tmp_path, early + KERAS_VALIDATED)
    assert (run.step, run.steps_wanted, run.wall_seconds) == (1250, 1250, 3039.0)
    assert run.step_times.mean_seconds == pytest.approx(2.4312)
    assert run.scores["accuracy"].last == (1250, 0.901)
    assert any("may be another" in note for note in run.notes)
    with pytest.raises(UserError):
        read_text(tmp_path, KERAS_LINE.format(""), "evaluated.log")


def test_a_log_of_keras_without_its_begin_tells_only_epochs_that_it_names(tmp_path: Path) -> None:
    headed = f"Epoch 8/9\n{KERAS_VALIDATED.replace('6.3047', '5.5')}"
    run = read_text(tmp_path, KERAS_VALIDATED + headed)
    assert run.training_loss.points == [(10_000, 5.5)]


def test_bars_of_which_only_the_end_was_kept_are_rounds_of_one_bar(tmp_path: Path) -> None:
    """Three rounds of 147 in 30, 30 and 39 s; the second was drawn twice."""
    bar = "100%|██████████| 147/147 [00:{}<00:00,  4.82it/s, loss={}]\n"
    ends = [(30, 2.19), (30, 1.68), (30, 1.68), (39, 1.72)]
    run = read_text(tmp_path, "".join(f"made a model\n{bar.format(*end)}" for end in ends))
    assert run.training_loss.points == [(147, 2.19), (294, 1.68), (441, 1.72)]
    assert run.step_times.mean_seconds == pytest.approx(99 / 441)


@pytest.mark.parametrize("wrapped", ["", "                 train/acc: 0.399\n"])
def test_rich_bars_that_were_kept_when_an_epoch_ended_are_epochs(
    tmp_path: Path, wrapped: str
) -> None:
    """98 steps each, in 22, 25 and 23 s."""
    line = (
        "Epoch {}/2 ━━━━━━━━━━━━━━━━ 98/98 0:00:{} • 0:00:00 4.44it/s v_num: 0 train/loss: {}   \n"
    )
    ends = [(0, 22, 1.559), (1, 25, 1.2), (2, 23, 1.027)]
    run = read_text(tmp_path, "".join(line.format(*end) + wrapped for end in ends))
    assert run.training_loss.points == [(98, 1.559), (196, 1.2), (294, 1.027)]
    assert run.step_times.mean_seconds == pytest.approx(70 / 294)
    assert run.tool == "Lightning's progress bars"


def test_eole_without_a_wanted_number_of_steps_is_read(tmp_path: Path) -> None:
    line = (
        "[2026-01-01 10:00:{:02d},000 INFO] Step {}; acc: 45.2; ppl: 12.30; xent: 2.51; "
        "aux: 0.000; attn_ent: 0.000; lr: 1.00e-03; sents:    6400; bsz: 1900/1950/64; "
        "9500/9750 tok/s; {:6.0f} sec;\n"
    )
    run = read_text(tmp_path, "".join(line.format(2 * n, 10 * n, 2 * n) for n in range(1, 6)))
    assert (run.step, run.steps_wanted) == (50, None)
    assert run.step_times.mean_seconds == pytest.approx(0.2)
    assert run.units_per_second == pytest.approx(9750)
    assert run.rate.last == (50, 1e-3)


def test_validation_after_a_heading_is_not_another_process(tmp_path: Path) -> None:
    text = "".join(
        f"[Epoch {n:03d}] training: accuracy=60.0 loss={3 - n / 10:.1f}\n"
        f"[Epoch {n:03d}] validation: acc-top1=50.0 loss={4 - n / 10:.1f}\n"
        for n in range(5)
    )
    run = read_text(tmp_path, text)
    assert run.world is None
    assert run.training_loss.last == (4, 2.6)
    assert run.validation_loss.last == (4, 3.6)


def test_megatron_of_ranks_that_share_a_line_counts_all_parameters(tmp_path: Path) -> None:
    part = "> number of parameters on (tensor, pipeline) model parallel rank ({}, 0): 1000000 "
    text = part.format(0) + part.format(1) + "\n" + part.format(2) + "\n"
    text += "".join(
        f" iteration {n}/ 50 | elapsed time per iteration (ms): 500.0 | lm loss: 9.0E+00 |\n"
        for n in (10, 20)
    )
    assert read_text(tmp_path, text).num_parameters == 3_000_000


def test_torchtitan_tells_the_devices_and_the_tokens_of_one(tmp_path: Path) -> None:
    mesh = "- INFO - Building device mesh with parallelism: pp=2, dp_replicate=1, dp_shard=4, "
    text = mesh + "cp=1, tp=1, ep=4, etp=1\n"
    text += "".join(
        f"[titan] 2025-01-01 12:00:{n},500 - root - INFO - step: {n}  loss: 5.0  tps: 1,000  "
        "mfu: 30.0%\n"
        for n in (10, 20, 30)
    )
    run = read_text(tmp_path, text)
    assert run.world == 8
    assert run.units_per_second == pytest.approx(8000.0)
    assert any("those of one device: 1,000" in line for line in heading_of(run))
