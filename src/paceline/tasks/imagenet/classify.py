"""What is in a picture, by a run's own weights.

Started as `python -m paceline.tasks.imagenet.classify RUN PICTURE...`.

A process of its own, because memory settings that make torch fast act only on a fresh one.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch

from paceline.errors import EXIT_USER_ERROR, UserError
from paceline.models.weights import load_weights
from paceline.tasks.answering import answering, say
from paceline.tasks.imagenet import KIND, decode
from paceline.tasks.imagenet.preparation.pictures import BrokenPictureError, plain_picture
from paceline.tasks.imagenet.runs import class_names, require_picture_run
from paceline.tasks.imagenet.task import batch_of, normalised
from paceline.world import choose_device

_NUM_BEST: Final = 5
_BATCH: Final = 32


@dataclass(frozen=True)
class Guess:
    wnid: str
    name: str
    probability: float


class Classifier:
    """The network of a run, with the names of the classes that it was trained on."""

    def __init__(self, run: Path, which: str = "best") -> None:
        self.recipe = require_picture_run(run)
        self.classes = class_names(run, self.recipe)
        self.device = choose_device("cpu" if self.recipe.device == "cpu" else "auto", 0)
        model = KIND.build_network(self.recipe)
        model.load_state_dict(load_weights(run, which).tensors)
        self.model = model.eval().to(self.device)

    def pixels_of(self, jpeg: bytes) -> decode.Pixels:
        size = self.recipe.evaluate.size or self.recipe.augment.size
        return decode.centre(jpeg, size, self.recipe.evaluate.share)

    @torch.inference_mode()
    def guess(self, pictures: Sequence[decode.Pixels]) -> list[list[Guess]]:
        batch = batch_of(np.stack(pictures), np.zeros(len(pictures), np.int64))
        likely = self.model(normalised(batch.pictures.to(self.device))).float().softmax(1)
        best = likely.topk(min(_NUM_BEST, len(self.classes)), dim=1)
        rows = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        return [
            [self._guess_of(label, share) for share, label in zip(*row, strict=True)]
            for row in rows
        ]

    def _guess_of(self, label: int, probability: float) -> Guess:
        wnid, name = self.classes[label]
        return Guess(wnid, name, probability)


def read_picture(path: Path) -> bytes:
    """A plain JPEG of whatever the file holds; says what is wrong with a file that is none."""
    try:
        return plain_picture(path.read_bytes()).content
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", "check the path") from error
    except BrokenPictureError as error:
        raise UserError(f"{path}: {error}", "give JPEG, PNG, GIF, BMP or WebP files") from error


def classify(classifier: Classifier, paths: Sequence[Path], as_json: bool) -> bool:
    """Write the guesses of each picture as they come; whether every one could be read."""
    all_read = True
    for start in range(0, len(paths), _BATCH):
        read: list[tuple[Path, decode.Pixels]] = []
        for path in paths[start : start + _BATCH]:
            try:
                read.append((path, classifier.pixels_of(read_picture(path))))
            except UserError as error:
                all_read = False
                say(str(error))
        guesses = classifier.guess([pixels for _, pixels in read]) if read else []
        for (path, _), best in zip(read, guesses, strict=True):
            sys.stdout.write((json_line if as_json else in_words)(path, best) + "\n")
        sys.stdout.flush()
    return all_read


def in_words(path: Path, best: Sequence[Guess]) -> str:
    lines = [f"  {100 * one.probability:5.1f} %  {one.name} ({one.wnid})" for one in best]
    return "\n".join([str(path), *lines])


def json_line(path: Path, best: Sequence[Guess]) -> str:
    return json.dumps({"picture": str(path), "classes": [asdict(one) for one in best]})


def main() -> None:
    parser = argparse.ArgumentParser(prog="paceline.tasks.imagenet.classify")
    parser.add_argument("run", type=Path)
    parser.add_argument("pictures", type=Path, nargs="+")
    parser.add_argument("--checkpoint", default="best")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with answering():
        classifier = Classifier(arguments.run, arguments.checkpoint)
        if not classify(classifier, arguments.pictures, arguments.json):
            sys.exit(EXIT_USER_ERROR)


if __name__ == "__main__":
    main()
