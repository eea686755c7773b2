"""The peer: the loop that a PyTorch tutorial teaches for ImageNet, on the same files and network.

A Dataset that opens each file with Pillow, crops, flips, makes floats and normalises as torchvision
does, a DataLoader, default memory format, torch's own batch norm, SGD. Prints one JSON line: images
per second and per CPU-second.
"""

import argparse
import io
import math
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from benchmarks.plain_loop import add_place, place_of, train_and_tell, with_plain_norms
from paceline.tasks.imagenet import shards
from paceline.tasks.imagenet.resnet import ImagenetResNet

WARM_UP_STEPS = 2
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
DEVIATION = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


class Photos(Dataset[tuple[Tensor, int]]):
    def __init__(self, directory: Path, size: int) -> None:
        self.pictures, self.size = shards.open_pictures(directory, "train"), size

    def __len__(self) -> int:
        return 1_000_000  # endless, so that no epoch ends within a measurement

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        number = index % len(self.pictures)
        picture = Image.open(io.BytesIO(self.pictures.jpeg(number))).convert("RGB")
        picture = self._random_resized_crop(picture)
        if torch.rand(1) < 0.5:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        floats = torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous().float() / 255
        return (floats - MEAN) / DEVIATION, int(self.pictures.labels[number])

    def _random_resized_crop(self, picture: Image.Image) -> Image.Image:
        for _ in range(10):
            area = picture.width * picture.height * float(torch.empty(1).uniform_(0.08, 1))
            ratio = math.exp(float(torch.empty(1).uniform_(math.log(3 / 4), math.log(4 / 3))))
            width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < width <= picture.width and 0 < height <= picture.height:
                left = int(torch.randint(0, picture.width - width + 1, (1,)))
                top = int(torch.randint(0, picture.height - height + 1, (1,)))
                picture = picture.crop((left, top, left + width, top + height))
                break
        return picture.resize((self.size, self.size), Image.Resampling.BILINEAR)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--depth", type=int, default=18)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0)
    add_place(parser)
    options = parser.parse_args()
    place = place_of(options)
    network = ImagenetResNet(options.depth, len(shards.classes(options.data)))
    photos = Photos(options.data, options.size)
    loader = DataLoader(
        photos,
        batch_size=options.batch,
        shuffle=True,
        num_workers=options.workers,
        pin_memory=place.device.type == "cuda",
    )
    train_and_tell(with_plain_norms(network), loader, options.steps, WARM_UP_STEPS, 0.1, place)


if __name__ == "__main__":
    main()
