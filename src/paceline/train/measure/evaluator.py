"""Scores of stored weights: `python -m paceline.train.measure.evaluator RUN CHECKPOINT SPLIT`."""

import json
import sys
from pathlib import Path

from paceline import recipe as recipes
from paceline.errors import EXIT_USER_ERROR, UserError
from paceline.lifetime import die_with_parent
from paceline.models.weights import load_weights
from paceline.record.schema import RunDirectory
from paceline.record.writer import EventFile
from paceline.task_finder import find_task
from paceline.tasks.network import build_network
from paceline.world import join, settle_this_process


def evaluate(run: RunDirectory, which: str, split: str) -> dict[str, object]:
    weights = load_weights(run.path, which)
    recipe = recipes.from_run(run.recipe)
    world = join(recipe.device, recipe.guard.group_seconds)
    workload = find_task(recipe.workload).open(recipe, world.device)
    model = build_network(workload)
    model.load_state_dict(weights.tensors)
    scores = workload.score(model, split, world, final=True)
    return {
        "step": weights.step,
        "weights": weights.name,
        "split": split,
        "scores": scores.values,
        "signature": scores.signature,
    }


def main() -> None:
    die_with_parent()
    run, which, split = RunDirectory(Path(sys.argv[1])), sys.argv[2], sys.argv[3]
    settle_this_process()
    try:
        result = evaluate(run, which, split)
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(EXIT_USER_ERROR)
    EventFile(run.evaluation_events, attempt=0).write("score", **result)
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
