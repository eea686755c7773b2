"""The verb that uses a trained classifier of photographs."""

import argparse
from pathlib import Path

from paceline.arguments import Verbs


def add_classify(verbs: Verbs) -> None:
    classify = verbs.add_parser("classify", help="the five likeliest classes of pictures")
    classify.add_argument("run", type=Path)
    classify.add_argument("pictures", type=Path, nargs="+", help="files: JPEG, PNG, GIF, BMP, WebP")
    classify.add_argument("--checkpoint", default="best", metavar="best|newest|STEP|average:K")
    classify.add_argument("--json", action="store_true", help="one JSON line per picture")
    classify.set_defaults(call=classify_pictures)


def classify_pictures(arguments: argparse.Namespace) -> int:
    # Importing the first also tells when a library for pictures is missing.
    from paceline.machine.alone import run_alone
    from paceline.tasks.imagenet.preparation import pictures as imagenet_pictures  # noqa: F401
    from paceline.tasks.imagenet.runs import require_picture_run

    require_picture_run(arguments.run)
    options = ["--checkpoint", arguments.checkpoint, *(["--json"] if arguments.json else [])]
    pictures = ["--", str(arguments.run), *map(str, arguments.pictures)]
    return run_alone("paceline.tasks.imagenet.classify", [*options, *pictures])
