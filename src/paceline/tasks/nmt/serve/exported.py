"""Translating with an exported model, by CTranslate2: no torch, no recipe, fit for a small device.

CTranslate2 searches the same beam as `models/beam.py`, but ranks by another length penalty, stops
at another moment and knows one limit of length per call. Hence it is asked for everything that it
found, and the ranking is done here.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import ctranslate2

from paceline.errors import UserError
from paceline.machine.cores import num_cores
from paceline.tasks.nmt.serve import EXPORT_CARD
from paceline.tasks.nmt.serve.lines import Candidate, Say, Search, Streams, Wish, answer
from paceline.tasks.nmt.vocabulary import Vocabulary

BATCH_TOKENS: Final = 1024
CARD_VERSION: Final = 1

# Scores come back divided by length ** this: as good as undivided, but at 0 CTranslate2 would stop
# at the first end that leads the beam.
_NO_PENALTY: Final = 1e-7


# The search goes on until this many times the beam have ended. With 1, a poor translation won now
# and then because the better one was not yet at its end: 1.7 % of a tiny model's translations
# differed from the run's own, with 2 it was 0.3 %, for a quarter more time.
_PATIENCE: Final = 2


class Found(NamedTuple):
    ids: list[int]
    log_prob: float
    is_complete: bool

    def rank(self, search: Search) -> tuple[bool, float]:
        return self.is_complete, self.score(search)

    def score(self, search: Search) -> float:
        return self.log_prob / search.divisor(len(self.ids) + self.is_complete)


class _Task(NamedTuple):
    """Numbers of sources, batch by batch; the limits of all sources; pieces never to be said."""

    batches: list[list[int]]
    limits: list[int]
    forbidden: list[list[str]] | None = None


@dataclass(frozen=True)
class Card:
    """What `paceline.json` says that translating needs."""

    search: Search
    longest_seen: int
    step: int
    num_rows: int

    @classmethod
    def read(cls, directory: Path) -> "Card":
        path = directory / EXPORT_CARD
        try:
            card = json.loads(path.read_text(encoding="utf-8"))
            if card["version"] > CARD_VERSION:
                raise UserError(f"{path} was written by a newer Paceline", "update this one")
            return cls(
                Search(**card["decode"]), card["longest_seen"], card["step"], card["num_rows"]
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path} cannot be read: {type(error).__name__} {error}", "export the run again"
            ) from error


class ExportedTranslator:
    """`num_threads` work on batches of their own, or with `is_interactive` on one together."""

    def __init__(
        self, directory: Path, num_threads: int | None = None, is_interactive: bool = False
    ) -> None:
        self.card = Card.read(directory)
        self.vocabulary = Vocabulary.load(directory)
        self.names = piece_names(self.vocabulary, self.card.num_rows)
        self.ids = {name: number for number, name in enumerate(self.names)}
        fillers = range(self.vocabulary.size, self.card.num_rows)
        self._never_said = {self.vocabulary.pad_id, self.vocabulary.bos_id, *fillers}
        self._forbidden = [[self.names[number]] for number in sorted(self._never_said)]
        threads = num_threads or num_cores()
        inter, intra = (1, threads) if is_interactive else (threads, 1)
        self._num_at_once = inter
        self._model = _open_model(directory, inter, intra)

    @property
    def longest_seen(self) -> int:
        return self.card.longest_seen

    def count_pieces(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self.vocabulary.encode(texts)]

    def translate(self, texts: Sequence[str], search: Search) -> list[list[Candidate]]:
        if not texts:
            return []
        found = self.search(self.vocabulary.encode(texts), search)
        flat = iter(self.vocabulary.decode(one.ids for best in found for one in best))
        return [[Candidate(next(flat), one.score(search)) for one in best] for best in found]

    def search(self, sources: list[list[int]], search: Search) -> list[list[Found]]:
        """The best translations of each source (ids without start and end), best first."""
        lengths = [len(source) + 1 for source in sources]
        limits = [length + search.extra_length for length in lengths]
        batches = similar(lengths, self._num_at_once)
        found = self._search_batches(sources, _Task(batches, limits), search)
        # A batch has the limit of its longest sentence; who went beyond their own go again.
        too_long = [n for n, results in found.items() if _is_beyond(results, limits[n])]
        found |= self._search_batches(sources, _Task(equal(too_long, limits), limits), search)
        # So do those that contain what must not be said. To forbid it from the start would keep
        # it out of the softmax, and the scores would no longer be the run's.
        unspeakable = [n for n, results in found.items() if self._is_unspeakable(results)]
        task = _Task(equal(unspeakable, limits), limits, self._forbidden)
        found |= self._rescored(sources, self._search_batches(sources, task, search))
        return [
            sorted(found[n], key=lambda one: one.rank(search), reverse=True)[: search.num_best or 1]
            for n in range(len(sources))
        ]

    def _is_unspeakable(self, results: list[Found]) -> bool:
        return any(not self._never_said.isdisjoint(one.ids) for one in results)

    def _search_batches(
        self, sources: list[list[int]], task: "_Task", search: Search
    ) -> dict[int, list[Found]]:
        """All batches are handed over at once, so that no thread waits for another."""
        patience = _PATIENCE if search.beam > 1 else 1
        pending = [
            self._model.translate_batch(
                [self._named(sources[n]) for n in batch],
                asynchronous=True,
                return_scores=True,
                beam_size=search.beam,
                patience=patience,
                num_hypotheses=search.beam * patience,
                length_penalty=_NO_PENALTY,
                suppress_sequences=task.forbidden,
                max_decoding_length=max(task.limits[n] for n in batch),
                min_decoding_length=0,
                max_input_length=0,
                return_end_token=True,
            )
            for batch in task.batches
        ]
        results = [result.result() for futures in pending for result in futures]
        numbers = [n for batch in task.batches for n in batch]
        return {n: self._read(result) for n, result in zip(numbers, results, strict=True)}

    def _named(self, ids: list[int]) -> list[str]:
        return [self.names[number] for number in ids]

    def _read(self, result: Any) -> list[Found]:
        found = []
        for tokens, score in zip(result.hypotheses, result.scores, strict=True):
            ids = [self.ids[token] for token in tokens]
            is_complete = bool(ids) and ids[-1] == self.vocabulary.eos_id
            log_prob = score * len(ids) ** _NO_PENALTY
            found.append(Found(ids[:-1] if is_complete else ids, log_prob, is_complete))
        return found

    def _rescored(
        self, sources: list[list[int]], found: dict[int, list[Found]]
    ) -> dict[int, list[Found]]:
        """Log probabilities among all pieces, also those that the search was not to say."""
        flat = [(n, one) for n, results in found.items() for one in results]
        scored = self._model.score_batch(
            [self._named(sources[n]) for n, _ in flat],
            [self._named(one.ids) for _, one in flat],
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            max_input_length=0,
        )
        rescored: dict[int, list[Found]] = {n: [] for n in found}
        for (n, one), result in zip(flat, scored, strict=True):
            log_probs = result.log_probs[: len(one.ids) + one.is_complete]
            rescored[n].append(one._replace(log_prob=sum(log_probs)))
        return rescored


def translate(directory: Path, wish: Wish, streams: Streams, say: Say) -> None:
    """What `paceline translate` does with a directory that `paceline export` wrote."""
    translator = ExportedTranslator(directory, is_interactive=streams.is_interactive)
    answer(translator, wish.laid_over(translator.card.search), streams, say)


def refuse_checkpoint(directory: Path) -> None:
    step = Card.read(directory).step
    raise UserError(
        f"{directory} holds one checkpoint, of step {step:,}; there is no other to choose",
        "leave --checkpoint out, or give it to `paceline export`",
    )


def piece_names(vocabulary: Vocabulary, num_rows: int) -> list[str]:
    """A name for each row of the embedding, also for what SentencePiece has no piece for."""
    processor = vocabulary.processor
    names = [processor.id_to_piece(number) for number in range(processor.get_piece_size())]
    taken = set(names)
    for number in range(len(names), num_rows):
        name = f"<row {number}>"
        while name in taken:
            name += ">"
        names.append(name)
        taken.add(name)
    return names


def similar(lengths: list[int], num_threads: int = 1) -> list[list[int]]:
    """Numbers in batches of similar length, the longest first: no thread is left with a long one
    at the end. Few sentences make smaller batches, so that every thread has one."""
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    most_tokens = min(BATCH_TOKENS, math.ceil(sum(lengths) / num_threads))
    batches = []
    while order:
        size = max(1, most_tokens // lengths[order[0]])
        batches.append(order[:size])
        order = order[size:]
    return batches


def equal(numbers: list[int], limits: list[int]) -> list[list[int]]:
    """These numbers in batches of the same limit."""
    groups: dict[int, list[int]] = {}
    for number in numbers:
        groups.setdefault(limits[number], []).append(number)
    return list(groups.values())


def _is_beyond(results: list[Found], limit: int) -> bool:
    return any(len(one.ids) + one.is_complete > limit for one in results)


def _open_model(directory: Path, inter_threads: int, intra_threads: int) -> Any:
    try:
        return ctranslate2.Translator(
            str(directory), inter_threads=inter_threads, intra_threads=intra_threads
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"CTranslate2 cannot open {directory}: {error}", "export the run again"
        ) from error
