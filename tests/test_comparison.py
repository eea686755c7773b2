"""Runs compared: the answer comes first, nothing contradicts it, and all that differs is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.record.writer import write_file
from paceline.report.comparison import Comparison, compare
from paceline.report.facts.facts import Options
from paceline.report.own.run import read_run
from paceline.report.report import open_report
from tests import stored_runs
from tests.stored_runs import StoredRun, two_busy_ranks


def compared(*runs: StoredRun, options: Options | None = None) -> Comparison:
    return compare([read_run(run.path, options) for run in runs])


def told(*runs: StoredRun) -> str:
    return " ".join(compared(*runs).sentences)


def against_first(*runs: StoredRun) -> dict[str, Any]:
    found: dict[str, Any] = compared(*runs).figures["against_first"][0]
    return found


def change_environment(run: StoredRun, **values: Any) -> None:
    environment = json.loads(run.run.environment.read_text())
    write_file(run.run.environment, json.dumps({**environment, **values}))


def on_one_host(path: Path, num_procs: int, step_seconds: float, *overrides: str) -> StoredRun:
    phases = [{"compute": step_seconds} for _ in range(num_procs)]
    run = StoredRun(path, phases, overrides=["steps=400", "data=/absent", *overrides])
    run.environment(threads=2 // num_procs, settings={"OMP_NUM_THREADS": str(2 // num_procs)})
    run.launch()
    run.begin()
    run.train(400, lambda step: 2.3 - step / 400)
    run.end()
    run.exit()
    return run


# ---- worth it


def test_a_second_host_that_brings_much_is_worth_it_and_one_that_brings_little_is_not(
    tmp_path: Path,
) -> None:
    one = stored_runs.one_of_a_pair(tmp_path / "one", 1)
    slow = stored_runs.one_of_a_pair(tmp_path / "slow", 2)
    fast = StoredRun(
        tmp_path / "fast",
        [{"compute": 0.19, "network": 0.01}] * 2,
        ["one", "two"],
        ["steps=400", "data=/absent"],
    )
    fast.environment()
    fast.launch()
    fast.begin()
    for part in range(1, 5):
        fast.train(100, lambda step: 2.3 - step / 400)
        fast.score(0.3 + part / 10, 2.0 - part / 5)
    opening = compared(one, slow, fast).opening
    assert opening[0].startswith(
        f"Worth it ({slow.path} against {one.path}): no, because to top1 70.00 % it took "
        "1 min 55 s instead of 2 min 41 s (1.40 times as fast), for 1.43 times the host-hours; "
        "the added hosts brought 40 %"
    )
    assert f"{fast.path} against {one.path}): yes, because to top1 70.00 %" in opening[1]


def test_a_start_up_that_took_longer_once_is_no_merit_of_the_other_run(tmp_path: Path) -> None:
    """As the very first run of a user has it, for which kernels are compiled."""
    runs = []
    for name, procs, start_up in (("first", 1, 19.0), ("second", 2, 5.0)):
        run = StoredRun(tmp_path / name, [{"compute": 0.2}] * procs, overrides=["steps=400"])
        run.environment()
        run.launch()
        run.begin(seconds=start_up)
        run.train(400, lambda step: 2.3 - step / 400)
        run.score(0.6, 1.2)
        runs.append(run)
    found = compared(*runs)
    assert (
        "it took 1 min 20 s instead of 1 min 20 s, start-ups of 5.00 s and 19.0 s not"
        in (found.opening[0])
    )
    assert "): no, because" in found.opening[0]
    assert ["start-up", "19.0 s", "5.00 s"] in found.table


def test_time_to_the_score_host_hours_and_price_of_each_stand_right_below(tmp_path: Path) -> None:
    runs = [stored_runs.one_of_a_pair(tmp_path / str(n), n) for n in (1, 2)]
    rows = {row[0]: row[1:] for row in compared(*runs, options=Options(price_per_hour=36)).table}
    assert list(rows)[1:5] == ["time to top1 70.00 %", "wall time", "host-hours", "price"]
    assert rows["time to top1 70.00 %"] == ["2 min 41 s", "1 min 55 s"]
    assert rows["host-hours"] == ["0.045", "0.0644"]
    assert rows["price"] == ["1.62", "2.32"]
    assert "price" not in {row[0] for row in compared(*runs).table}
    text = open_report([run.path for run in runs], Options(price_per_hour=36)).text()
    assert text.startswith("Worth it (") and "times the price" in text.split("\n\n")[0]


def test_other_load_during_one_of_the_runs_leaves_the_answer_open(tmp_path: Path) -> None:
    runs = []
    for name, cpu in (("quiet", 0.95), ("busy", 1.0)):
        run = on_one_host(tmp_path / name, 1, 0.2 if name == "quiet" else 0.4)
        run.probe(80.0, 400, 0.0, cpu=cpu)
        change_environment(run, num_cores=1 if name == "quiet" else 4)
        runs.append(run)
    (opening,) = compared(*runs).opening
    assert "cannot be told, because other programs used 5.0 % of the cores during" in opening


def test_with_other_load_no_sentence_credits_the_processes(tmp_path: Path) -> None:
    runs = [on_one_host(tmp_path / name, procs, 0.2) for name, procs in (("a", 1), ("b", 2))]
    for run in runs:
        run.probe(80.0, 400, 0.0, cpu=1.0)
        change_environment(run, num_cores=8, threads=1, settings={})
    told = " ".join(compared(*runs).sentences)
    assert "other programs used the machine too" in told
    assert "makes the difference" not in told


def test_two_equal_runs_are_not_said_to_be_worth_anything(tmp_path: Path) -> None:
    runs = [on_one_host(tmp_path / name, 1, 0.2) for name in ("a", "b")]
    (opening,) = compared(*runs).opening
    assert "cannot be told, because nothing is known to differ between them" in opening


def test_another_batch_without_a_common_score_cannot_be_judged(tmp_path: Path) -> None:
    one = on_one_host(tmp_path / "one", 1, 0.2)
    other = on_one_host(tmp_path / "other", 1, 0.1, "batch.global=256")
    (opening,) = compared(one, other).opening
    assert "global batch (128 to 256) changes what a step learns" in opening


@pytest.mark.parametrize("name", stored_runs.SCENES)
def test_any_two_runs_can_be_compared_in_every_form(tmp_path: Path, name: str) -> None:
    one = stored_runs.one_of_a_pair(tmp_path / "one", 1)
    other = stored_runs.SCENES[name](tmp_path / "other")
    for runs in ([one.path, other.path], [other.path, one.path]):
        report = open_report(runs, Options(price_per_hour=1.0))
        assert report.text().startswith("Worth it (")
        assert report.html() and report.markdown() and json.loads(report.json())
        assert " nan" not in report.text()


# ---- what explains it


def test_more_than_perfect_scaling_is_never_explained_as_lost(tmp_path: Path) -> None:
    one, two = on_one_host(tmp_path / "one", 1, 0.4), on_one_host(tmp_path / "two", 2, 0.1)
    text = told(one, two)
    assert "efficiency of 200 % per process" in text and "lost" not in text
    (opening,) = compared(one, two).opening
    assert "cannot be told, because 4.00 times the speed" in opening


def test_more_than_perfect_scaling_is_not_believed_whatever_else_differs(tmp_path: Path) -> None:
    one = on_one_host(tmp_path / "one", 1, 0.4)
    two = on_one_host(tmp_path / "two", 2, 0.1, "precision=bf16")
    text = told(one, two)
    assert "more than perfect scaling, which is not believed" in text
    assert "precision (auto to bf16)" in text
    back = told(two, one)  # the other way round it is the second that was slowed down
    assert f"slowed {one.path} down" in back and "efficiency" not in back


def test_loader_threads_that_training_found_by_itself_are_no_difference(tmp_path: Path) -> None:
    one, two = on_one_host(tmp_path / "one", 1, 0.4), on_one_host(tmp_path / "two", 1, 0.4)
    for run, begun in ((one, 2), (two, 1)):
        path = run.run.rank_events(0)
        text = path.read_text().replace(
            '"unit": "image"', f'"unit": "image", "loader_workers": {begun}'
        )
        path.write_text(text)
        run.write(path, "input", step=5, loader_workers=1, is_limit=False, text="input: 1 thread")
    assert against_first(one, two)["differences"] == []
    assert read_run(one.path).loader_workers == 1


def test_threads_and_variables_of_the_environment_are_among_the_differences(
    tmp_path: Path,
) -> None:
    one, two = on_one_host(tmp_path / "one", 1, 0.4), on_one_host(tmp_path / "two", 1, 0.2)
    variables = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    change_environment(two, threads=1, settings=variables)
    text = told(one, two)
    assert "threads per process (2 to 1) and OMP_WAIT_POLICY (not set to PASSIVE)" in text
    assert "Both ran on the same machine." in text and "machines alone" not in text


def test_one_machine_cut_into_more_processes_is_said_to_be_that(tmp_path: Path) -> None:
    one, two = on_one_host(tmp_path / "one", 1, 0.4), on_one_host(tmp_path / "two", 2, 0.3)
    text = told(one, two)
    assert "as many threads in all (1 process x 2 threads, 2 processes x 1 thread)" in text


def test_cpu_time_is_no_proof_of_waiting_where_threads_may_spin(tmp_path: Path) -> None:
    spinning = [on_one_host(tmp_path / name, 1, 0.4) for name in ("a", "b")]
    assert "so is the CPU time" not in told(*spinning)
    assert any(row[0].endswith("with spinning") for row in compared(*spinning).table)
    for run in spinning:
        settings = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"}
        change_environment(run, settings=settings)
    assert "so is the CPU time" in told(*spinning)


# ---- machines or something else


def test_a_second_host_is_credited_when_nothing_else_differs(tmp_path: Path) -> None:
    one = stored_runs.one_of_a_pair(tmp_path / "one", 1)
    two = stored_runs.one_of_a_pair(tmp_path / "two", 2)
    compared = compare([read_run(one.path), read_run(two.path)])
    found = compared.figures["against_first"][0]
    assert found["speed_up"] == pytest.approx(0.39 / 0.275, rel=1e-3)
    assert found["efficiency_per_process"] == pytest.approx(0.39 / 0.275 / 2, rel=1e-3)
    assert found["differences"] == []
    assert any("the machines make the difference" in text for text in compared.sentences)


@pytest.mark.parametrize(
    ("override", "named"),
    [("batch.global=256", "global batch (128 to 256)"), ("precision=bf16", "precision (auto to")],
)
def test_another_recipe_is_named_instead_of_crediting_the_machines(
    tmp_path: Path, override: str, named: str
) -> None:
    one = stored_runs.one_of_a_pair(tmp_path / "one", 1)
    two = stored_runs.one_of_a_pair(tmp_path / "two", 2, override)
    text = " ".join(compare([read_run(one.path), read_run(two.path)]).sentences)
    assert named in text and "the machines alone do not explain the speed" in text


def test_another_version_of_software_is_named(tmp_path: Path) -> None:
    one = stored_runs.one_of_a_pair(tmp_path / "one", 1)
    two = stored_runs.one_of_a_pair(tmp_path / "two", 2)
    environment = json.loads(two.run.environment.read_text())
    environment["libraries"]["torch"] = "2.14.0"
    write_file(two.run.environment, json.dumps(environment))
    text = " ".join(compare([read_run(one.path), read_run(two.path)]).sentences)
    assert "libraries.torch (2.13.0 to 2.14.0)" in text


def test_the_same_run_twice_is_not_explained_by_machines(tmp_path: Path) -> None:
    one = stored_runs.one_of_a_pair(tmp_path / "one", 2)
    two = stored_runs.one_of_a_pair(tmp_path / "two", 2)
    text = " ".join(compare([read_run(one.path), read_run(two.path)]).sentences)
    assert "trained as many images a second" in text
    assert "software and machines are the same, and so is the CPU time" in text


def test_more_than_perfect_scaling_is_not_believed(tmp_path: Path) -> None:
    slow = {"compute": 2.0}
    one = StoredRun(tmp_path / "one", [slow], overrides=["steps=100"])
    two = StoredRun(tmp_path / "two", two_busy_ranks(), overrides=["steps=100"])
    for run in (one, two):
        run.begin()
        run.train(100)
    text = " ".join(compare([read_run(one.path), read_run(two.path)]).sentences)
    assert "more than perfect scaling, which is not believed" in text


def test_runs_that_count_different_things_are_not_compared(tmp_path: Path) -> None:
    one = stored_runs.one_of_a_pair(tmp_path / "one", 1)
    two = StoredRun(
        tmp_path / "two",
        two_busy_ranks(),
        overrides=["steps=100"],
        begin_facts={"unit": "target token"},
    )
    two.begin()
    two.train(100)
    compared = compare([read_run(one.path), read_run(two.path)])
    (opening,) = compared.opening
    assert "cannot be told" in opening and f"{two.path} target tokens" in opening
    assert compared.sentences == []
