"""Beam search against a slow search that caches nothing and handles one sentence at a time."""

from collections.abc import Iterator
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from paceline.errors import UserError
from paceline.models.beam import BeamOptions, Hypothesis, translate
from paceline.models.packing import Packing
from paceline.models.shapes import TransformerShape
from paceline.models.transformer import Transformer

EOS, BOS = 1, 2


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny operations on a busy machine wait for each other's threads more than they compute."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def a_model(seed: int, vocab_size: int = 19, norm: str = "pre") -> Transformer:
    """Random, with sharp and varied distributions, so that the search has something to decide."""
    torch.manual_seed(seed)
    shape = TransformerShape(
        vocab_size,
        width=16,
        inner_width=32,
        num_heads=2,
        num_encoder_layers=1,
        num_decoder_layers=2,
        norm=norm,  # type: ignore[arg-type]
    )
    model = Transformer(shape)
    with torch.no_grad():
        model.embedding.weight.mul_(2)
        model.embedding.weight[EOS] *= 0.7
    return model


def some_sources(num_sentences: int = 7, vocab_size: int = 19, longest: int = 9) -> list[list[int]]:
    generator = torch.Generator().manual_seed(4)
    lengths = torch.randint(0, longest, (num_sentences,), generator=generator).tolist()
    return [
        [*torch.randint(3, vocab_size, (length,), generator=generator).tolist(), EOS]
        for length in lengths
    ]


def next_log_probs(model: Transformer, source: list[int], ids: list[int]) -> list[float]:
    """What may follow `ids`, computed from the whole prefix by the training path."""
    with torch.no_grad():
        memory, packing = model.encode(torch.tensor([source]))
        prefix = torch.tensor([BOS, *ids])
        states = model.embed(prefix, torch.arange(len(prefix)), len(prefix))
        whole = Packing.of(torch.ones(1, len(prefix), dtype=torch.bool))
        hidden = model.run_decoder(states, whole, memory, packing)[-1]
        log_probs: Tensor = F.log_softmax(model.embedding.weight @ hidden, dim=0)
    log_probs[[0, BOS, *range(model.shape.vocab_size, len(log_probs))]] = float("-inf")
    return log_probs.tolist()


def slow_search(model: Transformer, source: list[int], options: BeamOptions) -> list[Hypothesis]:
    """Always up to the limit: no early stop, no cache, no batch."""
    alive: list[tuple[float, list[int]]] = [(0.0, [])]
    complete, limit = [], len(source) + options.extra_length
    for length in range(1, limit + 1):
        candidates = []
        for log_prob, ids in alive:
            for piece, extra in enumerate(next_log_probs(model, source, ids)):
                candidates.append((log_prob + extra, [*ids, piece]))
        candidates.sort(key=lambda candidate: -candidate[0])
        candidates = candidates[: 2 * options.beam_size]
        if options.beam_size == 1 and candidates[0][1][-1] == EOS:
            candidates = candidates[:1]  # greedy: the likeliest piece is an end, so it is the end
        elif options.beam_size == 1:
            candidates = [pair for pair in candidates if pair[1][-1] != EOS]
        for log_prob, ids in candidates:
            if ids[-1] == EOS:
                score = log_prob / ((5 + length) / 6) ** options.length_penalty
                complete.append(Hypothesis(ids[:-1], score, log_prob))
        alive = [pair for pair in candidates if pair[1][-1] != EOS][: options.beam_size]
    divisor = ((5 + limit) / 6) ** options.length_penalty
    complete.sort(key=lambda hypothesis: -hypothesis.score)
    cut_off = [Hypothesis(ids, log_prob / divisor, log_prob, False) for log_prob, ids in alive]
    return [*complete, *cut_off][: options.num_best]


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [one.ids for one in found] == [one.ids for one in expected]
    assert [one.is_complete for one in found] == [one.is_complete for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)


