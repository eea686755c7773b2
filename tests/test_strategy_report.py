"""What a report says of chief, workers and servers; from plain data and small run directories."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.record.schema import COMPUTE, IDLE, INPUT, NETWORK, OPTIMIZER, PHASES, START_UP
from paceline.report.answers import answers
from paceline.report.comparison import compare
from paceline.report.facts.verdict import Verdict, judge
from paceline.report.facts.world_times import WorldTimes
from paceline.report.own.run import read_run
from paceline.report.render import html, markdown, text
from paceline.report.render import json as as_json
from paceline.report.roles.compared import in_conclusion
from paceline.report.roles.use import RolesUse, RoleUse, ServerUse, Waits


def times(*ranks: dict[str, float]) -> WorldTimes:
    """Seconds per step of each rank, in one stretch of 100 steps."""
    seconds = [[[rank.get(name, 0.0) for name in PHASES]] for rank in ranks]
    return WorldTimes(
        ranks=tuple(range(len(ranks))),
        hosts=("",) * len(ranks),
        seconds=np.array(seconds),
        num_steps=np.array([100.0]),
        last_steps=np.array([100.0]),
    )


def trainer(rank: int, compute: float, num_steps: int) -> RoleUse:
    return RoleUse(f"worker {rank}", rank, "a", {COMPUTE: compute}, num_steps)


def roles(waits: Waits, mode: str = "sync", *trainers: RoleUse) -> RolesUse:
    return RolesUse(mode, 0, ("chief", "worker", "server"), trainers, (), waits=waits)


def verdict(waits: Waits, network: float, mode: str = "sync") -> Verdict:
    rank = {COMPUTE: 1.0 - network, NETWORK: network}
    slow = trainer(1, 60.0, 20)
    return judge(times(rank, rank), 100, roles(waits, mode, trainer(0, 60.0, 80), slow))


@pytest.mark.parametrize(
    ("waits", "word"),
    [
        (Waits(push=30, pull=30, update=5, chief=5), "server link"),
        (Waits(push=5, pull=5, update=50, chief=5), "server compute"),
        (Waits(push=5, pull=5, update=5, chief=50), "network"),
    ],
)
def test_waiting_is_laid_at_the_door_of_whoever_caused_it(waits: Waits, word: str) -> None:
    found = verdict(waits, network=0.6)
    assert found.word == word
    assert sum(found.shares.values()) == pytest.approx(1.0)


def test_little_waiting_is_compute_whatever_the_servers_do() -> None:
    assert verdict(Waits(push=3, pull=3, update=3), network=0.1).word == "compute"


def test_with_bounded_staleness_the_slowest_worker_is_named() -> None:
    found = verdict(Waits(push=1, pull=1, update=1, chief=50), network=0.6, mode="bounded")
    assert found.word == "straggler"
    assert found.straggler is not None
    assert found.straggler.rank == 1
    assert found.straggler.extra_seconds == pytest.approx(60 / 20 - 60 / 80)


def test_with_bounded_staleness_nobody_is_named_where_all_are_alike() -> None:
    rank = {COMPUTE: 0.4, NETWORK: 0.6}
    alike = [trainer(number, 60.0, 50) for number in range(2)]
    found = judge(times(rank, rank), 100, roles(Waits(chief=50), "bounded", *alike))
    assert found.straggler is None
    assert found.word == "network"


def test_in_step_waiting_for_one_slow_worker_is_no_link() -> None:
    """All wait for rank 1, and little else."""
    fast, slow = {COMPUTE: 0.3, NETWORK: 0.7}, {COMPUTE: 0.9, NETWORK: 0.1}
    found = judge(times(fast, slow), 100, roles(Waits(push=5, pull=5, chief=70)))
    assert found.word == "straggler"
    assert sum(found.shares.values()) == pytest.approx(1.0)


def test_a_servers_traffic_is_told_against_its_link() -> None:
    server = ServerUse(
        "server 0",
        2,
        "a",
        {START_UP: 5.0, NETWORK: 6.0, OPTIMIZER: 1.0, IDLE: 3.0},
        sent_bytes=400e6,
        received_bytes=1000e6,
        loop_seconds=10.0,
        link_bits_per_second=1e9,
    )
    assert server.link_share == pytest.approx(0.8)
    assert server.share_in(NETWORK) == pytest.approx(0.6)


# ---- a run directory, written by hand


def write_events(path: Path, *told: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"attempt": 1, **event}) for event in told]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def line(step: int, time: float, **more: Any) -> dict[str, Any]:
    return {"kind": "steps", "time": time, "step": step, "seconds": 10.0, "epochs": 0.1, **more}


def begin(time: float, **more: Any) -> dict[str, Any]:
    facts = {"world_size": 2, "unit": "image", "best_by": "top1", "num_hosts": 1, "device": "cpu"}
    phases = {START_UP: 2.0}
    return (
        {"kind": "begin", "time": time, "step": 0, "seconds": 2.0, "phases": phases} | facts | more
    )


def out_of_step(path: Path) -> Path:
    """A chief that trains 16 of 20 updates and a slow worker 4, 20 s, one of its gradients lost."""
    all_roles = ["chief", "worker", "server"]
    steps = {"num_steps": 10, "num_units": 320, "loss": 1.0, "rate": 0.1}
    own = {"step_seconds": [1.0] * 10, "rates": [0.1] * 10, "losses": [1.0] * 10}
    waits = {"push_seconds": 0.5, "pull_seconds": 0.4, "update_seconds": 0.1, "chief_seconds": 1.0}
    phases = {COMPUTE: 8.0, NETWORK: 2.0}
    made = {"trainers": [0] * 8 + [1] * 2, "staleness": [1] * 8 + [4, 6]}
    leases = [{"leases": list(range(0, 40, 4))}, {"leases": list(range(40, 80, 4))}]
    gone = {"kind": "warning", "step": 12, "text": "worker 0 is gone", "lost_rank": 1, "time": 113}
    write_events(
        path / "events" / "rank-00000.jsonl",
        begin(100.0, roles=["chief"], all_roles=all_roles),
        line(10, 110.0, phases=phases, **steps, **own, **waits, **made, **leases[0]),
        gone,
        line(20, 120.0, phases=phases, **steps, **own, **waits, **made, **leases[1]),
        {"kind": "end", "time": 120.0, "step": 20, "reason": "finished", "phases": {}},
    )
    alone = {"num_steps": 2, "num_units": 64, "loss": 1.0, "rate": 0.1, "step_seconds": [5.0, 5.0]}
    write_events(
        path / "events" / "rank-00001.jsonl",
        begin(100.0, roles=["worker"], all_roles=all_roles),
        line(10, 110.0, phases=phases, **alone, **waits),
        line(20, 120.0, phases=phases, **alone, **waits),
    )
    served = {"phases": {NETWORK: 2.0, OPTIMIZER: 1.0, IDLE: 7.0}, "num_steps": 10}
    moved = {"received_bytes": 5e6, "sent_bytes": 6e6, "num_pushes": 10, "num_pulls": 11}
    write_events(
        path / "events" / "server-00000.jsonl",
        begin(100.0, rank=2, shard_bytes=500_000, host="a"),
        line(10, 110.0, **served, **moved),
        line(20, 120.0, **served, **moved),
    )
    (path / "recipe.yaml").write_text(
        "workload: cifar10\nsteps: 20\ndata: x\nbatch: {global: 32, micro: 8}\n"
        "strategy: {kind: parameter-server, mode: async}\n",
        encoding="utf-8",
    )
    return path


def test_a_report_tells_steps_staleness_traffic_and_lost_work_of_every_role(tmp_path: Path) -> None:
    facts = read_run(out_of_step(tmp_path / "a"))
    found = facts.roles
    assert found is not None
    assert [(use.name, use.num_steps) for use in found.trainers] == [("chief", 16), ("worker 0", 4)]
    assert found.staleness == {1: 16, 4: 2, 6: 2}
    assert found.mean_staleness == pytest.approx((16 + 8 + 12) / 20)
    assert found.servers[0].received_bytes == 10e6
    assert facts.verdict.step_seconds == pytest.approx(1.0), "from update to update"
    assert facts.verdict.word == "compute"
    told = {answer.key: answer for answer in answers(facts)}
    assert "workers were lost 1 time" in told["roles"].sentence
    assert told["roles"].figures["trainers"][1]["step_numbers"] == [[12.0, 10], [22.0, 20]]
    assert "1.0 MB" not in told["traffic"].sentence
    assert "500.0 kB" in told["traffic"].sentence
    assert not facts.doubts


@pytest.mark.parametrize("render", [text.render, markdown.render, html.render, as_json.render])
def test_every_form_of_the_report_has_the_roles(tmp_path: Path, render: Any) -> None:
    shown = render(read_run(out_of_step(tmp_path / "a")))
    for words in ("worker 0", "server 0", "staleness"):
        assert words in shown


def test_a_comparison_tells_what_each_waits_for_and_what_it_buys(tmp_path: Path) -> None:
    servers = read_run(out_of_step(tmp_path / "servers"))
    ring = tmp_path / "ring"
    steps = {"num_steps": 10, "num_units": 320, "loss": 1.0, "rate": 0.1, "reduced_bytes": 3e6}
    for rank, phases in enumerate(({INPUT: 0.0, COMPUTE: 5.0, NETWORK: 15.0}, {COMPUTE: 20.0})):
        twice = [2.0] * 10
        write_events(
            ring / "events" / f"rank-0000{rank}.jsonl",
            begin(100.0, gradient_bytes=300_000),
            line(10, 120.0, phases=phases, step_seconds=twice, **steps) | {"seconds": 20.0},
            line(20, 140.0, phases=phases, step_seconds=twice, **steps) | {"seconds": 20.0},
        )
    (ring / "recipe.yaml").write_text(
        "workload: cifar10\nsteps: 20\ndata: x\nbatch: {global: 32, micro: 8}\n", encoding="utf-8"
    )
    told = " ".join(compare([read_run(ring), servers]).sentences)
    assert "(all-reduce) waits" in told
    assert "the slow one is rank 1" in told
    assert "Nobody waits for a slow worker: worker 0 made 4 updates where chief made 16" in told
    assert "trains 2.00 times as many images" in told


@pytest.mark.parametrize(
    ("gains", "words"),
    [
        ((1.8, -0.1, 0.2), "wins per hour and loses per sample; after the same time it is ahead"),
        ((1.8, -0.1, -0.2), "wins per hour and loses per sample; after the same time it is behind"),
        ((0.6, 0.0, -0.2), "loses per hour and is as good per sample"),
        ((1.3, 0.04, None), "wins per hour and per sample."),
    ],
)
def test_the_conclusion_weighs_hours_against_samples(
    gains: tuple[float, float, float | None], words: str
) -> None:
    assert words in in_conclusion("runs/PS", *gains)
    assert in_conclusion("runs/PS", 1.8, None, None) == ""
