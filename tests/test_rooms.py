"""Rooms keep to themselves: what imports cannot say is looked up in the source."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import paceline
from paceline.task_finder import find_task, task_names

SOURCE = Path(paceline.__file__).parent
# These formats of other people's logs carry such a name: it is theirs, not a task's.
FOREIGN = SOURCE / "report" / "foreign"
MOST_FILES = 14


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def words_of_code(path: Path) -> Iterator[tuple[int, str]]:
    """Names and texts of a module with their lines, but for docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = None
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None) or ""
            yield node.lineno, " ".join([module, *(alias.name for alias in node.names)])


def test_tasks_are_found_by_their_folders() -> None:
    folders = {path.parent.name for path in (SOURCE / "tasks").glob("*/task.py")}
    assert set(task_names()) == folders
    for name in task_names():
        assert find_task(name).recipe_class.model_fields["workload"]


def test_no_module_outside_of_a_task_knows_its_name() -> None:
    known = re.compile(rf"(?i)(?<![a-z0-9])({'|'.join(task_names())})(?![a-z0-9])")
    found = []
    for path in modules():
        inside = path.relative_to(SOURCE).parts
        if (inside[0] == "tasks" and len(inside) > 2) or FOREIGN in path.parents:
            continue
        for line, word in words_of_code(path):
            if known.search(word):
                found.append(f"{path.relative_to(SOURCE)}:{line}: {word!r}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("task", task_names())
def test_a_task_does_not_know_another(task: str) -> None:
    others = "|".join(name for name in task_names() if name != task)
    known = re.compile(rf"paceline\.tasks\.({others})\b")
    for path in sorted((SOURCE / "tasks" / task).rglob("*.py")):
        assert not known.search(path.read_text(encoding="utf-8")), path


def test_no_room_is_crowded() -> None:
    rooms = {path.parent for path in modules()}
    crowded = {
        str(room.relative_to(SOURCE)): count
        for room in rooms
        if (count := sum(p.name != "__init__.py" for p in room.glob("*.py"))) > MOST_FILES
    }
    assert not crowded


def test_what_trains_is_not_observed_besides() -> None:
    code = "import paceline.train.measure.collectives, paceline.observe as o; print(o._started)"
    environment = {k: v for k, v in os.environ.items() if k != "PACELINE_OBSERVE"}
    told = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout == "False\n"
