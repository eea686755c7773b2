"""The base of every task whose samples are independent: which samples are in which micro-batch.

Order is a pure function of the seed and the position in one endless stream, never of the number of
processes.
"""

import numpy as np

from paceline.data import order
from paceline.settings import Recipe
from paceline.tasks.contract import Task

NUM_TRAIN_SCORED = 1000
"""Training samples that are scored beside validation, unless the recipe says how many."""


class SampleTask(Task):
    """A unit is a sample, and a micro-batch always has as many."""

    def __init__(self, recipe: Recipe, num_train: int) -> None:
        self.recipe, self.num_train = recipe, num_train

    @property
    def micro_size(self) -> int:
        return self.recipe.batch.micro_size

    def num_units(self, index: int) -> int:
        return self.micro_size

    def epochs_at(self, position: int) -> float:
        return position * self.micro_size / self.num_train

    def samples(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Which samples are in a micro-batch, and in which epoch each."""
        first = index * self.micro_size
        return order.samples_at(self.num_train, self.recipe.seed, first, first + self.micro_size)

    def scored_training(self) -> range:
        """The training samples that are scored beside validation."""
        wanted = self.recipe.evaluate.train_samples
        return order.fixed_part(self.num_train, NUM_TRAIN_SCORED if wanted is None else wanted)
