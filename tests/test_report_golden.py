"""What a report says, word for word, of stored runs. `python -m tests.test_report_golden` writes
the words anew; read the difference before you keep it."""

import os
from pathlib import Path

import pytest

from paceline.errors import UserError
from paceline.report.facts.facts import Options
from paceline.report.report import open_report
from tests.stored_runs import SCENES, one_of_a_pair

GOLDEN = Path(__file__).parent / "golden"


def report_on(name: str) -> str:
    """Run from an empty directory, so that no path of this machine is in the words."""
    SCENES[name](Path("runs") / name)
    return open_report([Path("runs") / name], Options()).text()


@pytest.mark.parametrize("name", SCENES)
def test_a_stored_run_is_reported_word_for_word(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert report_on(name) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_stored_runs_are_compared_word_for_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert compared() == (GOLDEN / "comparison.txt").read_text(encoding="utf-8")


def compared() -> str:
    """One host against two, and against two whose recipe is another."""
    paths = [Path("runs") / name for name in ("one", "two", "two-large")]
    one_of_a_pair(paths[0], 1)
    one_of_a_pair(paths[1], 2)
    one_of_a_pair(paths[2], 2, "batch.global=256")
    return open_report(paths, Options()).text()


def test_an_empty_directory_is_refused_word_for_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    with pytest.raises(UserError) as caught:
        open_report([Path("empty")], Options())
    assert str(caught.value) == (
        "error: empty is not a run directory\n"
        "  fix: give the --run of a `paceline train` or `paceline run`"
    )


def write_anew(folder: Path) -> None:
    os.chdir(folder)
    for name in SCENES:
        (GOLDEN / f"{name}.txt").write_text(report_on(name), encoding="utf-8")
    (GOLDEN / "comparison.txt").write_text(compared(), encoding="utf-8")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        GOLDEN.mkdir(exist_ok=True)
        write_anew(Path(folder))
        os.chdir("/")
