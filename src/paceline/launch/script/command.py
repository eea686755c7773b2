"""From what the user typed to the processes of a script, and the mistakes that show beforehand."""

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import UserError
from paceline.launch.batch.engines import Node
from paceline.launch.script.environment import observer_directory
from paceline.machine.devices import num_visible_devices

_PYTHON = re.compile(r"python(\d+(\.\d+)?)?")
_PROGRAMS = ("-m", "-c", "-")
_INTERPRETERS = ("python", "python3", "torchrun", "accelerate", "deepspeed", "lightning", "srun")


@dataclass(frozen=True)
class ScriptCommand:
    words: tuple[str, ...]
    """The process to start."""
    script: str
    """What is observed, as the user knows it: a path, `-m package` or the whole command."""
    arguments: tuple[str, ...]
    num_procs: int | None = None

    @property
    def name(self) -> str:
        """For a run directory."""
        last = self.script.removeprefix("-m ").split()[0]
        return Path(last).stem or "script"


def script_command(
    words: Sequence[str],
    is_whole: bool,
    num_procs: int | None,
    python: str,
    node: Node | None = None,
) -> ScriptCommand:
    """`is_whole`: the words came after `--` and are a command of their own. `node`: this is one
    host of several, as the engine that started it says."""
    if not words:
        raise UserError("no script is named", "paceline run train.py")
    if is_whole:
        return _whole_command(words, num_procs)
    script, *arguments = words
    if script == "-m":
        if not arguments:
            raise UserError("-m needs the name of a module", "paceline run -m package.train")
        script, arguments = f"-m {arguments[0]}", arguments[1:]
        target = script.split()
    else:
        refuse_no_script(Path(script))
        target = [script]
    if num_procs is None and node is not None:
        num_procs = node.num_procs or max(1, num_visible_devices())
    start = [python] if num_procs is None else torchrun_words(python, num_procs, node)
    return ScriptCommand((*start, *target, *arguments), script, tuple(arguments), num_procs)


def torchrun_words(python: str, num_procs: int, node: Node | None = None) -> list[str]:
    """As `torchrun --nproc-per-node N` starts them, on a free port; or where all hosts meet."""
    start = [python, "-m", "torch.distributed.run", f"--nproc-per-node={num_procs}"]
    if node is None:
        return [*start, "--standalone"]
    meeting = [f"--master-addr={node.address}", f"--master-port={node.port}"]
    return [*start, f"--nnodes={node.count}", f"--node-rank={node.rank}", *meeting]


def _whole_command(words: Sequence[str], num_procs: int | None) -> ScriptCommand:
    if num_procs is not None:
        raise UserError(
            "--procs and a command after `--` exclude each other",
            "give the number of processes to that command, as torchrun --nproc-per-node",
        )
    if shutil.which(words[0]) is None:
        raise UserError(f"there is no command {words[0]}", "is its environment active?")
    started = reach_isolated(words)
    scripts = [word for word in words[1:] if word.endswith(".py")]
    script = scripts[0] if scripts else " ".join(words[:4])
    place = words.index(scripts[0]) + 1 if scripts else len(words)
    return ScriptCommand(started, script, tuple(words[place:]))


def reach_isolated(words: Sequence[str]) -> tuple[str, ...]:
    """`python -I train.py` ignores the variables through which a process is observed: there the
    observer's own file is started in the script's place, and runs the script."""
    for place, word in enumerate(words):
        if _PYTHON.fullmatch(Path(word).name):
            end = _end_of_flags(words, place + 1)
            flags = [w for w in words[place + 1 : end] if re.fullmatch(r"-[A-Za-z]+", w)]
            is_isolated = any(set("IES") & set(re.split("[WX]", flag)[0]) for flag in flags)
            if is_isolated and end < len(words) and words[end] not in ("-c", "-"):
                starter = str(observer_directory() / "site" / "isolated.py")
                return (*words[:end], starter, *words[end:])
            break
    return tuple(words)


def _end_of_flags(words: Sequence[str], place: int) -> int:
    """Where an interpreter's own flags end: at a script, `-m` or `-c`."""
    while place < len(words) and words[place].startswith("-") and words[place] not in _PROGRAMS:
        place += 2 if words[place] in ("-W", "-X") else 1
    return place


def refuse_no_script(path: Path) -> None:
    if path.is_dir():
        if (path / "__main__.py").is_file():
            return
        raise UserError(f"{path} is a folder", "name the script in it")
    if not path.exists():
        raise UserError(f"there is no script {path}", _instead(path))
    if path.suffix in (".yaml", ".yml"):
        raise UserError(
            f"{path} is no Python script", f"a recipe is trained with: paceline train {path}"
        )
    if path.suffix in (".sh", ".bash"):
        raise UserError(f"{path} is no Python script", f"paceline run -- bash {path}")
    if not _is_text(path):
        raise UserError(
            f"{path} is no Python script: it holds no text",
            "for a program, give the whole command: paceline run -- ./program",
        )


def _instead(path: Path) -> str:
    if str(path) in _INTERPRETERS or shutil.which(str(path)):
        return f"for a whole command: paceline run -- {path} ..."
    beside = sorted(p.name for p in path.parent.glob("*.py")) if path.parent.is_dir() else []
    here = f"; in {path.parent.absolute()} there are: {', '.join(beside[:6])}" if beside else ""
    return f"check the path{here}"


def _is_text(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return b"\0" not in file.read(8192)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", "check its permissions") from error


def script_python(asked: str | None, variables: Mapping[str, str] = os.environ) -> str:
    """The Python of the active environment, which need not be Paceline's; else Paceline's."""
    if asked is not None:
        found = shutil.which(asked)
        if found is None:
            raise UserError(f"there is no Python at {asked}", "name an interpreter that is there")
        return found
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        python = Path(variables.get(name, "")) / "bin" / "python"
        if variables.get(name) and python.exists():
            return str(python)
    return sys.executable
