"""Projects of users, written into a directory of a test: a small task, and its many mistakes."""

from pathlib import Path

TASK = """
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import paceline


class Blobs(paceline.SampleTask):
    unit, best_by = "point", "top1"

    class Settings(paceline.Settings):
        width: int = paceline.setting(8, "size of the hidden layer", fixed=True, gt=0)
        noise: float = paceline.setting(0.1, "augmentation: what is added to a point", ge=0)

    def open(self, data):
        rng = np.random.default_rng(0)
        self.labels = rng.integers(0, 3, 330)
        self.points = rng.normal(self.labels[:, None] * [1.0, -2.0], 0.6).astype(np.float32)
        self.changed = lambda x, rng: x + self.settings.noise * rng.normal(size=x.shape)
        return {"train": range(30, 330), "validation": range(30)}

    def build_model(self):
        w = self.settings.width
        return nn.Sequential(nn.Linear(2, w), nn.BatchNorm1d(w), nn.ReLU(), nn.Linear(w, 3))

    def batch(self, samples, rng):
        points = self.points[samples]
        if rng is not None:
            points = self.changed(points, rng).astype(np.float32)
        return {"points": points, "labels": self.labels[samples]}

    def loss(self, model, batch):
        return F.cross_entropy(model(batch["points"]), batch["labels"], reduction="sum")

    def evaluate(self, model, batches):
        loss = right = num = 0
        for batch in batches:
            logits = model(batch["points"])
            loss += F.cross_entropy(logits, batch["labels"], reduction="sum")
            right += (logits.argmax(1) == batch["labels"]).sum()
            num += len(logits)
        return paceline.Scores.of_sums(num, top1=right, loss=loss)
"""
RECIPE = """workload: blobs.task:Blobs
steps: 12
batch: {global: 32, micro: 8}
schedule: {rate: 0.05}
evaluate: {every_steps: 6, batch: 7, train_samples: 20}
checkpoint: {every_steps: 4}
log: {every_steps: 1}
"""


def write_project(folder: Path, *changes: tuple[str, str], recipe: str = "") -> Path:
    """The task with some of its text replaced; the path of its recipe."""
    text = TASK
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    package = folder / "blobs"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    (package / "task.py").write_text(text, encoding="utf-8")
    (folder / "blobs.yaml").write_text(RECIPE + recipe, encoding="utf-8")
    return folder / "blobs.yaml"
