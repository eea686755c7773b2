"""A tiny Transformer from archives to scores, and the same at any number of processes."""

import json
from pathlib import Path

import pytest
import torch

from paceline import recipe
from paceline.tasks.nmt.preparation import prepare as nmt
from paceline.tasks.nmt.settings import NmtRecipe
from paceline.tasks.nmt.task import Nmt
from tests.conftest import CommandLine


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("text") / "sentences"
    options = nmt.Options(num_pairs=2000, vocab_size=1000)
    return nmt.prepare("stand-in", to, options, lambda _text: None)


def settings(sentences: Path) -> list[str]:
    return [
        f"data={sentences}",
        "model.vocab_size=1000",
        "model.residual_dropout=0.1",
        "model.attention_dropout=0.1",
        "batch.global=512",
        "batch.micro=128",
        "log.every_steps=1",
        "evaluate.every_steps=12",
        "checkpoint.every_steps=6",
    ]


def train(paceline: CommandLine, sentences: Path, run: str, steps: int, procs: int) -> str:
    result = paceline(
        "train",
        "nmt-tiny",
        *settings(sentences),
        "schedule.policy=fixed",
        f"steps={steps}",
        "--run",
        run,
        "--procs",
        str(procs),
    )
    assert result.returncode == 0, result.stderr
    return result.stderr


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, sentences: Path) -> CommandLine:
    """With runs/whole: two processes, from begin to end."""
    paceline = CommandLine(tmp_path_factory.mktemp("whole"), sentences)
    train(paceline, sentences, "runs/whole", 12, 2)
    return paceline


def test_two_and_four_processes_have_the_same_losses_with_dropout_and_ragged_batches(
    paceline: CommandLine, sentences: Path, whole: CommandLine
) -> None:
    shown = train(paceline, sentences, "runs/4", 12, 4)
    assert "->" in shown, "sample translations are shown"
    assert paceline.losses("runs/4") == pytest.approx(whole.losses("runs/whole"), rel=1e-5)
    scores = [paceline.table("runs/4")[-1], whole.table("runs/whole")[-1]]
    loss = "validation_loss"
    assert float(scores[0][loss]) == pytest.approx(float(scores[1][loss]), rel=1e-4)


def test_a_resumed_run_is_bit_for_bit_the_undisturbed_one(
    paceline: CommandLine, sentences: Path, whole: CommandLine
) -> None:
    train(paceline, sentences, "runs/parts", 6, 2)
    train(paceline, sentences, "runs/parts", 12, 2)
    assert paceline.weights("runs/parts") == whole.weights("runs/whole")
    assert paceline.losses("runs/parts") == whole.losses("runs/whole")
    which = ["--checkpoint", "average:2", "--split", "test"]
    result = paceline("evaluate", "runs/parts", *which, "--json")
    assert result.returncode == 0, result.stderr
    scored = json.loads(result.stdout)
    assert scored["weights"] == "average of 2 up to step 12"
    assert "beam:4" in scored["signature"]
    assert "tok:13a" in scored["signature"]


def test_a_vocabulary_of_another_size_is_refused(paceline: CommandLine, sentences: Path) -> None:
    result = paceline("train", "nmt-tiny", f"data={sentences}", "--run", "runs/a")
    assert result.returncode == 2
    assert "set model.vocab_size=1000" in result.stderr


def test_pairs_that_are_too_long_are_counted_said_once_and_recorded(
    paceline: CommandLine, sentences: Path
) -> None:
    pairs = nmt.open_split(sentences, "train")
    longest = [max(len(pairs.source(n)), len(pairs.target(n))) for n in range(len(pairs))]
    limit = sorted(longest)[1500]
    num = sum(length > limit for length in longest)
    assert 0 < num < 500
    words = [*settings(sentences), "steps=1", "evaluate.every_steps=null", f"max_length={limit}"]
    result = paceline("train", "nmt-tiny", *words, "--run", "runs/a", "--procs", "2")
    assert result.returncode == 0, result.stderr
    text = f"{num:,} of 2,000 pairs ({num / 2000:.1%}) are longer than max_length={limit} pieces"
    assert result.stderr.count(f"{text} and are left out\n") == 1
    lines = (paceline.cwd / "runs/a/events/rank-00000.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    (begin,) = [event for event in events if event["kind"] == "begin"]
    assert (begin["left_out"]["num"], begin["left_out"]["of"]) == (num, 2000)
    assert [event["kind"] for event in events if text in event.get("text", "")] == ["note"]


def test_where_no_pair_is_too_long_nothing_is_said_and_none_is_recorded(
    sentences: Path,
) -> None:
    loaded = recipe.load("nmt-tiny", [*settings(sentences), "max_length=500"])
    assert isinstance(loaded, NmtRecipe)
    facts = Nmt(loaded, torch.device("cpu")).data_facts()
    assert facts == {"left_out": {"num": 0, "of": 2000}}
