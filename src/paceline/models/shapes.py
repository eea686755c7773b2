"""The shapes of Transformers and what they weigh, known without torch.

Plans and `recipes show` state parameters and bytes before anything runs, so this module must
start in a blink: no torch here, and nothing that computes. `transformer.py` builds the models.
"""

from dataclasses import dataclass
from typing import Any, Literal

from paceline.errors import UserError

BYTES_PER_FP32 = 4
VOCAB_MULTIPLE = 8


@dataclass(frozen=True)
class TransformerShape:
    """One encoder-decoder Transformer with a single vocabulary for both languages.

    `width` is the size of a token's state, `inner_width` that of the feed-forward layer. The three
    special ids belong here because the model itself must know what padding, start and end are.
    """

    vocab_size: int
    width: int = 512
    inner_width: int = 2048
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    num_heads: int = 8
    norm: Literal["pre", "post"] = "pre"
    attention_dropout: float = 0.1
    relu_dropout: float = 0.1
    residual_dropout: float = 0.1
    label_smoothing: float = 0.1
    pad_id: int = 0
    eos_id: int = 1
    bos_id: int = 2

    def __post_init__(self) -> None:
        for what, fix in _mistakes(self):
            raise UserError(what, fix)

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the embedding: matrix units like multiples of 8, spare rows cost nothing."""
        return -(-self.vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE

    @property
    def head_width(self) -> int:
        return self.width // self.num_heads


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"width": 128, "inner_width": 512, "num_heads": 4}
    | {"num_encoder_layers": 2, "num_decoder_layers": 2},
    "small": {"width": 256, "inner_width": 1024, "num_heads": 4}
    | {"num_encoder_layers": 3, "num_decoder_layers": 3},
    "base": {"width": 512, "inner_width": 2048, "num_heads": 8}
    | {"num_encoder_layers": 6, "num_decoder_layers": 6},
    "big": {"width": 1024, "inner_width": 4096, "num_heads": 16}
    | {"num_encoder_layers": 6, "num_decoder_layers": 6},
}


def named_shape(size: str, vocab_size: int, **changes: Any) -> TransformerShape:
    """The shape that a recipe calls `base`, `big`, `small` or `tiny`, with some values changed."""
    if size not in SIZES:
        raise UserError(
            f"there is no Transformer of size '{size}'", f"use one of {', '.join(SIZES)}"
        )
    values: dict[str, Any] = {**SIZES[size], **changes}
    return TransformerShape(vocab_size=vocab_size, **values)


def count_parameters(shape: TransformerShape) -> int:
    """Trainable values: as OpenSeq2Seq lays them out (60,880,896 for base with 32,768 pieces).

    Attention has no biases, the feed-forward layer has; embedding and output projection are one
    matrix; only the pre-norm form needs a last norm after each stack.
    """
    norm = 2 * shape.width
    attention = 4 * shape.width**2
    feed_forward = 2 * shape.width * shape.inner_width + shape.inner_width + shape.width
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    return (
        shape.padded_vocab_size * shape.width
        + shape.num_encoder_layers * encoder_layer
        + shape.num_decoder_layers * decoder_layer
        + (2 * norm if shape.norm == "pre" else 0)
    )


def gradient_bytes(shape: TransformerShape) -> int:
    """What an all-reduce of fp32 gradients moves."""
    return count_parameters(shape) * BYTES_PER_FP32


def state_bytes(shape: TransformerShape) -> int:
    """Weights and both of Adam's moments in fp32: a checkpoint, but for a few counters."""
    return 3 * gradient_bytes(shape)


def _mistakes(shape: TransformerShape) -> list[tuple[str, str]]:
    found = []
    if shape.num_heads < 1 or shape.width % (2 * shape.num_heads):
        what = f"a width of {shape.width} cannot be split into {shape.num_heads} heads of even size"
        found.append((what, "choose num_heads so that width / num_heads is even"))
    if shape.norm not in ("pre", "post"):
        found.append((f"norm is '{shape.norm}'", "use 'pre' or 'post'"))
    special_ids = {shape.pad_id, shape.eos_id, shape.bos_id}
    if len(special_ids) < 3 or not all(0 <= id_ < shape.vocab_size for id_ in special_ids):
        what = f"pad_id, eos_id and bos_id must be three ids below vocab_size {shape.vocab_size}"
        found.append((what, "take them from the vocabulary that the data was prepared with"))
    for name in ("attention_dropout", "relu_dropout", "residual_dropout", "label_smoothing"):
        if not 0 <= getattr(shape, name) < 1:
            found.append((f"{name} is {getattr(shape, name)}", "use a value from 0 to below 1"))
    return found
