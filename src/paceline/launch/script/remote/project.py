"""A user's script and the files it is made of: what a host must have to run it.

Imports are read from the source, never executed here: the script may need what only hosts have.
"""

import ast
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from paceline.errors import UserError
from paceline.launch.script.command import refuse_no_script

_LARGE_BYTES = 20_000_000


@dataclass(frozen=True)
class ScriptProject:
    root: Path
    """What a relative path in the script's arguments begins at, here and on the hosts."""
    script: str
    """Below the root; or the name of an installed module."""
    words: tuple[str, ...]
    """What Python gets: the script, or -m and a module, and the arguments."""

    @property
    def path(self) -> Path:
        return self.root / self.script

    @property
    def arguments(self) -> tuple[str, ...]:
        return self.words[2:] if self.words[0] == "-m" else self.words[1:]

    @cached_property
    def sources(self) -> dict[str, "Source"]:
        """The script and every module of the project that it imports, by path below the root."""
        found: dict[str, Source] = {}
        waiting = [self.path] if self.path.is_file() else []
        while waiting:
            path = waiting.pop()
            name = path.relative_to(self.root).as_posix()
            if name not in found:
                found[name] = Source.read(path)
                waiting += found[name].local_files(self._places(path), self.root)
        return found

    def _places(self, path: Path) -> list[Path]:
        """Where Python looks first: beside the script; with -m in the current directory."""
        beside = self.root / Path(self.script).parent
        return list(dict.fromkeys([self.root if self.words[0] == "-m" else beside, path.parent]))

    def question(self) -> dict[str, Any]:
        """What a host is asked before a start, and where it finds the script."""
        names = [*self.sources, *self._named_files()]
        needed = {module for source in self.sources.values() for module in source.needed}
        local = {n for s in self.sources.values() for n in s.local_names(self._places(s.path))}
        return {
            "root": str(self.root),
            "name": self.root.name,
            "files": {name: _hash_of(self.root / name) for name in dict.fromkeys(names)},
            "modules": sorted(needed - local),
        }

    def _named_files(self) -> Iterator[str]:
        """Files of the project that the arguments name: configurations, mostly."""
        for word in self.words[1:]:
            path = self.root / word.rpartition("=")[2]
            is_inside = path.is_relative_to(self.root) and ".." not in path.parts
            if is_inside and path.is_file() and path.stat().st_size <= _LARGE_BYTES:
                yield path.relative_to(self.root).as_posix()


@dataclass(frozen=True)
class Source:
    """A file of Python, and what it imports."""

    path: Path
    imported: tuple[str, ...]
    """Dotted names, anywhere in it; relative ones begin with dots."""
    needed: tuple[str, ...]
    """First parts of those without which it cannot even begin: outside of any `try` or `if`."""

    @classmethod
    def read(cls, path: Path) -> "Source":
        tree = _parse(path)
        nodes = (n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom))
        first = (n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom))
        names = [name for node in first for name in _names(node) if not name.startswith(".")]
        needed = dict.fromkeys(name.partition(".")[0] for name in names)
        return cls(path, tuple(n for node in nodes for n in _names(node)), tuple(needed))

    def local_files(self, places: Sequence[Path], root: Path) -> Iterator[Path]:
        for name in self.imported:
            base = [self.path.parent] if name.startswith(".") else places
            parts = name.lstrip(".").split(".")
            for place in base:
                for folder, length in ((place, n) for n in range(1, len(parts) + 1)):
                    file = _file_of(folder.joinpath(*parts[:length]))
                    if file is not None and file.is_relative_to(root):
                        yield file

    def local_names(self, places: Sequence[Path]) -> Iterator[str]:
        for name in self.needed:
            if any((place / name).is_dir() or _file_of(place / name) for place in places):
                yield name


def _file_of(module: Path) -> Path | None:
    """The file of a module at this place, if there is one."""
    for file in (module.with_name(f"{module.name}.py"), module / "__init__.py"):
        if file.is_file():
            return file
    return None


def _names(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = "." * node.level + (node.module or "")
    inner = [f"{base}.{alias.name}" if node.module else base + alias.name for alias in node.names]
    return [base, *inner] if node.module else inner


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise UserError(f"{path} is not Python{line}: {error}", "correct it there") from error


def _hash_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def find_project(words: Sequence[str], here: Path) -> ScriptProject:
    """From what stands behind `paceline run --hosts FILE`: a script or -m and a module."""
    if words[:1] == ["-m"] and len(words) > 1:
        parts = words[1].split(".")
        file = _file_of(here.joinpath(*parts)) or _file_of(here.joinpath(*parts, "__main__"))
        script = file.relative_to(here).as_posix() if file else words[1]
        return ScriptProject(here, script, tuple(words))
    if not words:
        raise UserError("no script is named", "paceline run --hosts hosts.yaml train.py")
    path = (here / words[0]).absolute()
    refuse_no_script(path)
    is_below = path.is_relative_to(here) and here not in (Path.home(), Path("/"))
    root = here if is_below else path.parent
    script = path.relative_to(root).as_posix()
    return ScriptProject(root, script, (script, *words[1:]))
