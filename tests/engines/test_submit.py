"""The command lines that hand job files in and give machines back, by the engines' own parsers."""

import argparse
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline.jobfiles.request import Machine, Request
from paceline.jobfiles.submit import Engine, engine_of

pytestmark = pytest.mark.engines


def engine(kind: str, **more: Any) -> Engine:
    machine = Machine("g4dn.2xlarge")
    return engine_of(kind, Request("train", ("paceline",), "/r", 2, machine=machine, **more))


def commands(found: Engine, file: Path) -> list[list[str]]:
    """Handing in, finding out whether the name is taken, and giving back."""
    back = [part.partition(" (")[0] for part in found.give_back.split(", then: ")]
    lines = [list(found.command), list(found.find), *map(shlex.split, back)]
    return [[w.replace("FILE", str(file)) for w in words] for words in lines if words]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text("run: echo\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("more", [{}, {"spot": True, "storage": "s3://b"}, {"group": "paceline"}])
def test_skypilots_parser_takes_the_commands(more: dict[str, Any], file: Path) -> None:
    from sky.client.cli import command

    for words in commands(engine("sky", **more), file):
        parser: Any = command.cli
        assert words.pop(0) == "sky"
        while hasattr(parser, "commands"):
            parser = parser.commands[words.pop(0)]
        context = parser.make_context("sky", list(words))
        assert "train" in str(context.params), words


def test_dstacks_parser_takes_the_commands(file: Path) -> None:
    from dstack._internal.cli.commands.apply import ApplyCommand
    from dstack._internal.cli.commands.fleet import FleetCommand
    from dstack._internal.cli.commands.run import RunCommand
    from dstack._internal.cli.commands.stop import StopCommand

    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers()
    for verb in (ApplyCommand, FleetCommand, RunCommand, StopCommand):
        verb.register(verbs)
    for words in commands(engine("dstack"), file):
        assert words[0] == "dstack"
        _known, unknown = parser.parse_known_args(words[1:])
        assert not unknown


def test_the_lines_that_install_paceline_for_skypilot_are_uvs_own_words() -> None:
    """Each is parsed by uv itself, which then says that there is no such file, or helps."""
    from paceline.jobfiles.sky import write_sky

    text = write_sky(Request("train", ("paceline",), "/r", machine=Machine("x"), install="a"))
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("uv ")]
    assert len(lines) == 2
    for line in lines:
        words = [sys.executable, "-m", *shlex.split(line), "--help"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
