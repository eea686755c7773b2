"""Going on with a run: what is refused, what is said, and that nothing trained protects nothing."""

import re
from pathlib import Path

import pytest

from paceline import config, recipe
from paceline.launch.going_on import RatePlan, rate_change_in_words
from paceline.record.schema import RunDirectory
from paceline.schedule import ScheduleSettings
from paceline.task_finder import find_task, task_names
from tests.conftest import FINISHED, CommandLine

ONE_CYCLE = ScheduleSettings(policy="one-cycle", rate=0.4, peak_at=0.2)
FIXED = ScheduleSettings(policy="fixed", rate=0.1)
DOCS = Path(__file__).parents[1] / "docs" / "training.md"


def test_more_steps_of_a_one_cycle_schedule_warn_of_the_jump_and_name_a_smooth_way() -> None:
    said = rate_change_in_words(RatePlan(ONE_CYCLE, 60), RatePlan(ONE_CYCLE, 120), 60)
    assert said is not None
    assert "jumps from 0.008163 (step 60) to 0.2474 (step 61)" in said
    assert "'one-cycle' spreads over all steps of the run, and these change from 60 to 120" in said
    assert "then: 0.2474 at step 61, 0.004124 at step 120" in said
    assert "schedule.policy=fixed schedule.rate=0.008163" in said
    assert "begin anew with steps=120 in another --run" in said


def test_the_smooth_way_that_is_offered_is_smooth() -> None:
    stay = ScheduleSettings(policy="fixed", rate=0.008163)
    old, new = RatePlan(ONE_CYCLE, 60), RatePlan(stay, 120)
    said = rate_change_in_words(old, new, 60)
    assert said is not None and "warning" not in said
    # The first warning was heeded with Ctrl-C: the run's recipe already has 120 steps.
    said = rate_change_in_words(RatePlan(ONE_CYCLE, 120), new, 60, recorded=old.at(60))
    assert said is not None and "warning" not in said


def test_a_jump_is_told_again_as_long_as_it_has_not_happened() -> None:
    plan = RatePlan(ONE_CYCLE, 120)
    said = rate_change_in_words(plan, plan, 60, recorded=0.008)
    assert said is not None and "jumps from 0.008 (step 60)" in said


@pytest.mark.parametrize("step", [1, 30, 59])
def test_the_same_plan_says_nothing(step: int) -> None:
    plan = RatePlan(ONE_CYCLE, 60)
    assert rate_change_in_words(plan, plan, step, recorded=plan.at(step)) is None


def test_more_steps_at_a_fixed_rate_are_no_reason_for_a_warning() -> None:
    said = rate_change_in_words(RatePlan(FIXED, 60), RatePlan(FIXED, 120), 40)
    assert said is None


def test_a_rate_that_ends_elsewhere_without_a_jump_is_told_and_not_warned_of() -> None:
    halves = ScheduleSettings(policy="piecewise", rate=0.1, boundaries=[80])
    said = rate_change_in_words(RatePlan(FIXED, 100), RatePlan(halves, 100), 40)
    assert said is not None and "warning" not in said
    assert "0.01 at step 100 (planned before: 0.1 at step 41, 0.1 at step 100)" in said


def test_a_finished_run_says_so_and_fewer_steps_are_refused(
    paceline: CommandLine, finished_run: Path
) -> None:
    run = RunDirectory(paceline.copy(finished_run, "runs/a"))
    before = run.launcher_events.read_bytes()

    again = paceline.train("runs/a", *FINISHED, procs=1)
    assert again.returncode == 0
    assert "runs/a is finished: all 12 steps are trained" in again.stderr
    assert "--procs 1 steps=24" in again.stderr
    assert run.launcher_events.read_bytes() == before

    fewer = paceline.train("runs/a", "steps=3", procs=1)
    assert fewer.returncode == 2
    assert "has been trained for 12 steps already, and steps=3 is less" in fewer.stderr

    other_task = paceline("train", "nmt-tiny", "--run", "runs/a")
    assert other_task.returncode == 2
    assert "another task: it trains cifar10, and this recipe trains nmt" in other_task.stderr

    more = paceline.train("runs/a", "steps=24", procs=1)
    assert more.returncode == 0
    assert "warning: the learning rate jumps from" in more.stderr


