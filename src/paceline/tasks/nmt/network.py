"""From a recipe to the shape of its Transformer, which needs no torch."""

from typing import Protocol

from paceline.models.shapes import TransformerShape, named_shape
from paceline.tasks.nmt.settings import NmtRecipe


class SpecialIds(Protocol):
    """What a model must know of a vocabulary."""

    @property
    def pad_id(self) -> int: ...
    @property
    def bos_id(self) -> int: ...
    @property
    def eos_id(self) -> int: ...


def nmt_shape(recipe: NmtRecipe, vocabulary: SpecialIds | None = None) -> TransformerShape:
    settings = recipe.model
    ids = {}
    if vocabulary is not None:
        ids = {name: getattr(vocabulary, name) for name in ("pad_id", "bos_id", "eos_id")}
    return named_shape(
        settings.size,
        settings.vocab_size,
        norm=settings.norm,
        attention_dropout=settings.attention_dropout,
        relu_dropout=settings.relu_dropout,
        residual_dropout=settings.residual_dropout,
        label_smoothing=recipe.label_smoothing,
        **ids,
    )
