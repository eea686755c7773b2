"""Which kernels ran is recorded, shown, compared and agreed on; that none did is said aloud."""

import json
import os
import socket
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn

from paceline.kernels import build, operation
from paceline.record.events import read_events
from paceline.record.schema import RunDirectory
from paceline.record.writer import write_file
from paceline.report.comparison import compare
from paceline.report.own.run import read_run
from paceline.tasks.cifar10.resnet import CifarResNet
from paceline.train.measure import kernels
from paceline.world import World
from tests import stored_runs
from tests.conftest import CommandLine
from tests.scripts import run_python

CPU = torch.device("cpu")
WITH, WITHOUT = {"conv": "own", "norm": "own"}, {"conv": "torch", "norm": "torch"}
needs_kernels = pytest.mark.skipif(
    build.library("conv") is None, reason="there is no C compiler here"
)


def no_compiler(folder: Path) -> str:
    """A PATH with everything that there is but a compiler."""
    folder.mkdir()
    for place in map(Path, os.environ["PATH"].split(":")):
        for program in place.iterdir() if place.is_dir() else ():
            link = folder / program.name
            if program.name not in ("cc", "gcc") and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


@needs_kernels
def test_a_run_without_a_compiler_says_so_and_differs_from_one_with(
    paceline: CommandLine, tmp_path: Path, finished_run: Path
) -> None:
    settings = ["steps=2", "evaluate.train_samples=0"]
    own = paceline.copy(finished_run, "runs/own")
    assert not any("kernels" in text for text in read_run(own).warnings)
    bare = paceline(*paceline.training("runs/bare", *settings), PATH=no_compiler(tmp_path / "bin"))
    assert bare.returncode == 0, bare.stderr
    said = f"there is no C compiler (cc or gcc) on {socket.gethostname()}"
    assert said in bare.stdout + bare.stderr

    for name, wanted in (("own", WITH), ("bare", WITHOUT)):
        run = RunDirectory(tmp_path / "runs" / name)
        assert json.loads(run.environment.read_text())["kernels"] == wanted
        for rank in range(2):
            (begin,) = (e for e in read_events(run.rank_events(rank)) if e["kind"] == "begin")
            assert begin["kernels"] == wanted
    assert "kernels: conv own, norm own" in paceline("report", "runs/own").stdout
    told = paceline("report", "runs/bare").stdout
    assert "kernels: conv torch, norm torch" in told and "warning: all 2 processes use" in told

    together = paceline("report", "runs/own", "runs/bare").stdout
    assert "kernels.conv (own to torch)" in " ".join(together.split())


def test_kernels_turned_off_by_the_user_are_no_warning() -> None:
    script = (
        "import torch; from paceline.train.measure import kernels\n"
        "from paceline.tasks.cifar10.resnet import CifarResNet; from paceline.world import World\n"
        "used = kernels.agree(CifarResNet(8), World(0, 1, torch.device('cpu')))\n"
        "print(used.warning, *used.ran().values())\n"
    )
    assert run_python(script, "off") == ["None", "torch", "torch"]


def two_hosts(tmp_path: Path, *kernels: dict[str, str]) -> str:
    """What is said of two runs that differ in machines, and in kernels where they are given."""
    runs = [stored_runs.one_of_a_pair(tmp_path / name, size) for size, name in ((1, "a"), (2, "b"))]
    for run, used in zip(runs, kernels, strict=False):
        environment = json.loads(run.run.environment.read_text())
        write_file(run.run.environment, json.dumps({**environment, "kernels": used}))
    return " ".join(compare([read_run(run.path) for run in runs]).sentences)


def test_a_difference_that_is_the_kernels_is_not_the_machines(tmp_path: Path) -> None:
    told = two_hosts(tmp_path, WITH, WITHOUT)
    assert "kernels.conv (own to torch)" in told and "kernels.norm (own to torch)" in told
    assert "the machines alone do not explain the speed" in told


@pytest.mark.parametrize("used", [(), (WITH, WITH), (WITHOUT, WITHOUT)])
def test_the_same_kernels_and_older_runs_leave_the_credit_to_the_machines(
    tmp_path: Path, used: tuple[dict[str, str], ...]
) -> None:
    assert "so the machines make the difference" in two_hosts(tmp_path, *used)


def test_a_run_that_went_on_with_other_kernels_is_read_with_care(tmp_path: Path) -> None:
    run = stored_runs.StoredRun(tmp_path / "a", [{"compute": 0.1}], begin_facts={"kernels": WITH})
    run.begin()
    run.train(20)
    run.attempt, run.begin_facts = 2, {"kernels": WITHOUT}
    run.begin()
    run.train(20)
    told = [text for text in read_run(run.path).warnings if "kernels changed" in text]
    assert told and "from attempt 1 to 2" in told[0] and "conv (own to torch)" in told[0]


def test_hosts_are_named_with_their_reasons() -> None:
    problems = [
        {"host": "a", "why": ""},
        {"host": "b", "why": "no compiler"},
        {"host": "b", "why": "no compiler"},
        {"host": "c", "why": build.SWITCHED_OFF},
    ]
    told = kernels.explain(problems, ["conv", "norm"])
    assert told is not None and told.startswith("all 4 processes use torch's operations")
    assert told.endswith(f"no compiler on b; {build.SWITCHED_OFF} on c")
    assert kernels.explain([{"host": "a", "why": ""}], ["conv"]) is None
    assert kernels.explain([{"host": "a", "why": build.SWITCHED_OFF}] * 2, ["conv"]) is None


def test_a_network_is_asked_which_kernels_it_uses() -> None:
    assert kernels.kernels_of(CifarResNet(8)) == ("conv", "norm")
    assert kernels.kernels_of(nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3))) == ()
    elsewhere = kernels.agree(CifarResNet(8), World(0, 1, torch.device("meta")))
    assert elsewhere.ran() == {} and elsewhere.warning is None


def agree_with_others(rank: int, folder: Path) -> None:
    if rank == 1:
        os.environ["PATH"] = str(folder)
    store = f"file://{folder / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    used = kernels.agree(CifarResNet(8), World(rank, 2, CPU, host=f"host-{rank}"))
    found = {"is_used": operation.is_used("norm"), "warning": used.warning}
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


@needs_kernels
def test_one_host_without_a_compiler_makes_all_do_without(tmp_path: Path) -> None:
    spawn(agree_with_others, args=(tmp_path,), nprocs=2)  # type: ignore[no-untyped-call]
    for rank in (0, 1):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert found["is_used"] is False
        assert "there is no C compiler (cc or gcc) on host-1" in found["warning"]
