"""The container's files: linted, and their commands understood by the command line."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from paceline.cli import parse
from paceline.launch.batch.detect import find_place

pytestmark = pytest.mark.engines

ROOT = Path(__file__).parents[2]


def test_hadolint_has_nothing_to_say_about_the_dockerfile() -> None:
    linter = Path(sys.executable).parent / "hadolint"
    done = subprocess.run(
        [str(linter), str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_image_is_not_rooted_and_lets_nothing_in_but_the_source() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "\nUSER 1000:1000\n" in text
    assert "HEALTHCHECK" in text
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignored
    assert not {"!.git", "!runs", "!.env"} & set(ignored)


def services() -> dict[str, Any]:
    content = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    found: dict[str, Any] = content["services"]
    return found


def test_the_practice_cluster_starts_what_the_command_line_understands() -> None:
    for name, service in services().items():
        assert parse([str(word) for word in service["command"]]), name
        assert "ports" not in service, "nothing is open to outside"


def test_the_two_containers_are_the_two_processes_of_one_world() -> None:
    places = [find_place(services()[name]["environment"]) for name in ("host0", "host1")]
    assert [(p.rank, p.size, p.master) for p in places if p is not None] == [
        (0, 2, ("host0", 29500)),
        (1, 2, ("host0", 29500)),
    ]
