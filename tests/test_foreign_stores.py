"""What tools keep in files of their own: states, tables, notebooks, W&B, MLflow, trackio."""

import json
import sqlite3
import struct
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import UserError
from paceline.report.foreign import is_foreign, read_foreign
from tests.foreign_logs import HF, MMDET
from tests.log_answers import answers_of


def trainer_state(directory: Path) -> Path:
    """100 steps of 2 epochs in 60 s, of which two evaluations took 4 s and 6 s."""
    history: list[dict[str, Any]] = [
        {"step": step, "epoch": step / 50, "loss": 3 - step / 50, "learning_rate": 1e-4 / step}
        for step in range(10, 110, 10)
    ]
    history += [
        {"step": 50, "epoch": 1.0, "eval_loss": 2.1, "eval_wer": 0.4, "eval_runtime": 4.0},
        {"step": 100, "epoch": 2.0, "eval_loss": 1.1, "eval_wer": 0.3, "eval_runtime": 6.0},
        {"step": 100, "epoch": 2.0, "train_runtime": 60.0, "train_samples_per_second": 10.0},
    ]
    state = {"global_step": 100, "max_steps": 100, "train_batch_size": 8, "log_history": history}
    path = directory / "trainer_state.json"
    path.write_text(json.dumps(state))
    return path


def test_a_trainer_state_tells_curves_and_time(tmp_path: Path) -> None:
    run = read_foreign(trainer_state(tmp_path))
    assert (run.step, run.steps_wanted, run.has_end) == (100, 100, True)
    assert run.training_loss.points[0] == (10, 2.8)
    assert run.step_times.mean_seconds == pytest.approx(0.5)
    assert run.units_per_second == pytest.approx(600 / 50)
    assert run.scores["WER"].points == [(50, 0.4), (100, 0.3)]
    assert run.steps_per_epoch == 50


def test_of_checkpoints_the_newest_state_counts(tmp_path: Path) -> None:
    for step in (50, 100):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        path = trainer_state(folder)
        state = json.loads(path.read_text())
        state["global_step"] = step
        state["log_history"] = [one for one in state["log_history"] if one["step"] <= step]
        path.write_text(json.dumps(state))
    assert is_foreign(tmp_path)
    assert read_foreign(tmp_path).step == 100


def test_several_validation_sets_are_not_mixed(tmp_path: Path) -> None:
    path = trainer_state(tmp_path)
    state = json.loads(path.read_text())
    state["log_history"] += [
        {"step": 100, "eval_news_accuracy": 0.9},
        {"step": 100, "eval_talks_accuracy": 0.5},
    ]
    path.write_text(json.dumps(state))
    scores = read_foreign(path).scores
    assert scores["news_accuracy"].last == (100, 0.9)
    assert scores["talks_accuracy"].last == (100, 0.5)


def test_half_a_state_is_a_clear_mistake(tmp_path: Path) -> None:
    path = trainer_state(tmp_path)
    path.write_text(path.read_text()[:200])
    with pytest.raises(UserError, match="not whole JSON"):
        read_foreign(path)


def test_lightnings_table_has_curves_settings_and_no_times(tmp_path: Path) -> None:
    folder = tmp_path / "lightning_logs" / "version_0"
    folder.mkdir(parents=True)
    rows = ["epoch,step,train_loss,val_loss,val_acc"]
    rows += [f"0,{step},{2 - step / 1000},," for step in range(49, 200, 50)]
    rows += ["0,199,,1.5,0.75", "1,249,1.7"]  # the last line is torn
    (folder / "metrics.csv").write_text("\n".join(rows) + "\n")
    (folder / "hparams.yaml").write_text("lr: 0.001\nnum_workers: 4\n")
    run = read_foreign(tmp_path / "lightning_logs")
    assert run.training_loss.first == (49, 1.951)
    assert run.validation_loss.points == [(199, 1.5)]
    assert run.scores["accuracy"].points == [(199, 0.75)]
    assert run.config == {"lr": 0.001, "num_workers": 4}
    assert run.wall_seconds is None


