"""Translating with a run's own weights: `python -m paceline.tasks.nmt.serve.translate RUN ...`.

A process of its own, because memory settings that make torch fast act only on a fresh one. What is
read and written is the business of `lines.py`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch

from paceline.models.beam import BeamOptions
from paceline.models.beam import translate as search_beam
from paceline.models.weights import load_weights
from paceline.tasks.answering import answering, say
from paceline.tasks.nmt.serve.lines import Candidate, Search, Streams, Wish, answer
from paceline.tasks.nmt.serve.runs import open_vocabulary, require_translation_run, search_of
from paceline.tasks.nmt.task import weights_into

# One piece at a time makes small products. Two threads took 5 times the processor time of one for
# a tiny model (width 128), and on a busy machine far more of the clock.
_WIDTH_FOR_THREADS: Final = 256


class RunTranslator:
    """The model of a run, with the vocabulary that it was trained with."""

    def __init__(self, run: Path, which: str = "best") -> None:
        self.recipe = require_translation_run(run)
        self.vocabulary = open_vocabulary(run, self.recipe)
        self.weights = load_weights(run, which)
        model = weights_into(self.recipe, self.vocabulary, self.weights.tensors)
        self.model = model.to(_device(self.recipe.device))
        if model.shape.width < _WIDTH_FOR_THREADS:
            torch.set_num_threads(1)

    @property
    def longest_seen(self) -> int:
        return self.recipe.max_length

    def count_pieces(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self.vocabulary.encode(texts)]

    def translate(self, texts: Sequence[str], search: Search) -> list[list[Candidate]]:
        if not texts:
            return []
        sources = [[*ids, self.vocabulary.eos_id] for ids in self.vocabulary.encode(texts)]
        options = BeamOptions(
            search.beam, search.length_penalty, search.num_best or 1, search.extra_length
        )
        found = search_beam(self.model, sources, options)
        flat = iter(self.vocabulary.decode(one.ids for best in found for one in best))
        return [[Candidate(next(flat), one.score) for one in best] for best in found]


def _device(wanted: str) -> torch.device:
    has_cuda = wanted != "cpu" and torch.cuda.is_available()
    return torch.device("cuda" if has_cuda else "cpu")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="paceline.tasks.nmt.serve.translate")
    parser.add_argument("run", type=Path)
    parser.add_argument("--checkpoint", default="best")
    parser.add_argument("--beam", type=int)
    parser.add_argument("--greedy", action="store_true")
    parser.add_argument("--nbest", type=int)
    return parser


def main() -> None:
    arguments = _parser().parse_args()
    with answering():
        translator = RunTranslator(arguments.run, arguments.checkpoint)
        wish = Wish(arguments.beam, arguments.greedy, arguments.nbest)
        search = wish.laid_over(search_of(translator.recipe))
        answer(translator, search, Streams.of_this_process(), say)


if __name__ == "__main__":
    main()
