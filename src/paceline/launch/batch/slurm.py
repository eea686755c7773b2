"""The batch script for a run under Slurm, written from a recipe that has been checked.

`srun paceline train` is all that training needs (see `mpi.py`); the script adds what days of
training need: going back into the queue when the node fails or the time is over, and a signal early
enough to save before that.
"""

import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import UserError
from paceline.settings import Recipe


@dataclass(frozen=True)
class SlurmJob:
    recipe_words: list[str]
    """The recipe and its settings as on the command line."""
    run: str
    num_nodes: int
    procs_per_node: int
    time_limit: str
    options: list[str]
    """More lines for sbatch, like 'partition=gpu'."""
    command: tuple[str, ...] = ("paceline",)


_SAVE_SECONDS = 120
"""How long before the time limit Slurm sends the signal: a step, and a checkpoint."""


def batch_script(job: SlurmJob, recipe: Recipe) -> str:
    """A script that starts the run, and starts it again from its newest checkpoint."""
    _check(job, recipe)
    name = recipe.workload if not job.recipe_words else job.recipe_words[0].rpartition("/")[2]
    directives = [
        f"job-name=paceline-{name.removesuffix('.yaml')}",
        f"nodes={job.num_nodes}",
        f"ntasks-per-node={job.procs_per_node}",
        *([f"gpus-per-node={job.procs_per_node}"] if recipe.device == "cuda" else []),
        f"time={job.time_limit}",
        "requeue",
        "open-mode=append",
        f"signal=B:USR1@{_SAVE_SECONDS}",
        f"output={job.run}/slurm-%j.log",
        *job.options,
    ]
    train = shlex.join([*job.command, "train", *job.recipe_words, "--run", job.run])
    return _TEMPLATE.format(
        directives="\n".join(f"#SBATCH --{line}" for line in directives),
        train=train,
        seconds=_SAVE_SECONDS,
        failed_at=shlex.quote(f"{job.run}/.slurm-failed"),
        checkpoints=shlex.quote(f"{job.run}/checkpoints"),
    )


def ask_slurm(script: Path) -> str | None:
    """What Slurm itself would say to the script; None where there is no Slurm."""
    if shutil.which("sbatch") is None:
        return None
    asked = subprocess.run(
        ["sbatch", "--test-only", str(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    said = (asked.stderr or asked.stdout).strip()
    if asked.returncode:
        raise UserError(f"Slurm would not take {script}: {said}", "change the options, or --time")
    return said


def _check(job: SlurmJob, recipe: Recipe) -> None:
    size = job.num_nodes * job.procs_per_node
    whole = recipe.batch.global_
    if whole is not None and recipe.batch.micro is not None and whole // recipe.batch.micro < size:
        raise UserError(
            f"a step has {whole // recipe.batch.micro} micro-batches, too few for {size} processes",
            "lower batch.micro, raise batch.global, or ask for fewer nodes",
        )
    for option in job.options:
        if option.startswith("-") or "\n" in option:
            raise UserError(
                f"'{option}' is not an option of sbatch as it is written here",
                "leave out the dashes: partition=gpu",
            )
    if not job.run.startswith("/"):
        raise UserError(
            f"the run directory {job.run} depends on where the job starts",
            "give --run an absolute path on storage that all nodes share",
        )


_TEMPLATE = """#!/bin/bash
{directives}

# {seconds} s before the time is over Slurm sends SIGUSR1 to this script alone. The processes then
# get SIGTERM, save a checkpoint together and end, and the job goes back into the queue; so it does
# when a node fails or is taken away. The same command goes on from the newest checkpoint.
again() {{
    echo "time is over: saving, then back into the queue"
    scancel --signal=TERM "$SLURM_JOB_ID"
    wait "$srun"
    scontrol requeue "$SLURM_JOB_ID"
    exit 0
}}
trap again USR1

srun --kill-on-bad-exit=1 {train} &
srun=$!
wait "$srun"
code=$?

# 2 is a mistake that the message explains, so trying again would not help; nor would it, if since
# the last failure no checkpoint was made.
failed_at={failed_at}
newest="after $(ls {checkpoints} 2>/dev/null | grep '^step-' | tail -n 1)"
if [ "$code" -ne 0 ] && [ "$code" -ne 2 ] && [ "$newest" != "$(cat "$failed_at" 2>/dev/null)" ]
then
    echo "$newest" > "$failed_at"
    echo "ended with code $code, $newest: back into the queue"
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"""
