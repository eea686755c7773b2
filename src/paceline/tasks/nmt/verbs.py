"""Verbs that use a trained translator."""

import argparse
from pathlib import Path

from paceline.arguments import Verbs, count, say


def add_translate(verbs: Verbs) -> None:
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


def add_export(verbs: Verbs) -> None:
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


def translate_text(arguments: argparse.Namespace) -> int:
    from paceline.tasks.nmt import serve

    if not serve.is_export(arguments.model):
        return translate_with_run(arguments)
    serve.require_libraries()
    from paceline.tasks.nmt.serve import exported, lines

    if arguments.checkpoint is not None:
        exported.refuse_checkpoint(arguments.model)
    wish = lines.Wish(arguments.beam, arguments.greedy, arguments.nbest)
    exported.translate(arguments.model, wish, lines.Streams.of_this_process(), say)
    return 0


def translate_with_run(arguments: argparse.Namespace) -> int:
    from paceline.machine.alone import run_alone
    from paceline.tasks.nmt.serve.runs import require_translation_run

    require_translation_run(arguments.model)
    options = ["--checkpoint", arguments.checkpoint or "best"]
    options += ["--beam", str(arguments.beam)] if arguments.beam else []
    options += ["--nbest", str(arguments.nbest)] if arguments.nbest else []
    options += ["--greedy"] if arguments.greedy else []
    return run_alone("paceline.tasks.nmt.serve.translate", [str(arguments.model), *options])


def export_run(arguments: argparse.Namespace) -> int:
    from paceline.tasks.nmt import serve

    serve.require_libraries()
    from paceline.machine.alone import run_alone
    from paceline.tasks.nmt.serve.runs import require_translation_run

    require_translation_run(arguments.run)
    options = ["--quantize", arguments.quantize, "--checkpoint", arguments.checkpoint]
    options += ["--check", str(arguments.check)] if arguments.check is not None else []
    where = [str(arguments.run), str(arguments.directory)]
    return run_alone("paceline.tasks.nmt.serve.export", [*where, *options])
