"""The text, its vocabulary and its batches, the same for everybody who is compared."""

import gzip
import os
import pickle
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paceline.models.shapes import TransformerShape, named_shape

PAD, EOS, BOS, UNK = 0, 1, 2, 3
DECODED_LENGTH, EXTRA_LENGTH = 15, 10
"""Pieces of a source, its end counted, and how many more a translation has."""
BEAM_SIZE, DECODED_BATCH = 4, 32
Batch = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Setup:
    """All that a worker needs to know; travels to it as JSON."""

    size: str
    vocab_size: int
    batch_tokens: int
    steps_per_interval: int
    num_decoded: int
    """Sentences for the comparison of decoding."""
    num_intervals: int = 3
    folder: str = ""
    device: str = "cpu"
    precision: str = "fp32"

    @property
    def shape(self) -> TransformerShape:
        return named_shape(self.size, self.vocab_size, norm="pre")

    @property
    def num_steps(self) -> int:
        return self.steps_per_interval * (self.num_intervals + 1)

    @property
    def text(self) -> Path:
        return Path(self.folder)


SETUPS = {
    "small": Setup("small", 8_000, 3_500, steps_per_interval=4, num_decoded=192),
    "base": Setup("base", 32_768, 3_500, steps_per_interval=2, num_decoded=64, num_intervals=2),
}


def prepare_text(source: Path, target: Path, setup: Setup) -> None:
    """Pieces as text for those who read text, ids for the others, one vocabulary for all."""
    import sentencepiece

    folder = setup.text
    folder.mkdir(parents=True, exist_ok=True)
    lines = {side: read_lines(path) for side, path in (("en", source), ("de", target))}
    for side, its_lines in lines.items():
        (folder / f"raw.{side}").write_text("\n".join(its_lines) + "\n")
    sentencepiece.SentencePieceTrainer.train(
        input=f"{folder / 'raw.en'},{folder / 'raw.de'}",
        model_prefix=str(folder / "pieces"),
        vocab_size=min(8_000, setup.vocab_size),
        model_type="bpe",
        minloglevel=2,
        pad_id=PAD,
        eos_id=EOS,
        bos_id=BOS,
        unk_id=UNK,
    )
    encoder = sentencepiece.SentencePieceProcessor(model_file=str(folder / "pieces.model"))
    ids = {side: encoder.encode(its_lines) for side, its_lines in lines.items()}
    pairs = list(zip(ids["en"], ids["de"], strict=True))
    (folder / "pairs.pickle").write_bytes(pickle.dumps(pairs))
    write_pieces(folder, encoder, ids, setup.vocab_size)
    write_decoded(folder, encoder, sources_to_decode(setup))


def write_pieces(folder: Path, encoder: Any, ids: dict[str, Any], vocab_size: int) -> None:
    pieces = [encoder.id_to_piece(id_) for id_ in range(encoder.vocab_size())]
    for side, rows in ids.items():
        text = "".join(" ".join(pieces[id_] for id_ in row) + "\n" for row in rows)
        (folder / f"train.{side}").write_text(text)
        (folder / f"valid.{side}").write_text("".join(text.splitlines(keepends=True)[:50]))
    # A small text has too few words for 32,768 pieces: unused rows make the matrices that large.
    entries = pieces[4:] + [f"unused{number}" for number in range(vocab_size - len(pieces))]
    (folder / "vocab.txt").write_text("".join(f"{entry}\n" for entry in entries))
    (folder / "vocab.counts").write_text("".join(f"{entry}\t1\n" for entry in entries))


def write_decoded(folder: Path, encoder: Any, sources: list[list[int]]) -> None:
    """As pieces; some ask for references too, and get the sources."""
    lines = [" ".join(encoder.id_to_piece(id_) for id_ in source) for source in sources]
    for side in ("en", "de"):
        (folder / f"decode.{side}").write_text("".join(f"{line}\n" for line in lines))


def read_lines(path: Path) -> list[str]:
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    return [line.strip() for line in content.decode().removesuffix("\n").split("\n")]


def find_text(given: Path | None) -> tuple[Path, Path]:
    """TRAIN.en and TRAIN.de below the folder given, or Multi30k where tests look for it too."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    real_data = Path(os.environ.get("PACELINE_REAL_DATA", beside))
    folder = given or real_data / "multi30k"
    for suffix in ("", ".gz"):
        pair = folder / f"train.en{suffix}", folder / f"train.de{suffix}"
        if all(path.exists() for path in pair):
            return pair
    sys.exit(f"error: no train.en and train.de in {folder}\n  fix: --text FOLDER")


def load_pairs(setup: Setup) -> list[tuple[list[int], list[int]]]:
    pairs = pickle.loads((setup.text / "pairs.pickle").read_bytes())  # noqa: S301
    return [([*source, EOS], [*target, EOS]) for source, target in pairs]


def sources_to_decode(setup: Setup) -> list[list[int]]:
    """Sentences of one length, so that everybody's batches are alike; without their end."""
    sources = [source[:-1] for source, _ in load_pairs(setup) if len(source) == DECODED_LENGTH]
    return sources[: setup.num_decoded]


def sorted_batches(setup: Setup, seed: int) -> Iterator[Batch]:
    """Sentences of like length together, at most `batch_tokens` on the longer side, padding
    included: Paceline's batches."""
    pairs = load_pairs(setup)
    rng = random.Random(seed)
    rng.shuffle(pairs)
    pairs.sort(key=lambda pair: (len(pair[1]), len(pair[0])))
    groups: list[list[tuple[list[int], list[int]]]] = [[]]
    longest = 0
    for pair in pairs:
        longest = max(longest, *map(len, pair))
        if (len(groups[-1]) + 1) * longest > setup.batch_tokens:
            groups.append([])
            longest = max(map(len, pair))
        groups[-1].append(pair)
    while True:
        rng.shuffle(groups)
        yield from map(collate, groups)


def random_batches(setup: Setup, seed: int) -> Iterator[Batch]:
    """As many sentences as hold `batch_tokens` target tokens on average, in random order."""
    pairs = load_pairs(setup)
    rng = random.Random(seed)
    count = sentences_per_batch(setup)
    while True:
        rng.shuffle(pairs)
        for start in range(0, len(pairs) - count, count):
            yield collate(pairs[start : start + count])


def sentences_per_batch(setup: Setup) -> int:
    pairs = load_pairs(setup)
    return round(setup.batch_tokens * len(pairs) / sum(len(target) for _, target in pairs))


def collate(pairs: list[tuple[list[int], list[int]]]) -> Batch:
    sources, targets = zip(*pairs, strict=True)
    return padded(sources), padded([[BOS, *target[:-1]] for target in targets]), padded(targets)


def padded(rows: Any) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def num_target_tokens(batch: Batch) -> int:
    return int((batch[2] != PAD).sum())
