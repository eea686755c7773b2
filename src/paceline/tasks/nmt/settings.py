"""What can be set for translation, beside what every recipe has."""

from typing import Literal

from pydantic import field_validator

from paceline.config import Section, setting
from paceline.settings import BatchSettings, OptimizerSettings, Recipe


class TextBatchSettings(BatchSettings):
    by: Literal["tokens", "sentences"] = setting(
        "tokens",
        "what a batch is measured in: target tokens (at most so many) or sentences",
        fixed=True,
    )


class TransformerModel(Section):
    size: Literal["tiny", "small", "base", "big"] = setting("base", "width, layers and heads")
    vocab_size: int = setting(
        32768, "pieces of the vocabulary that the data was prepared with", gt=0
    )
    norm: Literal["pre", "post"] = setting("pre", "layer norm before or after each sublayer")
    attention_dropout: float = setting(0.1, "dropout of attention weights", ge=0, lt=1)
    relu_dropout: float = setting(0.1, "dropout inside the feed-forward layer", ge=0, lt=1)
    residual_dropout: float = setting(0.1, "dropout of every sublayer's output", ge=0, lt=1)


class DecodeSettings(Section):
    beam: int = setting(4, "beam size of `evaluate` and `translate`; 1 is greedy", gt=0)
    length_penalty: float = setting(0.6, "alpha in ((5 + length) / 6) ** alpha", ge=0)
    extra_length: int = setting(50, "pieces a translation may be longer than its source", gt=0)
    beam_while_training: int = setting(1, "beam size of evaluations while training", gt=0)
    samples: int = setting(3, "translations shown at each evaluation", ge=0)


class NmtRecipe(Recipe):
    """Translation with an encoder-decoder Transformer."""

    data: str = setting(
        "nmt", "prepared data: a directory, or a name under the data cache", path="or name"
    )
    model: TransformerModel = setting(TransformerModel(), "the network", fixed=True)
    batch: TextBatchSettings = setting(..., "how many target tokens or sentences make a step")
    max_length: int = setting(
        80,
        "pairs with a side of more pieces are left out of training (and counted)",
        gt=0,
        fixed=True,
    )
    label_smoothing: float = setting(0.1, "share of the target given to all pieces", ge=0, lt=1)
    decode: DecodeSettings = setting(DecodeSettings(), "how translations are searched for")

    @field_validator("optimizer")
    @classmethod
    def _no_convolutions(cls, optimizer: OptimizerSettings) -> OptimizerSettings:
        if optimizer.kind == "muon":
            raise ValueError("muon is for networks of convolutions; choose adam or adamw")
        return optimizer
