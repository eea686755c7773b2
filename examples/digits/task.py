"""A picture classifier: drawn digits of 16 x 16 pixels, and a small convolutional network."""

from pathlib import Path

import numpy as np
import torch.nn.functional as F
from torch import nn

import paceline


class Digits(paceline.SampleTask):
    unit, best_by = "image", "top1"

    class Settings(paceline.Settings):
        width: int = paceline.setting(16, "channels of the first layer", fixed=True, gt=0)
        shift: int = paceline.setting(1, "augmentation: most pixels a picture is moved", ge=0)

    def open(self, data: Path) -> dict[str, range]:
        stored = np.load(data)  # pictures: uint8 (N, 16, 16), labels: int64 (N,)
        self.pictures, self.labels = stored["pictures"], stored["labels"]
        num, held_out = len(self.labels), len(self.labels) // 5
        return {"train": range(held_out, num), "validation": range(held_out)}

    def build_model(self) -> nn.Module:
        w = self.settings.width
        first = [nn.Conv2d(1, w, 3, padding=1), nn.BatchNorm2d(w), nn.ReLU(), nn.MaxPool2d(2)]
        second = [nn.Conv2d(w, 2 * w, 3, padding=1), nn.BatchNorm2d(2 * w), nn.ReLU()]
        last = [nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * w, 10)]
        return nn.Sequential(*first, *second, *last)

    def batch(self, samples, rng):
        pictures = self.pictures[samples]
        if rng is not None:  # training: move each picture a little
            moves = rng.integers(-self.settings.shift, self.settings.shift + 1, (len(samples), 2))
            pairs = zip(pictures, moves, strict=True)
            pictures = np.stack([np.roll(picture, move, (0, 1)) for picture, move in pairs])
        return pictures[:, None].astype(np.float32) / 255, self.labels[samples]

    def loss(self, model, batch):
        pictures, labels = batch
        return F.cross_entropy(model(pictures), labels, reduction="sum")

    def evaluate(self, model, batches):
        loss = right = num = 0
        for pictures, labels in batches:
            logits = model(pictures)
            loss += F.cross_entropy(logits, labels, reduction="sum")
            right += (logits.argmax(1) == labels).sum()
            num += len(labels)
        return paceline.Scores.of_sums(num, top1=right, loss=loss)
