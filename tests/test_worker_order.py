"""What a launcher tells a worker: one value in one variable, and nothing else."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import paceline
from paceline.errors import UserError
from paceline.order import VARIABLE, HostPrice, WorkerOrder
from paceline.world import join

SOURCES = sorted(Path(paceline.__file__).parent.rglob("*.py"))
OF_THE_USER = {"DATA", "MIRROR", "KERNEL", "PRACTICE", "LINK"}
OF_THE_LAB = {"LAB", "LAB_HOST"}
OF_JOB_FILES = {"SPOT", "SPOT_SECONDS", "PLACE", "GIVE_BACK"}
OF_THE_OBSERVER = {"OBSERVE", "RUN"}
CHANGING = {"update", "setdefault", "pop", "popitem", "clear", "putenv", "unsetenv"}


def test_an_order_arrives_as_it_was_sent() -> None:
    sent = WorkerOrder(
        attempt=3,
        launched_at=1.5,
        store="tcp://10.0.0.1:4000",
        store_listener=7,
        first_rank=4,
        saves=True,
        host="node1",
        hosts=(HostPrice("node0", None), HostPrice("node1", 0.25)),
    )
    assert WorkerOrder.from_environment(sent.to_environment()) == sent
    assert list(sent.to_environment()) == [VARIABLE]


def test_a_process_without_an_order_was_started_by_hand() -> None:
    assert WorkerOrder.from_environment({"PATH": "/bin"}) == WorkerOrder()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"speed": 1}, "unknown: speed"),
        ({"attempt": None}, "missing: attempt"),
        ({"hosts": [{"name": "a"}]}, "names its hosts in another way"),
    ],
)
def test_an_order_of_another_version_is_refused(change: dict[str, object], said: str) -> None:
    document = {**WorkerOrder().as_document(), **change}
    if change.get("attempt", 0) is None:
        del document["attempt"]
    with pytest.raises(UserError, match=said) as raised:
        WorkerOrder.from_environment({VARIABLE: json.dumps(document)})
    assert "one version" in raised.value.fix


@pytest.mark.parametrize("text", ["", "{", "[1]", "3"])
def test_an_order_that_is_no_order_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=VARIABLE):
        WorkerOrder.from_environment({VARIABLE: text})


def test_the_world_has_what_the_order_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    world = join("cpu", 60.0, WorkerOrder(attempt=5, host="node3"))
    assert (world.attempt, world.host, world.saves) == (5, "node3", True)


def test_no_other_variable_of_ours_is_spoken_of_anywhere() -> None:
    names = OF_THE_USER | OF_THE_LAB | OF_JOB_FILES | OF_THE_OBSERVER
    allowed = {f"PACELINE_{name}" for name in names} | {VARIABLE}
    for path in SOURCES:
        named = set(re.findall(r"PACELINE_[A-Z_]*[A-Z]", path.read_text(encoding="utf-8")))
        assert named <= allowed, path


def test_no_process_changes_its_own_environment() -> None:
    """A forked worker is given its variables by its agent, where exec would have given them."""
    changed = [path.name for path in SOURCES for _line in lines_that_change(path)]
    assert changed == ["workers.py"]


def lines_that_change(path: Path) -> Iterator[int]:
    """Assignments to and deletions from os.environ, and its methods that change it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            if is_environ(node.value):
                yield node.lineno
        elif isinstance(node, ast.Attribute) and node.attr in CHANGING:
            if is_environ(node.value) or node.attr in ("putenv", "unsetenv"):
                yield node.lineno
        elif isinstance(node, ast.AugAssign) and is_environ(node.target):
            yield node.lineno


def is_environ(node: ast.expr) -> bool:
    return ast.unparse(node) in ("os.environ", "environ")


def test_a_change_of_the_environment_would_be_found(tmp_path: Path) -> None:
    source = tmp_path / "a.py"
    text = "os.environ['A'] = '1'\ndel os.environ['B']\nos.environ.pop('C')\nos.environ |= {}\n"
    source.write_text(text + "x = os.environ['D']\n", encoding="utf-8")
    assert sorted(lines_that_change(source)) == [1, 2, 3, 4]
