"""What a report says, word for word, of other tools' logs. `python -m tests.test_foreign_golden`
writes the words anew; read the difference before you keep it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.report.facts.facts import Options
from paceline.report.report import open_report
from tests.test_foreign_events import Row, name_of, training, write_rows
from tests.test_foreign_text import imagenet_log, seq2seq_log

GOLDEN = Path(__file__).parent / "golden"
ARGUMENTS = "Namespace(arch='resnet50', epochs=3, workers=1)\nUse GPU: 0\n"
TIMES = "CPU times: user 1min, total: 2min\nWall time: 4min 2s\n"


def imagenet(path: Path) -> None:
    path.write_text(ARGUMENTS + imagenet_log() + TIMES, encoding="utf-8")


def openseq2seq(path: Path) -> None:
    text = seq2seq_log().replace("Eval BLUE score: 0.1\n", "Eval BLUE score: 0.9183\n")
    path.write_text(text, encoding="utf-8")


def openseq2seq_on_one_host(path: Path) -> None:
    path.write_text(seq2seq_log(20_000, num_hosts=1), encoding="utf-8")


def tensorboard(path: Path) -> None:
    """The validation loss turns up at step 60, and the score goes on up."""
    rows: list[Row] = training()
    for step in range(10, 101, 10):
        rows.append(("val/loss", step, 2.0 * step, 4 - step / 100 + max(step - 60, 0) / 50))
        rows.append(("val/acc1", step, 2.0 * step, 10 + step / 3))
    for step in range(1, 101):
        rows.append(("lr", step, 2.0 * step, min(step / 20, 1) * (1 - step / 101)))
    write_rows(path / name_of(), rows)


LOGS: dict[str, tuple[Callable[[Path], None], Options]] = {
    "imagenet": (imagenet, Options()),
    "openseq2seq": (openseq2seq, Options()),
    "openseq2seq-100mbit": (openseq2seq, Options(100e6, 2.0)),
    "openseq2seq-10gbit": (openseq2seq, Options(10e9)),
    "openseq2seq-one-host": (openseq2seq_on_one_host, Options(1e9)),
    "tensorboard": (tensorboard, Options()),
}


def report_on(name: str) -> str:
    """Run from an empty directory, so that no path of this machine is in the words."""
    write, options = LOGS[name]
    write(Path(name))
    return open_report([Path(name)], options).text()


@pytest.mark.parametrize("name", LOGS)
def test_a_log_of_another_tool_is_reported_word_for_word(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert report_on(name) == (GOLDEN / f"foreign-{name}.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in LOGS:
            (GOLDEN / f"foreign-{name}.txt").write_text(report_on(name), encoding="utf-8")
        os.chdir("/")
