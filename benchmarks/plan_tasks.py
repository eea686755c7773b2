"""Trainings for `benchmarks.plan`: a CNN, which may get its pictures slowly, and a Transformer.

They make up their own data, so that every step has the same work."""

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import paceline
from paceline.models.packing import PackedPairs, pack_pairs
from paceline.models.shapes import TransformerShape
from paceline.models.transformer import Transformer

_NUM_SAMPLES = 100_000
_SIDE = 32
_LENGTH = 16


class Pictures(paceline.SampleTask):
    """2.3 M parameters: 9.3 MB of gradients."""

    unit, best_by = "image", "top1"

    class Settings(paceline.Settings):
        seconds_per_image: float = paceline.setting(0.0, "that reading one takes", ge=0)

    def open(self, _data: Path | None) -> dict[str, range]:
        self.pictures = np.random.default_rng(1).standard_normal((64, 3, _SIDE, _SIDE), np.float32)
        return {"train": range(_NUM_SAMPLES), "validation": range(64)}

    def build_model(self) -> nn.Module:
        widths = (3, 64, 128, 256, 512)
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        layers += [nn.Flatten(), nn.Linear(512 * 4, 384), nn.ReLU(), nn.Linear(384, 10)]
        return nn.Sequential(*layers)

    def batch(self, samples: Any, _rng: np.random.Generator | None) -> tuple[Any, Any]:
        time.sleep(self.settings.seconds_per_image * len(samples))  # a store that answers slowly
        return self.pictures[samples % 64], samples % 10

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1], reduction="sum")

    def evaluate(self, model: nn.Module, batches: Any) -> Any:
        loss, right, num = torch.zeros(()), torch.zeros(()), 0
        for x, y in batches:
            logits = model(x)
            loss += F.cross_entropy(logits, y, reduction="sum")
            right += (logits.argmax(1) == y).sum()
            num += len(y)
        return paceline.Scores.of_sums(num, top1=right, loss=loss)


class Sentences(paceline.SampleTask):
    """Transformer-base with a vocabulary of 32,768: 60.8 M parameters, 243 MB of gradients."""

    unit, best_by = "sentence", "top1"

    def open(self, _data: Path | None) -> dict[str, range]:
        return {"train": range(_NUM_SAMPLES), "validation": range(8)}

    def build_model(self) -> nn.Module:
        return Transformer(TransformerShape(vocab_size=32768))

    def batch(self, samples: Any, _rng: np.random.Generator | None) -> PackedPairs:
        words = [np.random.default_rng(int(n)).integers(3, 32768, _LENGTH) for n in samples]
        shifted = [np.concatenate([[2], word[:-1]]) for word in words]
        return pack_pairs(words, shifted, words)

    def loss(self, model: nn.Module, batch: PackedPairs) -> Tensor:
        loss: Tensor = model(batch).loss_sum
        return loss / _LENGTH

    def evaluate(self, model: nn.Module, batches: Any) -> Any:
        loss, num = torch.zeros(()), 0
        for batch in batches:
            loss += model(batch).nll_sum
            num += batch.sources.num_sentences
        return paceline.Scores.of_sums(num, top1=torch.zeros(()), loss=loss)
