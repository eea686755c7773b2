"""Plans and trials on real hosts over ssh: the doctor's probes, trial steps, and nothing left."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.conftest import PracticeLab, Result
from tests.cluster.remote_run import SETTINGS, Start

pytestmark = pytest.mark.cluster

Command = Callable[..., Result]


def left_behind(lab: PracticeLab, folder: Path) -> list[str]:
    """Of trials, here and on each host's own disk."""
    here = [str(path) for path in folder.rglob("paceline-try-*")]
    there = [
        lab.inside(host.name, "find", str(lab.local), "-name", "paceline-try-*").stdout
        for host in lab.hosts
    ]
    return [*here, *filter(None, there)]


def test_a_recipe_is_planned_by_the_doctor_and_trial_steps_on_one_host(
    lab: PracticeLab, command: Command, pictures: Path, tmp_path: Path
) -> None:
    hosts = lab.write_hosts(tmp_path / "hosts.yaml", 3, node0={"price_per_hour": 1.0})
    words = [f"data={pictures}", *SETTINGS, "--hosts", str(hosts), "--json"]
    told = command("plan", "cifar10-tiny", *words, OMP_NUM_THREADS="1", TMPDIR=str(tmp_path))
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert [size["hosts"] for size in found["sizes"]] == [1, 2, 3]
    assert found["link_bits_per_second"] == pytest.approx(1e9, rel=0.15)
    sources = {figure["name"]: figure["source"] for figure in found["figures"]}
    assert "trial steps on node0" in sources["compute, per image"]
    assert "doctor" in sources["link"]
    assert found["units_per_step"] == 32
    assert found["price_per_hour"] is None  # not every host says what it costs
    assert left_behind(lab, tmp_path) == []


def test_hosts_that_the_doctor_refuses_are_not_planned_for(
    lab: PracticeLab, command: Command, pictures: Path, tmp_path: Path
) -> None:
    hosts = lab.write_hosts(tmp_path / "hosts.yaml", 2, node1={"python": "/nowhere/python"})
    refused = command("plan", "cifar10-tiny", f"data={pictures}", "--hosts", str(hosts))
    assert refused.returncode == 2
    assert "node1" in refused.stderr and "no plan" in refused.stderr
    assert left_behind(lab, tmp_path) == []


def test_a_remedy_is_tried_on_the_hosts_of_the_run_and_nothing_is_left(
    start: Start, lab: PracticeLab, command: Command, tmp_path: Path
) -> None:
    for name in ("node0", "node1"):
        lab.set_link(name, "100Mbit")
    run = start(
        2, "steps=20", "model.widths=[64,128,256]", "batch.global=4", "batch.micro=1", practice=""
    )
    assert run.finish() == 0, run.said
    tried = command(
        "try", str(run.run.path), "bf16", "--steps", "10", "--json", OMP_NUM_THREADS="1"
    )
    assert tried.returncode == 0, tried.stderr
    told = json.loads(tried.stdout)
    assert told["setting"] == "reduce.kind=bf16" and told["num_steps"] == 10
    assert told["predicted"]["middle"] > 1.2 and told["measured"] > 1.2
    assert left_behind(lab, tmp_path) == []
