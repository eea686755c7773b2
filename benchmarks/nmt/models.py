"""One step of training or decoding of each model that can run in one process with the others."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.nmt.text import BEAM_SIZE, BOS, EOS, EXTRA_LENGTH, PAD, UNK, Batch
from paceline.models.beam import BeamOptions, translate
from paceline.models.shapes import TransformerShape
from paceline.models.transformer import Transformer, sinusoids

Step = Callable[[Batch], None]


def fused_adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)


def plain_adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98))


def paceline_step(shape: TransformerShape, optimizer_of: Any = fused_adamw) -> Step:
    model = Transformer(shape).train()
    optimizer = optimizer_of(model)

    def step(batch: Batch) -> None:
        sums = model(*batch)
        (sums.loss_sum / sums.num_tokens).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def marian_model(shape: TransformerShape) -> nn.Module:
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=shape.padded_vocab_size,
        d_model=shape.width,
        encoder_layers=shape.num_encoder_layers,
        decoder_layers=shape.num_decoder_layers,
        encoder_attention_heads=shape.num_heads,
        decoder_attention_heads=shape.num_heads,
        encoder_ffn_dim=shape.inner_width,
        decoder_ffn_dim=shape.inner_width,
        dropout=shape.residual_dropout,
        attention_dropout=shape.attention_dropout,
        activation_dropout=shape.relu_dropout,
        activation_function="relu",
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        use_cache=False,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=BOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=EOS,
        max_position_embeddings=512,
    )
    return MarianMTModel(config).train()  # type: ignore[no-any-return]


def marian_step(shape: TransformerShape, optimizer_of: Any = fused_adamw) -> Step:
    model = marian_model(shape)
    optimizer = optimizer_of(model)

    def step(batch: Batch) -> None:
        source, target_in, target_out = batch
        mask = (source != PAD).long()
        logits = model(input_ids=source, attention_mask=mask, decoder_input_ids=target_in).logits
        descend(logits, target_out, shape, optimizer)

    return step


def descend(
    logits: Tensor, labels: Tensor, shape: TransformerShape, optimizer: torch.optim.Optimizer
) -> None:
    loss = F.cross_entropy(
        logits.flatten(0, 1),
        labels.flatten(),
        ignore_index=PAD,
        label_smoothing=shape.label_smoothing,
    )
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with tied embeddings, as tutorials wrap it."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.padded_vocab_size, shape.width)
        self.dropout = nn.Dropout(shape.residual_dropout)
        self.layers = nn.Transformer(
            shape.width,
            shape.num_heads,
            shape.num_encoder_layers,
            shape.num_decoder_layers,
            shape.inner_width,
            shape.relu_dropout,
            batch_first=True,
            norm_first=True,
        )

    def embed(self, ids: Tensor) -> Tensor:
        width = self.embedding.embedding_dim
        positions = sinusoids(512, width, ids.device)[: ids.shape[1]]
        embedded: Tensor = self.dropout(self.embedding(ids) * math.sqrt(width) + positions)
        return embedded

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(
            target_in.shape[1], device=target_in.device
        )
        hidden = self.layers(
            self.embed(source),
            self.embed(target_in),
            tgt_mask=mask < 0,
            tgt_is_causal=True,
            src_key_padding_mask=source == PAD,
            memory_key_padding_mask=source == PAD,
        )
        return F.linear(hidden, self.embedding.weight)


def torch_step(shape: TransformerShape, optimizer_of: Any = fused_adamw) -> Step:
    model = TorchTransformer(shape).train()
    optimizer = optimizer_of(model)

    def step(batch: Batch) -> None:
        descend(model(*batch[:2]), batch[2], shape, optimizer)

    return step


def never_ending(shape: TransformerShape, num_pieces: int | None = None) -> Transformer:
    """Every state points where no end is, so each translation becomes as long as it may.

    Nor does it point at rows that only fill the vocabulary up, which no trained model says."""
    model = Transformer(shape).eval()
    with torch.no_grad():
        direction = model.embedding.weight[UNK].clone()
        model.get_parameter("decoder_norm.bias").copy_(100 * direction)
        for row in (PAD, EOS, BOS):
            model.embedding.weight[row] = -direction
        model.embedding.weight[num_pieces or shape.vocab_size :] = -direction
    return model


def paceline_decoder(shape: TransformerShape) -> Step:
    model = never_ending(shape)
    options = BeamOptions(extra_length=EXTRA_LENGTH)

    def step(batch: Batch) -> None:
        found = translate(model, batch[0].tolist(), options)
        assert all(len(best[0].ids) == batch[0].shape[1] + EXTRA_LENGTH for best in found)

    return step


def marian_decoder(shape: TransformerShape) -> Step:
    model: Any = marian_model(shape).eval()
    model.config.use_cache = model.generation_config.use_cache = True

    def step(batch: Batch) -> None:
        length = batch[0].shape[1] + EXTRA_LENGTH
        found = model.generate(
            input_ids=batch[0],
            attention_mask=torch.ones_like(batch[0]),
            num_beams=BEAM_SIZE,
            length_penalty=0.6,
            min_new_tokens=length,
            max_new_tokens=length,
        )
        assert found.shape[1] == length + 1

    return step