@pytest.mark.parametrize("beam_size", [1, 2, 4])
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.5])
def test_a_batch_finds_what_the_slow_search_finds(beam_size: int, length_penalty: float) -> None:
    model = a_model(seed=beam_size, norm="post" if beam_size == 2 else "pre").eval()
    options = BeamOptions(beam_size, length_penalty, num_best=beam_size, extra_length=6)
    sources = some_sources()
    for source, found in zip(sources, translate(model, sources, options), strict=True):
        assert_same(found, slow_search(model, source, options))


@pytest.mark.parametrize("seed", range(3))
def test_stopping_early_changes_no_result(seed: int) -> None:
    model = a_model(seed).eval()
    options = BeamOptions(beam_size=3, extra_length=8)
    for source in some_sources(4):
        assert_same(translate(model, [source], options)[0], slow_search(model, source, options))


def test_a_beam_as_wide_as_the_space_finds_the_best_of_all_translations() -> None:
    model = a_model(seed=5, vocab_size=8).eval()
    source = [5, 6, EOS]
    options = BeamOptions(beam_size=5**3, num_best=5, extra_length=1)
    scored = []
    pieces = range(3, 8)
    for length in range(4):
        for ids in product(pieces, repeat=length):
            log_prob = 0.0
            for end, piece in enumerate([*ids, EOS]):
                log_prob += next_log_probs(model, source, list(ids[:end]))[piece]
            scored.append(Hypothesis(list(ids), log_prob / ((6 + length) / 6) ** 0.6, log_prob))
    scored.sort(key=lambda hypothesis: -hypothesis.score)
    assert_same(translate(model, [source], options)[0], scored[:5])


def test_neighbours_and_batch_size_change_nothing() -> None:
    model = a_model(seed=6)
    sources = some_sources(9)
    together = translate(model, sources, BeamOptions(num_best=2, extra_length=5))
    for batch_tokens in (1, 20):
        options = BeamOptions(num_best=2, extra_length=5, batch_tokens=batch_tokens)
        for one, other in zip(translate(model, sources, options), together, strict=True):
            assert_same(one, other)


def test_no_translation_holds_padding_start_or_a_piece_that_does_not_exist() -> None:
    model = a_model(seed=7, vocab_size=18)
    with torch.no_grad():
        model.embedding.weight[[0, BOS, *range(18, 24)]] = model.embedding.weight.sum(0) * 3
    for hypotheses in translate(model, some_sources(20, 18), BeamOptions(extra_length=5)):
        assert set(hypotheses[0].ids) <= set(range(3, 18))


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_translation_that_never_ends_is_cut_off_and_says_so(beam_size: int) -> None:
    model = a_model(seed=8)
    with torch.no_grad():  # every state has this direction, which end and pieces disagree about
        model.get_parameter("decoder_norm.bias").copy_(30 * model.embedding.weight[7])
        model.embedding.weight[EOS] = -model.embedding.weight[7]
    options = BeamOptions(beam_size, extra_length=7)
    ((hypothesis,),) = translate(model, [[4, 5, 6, EOS]], options)
    assert not hypothesis.is_complete
    assert len(hypothesis.ids) == 4 + 7


def test_the_models_of_these_tests_give_translations_worth_comparing() -> None:
    lengths = [
        len(hypotheses[0].ids)
        for seed in range(1, 5)
        for hypotheses in translate(a_model(seed), some_sources(), BeamOptions(extra_length=6))
    ]
    assert len(set(lengths)) > 4


def test_empty_lists_and_empty_sentences_have_answers() -> None:
    model = a_model(seed=9)
    assert translate(model, [], BeamOptions()) == []
    empty, ended = translate(model, [[], [EOS]], BeamOptions(extra_length=3))
    assert len(empty) == len(ended) == 1


def test_translating_leaves_training_as_it_was() -> None:
    model = a_model(seed=10).train()
    state = torch.get_rng_state()
    translate(model, some_sources(2), BeamOptions())
    assert model.training
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("values", [{"beam_size": 0}, {"num_best": 5}, {"length_penalty": -1.0}])
def test_impossible_options_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(UserError):
        BeamOptions(**values)
