"""The user's own code: importing a class from it, where it lies, and the fingerprint of its files.

The current directory is importable, as with torchrun and `python -m`. What counts as the user's
code is what was imported from the directory that holds the task's package, and nothing else there.
"""

import difflib
import hashlib
import importlib
import inspect
import re
import site
import sys
import sysconfig
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.errors import UserError

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
FORM = "package.module:Class"


@dataclass(frozen=True)
class Project:
    """Where the user's code lies, and the files of it that are in use."""

    root: Path
    files: dict[str, str] = field(default_factory=dict)
    """Path below the root -> a hash of the content."""

    @property
    def fingerprint(self) -> str:
        lines = "".join(f"{name} {self.files[name]}\n" for name in sorted(self.files))
        return hashlib.sha256(lines.encode()).hexdigest()[:16]


def is_own(workload: str) -> bool:
    """Whether a recipe's `workload` names a class of the user's."""
    return ":" in workload


def import_class(name: str) -> Any:
    """`package.module:Class`, from the current directory or from what is installed."""
    if not _NAME.fullmatch(name):
        raise UserError(f"'{name}' does not name a class", f"write it as {FORM}")
    module_name, _, class_name = name.partition(":")
    _make_importable(Path.cwd())
    found: Any = _import(module_name)
    for part in class_name.split("."):
        if not hasattr(found, part):
            raise UserError(
                f"{_where(module_name)} has no class '{class_name}'",
                _did_you_mean(part, sys.modules[module_name]),
            )
        found = getattr(found, part)
    return found


def _make_importable(directory: Path) -> None:
    here = str(directory)
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()


def _import(module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise UserError(
                f"there is no module '{module_name}' in {Path.cwd()} or installed",
                f"start the command in the directory that holds {module_name.replace('.', '/')}.py",
            ) from error
        raise UserError(
            f"the module '{module_name}' needs '{missing}', which is not installed",
            f"install it: pip install {missing.partition('.')[0]}",
        ) from error
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"importing '{module_name}' failed{_place_of(error)}: {type(error).__name__}: {error}",
            "correct it there",
        ) from error


def _place_of(error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f" ({error.filename}, line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _where(module_name: str) -> str:
    return str(getattr(sys.modules[module_name], "__file__", None) or f"module '{module_name}'")


def _did_you_mean(name: str, module: Any) -> str:
    own = [n for n, v in vars(module).items() if inspect.isclass(v) and not n.startswith("_")]
    close = difflib.get_close_matches(name, own, n=1)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"there are: {', '.join(own)}" if own else "write the class there"


def find_project(workload: str) -> Project | None:
    """The code of an own task as far as it is imported by now; None of a shipped one."""
    if not is_own(workload):
        return None
    module = sys.modules.get(workload.partition(":")[0])
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        return None
    parents = module.__name__.count(".") + (Path(file).name == "__init__.py")
    root = Path(file).absolute().parents[parents]
    package = module.__name__.partition(".")[0] if root in _library_folders() else None
    return Project(root, _imported_below(root, package))


def _library_folders() -> set[Path]:
    """Where pip installs: there only the task's own package is the user's code."""
    named = [sysconfig.get_paths()[name] for name in ("purelib", "platlib", "stdlib")]
    return {Path(name).absolute() for name in [*named, *site.getsitepackages()]}


def _imported_below(root: Path, package: str | None) -> dict[str, str]:
    files = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not file or name.partition(".")[0] in ("paceline", "__main__"):
            continue
        path = Path(file).absolute()
        if not path.is_relative_to(root) or not path.is_file():
            continue  # torch gives some of its modules files that do not exist
        if package and name.partition(".")[0] != package:
            continue
        inside = path.relative_to(root)
        if not any(part.startswith(".") or part == "site-packages" for part in inside.parts):
            files[inside.as_posix()] = hash_of(path)
    return files


def hash_of(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError:
        return "not there"


def changed_files(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Files with another content, new ones and those that are no longer used."""
    return sorted(name for name in {**before, **now} if before.get(name) != now.get(name))


def as_question(workload: str) -> dict[str, Any] | None:
    """What a host must know to find the same code there; None for a shipped task."""
    project = find_project(workload)
    if project is None:
        return None
    return {"root": str(project.root), "name": project.root.name, "files": project.files}
