"""Verbs that prepare data and show recipes."""

import argparse
from pathlib import Path

from paceline.cli.parser import Parser, Verbs, count, say


def add_data(verbs: Verbs) -> None:
    data = verbs.add_parser("data", help="prepare a data set for training")
    data.add_argument("workload", choices=["cifar10", "imagenet", "nmt"], help="whose data")
    data.add_argument("--from", dest="source", required=True, metavar="web|stand-in|PATH")
    data.add_argument("--to", type=Path, help="directory to write (default: the data cache)")
    text = data.add_argument_group("nmt only")
    text.add_argument("--source", dest="source_language", default="en", help="language (en)")
    text.add_argument("--target", dest="target_language", default="de", help="language (de)")
    text.add_argument("--vocab", type=count, help="pieces of the vocabulary")
    text.add_argument("--spm", type=Path, help="use this SentencePiece model instead of a new one")
    text.add_argument("--test", dest="test_set", help="web: sacreBLEU's name of the test set")
    text.add_argument("--pairs", type=count, default=60_000, help="stand-in: training pairs")
    photos = data.add_argument_group("imagenet only")
    photos.add_argument(
        "--layout", choices=["shards", "folders"], help="as large files, or train/WNID/*.JPEG"
    )
    photos.add_argument("--max-side", type=count, metavar="PIXELS", help="shrink larger pictures")
    photos.add_argument(
        "--pictures", type=count, default=60, help="stand-in: training pictures of a class"
    )
    photos.add_argument(
        "--verify", action="store_true", help="read what is there already, and compare hashes"
    )
    data.set_defaults(call=prepare_data)


def add_recipes(verbs: Verbs) -> None:
    recipes = verbs.add_parser("recipes", help="list recipes, or show one with every value")
    inner = recipes.add_subparsers(dest="action", metavar="show", parser_class=Parser)
    show = inner.add_parser("show", help="every value of a recipe, and what it means")
    show.add_argument("recipe", help="name, or path of a YAML file")
    show.add_argument("settings", nargs="*", metavar="name=value")
    recipes.set_defaults(call=list_recipes)
    show.set_defaults(call=show_recipe)


def prepare_data(arguments: argparse.Namespace) -> int:
    if arguments.workload == "nmt":
        return prepare_text(arguments)
    if arguments.workload == "imagenet":
        return prepare_photos(arguments)
    from paceline.tasks.cifar10 import prepare as cifar10

    directory = arguments.to or cifar10.default_directory(arguments.source)
    print(cifar10.prepare(arguments.source, directory, say))
    return 0


def prepare_text(arguments: argparse.Namespace) -> int:
    from paceline.tasks.nmt.preparation import prepare as nmt

    options = nmt.Options(
        source_language=arguments.source_language,
        target_language=arguments.target_language,
        vocab_size=arguments.vocab,
        spm=arguments.spm,
        num_pairs=arguments.pairs,
        test_set=arguments.test_set,
    )
    directory = arguments.to or nmt.default_directory(arguments.source)
    print(nmt.prepare(arguments.source, directory, options, say))
    return 0


def prepare_photos(arguments: argparse.Namespace) -> int:
    from paceline.tasks.imagenet.preparation import prepare as imagenet

    options = imagenet.Options(
        layout=arguments.layout,
        max_side=arguments.max_side,
        num_pictures=arguments.pictures,
        verify=arguments.verify,
    )
    directory = arguments.to or imagenet.default_directory(arguments.source)
    print(imagenet.prepare(arguments.source, directory, options, say))
    return 0


def list_recipes(_arguments: argparse.Namespace) -> int:
    from paceline import recipe

    for name in recipe.shipped():
        print(f"{name:<20} {recipe.load(name).about}")
    return 0


def show_recipe(arguments: argparse.Namespace) -> int:
    from paceline import config, recipe
    from paceline.schedule import batch_scale, in_words

    loaded = recipe.load(arguments.recipe, arguments.settings)
    print(config.annotated_yaml(loaded))
    whole = loaded.batch.global_
    scale = batch_scale(loaded.schedule, whole) if whole else 1.0
    print(f"# learning rate: {in_words(loaded.schedule, loaded.steps, scale)}")
    from paceline.train.size import size_in_words

    print(f"# {size_in_words(loaded)}")
    return 0