def test_a_start_that_fails_leaves_nothing_behind(paceline: CommandLine) -> None:
    failed = paceline.train("runs/a", "precision=fp16", procs=1)  # a worker finds that out
    assert failed.returncode == 2
    assert "fp16" in failed.stderr
    assert not (paceline.cwd / "runs/a").exists()
    assert str(paceline.cwd) not in paceline("runs").stdout


def test_a_start_that_fails_leaves_the_recipe_of_a_user_as_it_was(paceline: CommandLine) -> None:
    mine = paceline.cwd / "mine" / "recipe.yaml"
    mine.parent.mkdir()
    text = "# my notes\nworkload: cifar10\nsteps: 3\nbatch: {global: 8, micro: 8}\n"
    mine.write_text(text, encoding="utf-8")
    words = [f"data={paceline.data}", "precision=fp16", "--run", "mine", "--procs", "1"]
    failed = paceline("train", "mine/recipe.yaml", *words)
    assert failed.returncode == 2
    assert mine.read_text(encoding="utf-8") == text


def test_what_a_killed_start_left_refuses_no_other_seed(paceline: CommandLine) -> None:
    """As of a launcher that was killed before the first step, or of an earlier version."""
    run = RunDirectory(paceline.cwd / "runs/a")
    run.path.mkdir(parents=True)
    first = recipe.load("cifar10-tiny", ["seed=1"])
    run.recipe.write_text(config.to_yaml(config.dump(first)), encoding="utf-8")
    assert re.search(r"runs/a +interrupted +step 0/400 +[0-9.]+ m?s ago", paceline("runs").stdout)
    done = paceline.train("runs/a", "seed=2", "steps=1", procs=1)
    assert done.returncode == 0, done.stderr
    assert "goes on" not in done.stderr
    assert recipe.from_run(run.recipe).seed == 2


def test_a_run_with_steps_but_without_a_checkpoint_keeps_its_seed(paceline: CommandLine) -> None:
    run = RunDirectory(paceline.cwd / "runs/a")
    run.events.mkdir(parents=True)
    first = recipe.load("cifar10-tiny", ["seed=1"])
    run.recipe.write_text(config.to_yaml(config.dump(first)), encoding="utf-8")
    line = '{"kind": "steps", "time": 1.0, "attempt": 1, "step": 3, "num_steps": 3, "loss": 2.0, '
    line += '"rate": 0.1, "num_units": 96, "seconds": 1.0, "phases": {}}\n'
    run.rank_events(0).write_text(line, encoding="utf-8")
    refused = paceline.train("runs/a", "seed=2", "batch.micro=32", procs=1)
    assert refused.returncode == 2
    assert "seed: 1 -> 2" in refused.stderr
    assert run.recipe.exists()


def documented(heading: str) -> set[str]:
    """The settings that one of the two lists in the docs names."""
    text = DOCS.read_text(encoding="utf-8")
    section = text.partition(f"### {heading}")[2].partition("###")[0].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([a-z0-9_.*]+)`", row.split("|")[1])}


def names_of(task: str) -> tuple[set[str], set[str]]:
    kind = find_task(task).recipe_class
    fixed = set(config.fixed_names(kind))
    return fixed, set(config.setting_names(kind, groups=False)) - fixed


def covers(listed: set[str], name: str) -> bool:
    return name in listed or f"{name.rpartition('.')[0]}.*" in listed


@pytest.mark.parametrize("task", task_names())
def test_the_docs_list_what_may_change_and_what_may_not(task: str) -> None:
    stays, changes = documented("What stays"), documented("What may change")
    fixed, free = names_of(task)
    assert [name for name in fixed if not covers(stays, name) or name in changes] == []
    assert [name for name in free - {"data"} if not covers(changes, name) or name in stays] == []


def test_the_docs_list_no_setting_that_does_not_exist() -> None:
    known = {name for task in task_names() for group in names_of(task) for name in group}
    known |= {f"{name.rpartition('.')[0]}.*" for name in known}
    assert documented("What stays") | documented("What may change") <= known


def test_a_run_that_has_steps_but_no_checkpoint_has_no_rate_to_compare() -> None:
    """It begins again at step 0, which is no step that has a rate."""
    schedule = ScheduleSettings(policy="fixed", rate=0.1, warmup_steps=0)
    plan = RatePlan(schedule, 100)
    assert rate_change_in_words(plan, RatePlan(schedule, 200), 0) is None
