"""CIFAR-10: pictures of ten classes, scored by top-1."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from paceline.data.card import read_card
from paceline.data.places import data_directory
from paceline.errors import UserError
from paceline.record.writer import write_file
from paceline.tasks.cifar10 import augment as images
from paceline.tasks.cifar10 import prepare as cifar10
from paceline.tasks.cifar10.fastnet import FastNet
from paceline.tasks.cifar10.network import build_network
from paceline.tasks.cifar10.settings import Cifar10Recipe
from paceline.tasks.contract import Scores
from paceline.tasks.pictures import PictureSettings, PictureTask, channels_last
from paceline.tasks.scoring import ScoreBatches
from paceline.tasks.stream import Samples, Split

FULL_SIZE = 32


@dataclass(frozen=True)
class PictureBatch:
    pictures: torch.Tensor
    """uint8, (N, 3, 32, 32)"""
    labels: torch.Tensor
    size: int = FULL_SIZE
    """Side that the network sees; made on the device."""


class Cifar10(PictureTask):
    recipe: Cifar10Recipe
    reads_ahead = False
    """A batch is cut from memory in less time than a thread takes to wake up."""

    def open(self, data: Path | None) -> dict[str, Split]:
        self.directory = data or data_directory(self.recipe.data)
        self.train = self._trained_on()
        self._opened = {"train": self.train}
        card = read_card(self.directory)
        self._mean = torch.tensor(card["channel_mean"], device=self.device).view(1, 3, 1, 1)
        self._std = torch.tensor(card["channel_std"], device=self.device).view(1, 3, 1, 1)
        return {"train": len(self.train.labels)}

    @property
    def pictures(self) -> PictureSettings:
        return PictureSettings(FULL_SIZE, self.recipe.augment.sizes, self.recipe.label_smoothing)

    def _trained_on(self) -> cifar10.Pictures:
        train = cifar10.open_split(self.directory, "train")
        if self.recipe.train_on == "train":
            return train
        more = cifar10.open_split(self.directory, "validation")
        return cifar10.Pictures(
            np.concatenate([train.images, more.images]),
            np.concatenate([train.labels, more.labels]),
            train.classes,
        )

    def _split(self, split: str) -> cifar10.Pictures:
        if split not in self._opened:
            self._opened[split] = cifar10.open_split(self.directory, split)
        return self._opened[split]

    def split_numbers(self, split: str) -> range:
        if split == "validation" and self.recipe.train_on == "all":
            raise UserError(
                "this run was trained on the validation pictures too; a score on them says nothing",
                "give --split test",
            )
        return range(len(self._split(split).labels))

    def build_model(self) -> nn.Module:
        model = build_network(self.recipe.model)
        if isinstance(model, FastNet):
            first = torch.from_numpy(np.array(self.train.images[:5000])).to(self.device)
            model.init_from_pictures(self._normalised(first).cpu())
        return channels_last(model, self.device)

    def keep(self, directory: Path) -> None:
        write_file(directory / "classes.txt", "\n".join(self.train.classes) + "\n")

    def batch(self, samples: Samples, rng: np.random.Generator | None) -> PictureBatch:
        source = self._split(samples.split)
        if rng is None or samples.epochs is None:
            return batch_of(source.images[samples], source.labels[samples])
        augment = self.recipe.augment
        pictures = images.random_crop(source.images[samples], augment.pad, rng)
        flips = images.flip_choice(augment.flip, samples, samples.epochs, rng)
        pictures = images.cutout(images.mirror(pictures, flips), augment.cutout, rng)
        return batch_of(pictures, source.labels[samples], self.size_of(samples))

    def _normalised(self, pictures: torch.Tensor) -> torch.Tensor:
        floats = pictures.to(dtype=torch.float32, memory_format=torch.channels_last)
        return floats.div_(255).sub_(self._mean).div_(self._std)

    def loss(self, model: nn.Module, batch: PictureBatch) -> torch.Tensor:
        pictures = resized(batch.pictures, batch.size)
        return self.summed_loss(model(self._normalised(pictures)), batch.labels)

    def evaluate(self, model: nn.Module, batches: ScoreBatches) -> Scores:
        sums = torch.zeros(3, dtype=torch.float64, device=self.device)
        for batch in batches:
            sums += self._sums_of(model, batch)
        loss, num_right, num = batches.add_up(sums).tolist()
        mirror = "yes" if self.recipe.mirror else "no"
        moved = f"|shift:{self.recipe.shift}" if self.recipe.shift else ""
        signature = f"{batches.split}:{int(num)} pictures|mirror:{mirror}{moved}"
        return Scores({"top1": num_right / num, "loss": loss / num}, signature)

    def _sums_of(self, model: nn.Module, batch: PictureBatch) -> torch.Tensor:
        logits = self._logits(model, self._normalised(batch.pictures))
        losses = F.cross_entropy(logits, batch.labels, reduction="none").double()
        right = (logits.argmax(1) == batch.labels).double()
        return torch.stack([losses.sum(), right.sum(), torch.ones_like(right).sum()])

    def _logits(self, model: nn.Module, pictures: torch.Tensor) -> torch.Tensor:
        """Averaged over the views the recipe asks for; the untouched one counts as much as both
        moved ones together."""
        logits = self._of_both_sides(model, pictures)
        if not self.recipe.shift:
            return logits
        moved = [self._of_both_sides(model, view) for view in shifted(pictures, self.recipe.shift)]
        return logits / 2 + (moved[0] + moved[1]) / 4

    def _of_both_sides(self, model: nn.Module, pictures: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = model(pictures).float()
        if self.recipe.mirror:
            logits = (logits + model(pictures.flip(3)).float()) / 2
        return logits


def batch_of(pictures: np.ndarray, labels: np.ndarray, size: int = FULL_SIZE) -> PictureBatch:
    return PictureBatch(torch.from_numpy(np.array(pictures)), torch.from_numpy(labels), size)


def shifted(pictures: torch.Tensor, pixels: int) -> list[torch.Tensor]:
    """The pictures moved up left and down right, the edge filled by reflection."""
    padded = F.pad(pictures, (pixels,) * 4, mode="reflect")
    height, width = pictures.shape[2:]
    views = [padded[:, :, at : at + height, at : at + width] for at in (0, 2 * pixels)]
    return [view.contiguous(memory_format=torch.channels_last) for view in views]


def resized(pictures: torch.Tensor, size: int) -> torch.Tensor:
    if pictures.shape[-1] == size:
        return pictures
    laid_out = pictures.contiguous(memory_format=torch.channels_last)
    if laid_out.device.type == "cpu":
        return F.interpolate(laid_out, size=(size, size), mode="bilinear", antialias=True)
    floats = laid_out.float()  # torch resizes bytes on processors only
    return F.interpolate(floats, size=(size, size), mode="bilinear", antialias=True).round_()
