"""Translation with a Transformer. The task's front page: no torch, no pydantic."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from paceline.arguments import Verbs, count
from paceline.tasks.contract import MadeUp, TaskKind
from paceline.units import Scale

if TYPE_CHECKING:
    import torch
    from torch import nn

    from paceline.tasks.nmt.settings import NmtRecipe
    from paceline.tasks.nmt.task import Nmt


class NmtKind(TaskKind):
    score_scales: ClassVar = {"bleu": Scale("BLEU", "100"), "chrf": Scale("chrF", "100")}

    @property
    def recipe_class(self) -> "type[NmtRecipe]":
        from paceline.tasks.nmt.settings import NmtRecipe

        return NmtRecipe

    def open(self, recipe: "NmtRecipe", device: "torch.device") -> "Nmt":
        from paceline.tasks.nmt.task import Nmt

        return Nmt(recipe, device)

    def build_network(self, recipe: "NmtRecipe") -> "nn.Module":
        from paceline.models.transformer import Transformer
        from paceline.tasks.nmt.network import nmt_shape

        return Transformer(nmt_shape(recipe))

    def made_up_loss(
        self, recipe: "NmtRecipe", network: "nn.Module", device: "torch.device"
    ) -> MadeUp:
        from paceline.tasks.nmt.made_up import made_up_batch

        batch, num_tokens = made_up_batch(recipe, device)
        return MadeUp(network(batch).loss_sum, num_tokens, "target token")

    def check_data(self, recipe: "NmtRecipe") -> None:
        from paceline.data.places import data_directory
        from paceline.tasks.nmt.store import open_split

        open_split(data_directory(recipe.data), "train")

    def micro_batches_per_epoch(self, recipe: "NmtRecipe") -> float:
        from paceline.data.places import data_directory
        from paceline.data.text_batches import TextBatches
        from paceline.tasks.nmt.store import open_split, pairs_within_limit

        train = open_split(data_directory(recipe.data), "train")
        lengths = train.target_lengths[pairs_within_limit(train, recipe.max_length)] + 1
        batch = recipe.batch
        return TextBatches(lengths, batch.micro_size, batch.by, recipe.seed).per_epoch

    def num_parameters(self, recipe: "NmtRecipe") -> int:
        from paceline.models import shapes
        from paceline.tasks.nmt.network import nmt_shape

        return shapes.count_parameters(nmt_shape(recipe))

    def add_data_options(self, data: ArgumentParser) -> None:
        data.add_argument("--source", dest="source_language", default="en", help="language (en)")
        data.add_argument("--target", dest="target_language", default="de", help="language (de)")
        data.add_argument("--vocab", type=count, help="pieces of the vocabulary")
        data.add_argument(
            "--spm", type=Path, help="use this SentencePiece model instead of a new one"
        )
        data.add_argument("--test", dest="test_set", help="web: sacreBLEU's name of the test set")
        data.add_argument("--pairs", type=count, default=60_000, help="stand-in: training pairs")

    def prepare_data(self, arguments: Namespace, say: Callable[[str], None]) -> Path:
        from paceline.tasks.nmt.preparation import prepare

        options = prepare.Options(
            source_language=arguments.source_language,
            target_language=arguments.target_language,
            vocab_size=arguments.vocab,
            spm=arguments.spm,
            num_pairs=arguments.pairs,
            test_set=arguments.test_set,
        )
        directory = arguments.to or prepare.default_directory(arguments.source)
        return prepare.prepare(arguments.source, directory, options, say)

    def settings_for(self, recipe: Any, data: Path) -> list[str]:
        from paceline.tasks.nmt.vocabulary import Vocabulary

        size = Vocabulary.load(data).size
        return [f"model.vocab_size={size}"] if size != recipe.model.vocab_size else []

    def add_verbs(self, verbs: Verbs) -> None:
        from paceline.tasks.nmt.verbs import add_export, add_translate

        add_translate(verbs)
        add_export(verbs)


KIND = NmtKind()
