"""Translation: an encoder-decoder Transformer, scored by sacreBLEU and chrF on real decoding."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from paceline.data.places import data_directory
from paceline.errors import UserError
from paceline.models.beam import BeamOptions, translate
from paceline.models.packing import PackedPairs, pack_pairs
from paceline.models.transformer import Transformer
from paceline.tasks.contract import Scores
from paceline.tasks.nmt.network import nmt_shape
from paceline.tasks.nmt.preparation.prepare import open_split
from paceline.tasks.nmt.settings import NmtRecipe
from paceline.tasks.nmt.store import Pairs, pairs_within_limit
from paceline.tasks.nmt.vocabulary import MODEL_NAME, Vocabulary
from paceline.tasks.samples import SampleTask
from paceline.tasks.scoring import ScoreBatches
from paceline.tasks.stream import Numbers, Samples, Split


class Nmt(SampleTask):
    recipe: NmtRecipe
    unit = "target token"
    best_by = "bleu"
    num_train_scored = 500
    reads_ahead = False
    """A batch is slices of arrays in memory: less work than waking a thread."""

    def open(self, data: Path | None) -> dict[str, Split]:
        self.directory = data or data_directory(self.recipe.data)
        self.train = open_split(self.directory, "train")
        self._opened = {"train": self.train}
        self.vocabulary = Vocabulary.load(self.directory)
        if self.vocabulary.size != self.recipe.model.vocab_size:
            raise UserError(
                f"{self.directory} has a vocabulary of {self.vocabulary.size:,} pieces, "
                f"the recipe says {self.recipe.model.vocab_size:,}",
                f"set model.vocab_size={self.vocabulary.size}, or prepare the data with --vocab",
            )
        self._usable = pairs_within_limit(self.train, self.recipe.max_length)
        return {"train": self._usable}

    def split_numbers(self, split: str) -> range | Numbers:
        return self._usable if split == "train" else range(len(self._split(split)))

    def lengths(self, samples: Numbers) -> npt.NDArray[np.int32]:
        return self.train.target_lengths[samples] + 1

    def _split(self, split: str) -> Pairs:
        if split not in self._opened:
            self._opened[split] = open_split(self.directory, split)
        return self._opened[split]

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
        return Transformer(nmt_shape(self.recipe, self.vocabulary))

    def keep(self, directory: Path) -> None:
        shutil.copyfile(self.directory / MODEL_NAME, directory / MODEL_NAME)

    def batch(self, samples: Samples, _rng: np.random.Generator | None) -> PackedPairs:
        return self._batch_of(self._split(samples.split), samples)

    def _batch_of(self, pairs: Pairs, numbers: np.ndarray) -> PackedPairs:
        words = self.vocabulary
        sources = [np.append(pairs.source(n), words.eos_id) for n in numbers]
        targets = [pairs.target(n) for n in numbers]
        before = [np.concatenate([[words.bos_id], target]) for target in targets]
        after = [np.append(target, words.eos_id) for target in targets]
        return pack_pairs(sources, before, after)

    def loss(self, model: nn.Module, batch: PackedPairs) -> Tensor:
        loss: Tensor = model(batch).loss_sum
        return loss

    def evaluate(self, model: nn.Module, batches: ScoreBatches) -> Scores:
        """Of training sentences the loss only: decoding them would cost more than it tells."""
        network = model
        assert isinstance(network, Transformer)  # noqa: S101
        pairs = self._split(batches.split)
        if batches.split == "train" and not batches.final:
            nll = self._nll_per_token(network, pairs, batches.samples, batches)
            return Scores({"loss": nll}, f"train:{len(batches.samples)} sentences")
        nll = self._nll_per_token(network, pairs, np.arange(len(pairs)), batches)
        decode = self.recipe.decode
        beam = decode.beam if batches.final else decode.beam_while_training
        options = BeamOptions(
            beam,
            decode.length_penalty,
            extra_length=decode.extra_length,
            batch_tokens=2048 if self.device.type == "cpu" else 16384,
        )
        translations = self._translate_split(network, pairs, options, batches)
        return self._scores_of(pairs, translations, nll, beam)

    @property
    def _num_scored(self) -> int:
        """Sentences per forward pass: enough for a processor's cache, or to fill a device."""
        return 64 if self.device.type == "cpu" else 256

    def _nll_per_token(
        self, network: Transformer, pairs: Pairs, numbers: Numbers, batches: ScoreBatches
    ) -> float:
        """The mean negative log likelihood of a target token, not smoothed."""
        order = numbers[np.argsort(pairs.target_lengths[numbers], kind="stable")]
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        for group in batches.share(np.array_split(order, max(1, len(order) // self._num_scored))):
            batch = self.on_device(self._batch_of(pairs, group))
            result = network(batch)
            assert result.nll_sum is not None  # noqa: S101  (it is computed without gradients)
            sums[0] += result.nll_sum
            sums[1] += result.num_tokens
        nll_sum, num_tokens = batches.add_up(sums).tolist()
        return float(nll_sum / max(num_tokens, 1))

    def _translate_split(
        self, network: Transformer, pairs: Pairs, options: BeamOptions, batches: ScoreBatches
    ) -> list[str]:
        """Every sentence once: dealt out by length, so that all processes end together."""
        order = batches.share(list(np.argsort(pairs.source_lengths, kind="stable")))
        sources = [[*map(int, pairs.source(n)), self.vocabulary.eos_id] for n in order]
        found = translate(
            network, sources, options, lambda done: self.tell_progress(done, len(sources))
        )
        texts = self.vocabulary.decode([best[0].ids for best in found])
        by_number = dict(batches.gather(zip(map(int, order), texts, strict=True)))
        return [by_number[number] for number in range(len(pairs))]

    def _scores_of(self, pairs: Pairs, translations: list[str], nll: float, beam: int) -> Scores:
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
