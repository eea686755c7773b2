"""`paceline launch slurm`, and handing in any job file."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.arguments import Parser, confirm, say
from paceline.errors import UserError

if TYPE_CHECKING:
    from paceline.jobfiles.request import Request
    from paceline.launch.batch.sbatch import SlurmJob


def add_slurm(parser: Parser) -> None:
    parser.add_argument("--time", default="24:00:00", help="limit of one go (default: 24:00:00)")
    parser.add_argument("--type", help="GPUs by Slurm's name (a100:4), or a feature of the nodes")
    parser.add_argument(
        "--spot", action="store_true", help="nodes that may be taken: name the partition"
    )
    parser.add_argument(
        "--array", metavar="1-4", help="one run per number; %%a in settings and --run is the number"
    )
    parser.add_argument("--name", help="of the job (default: the recipe's or script's)")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another option of sbatch, like partition=gpu",
    )


def launch_slurm(arguments: argparse.Namespace, script: list[str]) -> int:
    from paceline.jobfiles.request import Request, job_name
    from paceline.launch.batch.sbatch import ask_slurm, batch_script

    named = Path(arguments.recipe or script[0]).stem
    arguments.name = job_name(arguments.name or named)
    run = _run_directory(arguments, named)
    job = _script_job(arguments, script, run) if script else _recipe_job(arguments, run)
    text = batch_script(_with_machines(job, arguments))
    path = arguments.to or Path(f"{arguments.name}.sh") if arguments.submit else arguments.to
    if path is None:
        print(text, end="")
        return 0
    _make_directories(run, arguments.array)  # Slurm does not make them for its log
    if arguments.submit:
        return hand_in("slurm", Request(arguments.name, (), str(run)), path, text)
    write_new(path, text)
    path.chmod(0o755)
    if said := ask_slurm(path):
        say(said)
    say(f"wrote {path}; hand it in with: sbatch {path}")
    return 0


def _run_directory(arguments: argparse.Namespace, named: str) -> Path:
    from paceline.launch.batch.sbatch import ARRAY_NUMBER

    run: Path = (arguments.run or Path("runs") / named).absolute()
    if arguments.array and ARRAY_NUMBER not in str(run):
        run = run.with_name(f"{run.name}-{ARRAY_NUMBER}")
    if not arguments.array and any(
        ARRAY_NUMBER in word for word in (str(run), *arguments.settings)
    ):
        raise UserError(f"{ARRAY_NUMBER} stands for a number of an array", "add --array 1-4")
    return run


def _make_directories(run: Path, array: str | None) -> None:
    from paceline.launch.batch.sbatch import ARRAY_NUMBER, array_numbers

    for number in array_numbers(array) if array else [0]:
        Path(str(run).replace(ARRAY_NUMBER, str(number))).mkdir(parents=True, exist_ok=True)


def _recipe_job(arguments: argparse.Namespace, run: Path) -> "SlurmJob":
    from paceline import recipe
    from paceline.cli.words import understand
    from paceline.launch.batch.sbatch import ARRAY_NUMBER, SlurmJob, array_numbers
    from paceline.project import is_own
    from paceline.recipe import refuse_too_many_processes

    procs = arguments.procs or _gpus_in(arguments.type) or 1
    world = arguments.nodes * procs
    settings = understand(arguments.recipe, arguments.settings, lambda _: world, say)
    first = str(array_numbers(arguments.array)[0]) if arguments.array else ARRAY_NUMBER
    loaded = recipe.load(arguments.recipe, [s.replace(ARRAY_NUMBER, first) for s in settings])
    refuse_too_many_processes(loaded, world)
    words = (*_own_command(), "train", arguments.recipe, *settings, "--run", str(run))
    return SlurmJob(
        arguments.name,
        words,
        str(run),
        arguments.nodes,
        procs,
        devices_per_node=procs,
        device=loaded.device,
        directory=str(Path.cwd()) if is_own(loaded.workload) else None,
    )


def _script_job(arguments: argparse.Namespace, script: list[str], run: Path) -> "SlurmJob":
    """One task per host, which starts the processes there as torchrun does."""
    from paceline.launch.batch.sbatch import SlurmJob

    procs = arguments.procs or _gpus_in(arguments.type)
    chosen = ["--procs", str(procs)] if procs else []
    return SlurmJob(
        arguments.name,
        (*_own_command(), "run", "--run", str(run), *chosen, *script),
        str(run),
        arguments.nodes,
        tasks_per_node=1,
        devices_per_node=procs or 1,
        directory=str(Path.cwd()),
        goes_on=False,
    )


def _gpus_in(machine: str | None) -> int | None:
    from paceline.jobfiles.request import read_machine

    return read_machine(machine).num_accelerators or None


def _with_machines(job: "SlurmJob", arguments: argparse.Namespace) -> "SlurmJob":
    """What is asked of the nodes; preemption needs nothing more, as the job is put back anyway."""
    from paceline.jobfiles.request import read_machine
    from paceline.launch.batch.sbatch import array_numbers, find_gpus_per_node

    if arguments.spot and not any(o.startswith(("partition=", "qos=")) for o in arguments.option):
        raise UserError(
            "which nodes of Slurm may be taken away is a matter of the partition or the QOS",
            "--option partition=NAME or --option qos=NAME (sinfo and sacctmgr list them)",
        )
    machine = read_machine(arguments.type)
    feature = (f"constraint={machine.type}",) if machine.type else ()
    if arguments.array:
        array_numbers(arguments.array)
    return replace(
        job,
        time_limit=arguments.time,
        options=(*feature, *arguments.option),
        gpu_kind=machine.accelerator,
        gpus_per_node=None if machine.accelerator else find_gpus_per_node(arguments.option),
        array=arguments.array,
    )


def hand_in(kind: str, request: "Request", path: Path, text: str) -> int:
    """Written, shown, asked; the engine's own command then gets it."""
    from paceline.jobfiles.submit import engine_of, submit

    engine = engine_of(kind, request)
    write_new(path, text)
    print(text, end="", flush=True)
    instead = "hand the file in with the command in its first lines"
    return submit(engine, path, lambda question: confirm(question, instead), say)


def write_new(path: Path, text: str) -> None:
    """A file that holds something else is the user's and stays."""
    if path.is_dir():
        raise UserError(f"{path} is a directory", f"name a file in it: --to {path / 'job.yaml'}")
    try:
        if path.exists() and path.read_text(encoding="utf-8", errors="replace") != text:
            raise UserError(f"{path} exists and holds something else", "--to FILE names another")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"cannot write {path}: {reason}", "--to FILE names another") from error


def _own_command() -> tuple[str, ...]:
    program = Path(sys.argv[0])
    if program.name == "__main__.py":  # started as `python -m paceline.cli`
        return sys.executable, "-m", "paceline.cli"
    return (str(program.absolute()),)
