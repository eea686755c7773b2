"""ImageNet and any other photographs in classes: scored by top-1 and top-5."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from paceline.data.places import data_directory
from paceline.data.readahead import Filling, fill_at_once
from paceline.errors import UserError
from paceline.record.writer import write_file
from paceline.tasks.contract import Scores
from paceline.tasks.imagenet import decode, shards
from paceline.tasks.imagenet.resnet import ImagenetResNet
from paceline.tasks.imagenet.settings import ImagenetRecipe
from paceline.tasks.pictures import PictureSettings, PictureTask, channels_last
from paceline.tasks.scoring import ScoreBatches
from paceline.tasks.stream import Samples, Split

# The mean and deviation that every published ImageNet network was trained with.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_NUM_BEST = 5


@dataclass(frozen=True)
class PhotoBatch:
    pictures: torch.Tensor
    """uint8, (N, 3, size, size), a pixel's channels together"""
    labels: torch.Tensor


class TrainFilling:
    """A micro-batch on its way: which pictures, which part of each, and the pixels so far."""

    units_per_place = 1

    def __init__(self, task: "Imagenet", samples: Samples, rng: np.random.Generator) -> None:
        augment, self.size = task.recipe.augment, task.size_of(samples)
        self.source, self.samples = task.train, samples
        self.source.announce(samples)
        self.boxes = decode.random_boxes(
            self.source.sizes[samples], augment.smallest_share, self.size, rng
        )
        self.flips = (rng.random(len(samples)) < 0.5) & augment.flip
        self.pixels = np.empty((len(self.samples), self.size, self.size, 3), np.uint8)

    @property
    def num_samples(self) -> int:
        return len(self.samples)

    def fill(self, place: int) -> None:
        number = int(self.samples[place])
        with naming(self.source, number):
            picture = decode.cut_out(self.source.jpeg(number), self.boxes[place], self.size)
        self.pixels[place] = decode.mirrored(picture) if self.flips[place] else picture

    def filled(self) -> PhotoBatch:
        return batch_of(self.pixels, self.source.labels[self.samples])


class ScoredFilling:
    """Pictures of a split in their order, each the central square."""

    units_per_place = 1

    def __init__(self, source: shards.Pictures, numbers: Samples, size: int, share: float) -> None:
        self.source, self.numbers, self.size, self.share = source, numbers, size, share
        source.announce(numbers)
        self.pixels = np.empty((len(numbers), size, size, 3), np.uint8)

    @property
    def num_samples(self) -> int:
        return len(self.numbers)

    def fill(self, place: int) -> None:
        number = int(self.numbers[place])
        with naming(self.source, number):
            self.pixels[place] = decode.centre(self.source.jpeg(number), self.size, self.share)

    def filled(self) -> PhotoBatch:
        return batch_of(self.pixels, self.source.labels[self.numbers])


class naming:  # noqa: N801  (a context manager that reads like a verb)
    """Says which picture it was that cannot be decoded any more."""

    def __init__(self, source: shards.Pictures, number: int) -> None:
        self.source, self.number = source, number

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, ValueError):
            raise UserError(
                f"picture {self.number} of the split '{self.source.split}' in "
                f"{self.source.directory} cannot be decoded: {error}",
                "prepare the data again: paceline data imagenet --from PATH",
            ) from error


class Imagenet(PictureTask):
    recipe: ImagenetRecipe
    last_layer = "fc."
    input_remedy = "shrink the pictures once (paceline data imagenet --max-side)"

    def open(self, data: Path | None) -> dict[str, Split]:
        self.directory = data or data_directory(self.recipe.data)
        self.train = shards.open_pictures(self.directory, "train")
        self._opened = {"train": self.train}
        self.classes = shards.require_classes(self.directory, self.recipe.model.num_classes)
        return {"train": len(self.train)}

    @property
    def pictures(self) -> PictureSettings:
        augment = self.recipe.augment
        return PictureSettings(augment.size, augment.sizes, self.recipe.label_smoothing)

    def _split(self, split: str) -> shards.Pictures:
        if split not in self._opened:
            self._opened[split] = shards.open_pictures(self.directory, split)
        return self._opened[split]

    def split_numbers(self, split: str) -> range:
        return range(len(self._split(split)))

    def build_model(self) -> nn.Module:
        model = self.recipe.model
        network = ImagenetResNet(model.depth, model.num_classes, model.width)
        return channels_last(network, self.device)

    @property
    def start_from(self) -> str | None:
        return self.recipe.model.start_from

    def keep(self, directory: Path) -> None:
        lines = "".join(f"{wnid}\t{words}\n" for wnid, words in self.classes)
        write_file(directory / shards.CLASSES_NAME, lines)

    def fill(self, samples: Samples, rng: np.random.Generator | None) -> Filling:
        if rng is not None:
            return TrainFilling(self, samples, rng)
        share = self.recipe.evaluate.share
        return ScoredFilling(self._split(samples.split), samples, self.scored_size, share)

    def batch(self, samples: Samples, rng: np.random.Generator | None) -> PhotoBatch:
        batch: PhotoBatch = fill_at_once(self.fill(samples, rng))
        return batch

    @property
    def largest_batch_bytes(self) -> int:
        sizes = [self.recipe.augment.size, *(size for _, size in self.recipe.augment.sizes)]
        return 3 * self.micro_size * max(sizes) ** 2

    def loss(self, model: nn.Module, batch: PhotoBatch) -> torch.Tensor:
        return self.summed_loss(model(normalised(batch.pictures)), batch.labels)

    def evaluate(self, model: nn.Module, batches: ScoreBatches) -> Scores:
        sums = torch.zeros(4, dtype=torch.float64, device=self.device)
        for batch in batches:
            sums += sums_of(model(normalised(batch.pictures)).float(), batch.labels)
        loss, num_first, num_five, num = batches.add_up(sums).tolist()
        size, share = self.scored_size, self.recipe.evaluate.share
        signature = f"{batches.split}:{int(num)} pictures|centre:{size} of {round(size / share)} px"
        values = {"top1": num_first / num, "top5": num_five / num, "loss": loss / num}
        return Scores(values, signature)

    @property
    def scored_size(self) -> int:
        return self.recipe.evaluate.size or self.recipe.augment.size


def batch_of(pixels: decode.Pixels, labels: np.ndarray) -> PhotoBatch:
    return PhotoBatch(torch.from_numpy(pixels).permute(0, 3, 1, 2), torch.from_numpy(labels))


def normalised(pictures: torch.Tensor) -> torch.Tensor:
    """On the device, where a batch is one operation and a picture was a fifth of the bytes."""
    scale, shift = _scale_and_shift(pictures.device)
    return pictures.to(torch.float32).mul_(scale).sub_(shift)


@cache
def _scale_and_shift(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Sent there once: for every batch, the host would wait until the device gets to it."""
    mean, deviation = torch.tensor(MEAN), torch.tensor(DEVIATION)
    scale, shift = 1 / (255 * deviation), mean / deviation
    return scale.view(1, 3, 1, 1).to(device), shift.view(1, 3, 1, 1).to(device)


def sums_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Loss, how many are right at first, how many among the best five, how many in all."""
    losses = F.cross_entropy(logits, labels, reduction="none").double()
    best = logits.topk(min(_NUM_BEST, logits.shape[1]), dim=1).indices
    right = (best == labels[:, None]).double()
    return torch.stack(
        [losses.sum(), right[:, 0].sum(), right.sum(), torch.ones_like(losses).sum()]
    )
