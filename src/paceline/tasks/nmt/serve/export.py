"""From a run to a directory that CTranslate2 can serve.

Started as `python -m paceline.tasks.nmt.serve.export RUN TO`.

The exported model is checked before it appears under its name: it translates the validation set
beside the run itself, and what that cost and won is printed and kept in `paceline.json`.
"""

import argparse
import dataclasses
import json
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from paceline import __version__
from paceline.data.card import read_card
from paceline.data.places import data_directory, writing_to
from paceline.errors import UserError
from paceline.files import whole_directory
from paceline.models.shapes import BYTES_PER_FP32, count_parameters
from paceline.record.writer import write_file
from paceline.tasks.answering import answering
from paceline.tasks.answering import say as say_on_stderr
from paceline.tasks.nmt.preparation.prepare import open_split
from paceline.tasks.nmt.serve import EXPORT_CARD, is_export
from paceline.tasks.nmt.serve.exported import CARD_VERSION, ExportedTranslator
from paceline.tasks.nmt.serve.lines import (
    LONGEST_PART,
    Notes,
    Say,
    Search,
    Translator,
    translate_lines,
)
from paceline.tasks.nmt.serve.runs import search_of, vocabulary_file
from paceline.tasks.nmt.serve.spec import specify
from paceline.tasks.nmt.serve.translate import RunTranslator
from paceline.tasks.nmt.settings import NmtRecipe
from paceline.tasks.nmt.vocabulary import MODEL_NAME
from paceline.units import format_bytes

LARGEST_BLEU_DROP: Final = 1.0
_DECODE_FIELDS: Final = ("beam", "length_penalty", "extra_length")


@dataclass(frozen=True)
class Order:
    """What to export and where to. `num_checked` None checks with the whole validation set."""

    run: Path
    to: Path
    checkpoint: str = "best"
    quantize: str = "none"
    num_checked: int | None = None


@dataclass(frozen=True)
class Check:
    """Both models on the same sentences, by the same search."""

    num_sentences: int
    num_same: int
    beam: int
    run_bleu: float
    exported_bleu: float
    run_sentences_per_second: float
    exported_sentences_per_second: float
    signature: str


def export(order: Order, say: Say) -> str:
    """Write the directory, complete or not at all, and return a table of what came of it."""
    _refuse_to_overwrite(order.to)
    own = RunTranslator(order.run, order.checkpoint)
    with writing_to(order.to), whole_directory(order.to.absolute()) as aside:
        _write_model(own, order, aside)
        check = _check(own, aside, order, say)
        _write_card(own, order, aside, check)
        num_bytes = _size_of(aside)
    return _table(own, order, check, num_bytes)


def _refuse_to_overwrite(to: Path) -> None:
    if to.exists() and not is_export(to) and (not to.is_dir() or any(to.iterdir())):
        raise UserError(
            f"{to} exists and is no exported model", "name a new directory, or remove it"
        )


def _write_model(own: RunTranslator, order: Order, to: Path) -> None:
    longest = max(LONGEST_PART, own.longest_seen) + own.recipe.decode.extra_length + 2
    # somebody may ask the exported model for more than we do
    spec = specify(own.model, own.vocabulary, num_positions=max(512, longest))
    spec.optimize(None if order.quantize == "none" else order.quantize)
    spec.save(str(to))
    shutil.copyfile(vocabulary_file(order.run, own.recipe), to / MODEL_NAME)
    _write_card(own, order, to, None)


def _write_card(own: RunTranslator, order: Order, to: Path, check: Check | None) -> None:
    search = dataclasses.asdict(search_of(own.recipe))
    shape = own.model.shape
    card: dict[str, Any] = {
        "version": CARD_VERSION,
        "format": "ctranslate2",
        "quantize": order.quantize,
        "run": str(order.run),
        "step": own.weights.step,
        "weights": own.weights.name,
        "languages": _languages(own.recipe),
        "decode": {name: search[name] for name in _DECODE_FIELDS},
        "longest_seen": own.longest_seen,
        "num_rows": shape.padded_vocab_size,
        "vocab_size": own.vocabulary.size,
        "num_parameters": count_parameters(shape),
        "check": dataclasses.asdict(check) if check else None,
        "paceline": __version__,
    }
    write_file(to / EXPORT_CARD, json.dumps(card, indent=1) + "\n")


def _languages(recipe: NmtRecipe) -> str | None:
    try:
        return str(read_card(data_directory(recipe.data))["languages"])
    except (UserError, KeyError):
        return None