def test_settings_in_yaml_never_make_objects(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("epoch,step,train_loss\n0,9,1.0\n0,19,0.5\n")
    text = f"evil: !!python/object/apply:os.mkdir ['{tmp_path / 'made'}']\n"
    (tmp_path / "hparams.yaml").write_text(text)
    assert read_foreign(tmp_path).config == {}
    assert not (tmp_path / "made").exists()


def test_keras_history_counts_epochs_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "training.csv"
    path.write_text(
        "epoch,accuracy,loss,val_accuracy,val_loss\n0,0.5,1.0,0.4,1.1\n1,0.6,0.8,0.5,0.9\n"
    )
    run = read_foreign(path)
    assert run.training_loss.points == [(1, 1.0), (2, 0.8)]
    assert run.scores["accuracy"].last == (2, 0.5)
    assert any("an epoch" in note for note in run.notes)


def test_another_table_is_no_log(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("day,price\n1,2\n2,3\n3,4\n")
    with pytest.raises(UserError, match="not a log"):
        read_foreign(path)


def mlflow_run(directory: Path, end: int | None = 1_700_000_110_000) -> Path:
    run = directory / "mlruns" / "0" / "abc123"
    (run / "metrics").mkdir(parents=True)
    (run / "params").mkdir()
    begin = 1_700_000_000_000
    (run / "meta.yaml").write_text(
        f"start_time: {begin}\nend_time: {end if end else 'null'}\nstatus: 3\nrun_id: abc123\n"
    )
    lines = [f"{begin + 1000 * step} {3 - step / 100} {step}" for step in range(10, 110, 10)]
    (run / "metrics" / "train_loss").write_text("\n".join(lines) + "\n")
    (run / "metrics" / "val_accuracy").write_text(f"{begin + 100_000} 0.8 100\n")
    (run / "params" / "num_workers").write_text("3")
    return run


def test_mlflows_store_tells_curves_steps_and_settings(tmp_path: Path) -> None:
    mlflow_run(tmp_path)
    run = read_foreign(tmp_path)
    assert (run.tool, run.step, run.wall_seconds) == ("MLflow", 100, 110.0)
    assert run.step_times.mean_seconds == pytest.approx(1.0)
    assert run.scores["accuracy"].last == (100, 0.8)
    assert run.loader_workers == 3
    assert run.has_end


def notebook(directory: Path, outputs: list[dict[str, Any]], code: str = "") -> Path:
    cells = [{"cell_type": "code", "source": code.splitlines(keepends=True), "outputs": outputs}]
    path = directory / "train.ipynb"
    path.write_text(json.dumps({"cells": cells, "nbformat": 4}))
    return path


def test_a_notebooks_outputs_are_logs_and_its_code_has_settings(tmp_path: Path) -> None:
    lines = [line for line in MMDET.splitlines(keepends=True) if "workers_per_gpu" not in line]
    code = "train = Loader(data, batch_size=16, num_workers=3)\nval = Loader(v, batch_size=99)"
    run = read_foreign(notebook(tmp_path, [{"output_type": "stream", "text": lines}], code))
    assert run.step_times.input_share == pytest.approx(0.5)
    assert run.loader_workers == 3
    assert run.config["batch_size"] == 16
    duration = next(one for one in answers_of(run) if one.key == "duration")
    assert "holds no times" not in duration.sentence


def test_the_trainers_table_in_a_notebook_is_read(tmp_path: Path) -> None:
    """300 steps in 2:30 min are 0.5 s a step."""
    table = (
        "<div><progress value='300' max='300'></progress> [300/300 02:30, Epoch 3/3]</div>"
        "<table><thead><tr><th>Epoch</th><th>Training Loss</th><th>Validation Loss</th>"
        "<th>Accuracy</th></tr></thead><tbody>"
        "<tr><td>1</td><td>0.9</td><td>0.8</td><td>0.7</td></tr>"
        "<tr><td>2</td><td>0.6</td><td>0.7</td><td>0.75</td></tr>"
        "<tr><td>3</td><td>0.4</td><td>0.65</td><td>0.8</td></tr></tbody></table>"
    )
    out = {"output_type": "display_data", "data": {"text/html": [table]}}
    run = read_foreign(notebook(tmp_path, [out]))
    assert run.training_loss.points == [(100, 0.9), (200, 0.6), (300, 0.4)]
    assert run.validation_loss.last == (300, 0.65)
    assert run.scores["accuracy"].last == (300, 0.8)
    assert run.step_times.mean_seconds == pytest.approx(0.5)


def test_a_notebook_without_training_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        read_foreign(notebook(tmp_path, [{"output_type": "stream", "text": ["hello\n"]}]))


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def packed(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def item(name: str, value: float) -> bytes:
    return packed(1, name.encode()) + packed(16, json.dumps(value).encode())


def framed(contents: list[bytes]) -> bytes:
    """LevelDB's log: records are cut where a block of 32 KiB ends."""
    out = bytearray(b":W&B" + bytes(3))
    for content in contents:
        rest, first = content, True
        while True:
            left = 32768 - len(out) % 32768
            if left < 7:
                out += bytes(left)
                continue
            part, rest = rest[: left - 7], rest[left - 7 :]
            kind = {(True, True): 1, (True, False): 2, (False, True): 4}.get((first, not rest), 3)
            out += bytes(4) + struct.pack("<HB", len(part), kind) + part
            first = False
            if not rest:
                break
    return bytes(out)


def wandb_run(directory: Path, num_steps: int = 400) -> Path:
    """A step every 2 s; three of four devices at 80 %, one at 40 %: 70 %."""
    folder = directory / "wandb" / "offline-run-20240101_000000-abc"
    (folder / "files").mkdir(parents=True)
    contents = [packed(5, packed(1, item("num_workers", 4)))]
    for step in range(1, num_steps + 1):
        time = 1_700_000_000 + 2 * step
        values = {"_timestamp": time, "_step": step, "global_step": 10 * step, "train/loss": 3.0}
        history = b"".join(packed(1, item(n, float(v))) for n, v in values.items())
        contents.append(packed(2, history))
        if step % 10 == 0:
            stamp = packed(2, varint(1 << 3) + varint(time))
            shares = [80.0, 80.0, 80.0, 40.0]
            stats = b"".join(packed(3, item(f"gpu.{n}.gpu", v)) for n, v in enumerate(shares))
            contents.append(packed(7, stamp + stats))
    contents.append(packed(18, varint(1 << 3) + varint(0)))
    (folder / "run-abc.wandb").write_bytes(framed(contents))
    summary = {"_step": num_steps, "_runtime": 800.0, "global_step": 10 * num_steps}
    (folder / "files" / "wandb-summary.json").write_text(json.dumps(summary))
    return folder


def test_wandbs_folder_tells_curves_settings_and_utilisation(tmp_path: Path) -> None:
    wandb_run(tmp_path)
    run = read_foreign(tmp_path)
    assert (run.tool, run.step, run.has_end) == ("W&B", 4000, True)
    assert run.step_times.mean_seconds == pytest.approx(0.2)
    assert run.loader_workers == 4
    busy = next(one for one in answers_of(run) if one.key == "busy")
    assert busy.figures["utilisation"] == pytest.approx(0.7)
    assert "every 20.0 s" in busy.how


def test_a_torn_wandb_file_is_read_up_to_where_it_is_torn(tmp_path: Path) -> None:
    folder = wandb_run(tmp_path)
    file = folder / "run-abc.wandb"
    file.write_bytes(file.read_bytes()[:-20_000])
    run = read_foreign(folder)
    assert 0 < run.step < 4000
    assert run.step_times.mean_seconds == pytest.approx(0.2)


def test_wandbs_summary_alone_says_what_is_missing(tmp_path: Path) -> None:
    folder = wandb_run(tmp_path)
    (folder / "run-abc.wandb").unlink()
    run = read_foreign(tmp_path)
    assert (run.step, run.wall_seconds) == (4000, 800.0)
    assert any("run-*.wandb" in note for note in run.notes)


def trackio_project(directory: Path) -> Path:
    """A step every 3 s; two devices at 50 % and 100 %."""
    path = directory / "project.db"
    with sqlite3.connect(path) as store:
        store.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, "
            "step INTEGER, metrics TEXT)"
        )
        store.execute("CREATE TABLE configs (id INTEGER, run_name TEXT, config TEXT)")
        store.execute(
            "CREATE TABLE system_metrics (id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, "
            "metrics TEXT)"
        )
        for step in range(100):
            stamp = f"2025-06-01T10:{step // 20:02d}:{3 * (step % 20):02d}.000000+00:00"
            values = json.dumps({"loss": 4 - step / 50, "lr": 0.1})
            store.execute(
                "INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, 'a', ?, ?)",
                (stamp, step, values),
            )
            store.execute(
                "INSERT INTO system_metrics (timestamp, run_name, metrics) VALUES (?, 'a', ?)",
                (stamp, json.dumps({"gpu/0/utilization": 50, "gpu/1/utilization": 100})),
            )
        store.execute("INSERT INTO configs VALUES (1, 'a', ?)", (json.dumps({"num_workers": 2}),))
    store.close()
    return path


def test_trackios_database_is_read_and_not_changed(tmp_path: Path) -> None:
    path = trackio_project(tmp_path)
    before = path.read_bytes()
    run = read_foreign(path)
    assert (run.tool, run.step, run.loader_workers) == ("trackio", 99, 2)
    assert run.step_times.mean_seconds == pytest.approx(3.0)
    busy = next(one for one in answers_of(run) if one.key == "busy")
    assert busy.figures["utilisation"] == pytest.approx(0.75)
    assert path.read_bytes() == before


def test_printed_dictionaries_inside_slurms_output_are_found(tmp_path: Path) -> None:
    path = tmp_path / "slurm-42.out"
    path.write_text("0: " + HF.replace("\n", "\n0: "), encoding="utf-8")
    assert read_foreign(path).step == 300
