"""The command line: verbs only. Parses, calls, prints; decides nothing.

Every verb imports what it needs when it runs, so that `--help` answers at once.
"""

import argparse
import os
import re
import shlex
import sys
from pathlib import Path
from typing import NoReturn

from paceline import __version__
from paceline.errors import EXIT_USER_ERROR, UserError

_DOTTED_OPTION = re.compile(r"--([a-z0-9_]+(?:\.[a-z0-9_]+)+)(?:=(.*))?")


class Parser(argparse.ArgumentParser):
    """argparse with our form of error: one message, exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USER_ERROR, f"error: {message}\n  fix: see `{self.prog} --help`\n")


def build_parser() -> Parser:
    parser = Parser(
        prog="paceline",
        description="Train one model on one machine or many, and know why it took so long.",
    )
    parser.add_argument("--version", action="version", version=f"paceline {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)
    _add_data(verbs)
    _add_recipes(verbs)
    _add_train(verbs)
    _add_evaluate(verbs)
    _add_translate(verbs)
    _add_readers(verbs)
    return parser


def _add_data(verbs: "argparse._SubParsersAction[Parser]") -> None:
    data = verbs.add_parser("data", help="prepare a data set for training")
    data.add_argument("workload", choices=["cifar10", "nmt"], help="whose data")
    data.add_argument("--from", dest="source", required=True, metavar="web|stand-in|PATH")
    data.add_argument("--to", type=Path, help="directory to write (default: the data cache)")
    text = data.add_argument_group("nmt only")
    text.add_argument("--source", dest="source_language", default="en", help="language (en)")
    text.add_argument("--target", dest="target_language", default="de", help="language (de)")
    text.add_argument("--vocab", type=count, help="pieces of the vocabulary")
    text.add_argument("--spm", type=Path, help="use this SentencePiece model instead of a new one")
    text.add_argument("--test", dest="test_set", help="web: sacreBLEU's name of the test set")
    text.add_argument("--pairs", type=count, default=60_000, help="stand-in: training pairs")
    data.set_defaults(call=prepare_data)


def _add_recipes(verbs: "argparse._SubParsersAction[Parser]") -> None:
    recipes = verbs.add_parser("recipes", help="list recipes, or show one with every value")
    inner = recipes.add_subparsers(dest="action", metavar="show", parser_class=Parser)
    show = inner.add_parser("show", help="every value of a recipe, and what it means")
    show.add_argument("recipe", help="name, or path of a YAML file")
    show.add_argument("settings", nargs="*", metavar="name=value")
    recipes.set_defaults(call=list_recipes)
    show.set_defaults(call=show_recipe)


def _add_train(verbs: "argparse._SubParsersAction[Parser]") -> None:
    train = verbs.add_parser("train", help="train, or go on with a run")
    train.add_argument("recipe", help="name, or path of a YAML file")
    train.add_argument(
        "settings", nargs="*", metavar="name=value", help="any setting of the recipe"
    )
    train.add_argument("--run", type=Path, help="run directory (default: runs/RECIPE)")
    train.add_argument("--procs", type=count, help="processes (default: one per GPU; one on a CPU)")
    train.set_defaults(call=train_run)


def _add_evaluate(verbs: "argparse._SubParsersAction[Parser]") -> None:
    evaluate = verbs.add_parser("evaluate", help="scores of a checkpoint")
    evaluate.add_argument("run", type=Path)
    evaluate.add_argument(
        "--split", default="validation", help="validation (default), test or train"
    )
    evaluate.add_argument("--checkpoint", default="best", metavar="best|newest|STEP|average:K")
    evaluate.set_defaults(call=evaluate_run)


def _add_translate(verbs: "argparse._SubParsersAction[Parser]") -> None:
    translate = verbs.add_parser("translate", help="translate lines of standard input")
    translate.add_argument("model", type=Path, help="a run, or what `paceline export` wrote")
    translate.add_argument("--beam", type=count, help="beam size (default: the recipe's)")
    translate.add_argument("--greedy", action="store_true", help="the likeliest piece each time")
    translate.add_argument(
        "--nbest", type=count, help="so many of each line, as: line number, score, translation"
    )
    translate.add_argument(
        "--checkpoint", metavar="best|newest|STEP|average:K", help="of a run (default: best)"
    )
    translate.set_defaults(call=translate_text)
    export = verbs.add_parser("export", help="write a model for a small device, and check it")
    export.add_argument("run", type=Path)
    export.add_argument("directory", type=Path, help="what to write")
    export.add_argument("--to", choices=["ctranslate2"], default="ctranslate2", help="for what")
    export.add_argument(
        "--quantize", choices=["none", "int8", "int16", "float16", "bfloat16"], default="none"
    )
    export.add_argument("--checkpoint", default="best", metavar="best|newest|STEP|average:K")
    checking = export.add_mutually_exclusive_group()
    checking.add_argument("--check", type=count, help="check with so many sentences (default: all)")
    checking.add_argument("--no-check", dest="check", action="store_const", const=0)
    export.set_defaults(call=export_run)


def _add_readers(verbs: "argparse._SubParsersAction[Parser]") -> None:
    report = verbs.add_parser("report", help="where the time went, and what came of it")
    report.add_argument("run", type=Path)
    report.add_argument("--lines", type=int, help="only the first lines")
    report.set_defaults(call=report_run)
    log = verbs.add_parser("log", help="the curves of a run as a table")
    log.add_argument("run", type=Path)
    log.add_argument("--csv", action="store_true", help="comma separated values (the default)")
    log.set_defaults(call=log_run)
    checkpoint = verbs.add_parser("checkpoint", help="what a checkpoint holds")
    checkpoint.add_argument("run", type=Path)
    checkpoint.add_argument("--checkpoint", default="newest", metavar="newest|best|STEP")
    checkpoint.set_defaults(call=checkpoint_run)


def count(text: str) -> int:
    """A whole number from 1 up, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 up")
    return int(text)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def prepare_data(arguments: argparse.Namespace) -> int:
    if arguments.workload == "nmt":
        return prepare_text(arguments)
    from paceline.data import cifar10

    directory = arguments.to or cifar10.default_directory(arguments.source)
    print(cifar10.prepare(arguments.source, directory, say))
    return 0


