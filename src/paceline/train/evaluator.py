"""Scores of a stored checkpoint: `python -m paceline.train.evaluator RUN CHECKPOINT SPLIT`."""

import json
import sys
from pathlib import Path

from safetensors.torch import load_file

from paceline import recipe as recipes
from paceline.errors import EXIT_USER_ERROR, UserError
from paceline.lifetime import die_with_parent
from paceline.record import checkpoints as stored
from paceline.record.schema import RunDirectory
from paceline.record.writer import EventFile
from paceline.train.environment import settle_this_process
from paceline.workload import Scores
from paceline.workloads import open_workload
from paceline.world import join


def evaluate_checkpoint(run: RunDirectory, checkpoint: Path, split: str) -> Scores:
    problem = stored.damage(checkpoint)
    if problem:
        raise UserError(f"damaged checkpoint: {problem}", "evaluate another with --checkpoint")
    recipe = recipes.from_run(run.recipe)
    world = join(recipe.device, recipe.guard.group_seconds)
    workload = open_workload(recipe, world.device)
    model = workload.build_model()
    average = checkpoint / stored.AVERAGE
    model.load_state_dict(load_file(average if average.exists() else checkpoint / stored.WEIGHTS))
    return workload.evaluate(model, split, world)


def main() -> None:
    die_with_parent()
    run, checkpoint, split = RunDirectory(Path(sys.argv[1])), Path(sys.argv[2]), sys.argv[3]
    settle_this_process()
    try:
        scores = evaluate_checkpoint(run, checkpoint, split)
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(EXIT_USER_ERROR)
    step = stored.step_of(checkpoint)
    record = {"split": split, "scores": scores.values, "signature": scores.signature}
    EventFile(run.evaluation_events, attempt=0).write("score", step=step, **record)
    sys.stdout.write(json.dumps({"step": step, **record}) + "\n")


if __name__ == "__main__":
    main()
