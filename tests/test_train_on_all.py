"""A last run on all pictures: what it trains on, and what it will not be asked."""

from pathlib import Path

import pytest
import torch

from paceline import recipe
from paceline.errors import UserError
from paceline.tasks.cifar10.settings import Cifar10Recipe
from paceline.tasks.cifar10.task import Cifar10
from tests.conftest import CommandLine


def test_all_leaves_nothing_to_validate_on_and_says_so() -> None:
    with pytest.raises(UserError, match=r"train_on.*\n?.*evaluate\.every_steps=null"):
        recipe.load("cifar10-tiny", ["train_on=all"])


def test_all_adds_the_validation_pictures(pictures: Path) -> None:
    loaded = recipe.load(
        "cifar10-tiny", [f"data={pictures}", "train_on=all", "evaluate.every_steps=null"]
    )
    assert isinstance(loaded, Cifar10Recipe)
    every = Cifar10(loaded, torch.device("cpu"))
    usual = Cifar10(loaded.model_copy(update={"train_on": "train"}), torch.device("cpu"))
    num_validation = len(every.train.labels) - len(usual.train.labels)
    assert num_validation > 0
    assert (every.train.images[: len(usual.train.labels)] == usual.train.images).all()
    seen = {int(s) for index in range(40) for s in every.samples(index)}
    assert max(seen) >= len(usual.train.labels)


def test_such_a_run_is_scored_on_test_pictures_only(paceline: CommandLine) -> None:
    trained = paceline.train(
        "runs/a", "steps=2", "train_on=all", "evaluate.every_steps=null", procs=1
    )
    assert trained.returncode == 0, trained.stderr
    assert "top-1" in paceline("evaluate", "runs/a", "--split", "test").stdout
    refused = paceline("evaluate", "runs/a", "--split", "validation")
    assert refused.returncode == 2
    assert "trained on the validation pictures" in refused.stderr
