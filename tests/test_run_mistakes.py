"""`paceline run` given what cannot be run: one clear message, or the script's own error whole."""

import json
import sys
from pathlib import Path

import pytest

from paceline.cli.run import split_words
from paceline.launch.script.command import reach_isolated
from paceline.record.schema import RunDirectory
from tests.observed_scripts import paceline_run, write_script

OPTIONS = {"--run": True, "--procs": True, "--json": True, "--detach": False}


@pytest.mark.parametrize(
    ("words", "own", "rest", "is_whole"),
    [
        (["train.py", "--procs", "2"], [], ["train.py", "--procs", "2"], False),
        (["--procs", "2", "train.py"], ["--procs", "2"], ["train.py"], False),
        (["--procs=2", "train.py", "--"], ["--procs=2"], ["train.py", "--"], False),
        (["--detach", "-m", "pkg.train", "-x"], ["--detach"], ["-m", "pkg.train", "-x"], False),
        (["--run", "a", "--", "torchrun", "t.py"], ["--run", "a"], ["torchrun", "t.py"], True),
        (["--proces", "2", "train.py"], ["--proces", "2", "train.py"], [], False),
    ],
)
def test_what_follows_the_script_is_the_scripts(
    words: list[str], own: list[str], rest: list[str], is_whole: bool
) -> None:
    assert split_words(words, OPTIONS) == (own, rest, is_whole)


def test_a_script_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    write_script(tmp_path, "", "training.py")
    ended = paceline_run(tmp_path, "train.py")
    assert ended.returncode == 2
    assert "there is no script train.py" in ended.stderr
    assert "training.py" in ended.stderr


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("recipe.yaml", b"steps: 3\n", "paceline train recipe.yaml"),
        ("train.sh", b"python x.py\n", "paceline run -- bash train.sh"),
        ("program", b"\x7fELF\0\0", "is no Python script"),
    ],
)
def test_what_is_no_python_is_said_to_be_none(
    tmp_path: Path, name: str, content: bytes, told: str
) -> None:
    (tmp_path / name).write_bytes(content)
    ended = paceline_run(tmp_path, name)
    assert ended.returncode == 2
    assert told in ended.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("text", "own_error", "code"),
    [
        ("def f(:\n", "SyntaxError", 1),
        ("import nowhere_to_be_found\n", "No module named 'nowhere_to_be_found'", 1),
        ("print('done')\n", "", 0),
        ("import sys\nsys.exit('usage: train DATA')\n", "usage: train DATA", 1),
    ],
)
def test_a_script_that_never_trains_keeps_its_own_error_and_code(
    tmp_path: Path, text: str, own_error: str, code: int
) -> None:
    write_script(tmp_path, text)
    ended = paceline_run(tmp_path, "--json", "-", "train.py")
    assert ended.returncode == code
    assert own_error in ended.stderr
    told = json.loads(ended.stdout)
    assert (told["kind"], told["exit_code"]) == ("no-run", code)
    assert "no training step was seen" in told["text"]
    assert "no training step was seen" in ended.stderr
    assert "never imported torch" in ended.stderr
    assert not RunDirectory(tmp_path / "runs" / "train").exists()
    assert not list((tmp_path / "runs").iterdir())


def test_a_python_that_ignores_its_environment_is_explained(tmp_path: Path) -> None:
    ended = paceline_run(tmp_path, "--", sys.executable, "-I", "-c", "print('hello')")
    assert ended.returncode == 0
    assert ended.stdout == "hello\n"
    assert "python -I" in ended.stderr


@pytest.mark.parametrize(
    ("words", "is_reached"),
    [
        (["python", "-I", "train.py", "-I"], True),
        (["srun", "-n", "2", "python3.11", "-W", "ignore", "-uE", "-m", "pkg.train"], True),
        (["python", "-u", "train.py", "-I"], False),
        (["python", "-X", "importtime", "train.py"], False),
        (["python", "-I", "-c", "print()"], False),
        (["torchrun", "train.py", "python", "-I"], False),
    ],
)
def test_an_isolated_python_runs_the_script_through_the_observer(
    words: list[str], is_reached: bool
) -> None:
    started = list(reach_isolated(words))
    assert (started != words) == is_reached
    assert [word for word in started if not word.endswith("isolated.py")] == words


def test_another_scripts_run_is_not_written_into(tmp_path: Path) -> None:
    write_script(tmp_path, "", "one.py")
    write_script(tmp_path, "", "other.py")
    run = tmp_path / "run"
    run.mkdir()
    (run / "script.json").write_text(json.dumps({"script": str(tmp_path / "one.py")}))
    ended = paceline_run(tmp_path, "--run", "run", "other.py")
    assert ended.returncode == 2
    assert "is a run of another script" in ended.stderr
    (run / "recipe.yaml").write_text("steps: 3\n")
    ended = paceline_run(tmp_path, "--run", "run", "one.py")
    assert "is a run of `paceline train`" in ended.stderr


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    ended = paceline_run(tmp_path, "--", "no-such-launcher", "train.py")
    assert ended.returncode == 2
    assert "there is no command no-such-launcher" in ended.stderr
    assert "exclude each other" in paceline_run(tmp_path, "--procs", "2", "--", "sh").stderr
