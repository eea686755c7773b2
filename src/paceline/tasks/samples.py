"""What every task on pictures in classes shares: the stream of micro-batches, and the loss."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from paceline.data import order
from paceline.recipe import Cifar10Recipe, ImagenetRecipe

NUM_TRAIN_SCORED = 1000
"""Training pictures that are scored beside validation, unless the recipe says how many."""


class PictureStream:
    """Which pictures are in which micro-batch, of which size, and what they count."""

    unit = "image"
    best_by = "top1"

    def __init__(
        self, recipe: Cifar10Recipe | ImagenetRecipe, num_train: int, full_size: int
    ) -> None:
        self._recipe, self._num_train, self._full_size = recipe, num_train, full_size

    def micro_batches_per_step(self, world_size: int) -> int:
        batch = self._recipe.batch
        whole = batch.global_ or (batch.per_device or 0) * world_size
        return whole // (batch.micro or whole)

    def global_batch(self, world_size: int) -> int:
        return self.micro_batches_per_step(world_size) * self.micro

    def num_units(self, index: int) -> int:
        return self.micro

    @property
    def micro(self) -> int:
        return self._recipe.batch.micro or 0

    def epochs_at(self, position: int) -> float:
        return position * self.micro / self._num_train

    def samples(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Which pictures are in a micro-batch, and in which epoch each."""
        first = index * self.micro
        return order.samples_at(self._num_train, self._recipe.seed, first, first + self.micro)

    def size_at(self, index: int) -> int:
        """Progressive resizing: early steps cost less on smaller pictures, and lose little."""
        done = index / (self._recipe.steps * self.micro_batches_per_step(1))
        begun = [size for share, size in self._recipe.augment.sizes if share <= done]
        return begun[-1] if begun else self._full_size

    def scored_training(self) -> range:
        """The training pictures that are scored beside validation."""
        wanted = self._recipe.evaluate.train_samples
        return order.fixed_part(self._num_train, NUM_TRAIN_SCORED if wanted is None else wanted)

    def summed_loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        smoothing = self._recipe.label_smoothing
        return F.cross_entropy(logits.float(), labels, reduction="sum", label_smoothing=smoothing)


def channels_last(model: nn.Module, device: torch.device) -> nn.Module:
    """Convolutions on CPUs and tensor cores are fastest when a pixel's channels lie together."""
    moved: nn.Module = model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return moved
