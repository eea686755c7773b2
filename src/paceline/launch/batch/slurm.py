"""Slurm: what srun tells the processes that it starts, and the batch script for a run.

`srun paceline train` is all that training needs; the script adds what days of training need: going
back into the queue when the node fails or the time is over, and a signal early enough to save
before that.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import UserError
from paceline.hosts.importing import expand_nodes
from paceline.launch.batch.place import Place, read_master, read_number
from paceline.project import is_own
from paceline.recipe import refuse_too_many_processes
from paceline.settings import Recipe

_NOT_STARTED_BY_SRUN = ("4294967290", "4294967291")
"""Slurm's numbers for an interactive shell and for a batch script."""


def has_started(variables: Mapping[str, str]) -> bool:
    """In the batch script itself only Slurm's job exists; its one process starts the others."""
    step = variables.get("SLURM_STEP_ID")
    return "SLURM_PROCID" in variables and step is not None and step not in _NOT_STARTED_BY_SRUN


def read_place(variables: Mapping[str, str]) -> Place:
    job = f"{variables.get('SLURM_JOB_ID', '')}.{variables['SLURM_STEP_ID']}"
    restarts = variables.get("SLURM_RESTART_COUNT", "0")
    nodes = variables.get("SLURM_STEP_NODELIST", variables.get("SLURM_JOB_NODELIST", ""))
    here = variables.get("SLURMD_NODENAME")
    return Place(
        source="srun",
        rank=read_number(variables, "SLURM_PROCID"),
        size=read_number(
            variables, "SLURM_STEP_NUM_TASKS", read_number(variables, "SLURM_NTASKS", 1)
        ),
        local_rank=read_number(variables, "SLURM_LOCALID", 0),
        local_size=tasks_here(variables),
        job=f"{job}.{restarts}",
        master=read_master(variables),
        other_hosts=tuple(node for node in expand_nodes(nodes) if node != here),
    )


def tasks_here(variables: Mapping[str, str]) -> int:
    """Slurm counts tasks per node as '2(x3),1': twice three nodes, then one."""
    text = variables.get("SLURM_STEP_TASKS_PER_NODE", variables.get("SLURM_TASKS_PER_NODE", "1"))
    node = read_number(variables, "SLURM_NODEID", 0)
    counts: list[int] = []
    for part in text.split(","):
        tasks, _, times = part.rstrip(")").partition("(x")
        counts += [int(tasks)] * int(times or "1")
    return counts[node] if node < len(counts) else 1


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
    gpus_per_node: int | None = None
    """Of the nodes where it will run; None where Slurm could not be asked."""


_SAVE_SECONDS = 120
"""How long before the time limit Slurm sends the signal: a step, and a checkpoint."""


def batch_script(job: SlurmJob, recipe: Recipe) -> str:
    """A script that starts the run, and starts it again from its newest checkpoint."""
    _check(job, recipe)
    name = (job.recipe_words or [recipe.workload])[0].rpartition("/")[2]
    lines = [
        f"job-name=paceline-{name.removesuffix('.yaml')}",
        f"nodes={job.num_nodes}",
        f"ntasks-per-node={job.procs_per_node}",
        f"time={job.time_limit}",
        "requeue",
        "open-mode=append",
        f"signal=B:USR1@{_SAVE_SECONDS}",
        f"output={job.run}/slurm-%j.log",
        *([f"chdir={Path.cwd()}"] if is_own(recipe.workload) else []),  # where the user's code is
        *job.options,
    ]
    train = shlex.join([*job.command, "train", *job.recipe_words, "--run", job.run])
    return _TEMPLATE.format(
        directives="\n".join([*(f"#SBATCH --{line}" for line in lines), *_gpu_lines(job, recipe)]),
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


def find_gpus_per_node(options: Sequence[str]) -> int | None:
    """Of the best node in the job's partition; None where Slurm cannot be asked."""
    named = [o.partition("=")[2] for o in options if o.startswith("partition=")]
    partition = named[-1] if named else os.environ.get("SBATCH_PARTITION")
    words = ["sinfo", "--noheader", "--format=%P|%G"]
    try:
        asked = subprocess.run(
            [*words, f"--partition={partition}"] if partition else words,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return gpus_in(asked.stdout, of_default=partition is None)


def gpus_in(sinfo: str, of_default: bool) -> int | None:
    """Lines are 'gpu*|gpu:a100:4(S:0-1)'; the star marks the default partition."""
    rows = [line.strip().split("|", 1) for line in sinfo.splitlines() if "|" in line]
    own = [gres for name, gres in rows if name.endswith("*") or not of_default]
    return max((_num_gpus(gres) for gres in own), default=None)


def _num_gpus(gres: str) -> int:
    entries = [entry.split(":") for entry in re.sub(r"\([^)]*\)", "", gres).split(",")]
    counts = [words[-1] for words in entries if words[0] == "gpu"]
    return sum(int(count) if count.isdecimal() else 1 for count in counts)


def _gpu_lines(job: SlurmJob, recipe: Recipe) -> list[str]:
    """A device for each process, unless the recipe or the user's own options say otherwise."""
    wanted = f"SBATCH --gpus-per-node={job.procs_per_node}"
    asked = any(re.match(r"gpus|gres=gpu|tres-per-task=.*gpu", option) for option in job.options)
    if recipe.device == "cpu" or asked:
        return []
    if recipe.device == "cuda" or job.gpus_per_node:
        return [f"#{wanted}"]
    if job.gpus_per_node == 0:
        return ["# The nodes of this partition have no GPUs, so the run trains on their CPUs."]
    return [
        "# Slurm could not be asked whether its nodes have GPUs. Where they do, take a # away",
        "# from the next line, or the run trains on CPUs:",
        f"##{wanted}",
    ]


def _check(job: SlurmJob, recipe: Recipe) -> None:
    refuse_too_many_processes(recipe, job.num_nodes * job.procs_per_node)
    if recipe.device != "cpu" and 0 < (job.gpus_per_node or 0) < job.procs_per_node:
        raise UserError(
            f"the nodes have {job.gpus_per_node} GPUs, too few for {job.procs_per_node} processes",
            f"--procs {job.gpus_per_node}, another partition, or device=cpu",
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