def prepare_text(arguments: argparse.Namespace) -> int:
    from paceline.data import nmt

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


def train_run(arguments: argparse.Namespace) -> int:
    from paceline import recipe
    from paceline.launch import local
    from paceline.launch.checks import check_data
    from paceline.record.schema import RunDirectory

    loaded = recipe.load(arguments.recipe, arguments.settings)
    check_data(loaded)
    path = arguments.run or Path("runs") / Path(arguments.recipe).stem
    num_procs = arguments.procs or local.default_num_procs()
    command = shlex.join(["paceline", *sys.argv[1:]])
    return local.train(local.Job(loaded, RunDirectory(path), num_procs, command), say)


def evaluate_run(arguments: argparse.Namespace) -> int:
    from paceline.launch.local import run_alone
    from paceline.record.reader import require_run

    require_run(arguments.run)
    where = [str(arguments.run), arguments.checkpoint, arguments.split]
    return run_alone("paceline.train.evaluator", where)


def translate_text(arguments: argparse.Namespace) -> int:
    from paceline import serve

    if not serve.is_export(arguments.model):
        return translate_with_run(arguments)
    serve.require_libraries()
    from paceline.serve import exported, lines

    if arguments.checkpoint is not None:
        exported.refuse_checkpoint(arguments.model)
    wish = lines.Wish(arguments.beam, arguments.greedy, arguments.nbest)
    exported.translate(arguments.model, wish, lines.Streams.of_this_process(), say)
    return 0


def translate_with_run(arguments: argparse.Namespace) -> int:
    from paceline.launch.local import run_alone
    from paceline.serve.runs import require_translation_run

    require_translation_run(arguments.model)
    options = ["--checkpoint", arguments.checkpoint or "best"]
    options += ["--beam", str(arguments.beam)] if arguments.beam else []
    options += ["--nbest", str(arguments.nbest)] if arguments.nbest else []
    options += ["--greedy"] if arguments.greedy else []
    return run_alone("paceline.serve.translate", [str(arguments.model), *options])


def export_run(arguments: argparse.Namespace) -> int:
    from paceline import serve

    serve.require_libraries()
    from paceline.launch.local import run_alone
    from paceline.serve.runs import require_translation_run

    require_translation_run(arguments.run)
    options = ["--quantize", arguments.quantize, "--checkpoint", arguments.checkpoint]
    options += ["--check", str(arguments.check)] if arguments.check is not None else []
    where = [str(arguments.run), str(arguments.directory)]
    return run_alone("paceline.serve.export", [*where, *options])


def report_run(arguments: argparse.Namespace) -> int:
    from paceline.report.render_text import render
    from paceline.report.summary import summarise

    lines = render(summarise(arguments.run)).splitlines()
    print("\n".join(lines[: arguments.lines]))
    return 0


def log_run(arguments: argparse.Namespace) -> int:
    from paceline.report.table import write_csv

    write_csv(arguments.run, sys.stdout)
    return 0


def checkpoint_run(arguments: argparse.Namespace) -> int:
    from paceline.record.checkpoints import choose
    from paceline.record.reader import require_run
    from paceline.report.render_checkpoint import render

    require_run(arguments.run)
    print(render(choose(arguments.run, arguments.checkpoint, say)))
    return 0


def dotted_options_as_settings(words: list[str]) -> list[str]:
    """`--checkpoint.every_steps 50` means `checkpoint.every_steps=50`: only settings have dots."""
    settled: list[str] = []
    pending: str | None = None
    for word in words:
        match = _DOTTED_OPTION.fullmatch(word)
        if pending is not None:
            settled.append(f"{pending}={word}")
            pending = None
        elif match and match.group(2) is None:
            pending = match.group(1)
        else:
            settled.append(f"{match.group(1)}={match.group(2)}" if match else word)
    return settled if pending is None else [*settled, pending]


def parse(words: list[str]) -> argparse.Namespace:
    """argparse wants all settings before the first option; a user writes them anywhere."""
    parser = build_parser()
    arguments, rest = parser.parse_known_args(dotted_options_as_settings(words))
    settings = [word for word in rest if "=" in word and not word.startswith("-")]
    strange = [word for word in rest if word not in settings]
    if strange or (settings and not hasattr(arguments, "settings")):
        parser.error(f"unknown arguments: {' '.join(strange or settings)}")
    if settings:
        arguments.settings = [*arguments.settings, *settings]
    return arguments


def main() -> None:
    arguments = parse(sys.argv[1:])
    try:
        code = arguments.call(arguments)
    except UserError as error:
        print(error, file=sys.stderr)
        code = EXIT_USER_ERROR
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        # The reader (head, less) has seen enough; give Python nothing left to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)


if __name__ == "__main__":
    main()
