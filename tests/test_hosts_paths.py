"""Relative paths of a recipe mean what they meant where the command was typed, everywhere."""

from pathlib import Path

import pytest

from paceline import config, recipe
from paceline.config import Section, resolve_paths, setting
from paceline.errors import UserError
from paceline.tasks.imagenet.settings import ImagenetRecipe
from tests.conftest import CommandLine


class Inner(Section):
    weights: str | None = setting(None, path=True)


class Outer(Section):
    data: str = setting("d", path="or name")
    about: str = setting("")
    model: Inner = setting(Inner())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("sets/x", "/home/u/sets/x"),
        ("./x", "/home/u/x"),
        (".", "/home/u"),
        ("../x", "/home/x"),
        ("../../../x", "/x"),
        ("a/../x", "/home/u/a/../x"),  # a may be a symbolic link
        ("x", "x"),
        ("/x/y", "/x/y"),
        ("~/x", "~/x"),
    ],
)
def test_a_relative_path_is_seen_from_the_folder_and_a_name_stays_a_name(
    given: str, expected: str
) -> None:
    settings = {"data": given, "about": "./x", "model": {"weights": None}}
    found = resolve_paths(settings, Outer, Path("/home/u"))
    assert found == {"data": expected, "about": "./x", "model": {"weights": None}}


def test_what_is_always_a_path_needs_no_slash() -> None:
    settings = {"model": {"weights": "best.safetensors"}}
    found = resolve_paths(settings, Outer, Path("/home/u"))
    assert found == {"model": {"weights": "/home/u/best.safetensors"}}


def test_a_recipe_is_loaded_with_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = recipe.load("imagenet-tiny", ["data=./pictures", "model.start_from=old/run"])
    assert isinstance(loaded, ImagenetRecipe)
    assert loaded.data == str(tmp_path / "pictures")
    assert loaded.model.start_from == str(tmp_path / "old" / "run")
    assert recipe.load("imagenet-tiny", ["data=pictures"]).data == "pictures"


def test_a_run_that_stored_a_path_as_it_was_typed_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    new = recipe.load("imagenet-tiny", ["data=./x", "model.start_from=./y"])
    old = config.dump(new)
    old["data"], old["model"]["start_from"] = "./x", "./y"
    assert recipe.refuse_meaningless_change(old, new, tmp_path / "run") == []
    old["model"]["start_from"] = "./z"
    with pytest.raises(UserError, match=r"model\.start_from"):
        recipe.refuse_meaningless_change(old, new, tmp_path / "run")


def test_a_run_started_with_a_relative_path_is_evaluated_from_another_directory(
    paceline: CommandLine, tmp_path: Path
) -> None:
    (paceline.cwd / "mine").symlink_to(paceline.data)
    begun = paceline.train("run", "data=./mine", "steps=2", "evaluate.every_steps=null", procs=1)
    assert begun.returncode == 0, begun.stderr
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    told = CommandLine(elsewhere, paceline.data)("evaluate", str(paceline.cwd / "run"))
    assert told.returncode == 0, told.stderr
    assert "top-1" in told.stdout
