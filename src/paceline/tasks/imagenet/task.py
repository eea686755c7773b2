"""ImageNet and any other photographs in classes: scored by top-1 and top-5."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from paceline.data import order
from paceline.data.card import read_card
from paceline.data.places import data_directory
from paceline.data.readahead import Filling, ReadAhead, fill_at_once
from paceline.errors import UserError
from paceline.machine.cores import cores_of_process
from paceline.record.writer import write_file
from paceline.tasks.contract import Scores
from paceline.tasks.imagenet import decode, shards
from paceline.tasks.imagenet.resnet import ImagenetResNet
from paceline.tasks.imagenet.settings import ImagenetRecipe
from paceline.tasks.pictures import PictureSettings, PictureTask, channels_last
from paceline.world import World

# The mean and deviation that every published ImageNet network was trained with.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_NUM_BEST = 5


@dataclass(frozen=True)
class PhotoBatch:
    pictures: torch.Tensor
    """uint8, (N, 3, size, size), a pixel's channels together"""
    labels: torch.Tensor

    def to(self, device: torch.device) -> "PhotoBatch":
        if device.type == "cpu":
            return self
        parts = [part.pin_memory().to(device, non_blocking=True) for part in self._parts()]
        return PhotoBatch(*parts)

    def _parts(self) -> list[torch.Tensor]:
        return [self.pictures, self.labels]


class TrainFilling:
    """A micro-batch on its way: which pictures, which part of each, and the pixels so far."""

    def __init__(self, workload: "Imagenet", index: int) -> None:
        recipe, self.size = workload.recipe, workload.size_at(index)
        self.source = workload.train
        self.samples, _ = workload.samples(index)
        self.source.announce(self.samples)
        rng = order.micro_batch_generator(recipe.seed, index)
        self.boxes = decode.random_boxes(
            self.source.sizes[self.samples], recipe.augment.smallest_share, self.size, rng
        )
        coins = rng.random(len(self.samples)) < 0.5
        self.flips = coins & recipe.augment.flip
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

    def __init__(self, source: shards.Pictures, numbers: range, size: int, share: float) -> None:
        self.source, self.numbers, self.size, self.share = source, numbers, size, share
        source.announce(numbers)
        self.pixels = np.empty((len(numbers), size, size, 3), np.uint8)

    @property
    def num_samples(self) -> int:
        return len(self.numbers)

    def fill(self, place: int) -> None:
        number = self.numbers[place]
        with naming(self.source, number):
            self.pixels[place] = decode.centre(self.source.jpeg(number), self.size, self.share)

    def filled(self) -> PhotoBatch:
        return batch_of(self.pixels, self.source.labels[np.asarray(self.numbers)])


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

    def __init__(self, recipe: ImagenetRecipe, device: torch.device) -> None:
        self.recipe = recipe
        self.device = device
        self.directory = data_directory(recipe.data)
        self.train = shards.open_pictures(self.directory, "train")
        look = PictureSettings(recipe.augment.size, recipe.augment.sizes, recipe.label_smoothing)
        super().__init__(recipe, len(self.train), look)
        self.classes = shards.require_classes(self.directory, recipe.model.num_classes)
        self.data_fingerprint = str(read_card(self.directory)["fingerprint"])

    def build_model(self) -> nn.Module:
        torch.manual_seed(self.recipe.seed)
        model = self.recipe.model
        network = ImagenetResNet(model.depth, model.num_classes, model.width)
        return channels_last(network, self.device)

    @property
    def start_from(self) -> str | None:
        return self.recipe.model.start_from

    def keep(self, directory: Path) -> None:
        lines = "".join(f"{wnid}\t{words}\n" for wnid, words in self.classes)
        write_file(directory / shards.CLASSES_NAME, lines)

    @property
    def asked_workers(self) -> int | None:
        return self.recipe.input.workers

    def begin_batch(self, index: int) -> Filling:
        return TrainFilling(self, index)

    @property
    def largest_batch_bytes(self) -> int:
        sizes = [self.recipe.augment.size, *(size for _, size in self.recipe.augment.sizes)]
        return 3 * self.micro_size * max(sizes) ** 2

    def on_device(self, batch: PhotoBatch) -> PhotoBatch:
        return batch.to(self.device)

    def micro_batch(self, index: int) -> PhotoBatch:
        batch: PhotoBatch = fill_at_once(self.begin_batch(index))
        return self.on_device(batch)

    def loss(self, model: nn.Module, batch: PhotoBatch) -> torch.Tensor:
        return self.summed_loss(model(normalised(batch.pictures)), batch.labels)

    def evaluate(self, model: nn.Module, split: str, world: World, final: bool = False) -> Scores:
        source = shards.open_pictures(self.directory, split)
        return self._score(model, source, range(len(source)), world)

    def evaluate_training(self, model: nn.Module, world: World) -> Scores:
        return self._score(model, self.train, self.scored_training(), world)

    @torch.inference_mode()
    def _score(
        self, model: nn.Module, source: shards.Pictures, numbers: range, world: World
    ) -> Scores:
        sums = torch.zeros(4, dtype=torch.float64, device=self.device)
        model.eval()
        for number, batch in enumerate(self._batches_of(source, numbers, world), 1):
            sums += sums_of(model(normalised(batch.pictures)).float(), batch.labels)
            num_done = number * self.recipe.evaluate.batch * world.size
            self.tell_progress(min(num_done, len(numbers)), len(numbers))
        model.train()
        loss, num_first, num_five, num = world.add_up(sums).tolist()
        size, share = self.scored_size, self.recipe.evaluate.share
        signature = f"{source.split}:{int(num)} pictures|centre:{size} of {round(size / share)} px"
        values = {"top1": num_first / num, "top5": num_five / num, "loss": loss / num}
        return Scores(values, signature)

    @property
    def scored_size(self) -> int:
        return self.recipe.evaluate.size or self.recipe.augment.size

    def _batches_of(
        self, source: shards.Pictures, wanted: range, world: World
    ) -> Iterator[PhotoBatch]:
        """This process's share of a split; cut into the same batches whatever the world."""
        count, share = self.recipe.evaluate.batch, self.recipe.evaluate.share
        starts = range(0, len(wanted), count)[world.rank :: world.size]

        def begin(start: int) -> Filling:
            return ScoredFilling(source, wanted[start : start + count], self.scored_size, share)

        ahead = ReadAhead(begin, iter(starts), cores_of_process(), num_ahead=2)
        try:
            for _ in starts:
                yield self.on_device(ahead.take()[1])
        finally:
            ahead.close()


def batch_of(pixels: decode.Pixels, labels: np.ndarray) -> PhotoBatch:
    return PhotoBatch(torch.from_numpy(pixels).permute(0, 3, 1, 2), torch.from_numpy(labels))


def normalised(pictures: torch.Tensor) -> torch.Tensor:
    """On the device, where a batch is one operation and a picture was a fifth of the bytes."""
    floats = pictures.to(torch.float32)
    mean, deviation = floats.new_tensor(MEAN), floats.new_tensor(DEVIATION)
    scale, shift = 1 / (255 * deviation), mean / deviation
    return floats.mul_(scale.view(1, 3, 1, 1)).sub_(shift.view(1, 3, 1, 1))


def sums_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Loss, how many are right at first, how many among the best five, how many in all."""
    losses = F.cross_entropy(logits, labels, reduction="none").double()
    best = logits.topk(min(_NUM_BEST, logits.shape[1]), dim=1).indices
    right = (best == labels[:, None]).double()
    return torch.stack(
        [losses.sum(), right[:, 0].sum(), right.sum(), torch.ones_like(losses).sum()]
    )