def _check(own: RunTranslator, exported: Path, order: Order, say: Say) -> Check | None:
    texts = _validation(own.recipe, order.num_checked, say)
    if not texts:
        return None
    sources, references = texts
    say(f"checking: both models translate {len(sources):,} validation sentences")
    search = search_of(own.recipe)
    expected, run_seconds = _timed(own, sources, search)
    found, exported_seconds = _timed(ExportedTranslator(exported), sources, search)
    bleu, signature = _bleu_of(references)
    return Check(
        num_sentences=len(sources),
        num_same=sum(a == b for a, b in zip(expected, found, strict=True)),
        beam=search.beam,
        run_bleu=bleu(expected),
        exported_bleu=bleu(found),
        run_sentences_per_second=len(sources) / run_seconds,
        exported_sentences_per_second=len(sources) / exported_seconds,
        signature=signature(),
    )


def _validation(
    recipe: NmtRecipe, num_checked: int | None, say: Say
) -> tuple[list[str], list[str]] | None:
    """Sources and references, spread evenly over the set if only some are wanted."""
    if num_checked == 0:
        return None
    try:
        pairs = open_split(data_directory(recipe.data), "validation")
        sources, references = pairs.source_text(), pairs.target_text()
    except UserError as error:
        say(f"warning: the exported model is not checked: {error.what}")
        return None
    step = max(1, len(sources) // (num_checked or len(sources)))
    chosen = range(0, len(sources), step)[:num_checked]
    return [sources[n] for n in chosen], [references[n] for n in chosen]


def _timed(translator: Translator, sources: list[str], search: Search) -> tuple[list[str], float]:
    notes = Notes(lambda _text: None)
    translate_lines(translator, sources[:8], search, notes)  # the first call allocates
    began = time.perf_counter()
    found = translate_lines(translator, sources, search, notes)
    return [best[0].text for best in found], time.perf_counter() - began


def _bleu_of(references: list[str]) -> tuple[Callable[[list[str]], float], Callable[[], str]]:
    from sacrebleu.metrics.bleu import BLEU  # noqa: PLC0415

    metric = BLEU()
    return (
        lambda texts: float(metric.corpus_score(texts, [references]).score),
        lambda: str(metric.get_signature()),
    )


def _size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def _table(own: RunTranslator, order: Order, check: Check | None, num_bytes: int) -> str:
    run_bytes = count_parameters(own.model.shape) * BYTES_PER_FP32
    kind = "fp32" if order.quantize == "none" else order.quantize
    rows = [
        ("", "run, fp32", f"exported, {kind}", ""),
        (
            "size on disk",
            format_bytes(run_bytes),
            format_bytes(num_bytes),
            f"{num_bytes / run_bytes:.2f} times",
        ),
    ]
    if check:
        rows += _rows_of(check)
    lines = [f"{name:<22}{run:>12}{exported:>20}{note:>14}" for name, run, exported, note in rows]
    lines = [line.rstrip() for line in lines]
    if check and check.run_bleu - check.exported_bleu > LARGEST_BLEU_DROP:
        drop = check.run_bleu - check.exported_bleu
        lines.append(f"warning: the exported model is {drop:.1f} BLEU worse; quantize less")
    return "\n".join([f"{order.to}: {own.weights.name} of {order.run}", *lines])


def _rows_of(check: Check) -> list[tuple[str, str, str, str]]:
    run_speed, speed = check.run_sentences_per_second, check.exported_sentences_per_second
    same = f"{check.num_same:,} of {check.num_sentences:,}"
    return [
        (
            f"BLEU, beam {check.beam}",
            f"{check.run_bleu:.2f}",
            f"{check.exported_bleu:.2f}",
            f"{check.exported_bleu - check.run_bleu:+.2f}",
        ),
        ("sentences/s", f"{run_speed:,.1f}", f"{speed:,.1f}", f"{speed / run_speed:.2f} times"),
        ("same translation", "", same, ""),
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="paceline.tasks.nmt.serve.export")
    parser.add_argument("run", type=Path)
    parser.add_argument("to", type=Path)
    parser.add_argument("--quantize", default="none")
    parser.add_argument("--checkpoint", default="best")
    parser.add_argument("--check", type=int)
    return parser


def main() -> None:
    given = _parser().parse_args()
    order = Order(given.run, given.to, given.checkpoint, given.quantize, given.check)
    with answering():
        sys.stdout.write(f"{export(order, say_on_stderr)}\n")


if __name__ == "__main__":
    main()
