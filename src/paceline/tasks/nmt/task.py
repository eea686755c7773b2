"""Translation: an encoder-decoder Transformer, scored by sacreBLEU and chrF on real decoding."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from paceline.data.card import read_card
from paceline.data.order import fixed_part
from paceline.data.places import data_directory
from paceline.errors import UserError
from paceline.models.beam import BeamOptions, translate
from paceline.models.transformer import Transformer
from paceline.tasks.contract import Scores, Task
from paceline.tasks.nmt.batches import batches_of, pairs_within_limit
from paceline.tasks.nmt.network import nmt_shape
from paceline.tasks.nmt.preparation.prepare import open_split
from paceline.tasks.nmt.settings import NmtRecipe
from paceline.tasks.nmt.store import Pairs
from paceline.tasks.nmt.vocabulary import MODEL_NAME, Vocabulary
from paceline.world import World, unwrapped

NUM_TRAIN_SCORED = 500
"""Training pairs whose loss is taken beside validation, unless the recipe says how many."""


@dataclass(frozen=True)
class TextBatch:
    source: Tensor
    target_in: Tensor
    target_out: Tensor


class Nmt(Task):
    recipe: NmtRecipe
    unit = "target token"
    best_by = "bleu"

    def __init__(self, recipe: NmtRecipe, device: torch.device) -> None:
        self.recipe = recipe
        self.device = device
        self.directory = data_directory(recipe.data)
        self.train = open_split(self.directory, "train")
        self.data_fingerprint = str(read_card(self.directory)["fingerprint"])
        self.vocabulary = Vocabulary.load(self.directory)
        if self.vocabulary.size != recipe.model.vocab_size:
            raise UserError(
                f"{self.directory} has a vocabulary of {self.vocabulary.size:,} pieces, "
                f"the recipe says {recipe.model.vocab_size:,}",
                f"set model.vocab_size={self.vocabulary.size}, or prepare the data with --vocab",
            )
        self._usable = pairs_within_limit(self.train, recipe.max_length)
        self._batches = batches_of(self.train, self._usable, recipe)

    def data_facts(self) -> dict[str, dict[str, Any]]:
        """How many training pairs `max_length` leaves out."""
        num, of = len(self.train) - len(self._usable), len(self.train)
        fact: dict[str, Any] = {"num": num, "of": of}
        if num:
            fact["text"] = (
                f"{num:,} of {of:,} pairs ({num / of:.1%}) are longer than "
                f"max_length={self.recipe.max_length} pieces and are left out"
            )
        return {"left_out": fact}

    def build_model(self) -> nn.Module:
        torch.manual_seed(self.recipe.seed)
        return Transformer(nmt_shape(self.recipe, self.vocabulary)).to(self.device)

    def keep(self, directory: Path) -> None:
        shutil.copyfile(self.directory / MODEL_NAME, directory / MODEL_NAME)

    def num_units(self, index: int) -> int:
        return self._batches.num_tokens(index)

    def epochs_at(self, position: int) -> float:
        return position / self._batches.per_epoch

    def micro_batch(self, index: int) -> TextBatch:
        return self._batch_of(self.train, self._usable[self._batches.pairs(index)])

    def _batch_of(self, pairs: Pairs, numbers: np.ndarray) -> TextBatch:
        words = self.vocabulary
        sources = [np.append(pairs.source(n), words.eos_id) for n in numbers]
        targets = [pairs.target(n) for n in numbers]
        before = [np.concatenate([[words.bos_id], target]) for target in targets]
        after = [np.append(target, words.eos_id) for target in targets]
        return TextBatch(*(self._padded(rows) for rows in (sources, before, after)))

    def _padded(self, rows: list[np.ndarray]) -> Tensor:
        full = np.full((len(rows), max(map(len, rows))), self.vocabulary.pad_id, dtype=np.int64)
        for row, tokens in zip(full, rows, strict=True):
            row[: len(tokens)] = tokens
        return torch.from_numpy(full).to(self.device, non_blocking=True)

    def loss(self, model: nn.Module, batch: TextBatch) -> Tensor:
        sums = model(batch.source, batch.target_in, batch.target_out)
        loss: Tensor = sums.loss_sum
        return loss

    def evaluate(self, model: nn.Module, split: str, world: World, final: bool = False) -> Scores:
        network = unwrapped(model)
        assert isinstance(network, Transformer)  # noqa: S101
        pairs = open_split(self.directory, split)
        nll = self._nll_per_token(network, pairs, np.arange(len(pairs)), world)
        decode = self.recipe.decode
        beam = decode.beam if final else decode.beam_while_training
        options = BeamOptions(beam, decode.length_penalty, extra_length=decode.extra_length)
        translations = self._translate_split(network, pairs, options, world)
        return self._score(pairs, translations, nll, beam)

    def evaluate_training(self, model: nn.Module, world: World) -> Scores:
        """The loss only: decoding training sentences would cost more than it tells."""
        network = unwrapped(model)
        assert isinstance(network, Transformer)  # noqa: S101
        wanted = self.recipe.evaluate.train_samples
        part = fixed_part(len(self._usable), NUM_TRAIN_SCORED if wanted is None else wanted)
        numbers = self._usable[slice(part.start, part.stop, part.step)]
        loss = self._nll_per_token(network, self.train, numbers, world)
        return Scores({"loss": loss}, f"train:{len(numbers)} sentences")

    @torch.inference_mode()
    def _nll_per_token(
        self, network: Transformer, pairs: Pairs, numbers: np.ndarray, world: World
    ) -> float:
        """The mean negative log likelihood of a target token, not smoothed."""
        order = numbers[np.argsort(pairs.target_lengths[numbers], kind="stable")]
        groups = np.array_split(order, max(1, len(order) // 64))[world.rank :: world.size]
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        network.eval()
        for group in groups:
            batch = self._batch_of(pairs, group)
            result = network(batch.source, batch.target_in, batch.target_out)
            sums += torch.tensor([float(result.nll_sum), result.num_tokens], dtype=torch.float64)
        network.train()
        nll_sum, num_tokens = world.add_up(sums).tolist()
        return float(nll_sum / max(num_tokens, 1))

    def _translate_split(
        self, network: Transformer, pairs: Pairs, options: BeamOptions, world: World
    ) -> list[str]:
        """Every sentence once: dealt out by length, so that all processes end together."""
        order = np.argsort(pairs.source_lengths, kind="stable")[world.rank :: world.size]
        sources = [[*map(int, pairs.source(n)), self.vocabulary.eos_id] for n in order]
        found = translate(
            network, sources, options, lambda done: self.tell_progress(done, len(sources))
        )
        network.train()
        texts = self.vocabulary.decode([best[0].ids for best in found])
        shares = world.gather_values([[int(n) for n in order], texts])
        by_number = {
            n: text for numbers, lines in shares for n, text in zip(numbers, lines, strict=True)
        }
        return [by_number[number] for number in range(len(pairs))]

    def _score(self, pairs: Pairs, translations: list[str], nll: float, beam: int) -> Scores:
        from sacrebleu.metrics.bleu import BLEU  # noqa: PLC0415
        from sacrebleu.metrics.chrf import CHRF  # noqa: PLC0415

        references = [pairs.target_text()]
        bleu, chrf = BLEU(), CHRF()
        values = {
            "bleu": bleu.corpus_score(translations, references).score,
            "chrf": chrf.corpus_score(translations, references).score,
            "loss": nll,
        }
        signature = f"{pairs.split}:{len(pairs)} sentences|beam:{beam}|{bleu.get_signature()}"
        return Scores(values, signature, tuple(self._samples(pairs, translations)))

    def _samples(self, pairs: Pairs, translations: list[str]) -> list[str]:
        sources = pairs.source_text()
        step = max(1, len(sources) // max(self.recipe.decode.samples, 1))
        chosen = range(step // 2, len(sources), step)[: self.recipe.decode.samples]
        return [f"{sources[number]}  ->  {translations[number]}" for number in chosen]


def weights_into(recipe: NmtRecipe, vocabulary: Vocabulary, tensors: dict[str, Any]) -> Transformer:
    """A model for decoding from stored weights."""
    model = Transformer(nmt_shape(recipe, vocabulary))
    model.load_state_dict(tensors)
    return model.eval()
