"""The batch script of a job for Slurm.

`srun paceline train` is all that training needs; the script adds what days of training need: going
back into the queue when the node fails or the time is over, and a signal early enough to save
before that.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import UserError

ARRAY_NUMBER = "%a"
"""Stands for the number of an array's task, in settings and paths; Slurm's own sign for it."""
_SAVE_SECONDS = 120
"""How long before the time limit Slurm sends the signal: a step, and a checkpoint."""


@dataclass(frozen=True)
class SlurmJob:
    name: str
    command: tuple[str, ...]
    """What every task runs."""
    run: str
    num_nodes: int
    tasks_per_node: int
    time_limit: str = "24:00:00"
    options: tuple[str, ...] = ()
    """More lines for sbatch, like 'partition=gpu'."""
    devices_per_node: int = 1
    """GPUs, where they are wanted."""
    device: str = "auto"
    """As in a recipe: auto, cuda or cpu."""
    gpus_per_node: int | None = None
    """Of the nodes where it will run; None where Slurm could not be asked."""
    gpu_kind: str | None = None
    """As Slurm calls it: a100."""
    array: str | None = None
    directory: str | None = None
    """Where the user's code is."""
    goes_on: bool = True
    """Started again it goes on from a checkpoint, so that a failure may be tried again."""


def batch_script(job: SlurmJob) -> str:
    """A script that starts the job, and starts it again where that helps."""
    _check(job)
    lines = [
        f"job-name=paceline-{job.name}",
        f"nodes={job.num_nodes}",
        f"ntasks-per-node={job.tasks_per_node}",
        f"time={job.time_limit}",
        "requeue",
        "open-mode=append",
        f"signal=B:USR1@{_SAVE_SECONDS}",
        f"output={job.run}/slurm-%j.log",
        *([f"array={job.array}"] if job.array else []),
        *([f"chdir={job.directory}"] if job.directory else []),
        *job.options,
    ]
    again = _TRY_AGAIN.format(
        failed_at=_quoted(f"{job.run}/.slurm-failed"),
        checkpoints=_quoted(f"{job.run}/checkpoints"),
    )
    return _TEMPLATE.format(
        num_nodes=job.num_nodes,
        name=job.name,
        directives="\n".join([*(f"#SBATCH --{line}" for line in lines), *_gpu_lines(job)]),
        command=" ".join(_quoted(word) for word in job.command),
        seconds=_SAVE_SECONDS,
        going_on=_GOES_ON if job.goes_on else _BEGINS_AGAIN,
        again=again if job.goes_on else "",
    )


def _quoted(word: str) -> str:
    """For the shell, which fills in the number of an array's task."""
    parts = [shlex.quote(part) if part else "" for part in word.split(ARRAY_NUMBER)]
    return '"$SLURM_ARRAY_TASK_ID"'.join(parts) or "''"


def array_numbers(array: str) -> list[int]:
    """'0-6:2,9%2' are the tasks 0, 2, 4, 6 and 9, of which two run at a time."""
    listed, _, at_once = array.partition("%")
    found: list[int] = []
    for part in listed.split(","):
        match = re.fullmatch(r"([0-9]+)(?:-([0-9]+)(?::([1-9][0-9]*))?)?", part)
        if match is None or not re.fullmatch(r"[0-9]*", at_once):
            raise UserError(f"--array {array} names no tasks", "like 1-4, 0-8:2, 1,3,7 or 1-99%4")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        found += range(first, last + 1, step)
    return found


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


def _gpu_lines(job: SlurmJob) -> list[str]:
    """A device for each process, unless the recipe or the user's own options say otherwise."""
    kind = f"{job.gpu_kind}:" if job.gpu_kind else ""
    wanted = f"SBATCH --gpus-per-node={kind}{job.devices_per_node}"
    asked = any(re.match(r"gpus|gres=gpu|tres-per-task=.*gpu", option) for option in job.options)
    if job.device == "cpu" or asked:
        return []
    if job.device == "cuda" or job.gpus_per_node or job.gpu_kind:
        return [f"#{wanted}"]
    if job.gpus_per_node == 0:
        return ["# The nodes of this partition have no GPUs, so the run trains on their CPUs."]
    return [
        "# Slurm could not be asked whether its nodes have GPUs. Where they do, take a # away",
        "# from the next line, or the run trains on CPUs:",
        f"##{wanted}",
    ]


def _check(job: SlurmJob) -> None:
    if job.device != "cpu" and 0 < (job.gpus_per_node or 0) < job.devices_per_node:
        raise UserError(
            f"the nodes have {job.gpus_per_node} GPUs, too few for {job.devices_per_node} "
            "processes",
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


_GOES_ON = "The same command goes on from the newest checkpoint."
_BEGINS_AGAIN = "The script begins again then, and must itself go on from what it has saved."

_TEMPLATE = """#!/bin/bash
# Slurm: {num_nodes} nodes
# hand in:    sbatch FILE
# end early:  scancel --name=paceline-{name}   (nodes are given back with the end of the job)
{directives}

# {seconds} s before the time is over Slurm sends SIGUSR1 to this script alone. The processes then
# get SIGTERM, save and end, and the job goes back into the queue; so it does when a node fails or
# is taken away. {going_on}
# Of an array, one task has the number of the whole array: by the longer name only itself is meant.
job=${{SLURM_ARRAY_JOB_ID:+${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID}}
job=${{job:-$SLURM_JOB_ID}}
again() {{
    echo "time is over: saving, then back into the queue"
    scancel --signal=TERM "$job"
    wait "$srun"
    scontrol requeue "$job"
    exit 0
}}
trap again USR1

srun --kill-on-bad-exit=1 {command} &
srun=$!
wait "$srun"
code=$?
{again}exit "$code"
"""

_TRY_AGAIN = """
# 2 is a mistake that the message explains, so trying again would not help; nor would it, if since
# the last failure no checkpoint was made.
failed_at={failed_at}
newest="after $(ls {checkpoints} 2>/dev/null | grep '^step-' | tail -n 1)"
if [ "$code" -ne 0 ] && [ "$code" -ne 2 ] && [ "$newest" != "$(cat "$failed_at" 2>/dev/null)" ]
then
    echo "$newest" > "$failed_at"
    echo "ended with code $code, $newest: back into the queue"
    scontrol requeue "$job"
fi
"""
