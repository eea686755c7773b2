"""Words that people type: understood where it can be, else the right setting is named."""

import pytest

from paceline.cli import parse
from paceline.cli.words import options_as_settings
from tests.conftest import CommandLine

OPTIONS = ["--run", "--procs", "--hosts", "--detach", "--help", "-h"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["a", "--steps", "10"], ["a", "steps=10"]),
        (["a", "--batch-size=3", "--run", "r"], ["a", "--run", "r", "batch_size=3"]),
        (["--epochs", "3", "a", "--detach"], ["a", "--detach", "epochs=3"]),
        (["a", "--compile", "--proc", "2"], ["a", "--proc", "2", "compile=true"]),
        (["a", "x.y=1", "--run=r"], ["a", "x.y=1", "--run=r"]),
    ],
)
def test_an_option_that_is_none_is_a_setting(typed: list[str], meant: list[str]) -> None:
    assert options_as_settings(typed, OPTIONS) == meant


def test_settings_may_be_typed_as_options_anywhere() -> None:
    arguments = parse(["train", "--steps", "10", "nmt-tiny", "--run", "r", "--lr=0.1"])
    assert arguments.recipe == "nmt-tiny"
    assert arguments.settings == ["steps=10", "lr=0.1"]


def shown(paceline: CommandLine, *settings: str) -> str:
    """What the command line makes of these settings, without training."""
    done = paceline.here("recipes", "show", "cifar10-tiny", f"data={paceline.data}", *settings)
    return done.stderr + done.stdout


def test_epochs_become_steps_and_it_is_said(paceline: CommandLine) -> None:
    """1,800 of the small pictures train, in steps of 128."""
    text = shown(paceline, "epochs=3")
    assert "epochs=3 is taken as steps=43 (14.1 steps see all data once)" in text
    assert "\nsteps: 43 " in text


def test_epochs_of_text_become_steps(paceline: CommandLine) -> None:
    made = paceline("data", "nmt", "--from", "stand-in", "--pairs", "300", "--to", "text")
    assert made.returncode == 0, made.stderr
    words = ["recipes", "show", "nmt-tiny", "data=./text", "epochs=2"]
    text = paceline.here(*words).stderr
    assert "epochs=2 is taken as steps=" in text


@pytest.mark.parametrize("typed", ["lr=0.1", "optimizer.lr=0.1"])
def test_a_learning_rate_is_understood(paceline: CommandLine, typed: str) -> None:
    text = shown(paceline, typed)
    assert f"{typed} is taken as schedule.rate=0.1" in text
    assert "peak 0.1 at" in text


def test_a_learning_rate_for_a_schedule_that_computes_it_is_refused(paceline: CommandLine) -> None:
    done = paceline.here("recipes", "show", "nmt-base", "lr=0.1")
    assert done.returncode == 2
    assert "schedule.rate is only a factor" in done.stderr


@pytest.mark.parametrize(
    ("typed", "right"),
    [("batch_size=64", "batch.global=N"), ("gpus=2", "--procs N"), ("epochs=many", "epochs=3")],
)
def test_what_cannot_be_understood_names_the_right_setting(
    paceline: CommandLine, typed: str, right: str
) -> None:
    text = shown(paceline, typed)
    assert typed in text and right in text.partition("fix:")[2]


def test_a_mistake_on_the_command_line_is_not_blamed_on_the_file(paceline: CommandLine) -> None:
    typed = shown(paceline, "stps=3")
    assert "error: the command line has 1 mistake" in typed
    assert "cifar10-tiny.yaml" not in typed
    own = paceline.cwd / "own.yaml"
    own.write_text("workload: cifar10\nsteps: 1\nbatch: {global: 8, micro: 3}\n", encoding="utf-8")
    both = paceline.here("recipes", "show", "own.yaml", "stps=3").stderr
    assert "error: own.yaml and the command line have 2 mistakes" in both
    assert "error: own.yaml has 1 mistake" in paceline.here("recipes", "show", "./own.yaml").stderr


def test_missing_data_names_what_is_prepared_and_never_leads_in_a_circle(
    paceline: CommandLine,
) -> None:
    """The small pictures are prepared under the name 'pictures' in the data home."""
    missing = paceline("train", "cifar10-resnet20")
    assert missing.returncode == 2
    assert f"there is no data directory {paceline.data.parent}/cifar10" in missing.stderr
    assert "use what is prepared here: data=pictures" in missing.stderr
    assert "--from stand-in, then train with data=cifar10-stand-in" in missing.stderr
    stand_in = paceline("train", "cifar10-tiny").stderr
    assert "prepare it: paceline data cifar10 --from stand-in" in stand_in


def test_prepared_data_says_how_to_train_on_it(paceline: CommandLine) -> None:
    home = {"PACELINE_DATA": str(paceline.cwd / "home")}
    made = paceline("data", "nmt", "--from", "stand-in", "--pairs", "300", **home)
    assert "use it: paceline train nmt-tiny" in made.stderr
    vocabulary = "model.vocab_size=3072"  # which only the first of them expects
    assert f"paceline train nmt-base data=nmt-stand-in {vocabulary}" in made.stderr
    assert vocabulary not in made.stderr.partition("use it: ")[2].partition("\n")[0]
    assert made.stdout.strip() == str(paceline.cwd / "home" / "nmt-stand-in")
