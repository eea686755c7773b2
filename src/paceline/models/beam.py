"""Beam search with cached keys and values: from a model and ids to scored translations.

The search is that of tensor2tensor and OpenSeq2Seq. A hypothesis that ends is ranked by its log
probability divided by ((5 + length) / 6) ** length_penalty, where the length counts the end. The
search of a sentence stops as soon as no hypothesis still alive could enter its n-best list, which
changes no result: alive log probabilities only fall, and no length is above the sentence's limit.

Ids go in and come out; text is the business of whoever calls. Training is in `transformer.py`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from paceline.errors import UserError
from paceline.models.attention import MASKED_SCORE
from paceline.models.packing import Packing
from paceline.models.transformer import DecoderLayer, Transformer

NEVER = float("-inf")
Rows = list[list[float]]
"""Numbers of each sentence."""
SPARE_PIECES = 8


@dataclass(frozen=True)
class BeamOptions:
    """`beam_size` 1 is greedy search. A translation has at most as many pieces (its end included)
    as its source plus `extra_length`."""

    beam_size: int = 4
    length_penalty: float = 0.6
    num_best: int = 1
    extra_length: int = 50
    batch_tokens: int = 2048

    def __post_init__(self) -> None:
        if self.beam_size < 1 or not 1 <= self.num_best <= self.beam_size:
            what = f"{self.num_best} best of a beam of {self.beam_size} cannot be given"
            raise UserError(what, "use 1 <= num_best <= beam_size")
        if self.length_penalty < 0 or self.extra_length < 1 or self.batch_tokens < 1:
            what = "length_penalty is below 0, or extra_length or batch_tokens below 1"
            raise UserError(what, "raise them")

    def divisor(self, length: int) -> float:
        """What the log probability of a hypothesis of this length, end included, is divided by."""
        return float(((5 + length) / 6) ** self.length_penalty)


@dataclass(frozen=True)
class Hypothesis:
    """A translation without start and end; `is_complete` is False if the limit cut it off."""

    ids: list[int]
    score: float
    log_prob: float
    is_complete: bool = True


def translate(
    model: Transformer,
    sources: list[list[int]],
    options: BeamOptions,
    on_progress: Callable[[int], None] = lambda _num_done: None,
) -> list[list[Hypothesis]]:
    """The `num_best` translations of each source, best first, in the order of the sources.

    A source ends with `eos_id`, as in training. A sentence's translations do not depend on the
    others (but for rounding: matrix products of different sizes add in different orders).
    """
    was_training = model.training
    model.eval()
    found: dict[int, list[Hypothesis]] = {}
    with torch.inference_mode():
        for numbers in _batches(sources, options.batch_tokens):
            batch = [sources[number] for number in numbers]
            found |= zip(numbers, _search(model, batch, options), strict=True)
            on_progress(len(found))
    model.train(was_training)
    return [found[number] for number in range(len(sources))]


def _batches(sources: list[list[int]], batch_tokens: int) -> Iterator[list[int]]:
    """Numbers of sources of similar length, longest first so that memory is asked for once."""
    order = sorted(range(len(sources)), key=lambda number: -len(sources[number]))
    start = 0
    while start < len(order):
        longest = max(1, len(sources[order[start]]))
        end = start + max(1, batch_tokens // longest)
        yield order[start:end]
        start = end


@dataclass
class _Sentence:
    """What is known of one sentence while it is searched."""

    limit: int
    complete: list[Hypothesis] = field(default_factory=list)

    def is_settled(self, best_log_prob: float, options: BeamOptions) -> bool:
        """Whether nothing that starts from `best_log_prob` could still enter the n-best list."""
        if len(self.complete) < options.num_best:
            return False
        worst_kept = sorted(self.complete, key=_by_score)[options.num_best - 1]
        return best_log_prob / options.divisor(self.limit) <= worst_kept.score


def _by_score(hypothesis: Hypothesis) -> float:
    return -hypothesis.score


def _search(
    model: Transformer, sources: list[list[int]], options: BeamOptions
) -> list[list[Hypothesis]]:
    if options.beam_size == 1:
        return [[hypothesis] for hypothesis in _search_greedily(model, sources, options)]
    beam = _Beam(model, sources, options)
    while beam.sentences:
        beam.advance()
    return [beam.results[number] for number in range(len(sources))]


def _search_greedily(
    model: Transformer, sources: list[list[int]], options: BeamOptions
) -> list[Hypothesis]:
    """The likeliest piece each time: nothing to reorder, and the first end is the end."""
    decoder = CachedDecoder(model, sources, beam_size=1)
    drafts = [_Draft(len(source) + options.extra_length, model.shape.eos_id) for source in sources]
    growing = drafts
    pieces = torch.full((len(sources),), model.shape.bos_id, device=decoder.mask.device)
    while growing:
        best, pieces = decoder.advance(pieces).max(dim=1)
        for draft, log_prob, piece in zip(growing, *_in_one_read(best, pieces), strict=True):
            draft.append(int(piece), log_prob)
        staying = [place for place, draft in enumerate(growing) if not draft.is_over]
        if 0 < len(staying) < len(growing):
            places = torch.tensor(staying, device=pieces.device)
            pieces = pieces[places]
            decoder.keep(places, places)
        growing = [growing[place] for place in staying]
    return [draft.hypothesis(options) for draft in drafts]


def _in_one_read(*tensors: Tensor) -> list[Any]:
    """As lists; a device is waited for only once. Whole numbers are exact in float64."""
    together: list[Any] = torch.stack([tensor.double() for tensor in tensors]).tolist()
    return together


@dataclass
class _Draft:
    """A greedy translation in the making."""

    limit: int
    eos_id: int
    ids: list[int] = field(default_factory=list)
    log_prob: float = 0.0

    def append(self, piece: int, log_prob: float) -> None:
        self.ids.append(piece)
        self.log_prob += log_prob

    @property
    def has_ended(self) -> bool:
        return self.ids[-1] == self.eos_id

    @property
    def is_over(self) -> bool:
        return self.has_ended or len(self.ids) >= self.limit

    def hypothesis(self, options: BeamOptions) -> Hypothesis:
        score = self.log_prob / options.divisor(len(self.ids))
        ids = self.ids[:-1] if self.has_ended else self.ids
        return Hypothesis(ids, score, self.log_prob, self.has_ended)


class _Beam:
    """The alive hypotheses of a batch, (sentences, beam): sentences leave it when settled."""

    def __init__(self, model: Transformer, sources: list[list[int]], options: BeamOptions) -> None:
        self.options, self.eos_id = options, model.shape.eos_id
        self.decoder = CachedDecoder(model, sources, options.beam_size)
        self.sentences = {
            number: _Sentence(len(source) + options.extra_length)
            for number, source in enumerate(sources)
        }
        self.results: dict[int, list[Hypothesis]] = {}
        device = model.embedding.weight.device
        self.log_probs = torch.full((len(sources), options.beam_size), NEVER, device=device)
        self.log_probs[:, 0] = 0.0
        start = torch.full((len(sources) * options.beam_size, 1), model.shape.bos_id)
        self.ids = start.to(device)

    def advance(self) -> None:
        """One more piece for every hypothesis."""
        scores, parents, pieces = self._candidates()
        best_log_probs = self._collect_complete(*_in_one_read(scores, parents, pieces))
        alive = scores.masked_fill(pieces == self.eos_id, NEVER)
        self.log_probs, chosen = alive.topk(self.options.beam_size, dim=1)
        first_rows = torch.arange(len(alive), device=alive.device).unsqueeze(1)
        rows = (first_rows * self.options.beam_size + parents.gather(1, chosen)).flatten()
        next_pieces = pieces.gather(1, chosen).flatten()
        self.ids = torch.cat([self.ids[rows], next_pieces.unsqueeze(1)], dim=1)
        self._continue_with(rows, self._settle(best_log_probs))

    def _candidates(self) -> tuple[Tensor, Tensor, Tensor]:
        """The best continuations of each sentence, twice as many as the beam is wide: should all
        hypotheses end, as many are left to go on. Scores, parents in the beam, and pieces."""
        beam_size = self.options.beam_size
        log_probs = self.decoder.advance(self.ids[:, -1])
        best, pieces = log_probs.topk(min(2 * beam_size, log_probs.shape[1]), dim=1)
        totals = (best + self.log_probs.view(-1, 1)).view(len(self.log_probs), -1)
        scores, places = totals.topk(2 * beam_size, dim=1)
        all_pieces = pieces.view(len(self.log_probs), -1)
        return scores, places // best.shape[1], all_pieces.gather(1, places)

    def _collect_complete(self, scores: Rows, parents: Rows, pieces: Rows) -> list[float]:
        """Keep what has ended; the best log probability of each sentence that has not."""
        ids: list[list[int]] | None = None
        best = []
        for place, number in enumerate(self.sentences):
            alive = NEVER
            for log_prob, parent, piece in zip(
                scores[place], parents[place], pieces[place], strict=True
            ):
                if piece != self.eos_id:
                    alive = max(alive, log_prob)
                elif log_prob > NEVER:
                    ids = ids or self.ids.tolist()
                    row = ids[place * self.options.beam_size + int(parent)]
                    score = log_prob / self.options.divisor(len(row))
                    hypothesis = Hypothesis(row[1:], score, log_prob)
                    self.sentences[number].complete.append(hypothesis)
            best.append(alive)
        return best

    def _settle(self, best_log_probs: list[float]) -> list[int]:
        """Move settled sentences to the results; the places of the others."""
        length, staying = self.ids.shape[1] - 1, []
        for place, number in enumerate(list(self.sentences)):
            sentence = self.sentences[number]
            at_limit = length >= sentence.limit
            if not at_limit and not sentence.is_settled(best_log_probs[place], self.options):
                staying.append(place)
                continue
            ranked = sorted(self.sentences.pop(number).complete, key=_by_score)
            if len(ranked) < self.options.num_best:
                ranked += self._cut_off(place)
            self.results[number] = ranked[: self.options.num_best]
        return staying

    def _cut_off(self, place: int) -> list[Hypothesis]:
        """What is alive at the limit, for lists that complete hypotheses do not fill."""
        first_row = place * self.options.beam_size
        length = self.ids.shape[1] - 1
        return [
            Hypothesis(
                self.ids[first_row + index, 1:].tolist(),
                log_prob / self.options.divisor(length),
                log_prob,
                is_complete=False,
            )
            for index, log_prob in enumerate(self.log_probs[place].tolist())
            if log_prob > NEVER
        ]

    def _continue_with(self, rows: Tensor, staying: list[int]) -> None:
        if not staying:
            return
        places = None
        if len(staying) < len(self.log_probs):
            places = torch.tensor(staying, device=rows.device)
            self.log_probs = self.log_probs[places]
            self.ids = self.ids.view(-1, self.options.beam_size, self.ids.shape[1])[places]
            self.ids = self.ids.flatten(0, 1)
            rows = rows.view(-1, self.options.beam_size)[places].flatten()
        self.decoder.keep(rows, places)


class CachedDecoder:
    """The decoder, one piece at a time, for rows of (sentence, beam).

    Caches are (piece, row, width) with room for pieces to come: a new piece is written without
    moving the others, and heads of a row are a view. The beam of a sentence shares the encoder's
    keys and values.
    """

    def __init__(self, model: Transformer, sources: list[list[int]], beam_size: int) -> None:
        self.model, self.beam_size, self.position = model, beam_size, 0
        device = model.embedding.weight.device
        memory, packing = model.encode(_padded(sources, model.shape.pad_id))
        self.layers: list[DecoderLayer] = list(model.decoder)  # type: ignore[arg-type]
        self.crosses = [_cross_heads(layer, memory, packing, model) for layer in self.layers]
        mask = torch.zeros(packing.is_real.shape, device=device, dtype=memory.dtype)
        self.mask = mask.masked_fill_(~packing.is_real, MASKED_SCORE)[:, None, None]
        empty = memory.new_empty(0, len(sources) * beam_size, 2 * model.shape.width)
        self.caches = [empty for _ in self.layers]
        self.forbidden = _forbidden_ids(model).to(device)

    def advance(self, pieces: Tensor) -> Tensor:
        """Log probabilities (rows, vocabulary) of what follows `pieces`, the newest of each row."""
        positions = torch.full_like(pieces, self.position)
        states = self.model.embed(pieces, positions, self.position + 1)
        for index, layer in enumerate(self.layers):
            states = self._advance_layer(index, layer, states)
        self.position += 1
        logits = F.linear(self.model.decoder_norm(states), self.model.embedding.weight)
        return F.log_softmax(logits.float(), dim=1).index_fill_(1, self.forbidden, NEVER)

    def keep(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Reorder the rows; keep only some of the sentences, unless `sentences` is None."""
        self.caches = [self._moved(cache, rows) for cache in self.caches]
        if sentences is not None:
            self.crosses = [cross.index_select(1, sentences) for cross in self.crosses]
            self.mask = self.mask.index_select(0, sentences)

    def _moved(self, cache: Tensor, rows: Tensor | None) -> Tensor:
        """A copy with more room, of chosen rows or of all."""
        num_rows = cache.shape[1] if rows is None else len(rows)
        moved = cache.new_empty(self.position + SPARE_PIECES, num_rows, cache.shape[2])
        if rows is None:
            moved[: self.position] = cache[: self.position]
        else:
            torch.index_select(cache[: self.position], 1, rows, out=moved[: self.position])
        return moved

    def _advance_layer(self, index: int, layer: DecoderLayer, states: Tensor) -> Tensor:
        states = layer.around_attention(
            states, lambda inputs: layer.attention.output(self._look_back(index, layer, inputs))
        )
        states = layer.around_cross(
            states, lambda inputs: layer.cross.output(self._look_across(index, layer, inputs))
        )
        return layer.around_feed_forward(states, layer.feed_forward)  # type: ignore[no-any-return]

    def _look_back(self, index: int, layer: DecoderLayer, states: Tensor) -> Tensor:
        num_heads, width = self.model.shape.num_heads, self.model.shape.width
        query, key_value = layer.attention.projection(states).split([width, 2 * width], dim=1)
        if len(self.caches[index]) == self.position:
            self.caches[index] = self._moved(self.caches[index], None)
        self.caches[index][self.position] = key_value
        cached = self.caches[index][: self.position + 1]
        pieces = cached.view(self.position + 1, len(states), 2, num_heads, -1)
        keys, values = pieces.permute(2, 1, 3, 0, 4).unbind(0)
        queries = query.view(len(states), num_heads, 1, -1)
        return F.scaled_dot_product_attention(queries, keys, values).view(-1, width)

    def _look_across(self, index: int, layer: DecoderLayer, states: Tensor) -> Tensor:
        num_heads, width = self.model.shape.num_heads, self.model.shape.width
        queries = layer.cross.query(states).view(-1, self.beam_size, num_heads, width // num_heads)
        keys, values = self.crosses[index].unbind(0)
        context = F.scaled_dot_product_attention(
            queries.transpose(1, 2), keys, values, attn_mask=self.mask
        )
        return context.transpose(1, 2).reshape(-1, width)


def _padded(sources: list[list[int]], pad_id: int) -> Tensor:
    longest = max(1, *map(len, sources))
    return torch.tensor([source + [pad_id] * (longest - len(source)) for source in sources])


def _cross_heads(
    layer: DecoderLayer, memory: Tensor, packing: Packing, model: Transformer
) -> Tensor:
    """Keys and values of the source, (2, sentence, head, position, head width)."""
    projected = layer.cross.key_value(memory).index_select(0, packing.numbers.flatten())
    by_head = projected.view(*packing.is_real.shape, 2, model.shape.num_heads, -1)
    heads: Tensor = by_head.permute(2, 0, 3, 1, 4).contiguous()
    return heads


def _forbidden_ids(model: Transformer) -> Tensor:
    """Never part of a translation: padding, start, and the rows that only fill the vocabulary."""
    fillers = range(model.shape.vocab_size, model.shape.padded_vocab_size)
    return torch.tensor([model.shape.pad_id, model.shape.bos_id, *fillers])
