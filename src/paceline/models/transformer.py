"""The encoder-decoder Transformer, from batches of ids to a sum of losses.

The layout is OpenSeq2Seq's and tensor2tensor's: one embedding for source, target and output,
sinusoidal positions, attention without biases. Inside, tokens are packed without padding (see
`packing.py`); the fast paths for CPUs are in `dropout.py`, `attention.py` and `loss.py`.
Searching for translations is in `beam.py`. Nothing here knows of recipes, data or processes.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paceline.kernels import attention, tokens
from paceline.models.attention import attend
from paceline.models.dropout import add_dropout, dropout, linear_relu_dropout
from paceline.models.loss import LossSums, smoothed_loss
from paceline.models.packing import AttentionPlan, PackedPairs, Packing, pack_padded
from paceline.models.shapes import TransformerShape

# A longer sentence than any before makes a new table, which a device would wait for.
POSITIONS_STEP = 1024
LONGEST_WAVE = 10_000


class Transformer(nn.Module):
    """`forward` is for training and validation loss; `encode` and the layers serve `beam.py`."""

    kernels: ClassVar = (attention.NAME, tokens.NAME)

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.padded_vocab_size, shape.width)
        self.encoder = nn.ModuleList(EncoderLayer(shape) for _ in range(shape.num_encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(shape) for _ in range(shape.num_decoder_layers))
        self.encoder_norm = _last_norm(shape)
        self.decoder_norm = _last_norm(shape)
        nn.init.normal_(self.embedding.weight, std=shape.width**-0.5)

    def forward(
        self,
        pairs: PackedPairs | Tensor,
        target_in: Tensor | None = None,
        target_out: Tensor | None = None,
    ) -> LossSums:
        """Losses summed over the target tokens.

        Padded (sentences, length) batches are packed here: sources, `target_in`, which starts with
        `bos_id`, and `target_out`, which ends with `eos_id`, all filled up with `pad_id`.
        """
        if not isinstance(pairs, PackedPairs):
            assert target_in is not None and target_out is not None  # noqa: S101
            pairs = pack_padded(pairs, target_in, target_out, self.shape.pad_id)
        # One lookup for both sides: the embedding's gradient is a whole matrix for each lookup.
        embedded = self.embed(pairs.ids, pairs.positions, pairs.longest)
        source_states, target_states = torch.split(
            embedded, [pairs.sources.num_tokens, pairs.targets.num_tokens]
        )
        memory = self.run_encoder(source_states, pairs.sources)
        hidden = self.run_decoder(target_states, pairs.targets, memory, pairs.sources)
        smoothing = self.shape.label_smoothing
        return smoothed_loss(hidden, self.embedding.weight, pairs.labels, smoothing)

    def embed(self, ids: Tensor, positions: Tensor, longest: int) -> Tensor:
        """Scaled embeddings plus positions, all below `longest`, of any number of tokens."""
        embedded = F.embedding(ids, self.embedding.weight).mul_(math.sqrt(self.shape.width))
        length = POSITIONS_STEP if longest <= POSITIONS_STEP else _round_up(longest, POSITIONS_STEP)
        table = sinusoids(length, self.shape.width, ids.device)
        embedded = embedded.add_(table.index_select(0, positions))
        return dropout(embedded, self.shape.residual_dropout if self.training else 0.0)

    def encode(self, source: Tensor) -> tuple[Tensor, Packing]:
        """What the decoder looks at: packed states and where they sit in the padded batch, which
        is best given on the host."""
        device = self.embedding.weight.device
        packing = Packing.of(source != self.shape.pad_id)
        ids = packing.pack(source.cpu()).to(device)
        packing = packing.to(device)
        return self.run_encoder(
            self.embed(ids, packing.positions, packing.length), packing
        ), packing

    def run_encoder(self, states: Tensor, packing: Packing) -> Tensor:
        plan = AttentionPlan(packing, packing, self.shape.num_heads)
        for layer in self.encoder:
            states = layer(states, plan)
        return self.encoder_norm(states)  # type: ignore[no-any-return]

    def run_decoder(
        self, states: Tensor, packing: Packing, memory: Tensor, memory_packing: Packing
    ) -> Tensor:
        """States that the embedding turns into logits, given all target tokens at once."""
        plan = AttentionPlan(packing, packing, self.shape.num_heads, is_causal=True)
        cross_plan = AttentionPlan(packing, memory_packing, self.shape.num_heads)
        for layer in self.decoder:
            states = layer(states, plan, memory, cross_plan)
        return self.decoder_norm(states)  # type: ignore[no-any-return]


class EncoderLayer(nn.Module):
    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.attention = SelfAttention(shape)
        self.feed_forward = FeedForward(shape)
        self.around_attention = Residual(shape)
        self.around_feed_forward = Residual(shape)

    def forward(self, states: Tensor, plan: AttentionPlan) -> Tensor:
        states = self.around_attention(states, lambda inputs: self.attention(inputs, plan))
        return self.around_feed_forward(states, self.feed_forward)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.attention = SelfAttention(shape)
        self.cross = CrossAttention(shape)
        self.feed_forward = FeedForward(shape)
        self.around_attention = Residual(shape)
        self.around_cross = Residual(shape)
        self.around_feed_forward = Residual(shape)

    def forward(
        self, states: Tensor, plan: AttentionPlan, memory: Tensor, cross_plan: AttentionPlan
    ) -> Tensor:
        states = self.around_attention(states, lambda inputs: self.attention(inputs, plan))
        states = self.around_cross(states, lambda inputs: self.cross(inputs, memory, cross_plan))
        return self.around_feed_forward(states, self.feed_forward)  # type: ignore[no-any-return]


class Residual(nn.Module):
    """Norm, dropout and addition around a sublayer, before it or after it."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.width)
        self.is_pre = shape.norm == "pre"
        self.rate = shape.residual_dropout

    def forward(self, states: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        update = sublayer(self.norm(states) if self.is_pre else states)
        states = add_dropout(states, update, self.rate if self.training else 0.0)
        return states if self.is_pre else self.norm(states)


class SelfAttention(nn.Module):
    """`projection` makes queries, keys and values side by side."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.projection = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.output = nn.Linear(shape.width, shape.width, bias=False)
        self.rate = shape.attention_dropout
        _spread_evenly(self.projection.weight, self.output.weight)

    def forward(self, states: Tensor, plan: AttentionPlan) -> Tensor:
        rate = self.rate if self.training else 0.0
        return self.output(attend(self.projection(states), None, plan, rate))  # type: ignore[no-any-return]


class CrossAttention(nn.Module):
    """Queries from the target, keys and values side by side from the encoder's states."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.query = nn.Linear(shape.width, shape.width, bias=False)
        self.key_value = nn.Linear(shape.width, 2 * shape.width, bias=False)
        self.output = nn.Linear(shape.width, shape.width, bias=False)
        self.rate = shape.attention_dropout
        _spread_evenly(self.query.weight, self.key_value.weight, self.output.weight)

    def forward(self, states: Tensor, memory: Tensor, plan: AttentionPlan) -> Tensor:
        rate = self.rate if self.training else 0.0
        return self.output(attend(self.query(states), self.key_value(memory), plan, rate))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.inner = nn.Linear(shape.width, shape.inner_width)
        self.outer = nn.Linear(shape.inner_width, shape.width)
        self.rate = shape.relu_dropout
        for layer in (self.inner, self.outer):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, states: Tensor) -> Tensor:
        inner = linear_relu_dropout(states, self.inner, self.rate if self.training else 0.0)
        return self.outer(inner)  # type: ignore[no-any-return]


def _last_norm(shape: TransformerShape) -> nn.Module:
    return nn.LayerNorm(shape.width) if shape.norm == "pre" else nn.Identity()


def _spread_evenly(*weights: Tensor) -> None:
    """Glorot's initialisation for each square part of matrices that hold several side by side."""
    for weight in weights:
        for part in torch.split(weight, weight.shape[1]):
            nn.init.xavier_uniform_(part)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def sinusoids(length: int, width: int, device: torch.device) -> Tensor:
    """(length, width): first sines, then cosines, as tensor2tensor has them."""
    return _sinusoids(length, width, device)


# A constant for `torch.compile`, which would else compute it in every step.
sinusoids._dynamo_marked_constant = True  # type: ignore[attr-defined]


@lru_cache(maxsize=8)
def _sinusoids(length: int, width: int, device: torch.device) -> Tensor:
    num_waves = width // 2
    rate = math.log(LONGEST_WAVE) / max(num_waves - 1, 1)
    frequencies = torch.exp(torch.arange(num_waves, dtype=torch.float64) * -rate)
    angles = torch.arange(length, dtype=torch.float64).unsqueeze(1) * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1).float().to(device)
