"""A task whose gradients are large and whose arithmetic is little: links matter, cores do not.

Pictures of CIFAR-10's form through one wide hidden layer: 2.5 million weights, 10 MB of gradients,
a few milliseconds of arithmetic for 32 pictures. For comparing strategies on a machine with fewer
cores than workers, where the time of an accelerator is put in with PACELINE_PRACTICE.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import paceline


class WideSettings(paceline.Settings):
    hidden: int = paceline.setting(800, "values of the hidden layer", gt=0, fixed=True)


class WidePictures(paceline.SampleTask):
    Settings = WideSettings
    best_by = "top1"
    unit = "image"
    reads_ahead = False

    def open(self, data: Any) -> dict[str, int]:
        folder = Path(data)
        arrays = {split: np.load(folder / f"{split}.npz") for split in ("train", "validation")}
        self.images = {split: found["images"] for split, found in arrays.items()}
        self.labels = {split: found["labels"] for split, found in arrays.items()}
        return {split: len(labels) for split, labels in self.labels.items()}

    def build_model(self) -> nn.Module:
        hidden = self.settings.hidden
        return nn.Sequential(
            nn.Flatten(), nn.Linear(3 * 32 * 32, hidden), nn.ReLU(), nn.Linear(hidden, 10)
        )

    def batch(self, samples: Any, _rng: Any) -> tuple[Any, Any]:
        pictures = self.images[samples.split][samples].astype(np.float32) / 127.5 - 1
        return pictures, self.labels[samples.split][samples].astype(np.int64)

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        pictures, labels = batch
        return F.cross_entropy(model(pictures), labels, reduction="sum")

    @torch.no_grad()
    def evaluate(self, model: nn.Module, batches: Any) -> paceline.Scores:
        model.eval()
        num, right, loss = 0, 0.0, 0.0
        for pictures, labels in batches:
            found = model(pictures)
            loss += float(F.cross_entropy(found, labels, reduction="sum"))
            right += float((found.argmax(1) == labels).sum())
            num += len(labels)
        model.train()
        return paceline.Scores.of_sums(num, loss=loss, top1=right)


def write_pictures(folder: Path, num_train: int, num_validation: int) -> None:
    """Ten classes of noisy patterns, hard enough that more steps with fresh weights show."""
    rng = np.random.default_rng(1)
    patterns = rng.normal(size=(10, 3, 32, 32))
    folder.mkdir(parents=True, exist_ok=True)
    for split, num in (("train", num_train), ("validation", num_validation)):
        labels = rng.integers(0, 10, num)
        noise = rng.normal(size=(num, 3, 32, 32)) * 14.0
        images = np.clip(127.5 + 20 * (patterns[labels] + noise), 0, 255).astype(np.uint8)
        np.savez(folder / f"{split}.npz", images=images, labels=labels)
