"""A network of 60.8 M parameters, as many as Transformer-base has, on random tokens: what counts
here is how long a step takes, not what it learns."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import paceline

NUM_PIECES, WIDTH, LAYERS, LENGTH = 32_768, 512, 14, 32


class Network(nn.Module):
    """Encoder layers over a vocabulary whose vectors are also the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces = nn.Embedding(NUM_PIECES, WIDTH)
        nn.init.normal_(self.pieces.weight, std=0.02)
        block = nn.TransformerEncoderLayer(
            WIDTH, 8, 4 * WIDTH, 0.1, "relu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, LAYERS, nn.LayerNorm(WIDTH), False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return F.linear(self.blocks(self.pieces(tokens)), self.pieces.weight)


def loss_sum(network: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(network(tokens).flatten(0, 1), tokens.flatten(), reduction="sum")


class Sixty(paceline.SampleTask):
    unit, best_by = "sample", "loss"

    def open(self, data: Any) -> int:
        return 100_000

    def build_model(self) -> nn.Module:
        return Network()

    def batch(self, samples: Any, rng: Any) -> Any:
        return np.random.default_rng(int(samples[0])).integers(
            0, NUM_PIECES, (len(samples), LENGTH), dtype=np.int64
        )

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        return loss_sum(model, batch)

    def evaluate(self, model: nn.Module, batches: Any) -> Any:
        losses = [(len(batch), loss_sum(model, batch) / LENGTH) for batch in batches]
        total = sum(loss for _, loss in losses)
        return paceline.Scores.of_sums(sum(num for num, _ in losses), loss=total)
