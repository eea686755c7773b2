"""`paceline run`: an unmodified script gives the same bits, and a run that adds up."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.record.schema import RunDirectory
from paceline.report.own.run import read_run
from tests.observed_scripts import (
    PLAIN,
    booked_and_wall,
    lines_of,
    of_kind,
    paceline_run,
    phases_of,
    write_script,
)

MANY = """
import os, signal, sys
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

torch.set_num_threads(1)


def network():
    return torch.nn.Linear(4, 2)


def data(size=8):
    return DataLoader(TensorDataset(torch.randn(size, 4)), 2)


def train(model, batches, optimizer, each=lambda: None):
    for (x,) in batches:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        each()


def accumulates():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for number, (x,) in enumerate(data(16)):
        (model(x).square().mean() / 4).backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def plays_two_networks_against_each_other():
    one, other = network(), network()
    first, second = torch.optim.Adam(one.parameters()), torch.optim.Adam(other.parameters())
    for (x,) in data():
        for sign in (1, -1):
            (sign * one(x).mean()).backward()
        first.step()
        (3.0 + 0 * other(x).mean()).backward()
        second.step()


class Endless(IterableDataset):
    def __iter__(self):
        return (torch.randn(4) for _ in range(6))


def reads_a_stream():
    model = network()
    for x in DataLoader(Endless(), 3):
        optimizer = torch.optim.SGD(model.parameters(), 0.1) if not hasattr(model, "o") else model.o
        model.o = optimizer
        model(x).square().mean().backward()
        optimizer.step()


def has_no_loader():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(4):
        model(torch.randn(2, 4)).square().mean().backward()
        optimizer.step()
        if step == 1:
            model.eval()
            with torch.no_grad():
                for _ in range(50):
                    model(torch.randn(64, 4))
            model.train()


def fails():
    model = network()
    train(model, data(), torch.optim.SGD(model.parameters(), 0.1))
    raise ValueError("the script's own mistake")


def leaves_at_once():
    model = network()
    train(model, data(), torch.optim.SGD(model.parameters(), 0.1))
    os._exit(3)


def is_killed():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, data(64), optimizer, lambda: None)
    os.kill(os.getpid(), signal.SIGKILL)


def scales_its_loss():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for (x,) in data():
        loss = 0 * model(x).mean() + 5.0
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def goes_on_in_lower_precision():
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.load_state_dict(
        {"state": {n: {"step": torch.tensor(40.0), "exp_avg": p, "exp_avg_sq": p.square()}
                   for n, p in enumerate(model.parameters())},
         "param_groups": optimizer.state_dict()["param_groups"]})
    for (x,) in data():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x).square().mean()
        loss.backward()
        optimizer.step()


CASES = [accumulates, plays_two_networks_against_each_other, reads_a_stream, has_no_loader, fails,
         leaves_at_once, is_killed, scales_its_loss, goes_on_in_lower_precision]
torch.optim.SGD(network().parameters(), 0.1)  # imports what all cases need, before they part
for number, case in enumerate(CASES):
    if os.fork() == 0:
        os.environ.update(RANK=str(number), WORLD_SIZE=str(len(CASES)))
        case()
        sys.exit()
for _ in CASES:
    os.wait()
