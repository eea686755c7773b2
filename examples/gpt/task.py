"""A small GPT on any text file: characters, or pieces that SentencePiece learns from the text.

paceline train gpt.yaml data=book.txt
paceline train gpt.yaml data=book.txt pieces=1000 --run runs/pieces
"""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import paceline


class Gpt(paceline.SampleTask):
    unit, best_by = "token", "top1"

    class Settings(paceline.Settings):
        pieces: int = paceline.setting(0, "SentencePiece pieces; 0 takes characters", fixed=True)
        context: int = paceline.setting(64, "tokens that are seen at once", fixed=True, gt=1)
        layers: int = paceline.setting(2, "Transformer blocks", fixed=True, gt=0)
        width: int = paceline.setting(64, "size of a token's vector", fixed=True, gt=0)
        heads: int = paceline.setting(4, "attention heads", fixed=True, gt=0)
        dropout: float = paceline.setting(0.1, "in every block", ge=0, lt=1)

    def open(self, data: Path) -> dict[str, range]:
        text = data.read_text(encoding="utf-8")
        if self.settings.pieces:
            self.tokens, self.vocabulary = as_pieces(data, text, self.settings.pieces)
        else:
            letters, self.tokens = np.unique(list(text), return_inverse=True)
            self.vocabulary = list(letters)
        num = -(-(len(self.tokens) - 1) // self.settings.context)  # blocks; the last is shorter
        held_out = max(1, num // 10)  # the end of the text
        return {"train": range(num - held_out), "validation": range(num - held_out, num)}

    def lengths(self, samples):
        """Tokens of each block: batches are measured in tokens."""
        starts = samples * self.settings.context
        return np.minimum(self.settings.context, len(self.tokens) - 1 - starts)

    def build_model(self) -> nn.Module:
        return Network(len(self.vocabulary), self.settings)

    def batch(self, samples, rng):
        """Each block and what follows each of its tokens; -1 is no token."""
        rows = np.full((2, len(samples), self.settings.context), -1)
        for place, number in enumerate(samples):
            start = number * self.settings.context
            block = self.tokens[start : start + self.settings.context + 1]
            rows[0, place, : len(block) - 1] = block[:-1]
            rows[1, place, : len(block) - 1] = block[1:]
        return rows[0], rows[1]

    def loss(self, model, batch):
        tokens, following = batch
        logits = model(tokens.clamp(min=0))
        return F.cross_entropy(
            logits.flatten(0, 1), following.flatten(), ignore_index=-1, reduction="sum"
        )

    def evaluate(self, model, batches):
        loss = right = num = 0
        for tokens, following in batches:
            logits = model(tokens.clamp(min=0)).flatten(0, 1)
            wanted = following.flatten()
            loss += F.cross_entropy(logits, wanted, ignore_index=-1, reduction="sum")
            right += (logits.argmax(1) == wanted).sum()
            num += (wanted >= 0).sum()
        return paceline.Scores.of_sums(num, top1=right, loss=loss)


class Network(nn.Module):
    def __init__(self, num_tokens: int, s: "Gpt.Settings") -> None:
        super().__init__()
        self.token = nn.Embedding(num_tokens, s.width)
        self.place = nn.Parameter(0.02 * torch.randn(s.context, s.width))
        block = nn.TransformerEncoderLayer(
            s.width, s.heads, 4 * s.width, s.dropout, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, s.layers, nn.LayerNorm(s.width), False)
        self.last = nn.Linear(s.width, num_tokens)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], tokens.device)
        states = self.token(tokens) + self.place[: tokens.shape[1]]
        return self.last(self.blocks(states, mask=mask, is_causal=True))


def as_pieces(data: Path, text: str, num_pieces: int) -> tuple[np.ndarray, list[str]]:
    import io

    import sentencepiece

    learned = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        input=str(data),
        model_writer=learned,
        vocab_size=num_pieces,
        model_type="bpe",
        hard_vocab_limit=False,
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_proto=learned.getvalue())
    vocabulary = [model.id_to_piece(number) for number in range(len(model))]
    return np.array(model.encode(text)), vocabulary
