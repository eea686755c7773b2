"""A network of 60.8 M parameters, as many as Transformer-base has, on random tokens: what counts
here is how long a step takes, not what it learns."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import paceline

NUM_PIECES, WIDTH, LENGTH = 32_768, 512, 32
TIED, UNTIED = "tied", "untied"
_LAYERS = {TIED: (14, 2048), UNTIED: (8, 2304)}
"""Their number, and the width of what is inside: 60.8 M parameters either way."""


class Network(nn.Module):
    """Encoder layers over a vocabulary whose vectors are also the last layer, if it is tied."""

    def __init__(self, kind: str = TIED) -> None:
        super().__init__()
        num_layers, inner = _LAYERS[kind]
        self.pieces = nn.Embedding(NUM_PIECES, WIDTH)
        nn.init.normal_(self.pieces.weight, std=0.02)
        block = nn.TransformerEncoderLayer(
            WIDTH, 8, inner, 0.1, "relu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, num_layers, nn.LayerNorm(WIDTH), False)
        self.output = nn.Linear(WIDTH, NUM_PIECES, bias=False)
        if kind == TIED:
            self.output.weight = self.pieces.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.output(self.blocks(self.pieces(tokens)))
        return logits


def loss_sum(network: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(network(tokens).flatten(0, 1), tokens.flatten(), reduction="sum")


class Sixty(paceline.SampleTask):
    unit, best_by = "sample", "loss"
    kind = TIED

    def open(self, data: Any) -> int:
        return 100_000

    def build_model(self) -> nn.Module:
        return Network(self.kind)

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


class UntiedSixty(Sixty):
    kind = UNTIED
