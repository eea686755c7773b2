"""A micro-batch of no sentences at all, of the usual shape: for counting work and memory."""

from typing import Final

import numpy as np
import torch

from paceline.models.packing import PackedPairs, pack_pairs
from paceline.tasks.nmt.settings import NmtRecipe
from paceline.tasks.passes import moved

_USUAL_LENGTH: Final = 28
"""Pieces of a sentence, with its end, in WMT's English-German training text at 32,000 pieces."""


def made_up_batch(recipe: NmtRecipe, device: torch.device) -> tuple[PackedPairs, int]:
    """With its number of target tokens."""
    length = min(_USUAL_LENGTH, recipe.max_length)
    micro = recipe.batch.micro_size
    num = max(micro // length, 1) if recipe.batch.by == "tokens" else micro
    sentence = np.full(length, 3)
    batch: PackedPairs = moved(pack_pairs(*[[sentence] * num] * 3), device)
    return batch, num * length
