"""Sentences to token numbers and back, by a SentencePiece model: our own or somebody else's.

Made to be usable on a small device: needs sentencepiece, and neither torch nor prepared data.
"""

import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import sentencepiece

from paceline.errors import UserError

MODEL_NAME: Final = "vocabulary.model"

# OpenSeq2Seq's numbers, so that its models and ours can stand in for each other.
_PAD_ID, _EOS_ID, _BOS_ID, _UNK_ID = 0, 1, 2, 3

# An alphabet of this size is kept whole; in web text the thousands of rare characters would take
# the place of useful pieces, and SentencePiece's usual share of the text is covered instead.
_WHOLE_ALPHABET: Final = 512
_USUAL_COVERAGE: Final = 0.9995
_MOST_IDS: Final = 1 << 32


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """A SentencePiece model with four special tokens.

    Whatever of padding, start and end a foreign model lacks gets a number after its last piece.
    """

    processor: Any
    pad_id: int
    bos_id: int
    eos_id: int
    unk_id: int
    size: int

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """From a directory of prepared data (or an exported model), or a model file itself."""
        file = path / MODEL_NAME if path.is_dir() else path
        if not file.is_file():
            raise UserError(f"there is no SentencePiece model {file}", "check the path")
        return cls.from_bytes(file.read_bytes(), str(file))

    @classmethod
    def from_bytes(cls, model: bytes, name: str) -> "Vocabulary":
        processor = sentencepiece.SentencePieceProcessor()
        try:
            # an empty file is a model without pieces to the parser
            is_model = bool(model) and processor.LoadFromSerializedProto(model)
        except RuntimeError:
            is_model = False
        if not is_model:
            raise UserError(
                f"{name} is not a SentencePiece model",
                "name the .model file that spm_train wrote (not .vocab, and no other tokenizer's)",
            )
        size = processor.get_piece_size()
        specials = []
        for special in (processor.pad_id(), processor.bos_id(), processor.eos_id()):
            specials.append(special if special >= 0 else size)
            size += special < 0
        pad_id, bos_id, eos_id = specials
        return cls(processor, pad_id, bos_id, eos_id, processor.unk_id(), size)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Token numbers of each line, without start and end."""
        encoded: list[list[int]] = self.processor.encode(list(lines), num_threads=1)
        return encoded

    def decode(self, sentences: Iterable[Sequence[int]]) -> list[str]:
        """Plain text; a sentence ends at its first end token, other specials are left out."""
        decoded: list[str] = self.processor.decode([self._plain(ids) for ids in sentences])
        return decoded

    def pieces(self, line: str) -> list[str]:
        """The tokens of a line as SentencePiece spells them."""
        found: list[str] = self.processor.encode(line, out_type=str)
        return found

    def _plain(self, ids: Sequence[int]) -> list[int]:
        num_pieces = self.processor.get_piece_size()
        plain = []
        for number in map(int, ids):
            if number == self.eos_id:
                break
            # rows that only pad the embedding can be predicted by an untrained model
            if 0 <= number < num_pieces and number not in (self.pad_id, self.bos_id):
                plain.append(number)
        return plain


def train_model(lines: Callable[[], Iterable[str]], size: int, is_limit: bool) -> bytes:
    """A joint BPE model of these lines: `size` pieces, or with `is_limit` as many as there are.

    `lines` is called twice. The model holds no path and no time, so equal lines give equal bytes.
    """
    if not 8 <= size < _MOST_IDS:
        raise UserError(f"a vocabulary of {size:,} pieces is not possible", "choose, say, 32768")
    alphabet: set[str] = set()
    for line in lines():
        alphabet.update(line)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines()),
            model_writer=model,
            model_type="bpe",
            vocab_size=size,
            hard_vocab_limit=not is_limit,
            character_coverage=1.0 if len(alphabet) <= _WHOLE_ALPHABET else _USUAL_COVERAGE,
            pad_id=_PAD_ID,
            eos_id=_EOS_ID,
            bos_id=_BOS_ID,
            unk_id=_UNK_ID,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explained(size, str(error)) from error
    return model.getvalue()


def _explained(size: int, message: str) -> UserError:
    if match := re.search(r"Vocabulary size too high .* <= (\d+)", message):
        return UserError(
            f"a vocabulary of {size:,} pieces is larger than this text supports",
            f"choose --vocab {match[1]} or less, or more text",
        )
    if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return UserError(
            f"a vocabulary of {size:,} pieces is smaller than the alphabet of this text",
            f"choose --vocab {int(match[1]) + 1} or more",
        )
    if "sentences_.empty()" in message:
        return UserError("there is no text to make a vocabulary of", "give more text")
    return UserError(f"SentencePiece cannot make a vocabulary of this text: {message}")
