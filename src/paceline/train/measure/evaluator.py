"""Scores of stored weights: `python -m paceline.train.measure.evaluator RUN CHECKPOINT SPLIT FORM`.

FORM is 'text', for people, or 'json'.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from paceline import recipe as recipes
from paceline.errors import EXIT_USER_ERROR, UserError
from paceline.lifetime import die_with_parent
from paceline.models.weights import load_weights
from paceline.record.schema import RunDirectory
from paceline.record.writer import EventFile
from paceline.settings import Recipe
from paceline.task_finder import find_task
from paceline.tasks.network import build_network
from paceline.terminal import REDRAW_SECONDS, StatusLine, can_redraw, printable, say_on_stderr
from paceline.train.precision import arithmetic_of_scores, scoring_in
from paceline.units import format_score, format_seconds
from paceline.world import join, settle_this_process


class EvaluationLine:
    """How far an evaluation is, where somebody looks on."""

    def __init__(self) -> None:
        self._line = StatusLine(sys.stderr) if can_redraw(sys.stderr) else None
        self._began = self._shown = time.monotonic()

    def show(self, num_done: int, num_samples: int) -> None:
        now = time.monotonic()
        if self._line is None or now - self._shown < REDRAW_SECONDS:
            return
        self._shown = now
        left = (now - self._began) / num_done * (num_samples - num_done)
        text = f"evaluated {num_done:,} of {num_samples:,}"
        text += f", {format_seconds(left)} left" if left else ", adding up"
        self._line.show(text, num_done / num_samples)

    def close(self) -> None:
        if self._line is not None:
            self._line.close()


def evaluate(run: RunDirectory, which: str, split: str) -> dict[str, Any]:
    weights = load_weights(run.path, which)
    recipe = recipes.from_run(run.recipe)
    say_on_stderr(f"evaluating {weights.name} of {run.path} on {split} data")
    world = join(_device_for(recipe), recipe.guard.group_seconds)
    workload = find_task(recipe.workload).open(recipe, world.device)
    model = build_network(workload)
    model.load_state_dict(weights.tensors)
    line = EvaluationLine()
    workload.on_progress = line.show
    with scoring_in(arithmetic_of_scores(recipe, world), world.device):
        scores = workload.score(model, split, world, final=True)
    line.close()
    return {
        "step": weights.step,
        "weights": weights.name,
        "split": split,
        "scores": scores.values,
        "signature": scores.signature,
    }


def _device_for(recipe: Recipe) -> str:
    """Weights of a run that asked for a GPU are scored where there is none as well."""
    return recipe.device if recipe.device == "cpu" else "auto"


def in_words(run: RunDirectory, result: dict[str, Any], seconds: float) -> str:
    scales = find_task(recipes.from_run(run.recipe).workload).score_scales
    scores = [format_score(n, value, scales.get(n)) for n, value in result["scores"].items()]
    return printable(
        "\n".join(
            [
                f"{run.path}, {result['weights']}, {result['split']} data:",
                *(f"  {score}" for score in scores),
                f"  measured as {result['signature']}",
                f"  took {format_seconds(seconds)}; `paceline report {run.path}` shows it too",
            ]
        )
    )


def main() -> None:
    die_with_parent()
    began = time.monotonic()
    run, which, split, form = RunDirectory(Path(sys.argv[1])), *sys.argv[2:5]
    try:
        settle_this_process(recipes.read_settings(run.recipe).get("deterministic") is True)
        result = evaluate(run, which, split)
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(EXIT_USER_ERROR)
    EventFile(run.evaluation_events, attempt=0).write("score", **result)
    text = in_words(run, result, time.monotonic() - began) if form == "text" else json.dumps(result)
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()
