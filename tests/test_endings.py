"""Every end says what came of it: finished runs, evaluations, and scores with their scale."""

import json
from pathlib import Path

import pytest
import torch

from paceline import recipe
from paceline.task_finder import find_task
from paceline.units import Scale, format_score, format_scores
from paceline.world import join
from tests.conftest import CommandLine

TOP1, BLEU = Scale("top-1", "1, as %"), Scale("BLEU", "100")


@pytest.mark.parametrize(
    ("value", "scale", "shown"),
    [
        (0.92314, TOP1, "top-1 92.31 %"),
        (1.0, TOP1, "top-1 100.00 %"),
        (38.64, BLEU, "BLEU 38.6 of 100"),
        (0.04, BLEU, "BLEU 0.04 of 100"),
        (float("nan"), BLEU, "BLEU ?"),
        (0.21339, None, "loss 0.2134"),
    ],
)
def test_a_score_is_written_with_its_scale(value: float, scale: Scale | None, shown: str) -> None:
    assert format_score("loss", value, scale) == shown


def test_every_task_says_the_scale_of_its_scores() -> None:
    shown = {
        name: format_scores({"top1": 0.5, "bleu": 20.0, "loss": 1.0}, find_task(name).score_scales)
        for name in ("cifar10", "imagenet", "nmt")
    }
    assert shown["cifar10"] == shown["imagenet"] == "top-1 50.00 %, bleu 20.0000, loss 1.0000"
    assert shown["nmt"] == "top1 0.5000, BLEU 20.0 of 100, loss 1.0000"


def test_a_finished_run_says_how_long_how_good_where_and_what_next(paceline: CommandLine) -> None:
    done = paceline.train("runs/a", "steps=4", "evaluate.every_steps=2", procs=1)
    assert done.returncode == 0, done.stderr
    ending = done.stderr.partition("finished: 4 steps in ")[2].splitlines()
    assert ending[0].endswith(" s")
    assert ending[1].startswith("  top-1 ") and " % on validation data" in ending[1]
    assert ending[2] == "  the run is in runs/a; next:"
    assert ending[3].split("#")[0].strip() == "paceline report runs/a"
    assert ending[4].split("#")[0].strip() == "paceline evaluate runs/a --split test"
    assert "0.0 ms left" not in done.stderr

    told = paceline("evaluate", "runs/a", "--split", "test")
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("runs/a, step ")
    assert "\n  top-1 " in told.stdout and " %\n" in told.stdout
    as_json = paceline("evaluate", "runs/a", "--split", "test", "--json")
    values = json.loads(as_json.stdout)["scores"]
    assert f"top-1 {100 * values['top1']:.2f} %" in told.stdout

    more = ["steps=6", "evaluate.every_steps=null", "schedule.policy=fixed"]
    again = paceline.train("runs/a", *more, procs=1)
    assert " in all, over 2 starts\n" in again.stderr


def test_a_run_without_evaluations_says_so(paceline: CommandLine) -> None:
    done = paceline.train("runs/a", "steps=1", "evaluate.every_steps=null", procs=1)
    assert "not scored while training; `paceline evaluate`" in done.stderr


def test_an_evaluation_tells_how_far_it_is(pictures: Path) -> None:
    loaded = recipe.load("cifar10-tiny", [f"data={pictures}", "evaluate.batch=64"])
    task = find_task(loaded.workload).open(loaded, torch.device("cpu"))
    told: list[tuple[int, int]] = []
    task.on_progress = lambda done, total: told.append((done, total))
    task.score(task.build_model(), "validation", join("cpu", 60.0))
    assert told == [(64, 200), (128, 200), (192, 200), (200, 200)]