"""
CASES = (
    "accumulates",
    "two optimizers",
    "stream",
    "no loader",
    "fails",
    "leaves",
    "killed",
    "scaled",
    "resumed",
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a script that was run, and what it printed."""
    folder = tmp_path_factory.mktemp("plain")
    write_script(folder, PLAIN)
    ended = paceline_run(folder, "train.py", "--rate.of", "3", "--", "x")
    assert ended.returncode == 0, ended.stderr
    assert "paceline: 24 steps in" in ended.stderr
    assert "paceline report" in ended.stderr
    return folder, ended.stdout


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each case is a rank, forked from a process that imported torch once."""
    folder = tmp_path_factory.mktemp("many")
    write_script(folder, MANY, "many.py")
    ended = paceline_run(folder, "many.py")
    assert "the script's own mistake" in ended.stderr
    return folder / "runs" / "many"


def test_the_same_bits_come_out_with_and_without(plain: tuple[Path, str]) -> None:
    folder, printed = plain
    alone = subprocess.run(
        [sys.executable, "train.py", "--rate.of", "3", "--", "x"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed == alone.stdout
    assert "['--rate.of', '3', '--', 'x']" in printed


def test_phases_of_a_plain_loop_add_up_to_wall_time(plain: tuple[Path, str]) -> None:
    run = plain[0] / "runs" / "train"
    booked, wall = booked_and_wall(run)
    assert booked == pytest.approx(wall, rel=0.005)
    facts = read_run(run)
    assert sum(facts.phases.values()) == pytest.approx(facts.wall_seconds, rel=0.005)
    wanted = {"start-up", "input", "compute", "optimizer", "evaluate", "checkpoint", "shut-down"}
    assert wanted <= set(facts.phases)


def test_loss_rate_norm_samples_and_epochs_of_every_step_are_told(plain: tuple[Path, str]) -> None:
    run = plain[0] / "runs" / "train"
    lines = of_kind(run, "steps")
    assert sum(line["num_steps"] for line in lines) == lines[-1]["step"] == 24
    assert sum(line["num_units"] for line in lines) == 192
    rates = [rate for line in lines for rate in line["rates"]]
    assert rates == [0.01] * 12 + [0.005] * 12
    assert all(line["loss"] > 0 and line["gradient_norm"] > 0 for line in lines)
    assert lines[-1]["epochs"] == 2.0
    (begin,) = of_kind(run, "begin")
    assert begin["num_parameters"] == 8 * 32 + 32 + 32 * 3 + 3
    assert begin["loader"]["workers"] == 1
    assert begin["loader"]["batch_size"] == 8


def test_what_the_script_logs_and_saves_is_in_the_record(plain: tuple[Path, str]) -> None:
    folder, _ = plain
    run = folder / "runs" / "train"
    scores = of_kind(run, "score")
    assert [score["step"] for score in scores] == [12, 24]
    assert {score["split"] for score in scores} == {"validation"}
    assert all(0 <= score["scores"]["accuracy/val"] <= 1 for score in scores)
    saves = of_kind(run, "checkpoint")
    assert [Path(save["path"]).name for save in saves] == ["epoch-0.pt", "epoch-1.pt"]
    assert saves[0]["num_bytes"] == (folder / "epoch-0.pt").stat().st_size
    facts = read_run(run)
    assert facts.learning.best_by == "accuracy/val"
    assert facts.saving.files is not None


def test_nothing_is_left_of_loader_workers(plain: tuple[Path, str]) -> None:
    events = plain[0] / "runs" / "train" / "events"
    assert {path.name for path in events.iterdir() if not path.name.startswith("host-")} == {
        "launcher.jsonl",
        "rank-00000.jsonl",
    }


def test_all_twelve_questions_are_answered_and_runs_are_compared(plain: tuple[Path, str]) -> None:
    from paceline.report.facts.facts import Options
    from paceline.report.report import open_report

    run = plain[0] / "runs" / "train"
    text = open_report([run], Options()).text()
    assert "12. What did it cost?" in text
    assert "recipe" not in text
    assert "paceline train" not in text
    assert "train.py" in open_report([run], Options()).html()
    told = json.loads(open_report([run], Options()).json())
    assert told["workload"] == "train.py"
    assert open_report([run, run], Options()).text()


def test_accumulated_micro_batches_are_one_step(many: Path) -> None:
    lines = of_kind(many, "steps", CASES.index("accumulates"))
    assert sum(line["num_steps"] for line in lines) == 2
    assert sum(line["num_micro_batches"] for line in lines) == 8


def test_two_optimizers_are_told_apart(many: Path) -> None:
    rank = CASES.index("two optimizers")
    lines = of_kind(many, "steps", rank)
    assert sum(line["num_steps"] for line in lines) == 4
    assert lines[0]["optimizer_losses"]["Adam 1"] == pytest.approx(0.0)
    assert lines[0]["optimizer_losses"]["Adam 2"] == pytest.approx(3.0)
    assert of_kind(many, "begin", rank)[0]["optimizers"] == ["Adam", "Adam"]


def test_a_stream_without_a_length_is_no_mistake(many: Path) -> None:
    lines = of_kind(many, "steps", CASES.index("stream"))
    assert sum(line["num_steps"] for line in lines) == 2


def test_evaluation_is_told_from_training_without_a_loader(many: Path) -> None:
    rank = CASES.index("no loader")
    assert phases_of(many, rank)["evaluate"] > 0
    assert "loader" not in of_kind(many, "begin", rank)[0]


@pytest.mark.parametrize(("case", "reason"), [("fails", "failed"), ("leaves", "failed")])
def test_however_a_process_ends_its_end_is_told(many: Path, case: str, reason: str) -> None:
    (end,) = of_kind(many, "end", CASES.index(case))
    assert end["reason"] == reason
    assert end["step"] == 4


def test_a_killed_process_leaves_a_readable_record(many: Path) -> None:
    events = lines_of(many, CASES.index("killed"))
    assert events[0]["kind"] == "begin"
    assert events[-1]["kind"] == "steps"
    assert events[-1]["step"] >= 16


def test_the_loss_is_told_unscaled(many: Path) -> None:
    lines = of_kind(many, "steps", CASES.index("scaled"))
    assert all(line["loss"] == pytest.approx(5.0) for line in lines)


def test_a_resumed_optimizer_says_which_step_it_is(many: Path) -> None:
    rank = CASES.index("resumed")
    (begin,) = of_kind(many, "begin", rank)
    assert begin["step"] == 40
    assert begin["precision"] == "bf16"
    assert of_kind(many, "steps", rank)[-1]["step"] == 44


@pytest.mark.parametrize("rank", range(len(CASES)))
def test_phases_of_every_process_add_up(many: Path, rank: int) -> None:
    booked, wall = booked_and_wall(many, rank)
    assert booked == pytest.approx(wall, rel=0.005, abs=0.05 if CASES[rank] == "killed" else 0.01)


def test_an_isolated_python_trains_as_itself_and_is_observed(tmp_path: Path) -> None:
    write_script(
        tmp_path,
        "import sys, torch\n"
        "model = torch.nn.Linear(4, 2)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for _ in range(12):\n"
        "    model(torch.randn(8, 4)).square().mean().backward()\n"
        "    optimizer.step()\n"
        "print(sys.argv, __name__, __file__)\n",
    )
    ended = paceline_run(tmp_path, "--run", "run", "--", sys.executable, "-I", "train.py", "x")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == f"['train.py', 'x'] __main__ {tmp_path}/train.py\n"
    facts = read_run(tmp_path / "run")
    assert facts.step == 12
    assert facts.unit == "step", "nothing tells how many samples a step has"


def test_the_scripts_exit_code_and_its_signals_are_its_own(tmp_path: Path) -> None:
    write_script(
        tmp_path,
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('ready', input(), flush=True)\n"
        "time.sleep(60)\n",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline.cli", "run", "train.py"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "PACELINE_OBSERVE"},
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("typed\n")
    process.stdin.flush()
    assert process.stdout.readline() == "ready typed\n"
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 7
    assert "no training step was seen" in told
    assert not RunDirectory(tmp_path / "runs" / "train").exists()
