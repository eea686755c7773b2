"""Training speed of the Transformer against others, as ratios of target tokens/s from one run.

    python -m benchmarks.nmt                    # small and base, all peers: about 20 minutes
    python -m benchmarks.nmt --quick            # small only, one short round

Three comparisons, for the same model shape, text, vocabulary and tokens per batch:

  same batches  One process, the very same length-sorted batches for Paceline's model, Hugging
                Face's Marian and torch.nn.Transformer, in turns, all with the same fused AdamW and
                the same allocator settings. Ratios are medians over pairs of steps.
  decoding      In the same way, beam 4, sentences of one length, weights that never end a sentence,
                so that both write equally many pieces.
  own batches   Each in its own process as its users run it, one after the other, several rounds:
                OpenNMT-py, eole, JoeyNMT, Hugging Face's Seq2SeqTrainer with Marian, a plain loop
                around torch.nn.Transformer; Paceline with its own batches. Ratios are medians over
                the reporting intervals of all rounds; the first interval of a run is left out.

Tokens are target tokens without padding. Seconds suffer from whoever else is at work on the
machine, CPU-seconds hardly; both are given. Peers are installed into virtual environments of their
own (--peers) beside the torch that runs this script. One that cannot be installed or fails is
listed with the reason. Text is any pair of plain or gzip files, TRAIN.en and TRAIN.de.
"""

import argparse
import gzip
import json
import math
import os
import pickle
import random
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paceline.launch.speed import num_cores, speed_environment
from paceline.models.beam import BeamOptions, translate
from paceline.models.sizes import TransformerShape, count_parameters, named_shape
from paceline.models.transformer import Transformer, sinusoids

PAD, EOS, BOS, UNK = 0, 1, 2, 3
DECODED_LENGTH, EXTRA_LENGTH = 15, 10
Batch = tuple[Tensor, Tensor, Tensor]
Step = Callable[[Batch], None]


@dataclass(frozen=True)
class Setup:
    """All that a worker needs to know; travels to it as JSON."""

    size: str
    vocab_size: int
    batch_tokens: int
    steps_per_interval: int
    num_intervals: int
    folder: str

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
    "small": Setup("small", 8_000, 3_500, steps_per_interval=4, num_intervals=3, folder=""),
    "base": Setup("base", 32_768, 1_500, steps_per_interval=2, num_intervals=3, folder=""),
}


# ---------------------------------------------------------------- text


def prepare_text(source: Path, target: Path, setup: Setup) -> None:
    """Pieces as text for those who read text, ids for the others, one vocabulary for all."""
    import sentencepiece

    folder = setup.text
    folder.mkdir(parents=True, exist_ok=True)
    lines = {side: read_lines(path) for side, path in (("en", source), ("de", target))}
    for side, its_lines in lines.items():
        (folder / f"raw.{side}").write_text("\n".join(its_lines) + "\n")
    sentencepiece.SentencePieceTrainer.train(
        input=f"{folder / 'raw.en'},{folder / 'raw.de'}", model_prefix=str(folder / "pieces"),
        vocab_size=min(8_000, setup.vocab_size), model_type="bpe", minloglevel=2,
        pad_id=PAD, eos_id=EOS, bos_id=BOS, unk_id=UNK,
    )  # fmt: skip
    encoder = sentencepiece.SentencePieceProcessor(model_file=str(folder / "pieces.model"))
    ids = {side: encoder.encode(its_lines) for side, its_lines in lines.items()}
    pairs = list(zip(ids["en"], ids["de"], strict=True))
    (folder / "pairs.pickle").write_bytes(pickle.dumps(pairs))
    write_pieces(folder, encoder, ids, setup.vocab_size)


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


# ---------------------------------------------------------------- batches


def load_pairs(setup: Setup) -> list[tuple[list[int], list[int]]]:
    pairs = pickle.loads((setup.text / "pairs.pickle").read_bytes())  # noqa: S301
    return [([*source, EOS], [*target, EOS]) for source, target in pairs]


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


# ---------------------------------------------------------------- models


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
    from transformers import MarianConfig, MarianMTModel  # type: ignore[import-not-found]

    config = MarianConfig(
        vocab_size=shape.padded_vocab_size, d_model=shape.width,
        encoder_layers=shape.num_encoder_layers, decoder_layers=shape.num_decoder_layers,
        encoder_attention_heads=shape.num_heads, decoder_attention_heads=shape.num_heads,
        encoder_ffn_dim=shape.inner_width, decoder_ffn_dim=shape.inner_width,
        dropout=shape.residual_dropout, attention_dropout=shape.attention_dropout,
        activation_dropout=shape.relu_dropout, activation_function="relu", scale_embedding=True,
        share_encoder_decoder_embeddings=True, tie_word_embeddings=True, use_cache=False,
        pad_token_id=PAD, eos_token_id=EOS, bos_token_id=BOS, decoder_start_token_id=BOS,
        forced_eos_token_id=EOS, max_position_embeddings=512,
    )  # fmt: skip
    return MarianMTModel(config).train()  # type: ignore[no-any-return]


def marian_step(shape: TransformerShape, optimizer_of: Any = fused_adamw) -> Step:
    model = marian_model(shape)
    optimizer = optimizer_of(model)

    def step(batch: Batch) -> None:
        source, target_in, target_out = batch
        mask = (source != PAD).long()
        logits = model(
            input_ids=source, attention_mask=mask, decoder_input_ids=target_in
        ).logits  # fmt: skip
        descend(logits, target_out, shape, optimizer)

    return step


def descend(
    logits: Tensor, labels: Tensor, shape: TransformerShape, optimizer: torch.optim.Optimizer
) -> None:
    loss = F.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=PAD,
        label_smoothing=shape.label_smoothing,
    )  # fmt: skip
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
            shape.width, shape.num_heads, shape.num_encoder_layers, shape.num_decoder_layers,
            shape.inner_width, shape.relu_dropout, batch_first=True, norm_first=True,
        )  # fmt: skip

    def embed(self, ids: Tensor) -> Tensor:
        width = self.embedding.embedding_dim
        positions = sinusoids(512, width, ids.device)[: ids.shape[1]]
        embedded: Tensor = self.dropout(self.embedding(ids) * math.sqrt(width) + positions)
        return embedded

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target_in.shape[1])
        hidden = self.layers(
            self.embed(source), self.embed(target_in), tgt_mask=mask < 0, tgt_is_causal=True,
            src_key_padding_mask=source == PAD, memory_key_padding_mask=source == PAD,
        )  # fmt: skip
        return F.linear(hidden, self.embedding.weight)


def torch_step(shape: TransformerShape, optimizer_of: Any = fused_adamw) -> Step:
    model = TorchTransformer(shape).train()
    optimizer = optimizer_of(model)

    def step(batch: Batch) -> None:
        descend(model(*batch[:2]), batch[2], shape, optimizer)

    return step


# ---------------------------------------------------------------- workers (own processes)


def say_interval(rate: float) -> None:
    print(f"interval: {rate:.2f} tok/s", flush=True)


def work_in_turns(setup: Setup) -> None:
    """The same batches for all three; a line of JSON for each pair of steps."""
    makers = {"paceline": paceline_step, "marian": marian_step, "torch.nn": torch_step}
    torch.manual_seed(1)
    steps = {name: make(setup.shape) for name, make in makers.items()}
    batches = sorted_batches(setup, seed=1)
    for number in range(1 + setup.steps_per_interval * setup.num_intervals):
        batch = next(batches)
        measured = {name: time_step(step, batch) for name, step in steps.items()}
        if number:  # the first one warms up
            measured["tokens"] = (num_target_tokens(batch), 0.0)
            print(json.dumps(measured), flush=True)


def work_in_turns_decoding(setup: Setup) -> None:
    """The same sources for both, a line of JSON for each pair of translations."""
    sources = [source for source, _ in load_pairs(setup) if len(source) == DECODED_LENGTH]
    batch = sources[: setup.batch_tokens // DECODED_LENGTH // BeamOptions().beam_size]
    torch.manual_seed(1)
    steps = {"paceline": paceline_decoder(setup.shape), "marian": marian_decoder(setup.shape)}
    for number in range(1 + setup.num_intervals):
        measured = {name: time_step(step, padded_sources(batch)) for name, step in steps.items()}
        if number:
            measured["tokens"] = (len(batch) * (DECODED_LENGTH + EXTRA_LENGTH), 0.0)
            print(json.dumps(measured), flush=True)


def padded_sources(sources: list[list[int]]) -> Batch:
    ids = padded(sources)
    return ids, ids, ids


def paceline_decoder(shape: TransformerShape) -> Step:
    model = Transformer(shape).eval()
    with torch.no_grad():  # every state points where no end is
        direction = model.embedding.weight[UNK].clone()
        model.get_parameter("decoder_norm.bias").copy_(100 * direction)
        model.embedding.weight[EOS] = -direction
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
            input_ids=batch[0], attention_mask=torch.ones_like(batch[0]), num_beams=4,
            length_penalty=0.6, min_new_tokens=length, max_new_tokens=length,
        )  # fmt: skip
        assert found.shape[1] == length + 1

    return step


def time_step(step: Step, batch: Batch) -> tuple[float, float]:
    start, cpu_start = time.perf_counter(), time.process_time()
    step(batch)
    return time.perf_counter() - start, time.process_time() - cpu_start


def work_alone(setup: Setup, step: Step, batches: Iterator[Batch]) -> None:
    for _ in range(setup.num_intervals + 1):
        start, num_tokens = time.perf_counter(), 0
        for _ in range(setup.steps_per_interval):
            batch = next(batches)
            num_tokens += num_target_tokens(batch)
            step(batch)
        say_interval(num_tokens / (time.perf_counter() - start))


def work_as_paceline(setup: Setup) -> None:
    work_alone(setup, paceline_step(setup.shape), sorted_batches(setup, seed=1))


def work_as_torch_loop(setup: Setup) -> None:
    step = torch_step(setup.shape, plain_adam)
    work_alone(setup, step, random_batches(setup, seed=1))


def work_as_seq2seq_trainer(setup: Setup) -> None:
    from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

    rows = [{"input_ids": one, "labels": other} for one, other in load_pairs(setup)]
    counter = IntervalCounter(setup)
    arguments = Seq2SeqTrainingArguments(
        output_dir=str(setup.text / "trainer"), max_steps=setup.num_steps, use_cpu=True,
        per_device_train_batch_size=sentences_per_batch(setup), label_smoothing_factor=0.1,
        save_strategy="no", logging_strategy="no", report_to="none", disable_tqdm=True,
    )  # fmt: skip
    trainer = Seq2SeqTrainer(
        model=marian_model(setup.shape), args=arguments, train_dataset=rows,
        data_collator=counter.collate, callbacks=[counter.callback()],
    )  # fmt: skip
    trainer.train()


class IntervalCounter:
    """Counts the target tokens that a trainer is fed and reports them every few steps."""

    def __init__(self, setup: Setup) -> None:
        self.setup, self.num_tokens, self.num_steps = setup, 0, 0
        self.start = time.perf_counter()

    def collate(self, rows: list[dict[str, list[int]]]) -> dict[str, Tensor]:
        source, target_in, target_out = collate([(row["input_ids"], row["labels"]) for row in rows])
        self.num_tokens += int((target_out != PAD).sum())
        labels = target_out.masked_fill(target_out == PAD, -100)
        mask = (source != PAD).long()
        return {
            "input_ids": source, "attention_mask": mask, "labels": labels,
            "decoder_input_ids": target_in,
        }  # fmt: skip

    def callback(self) -> Any:
        from transformers import TrainerCallback

        counter = self

        class AtStepEnd(TrainerCallback):  # type: ignore[misc, unused-ignore]
            def on_step_end(self, *_: Any, **__: Any) -> None:
                counter.end_step()

        return AtStepEnd()

    def end_step(self) -> None:
        self.num_steps += 1
        if self.num_steps % self.setup.steps_per_interval == 0:
            now = time.perf_counter()
            say_interval(self.num_tokens / (now - self.start))
            self.start, self.num_tokens = now, 0


WORKERS = {
    "in turns": work_in_turns,
    "decoding in turns": work_in_turns_decoding,
    "paceline": work_as_paceline,
    "torch.nn.Transformer loop": work_as_torch_loop,
    "Seq2SeqTrainer + Marian": work_as_seq2seq_trainer,
}


# ---------------------------------------------------------------- peers


@dataclass(frozen=True)
class Peer:
    """How to get a competitor and how to start it. `packages` go in without their dependencies,
    which would replace torch; what they need besides torch is in `needs`."""

    name: str
    command: Callable[[Path, Setup], list[str]]
    rate: str = r"interval: ([\d.]+) tok/s"
    packages: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    has_fast_allocator: bool = False


class PeerFailedError(Exception):
    """Why a peer has no figures."""


def worker_command(name: str) -> Callable[[Path, Setup], list[str]]:
    def command(python: Path, setup: Setup) -> list[str]:
        return [str(python), __file__, "--worker", name, json.dumps(asdict(setup))]

    return command


def opennmt_command(python: Path, setup: Setup) -> list[str]:
    shape, folder = setup.shape, setup.text
    settings = {
        **shared_settings(setup), "save_model": str(folder / "opennmt"),
        "encoder_type": "transformer", "decoder_type": "transformer", "position_encoding": True,
        "enc_layers": shape.num_encoder_layers, "dec_layers": shape.num_decoder_layers,
        "heads": shape.num_heads, "hidden_size": shape.width, "word_vec_size": shape.width,
        "transformer_ff": shape.inner_width, "share_decoder_embeddings": True,
        "share_embeddings": True, "param_init": 0, "param_init_glorot": True,
        "report_every": setup.steps_per_interval, **training_settings(setup),
    }  # fmt: skip
    config = write_config(folder / "opennmt.yaml", settings)
    return [str(python.with_name("onmt_train")), "-config", str(config)]


def eole_command(python: Path, setup: Setup) -> list[str]:
    shape, folder = setup.shape, setup.text
    settings = {
        **shared_settings(setup), "vocab_size_multiple": 8, "overwrite": True,
        "report_every": setup.steps_per_interval,
        "training": {
            **training_settings(setup), "model_path": str(folder / "eole"), "compute_dtype": "fp32",
            "param_init_method": "xavier_uniform", "bucket_size_init": 29_000,
        },
        "model": {
            "architecture": "transformer", "layers": shape.num_encoder_layers,
            "heads": shape.num_heads, "hidden_size": shape.width,
            "transformer_ff": shape.inner_width, "share_embeddings": True,
            "share_decoder_embeddings": True, "mlp_activation_fn": "relu", "add_ffnbias": True,
            "embeddings": {
                "word_vec_size": shape.width, "position_encoding_type": "SinusoidalInterleaved",
            },
        },
    }  # fmt: skip
    config = write_config(folder / "eole.yaml", settings)
    return [str(python.with_name("eole")), "train", "-c", str(config)]


def shared_settings(setup: Setup) -> dict[str, Any]:
    """What OpenNMT-py and eole, its successor, call by the same names."""
    vocab, folder = str(setup.text / "vocab.counts"), setup.text
    text = {"path_src": str(folder / "train.en"), "path_tgt": str(folder / "train.de")}
    return {
        "src_vocab": vocab, "tgt_vocab": vocab, "share_vocab": True, "data": {"text": text},
        "src_vocab_size": setup.vocab_size, "tgt_vocab_size": setup.vocab_size, "seed": 1,
    }  # fmt: skip


def training_settings(setup: Setup) -> dict[str, Any]:
    shape = setup.shape
    return {
        "batch_type": "tokens", "batch_size": setup.batch_tokens, "bucket_size": 29_000,
        "num_workers": 0, "dropout": [shape.residual_dropout],
        "attention_dropout": [shape.attention_dropout], "label_smoothing": shape.label_smoothing,
        "optim": "adam", "adam_beta2": 0.998, "learning_rate": 2, "decay_method": "noam",
        "warmup_steps": 4_000, "normalization": "tokens", "train_steps": setup.num_steps,
        "valid_steps": 10**6, "save_checkpoint_steps": 10**6,
    }  # fmt: skip


def joey_command(python: Path, setup: Setup) -> list[str]:
    shape, folder = setup.shape, setup.text
    side = {"level": "word", "lowercase": False, "voc_file": str(folder / "vocab.txt")}
    stack = {
        "type": "transformer", "num_heads": shape.num_heads, "hidden_size": shape.width,
        "ff_size": shape.inner_width, "dropout": shape.residual_dropout, "layer_norm": "pre",
        "embeddings": {"embedding_dim": shape.width, "scale": True, "dropout": 0.1},
    }  # fmt: skip
    settings = {
        "name": "bench", "model_dir": str(folder / "joey"), "use_cuda": False, "random_seed": 1,
        "data": {
            "train": str(folder / "train"), "dev": str(folder / "valid"), "dataset_type": "plain",
            "src": {**side, "lang": "en"}, "trg": {**side, "lang": "de"},
        },
        "testing": {"batch_size": 64},
        "training": {
            "optimizer": "adam", "adam_betas": [0.9, 0.98], "learning_rate": 5e-4,
            "learning_rate_min": 0.0, "scheduling": "warmupinversesquareroot",
            "learning_rate_warmup": 4_000, "normalization": "tokens", "label_smoothing": 0.1,
            "batch_size": setup.batch_tokens, "batch_type": "token", "epochs": 9,
            "updates": setup.num_steps, "logging_freq": setup.steps_per_interval,
            "validation_freq": 10**6 * setup.steps_per_interval, "overwrite": True,
        },
        "model": {
            "tied_embeddings": True, "tied_softmax": True,
            "initializer": "xavier_uniform", "embed_initializer": "xavier_uniform",
            "encoder": {**stack, "num_layers": shape.num_encoder_layers},
            "decoder": {**stack, "num_layers": shape.num_decoder_layers},
        },
    }  # fmt: skip
    config = write_config(folder / "joey.yaml", settings)
    return [str(python), "-m", "joeynmt", "train", str(config), "--skip-test"]


def write_config(path: Path, settings: dict[str, Any]) -> Path:
    path.write_text(json.dumps(settings, indent=1))  # JSON is YAML
    return path


_TEXT_TOOLS = ("tensorboard", "sacrebleu", "pyyaml", "six", "pandas", "datasets")
_OPENNMT_NEEDS = ("configargparse", "pyonmttok", "rapidfuzz", "pyahocorasick", "waitress", "spacy")
MARIAN_PACKAGES = {"packages": ("accelerate==1.15.0",), "needs": ("transformers==5.22.2", "psutil")}
PEERS = [
    Peer("paceline", worker_command("paceline"), has_fast_allocator=True),
    Peer("torch.nn.Transformer loop", worker_command("torch.nn.Transformer loop")),
    Peer("Seq2SeqTrainer + Marian", worker_command("Seq2SeqTrainer + Marian"), **MARIAN_PACKAGES),  # type: ignore[arg-type]
    Peer(
        "OpenNMT-py", opennmt_command, r"Step .*/ *([\d.]+) tok/s",
        ("OpenNMT-py==3.5.1",),
        (*_TEXT_TOOLS, *_OPENNMT_NEEDS, "ctranslate2", "flask", "fasttext-wheel"),
    ),
    Peer(
        "eole", eole_command, r"Step .*/ *([\d.]+) tok/s",
        ("eole==0.6.4", "torch-optimi==0.3.3"),
        (*_TEXT_TOOLS, *_OPENNMT_NEEDS, "ctranslate2", "aiohttp", "fastapi", "uvicorn", "rich",
         "pydantic", "safetensors", "sentencepiece<=0.2.2", "tokenizers", "subword-nmt",
         "huggingface_hub", "protobuf==7.36.2"),
    ),
    Peer(
        "JoeyNMT", joey_command, r"Tokens per Sec: +([\d.]+)",
        ("joeynmt==2.3.0",),
        (*_TEXT_TOOLS, "importlib_metadata", "sentencepiece==0.2.0", "protobuf<3.21", "subword-nmt",
         "sacremoses", "packaging", "matplotlib", "seaborn"),
    ),
]  # fmt: skip
IN_TURNS, DECODING_IN_TURNS = (
    Peer(name, worker_command(name), has_fast_allocator=True, **MARIAN_PACKAGES)  # type: ignore[arg-type]
    for name in ("in turns", "decoding in turns")
)


def install(peer: Peer, peers_folder: Path) -> Path:
    """The interpreter to start a peer with; its environment sees this one's torch behind its own
    packages, so that all run on the very same torch."""
    if not peer.packages:
        return Path(sys.executable)
    folder = peers_folder / re.sub(r"\W+", "-", " ".join(peer.packages)).lower()
    python, mark = folder / "bin" / "python", folder / "installed"
    wanted = json.dumps([peer.packages, peer.needs])
    if not mark.exists() or mark.read_text() != wanted:
        print(f"installing {peer.name} into {folder}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        run_pip(python, *peer.needs)
        run_pip(python, "--no-deps", *peer.packages)
        shared = sysconfig.get_paths()["purelib"]
        site_packages = next(folder.glob("lib/python*/site-packages"))
        (site_packages / "zz-shared-torch.pth").write_text(shared + "\n")
        mark.write_text(wanted)
    return python


def run_pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if "ERROR" in line]
        raise PeerFailedError("could not be installed: " + (errors or ["pip failed"])[-1])


# ---------------------------------------------------------------- measuring


@dataclass(frozen=True)
class Rate:
    """Target tokens per second of wall time and of CPU time."""

    per_second: float
    per_cpu_second: float


def environment_for(peer: Peer) -> dict[str, str]:
    sources = str(Path(__file__).resolve().parents[1] / "src")
    environment = {**os.environ, "OMP_NUM_THREADS": str(num_cores()), "PYTHONPATH": sources}
    if peer.has_fast_allocator:
        environment |= speed_environment(1)
    return environment | {"PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false"}


def output_lines(peer: Peer, python: Path, setup: Setup) -> Iterator[tuple[str, float, float]]:
    """The lines a peer writes, with the time and its CPU time when each was written."""
    process = subprocess.Popen(
        peer.command(python, setup), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", env=environment_for(peer), cwd=setup.folder,
    )  # fmt: skip
    tail: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        tail = [*tail[-20:], line.rstrip()]
        yield line, time.perf_counter(), cpu_seconds(process.pid)
    if process.wait():
        raise PeerFailedError(f"exit {process.returncode}: {' | '.join(tail[-3:])[-300:]}")


def cpu_seconds(pid: int) -> float:
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
        return float(sum(sum(one.cpu_times()[:2]) for one in family))
    except psutil.NoSuchProcess:
        return 0.0


def measure(peer: Peer, python: Path, setup: Setup) -> list[Rate]:
    """One rate per interval, but for the first, in which a peer also loads and warms up."""
    rates, then, cpu_then = [], 0.0, 0.0
    for line, now, cpu_now in output_lines(peer, python, setup):
        found = re.search(peer.rate, line)
        if found and then and cpu_now > cpu_then:
            rate = float(found[1])
            rates.append(Rate(rate, rate * (now - then) / (cpu_now - cpu_then)))
        if found:
            then, cpu_then = now, cpu_now
    if not rates:
        raise PeerFailedError("ran, but reported no rate")
    return rates


@dataclass(frozen=True)
class Comparison:
    """Paceline against a peer; `reason` is set instead of figures where there are none."""

    size: str
    peer: str
    batches: str
    wanted_ratio: float
    paceline_rate: float = 0.0
    peer_rate: float = 0.0
    ratio: float = 0.0
    cpu_ratio: float = 0.0
    num_pairs: int = 0
    reason: str = ""


def compare(blank: Comparison, ours: list[Rate], theirs: list[Rate]) -> Comparison:
    pairs = list(zip(ours, theirs, strict=False))
    ratios = [one.per_second / other.per_second for one, other in pairs]
    cpu_ratios = [one.per_cpu_second / other.per_cpu_second for one, other in pairs]
    return replace(
        blank, num_pairs=len(pairs),
        paceline_rate=statistics.median(rate.per_second for rate in ours),
        peer_rate=statistics.median(rate.per_second for rate in theirs),
        ratio=statistics.median(ratios), cpu_ratio=statistics.median(cpu_ratios),
    )  # fmt: skip


def compare_in_turns(setup: Setup, peers_folder: Path) -> list[Comparison]:
    marian = Comparison(setup.size, "Hugging Face Marian", "same", 1.15)
    torch_layers = Comparison(setup.size, "torch.nn.Transformer", "same", 1.0)
    decoding = replace(marian, batches="decoding", wanted_ratio=1.0)
    return [
        *compare_pairs(IN_TURNS, {"marian": marian, "torch.nn": torch_layers}, setup, peers_folder),
        *compare_pairs(DECODING_IN_TURNS, {"marian": decoding}, setup, peers_folder),
    ]


def compare_pairs(
    worker: Peer, blanks: dict[str, Comparison], setup: Setup, peers_folder: Path
) -> list[Comparison]:
    rates: dict[str, list[Rate]] = {name: [] for name in ("paceline", *blanks)}
    try:
        python = install(worker, peers_folder)
        for line, _, _ in output_lines(worker, python, setup):
            if line.startswith("{"):
                measured = json.loads(line)
                num_tokens = measured["tokens"][0]
                for name, its_rates in rates.items():
                    seconds, cpu = measured[name]
                    its_rates.append(Rate(num_tokens / seconds, num_tokens / cpu))
    except PeerFailedError as error:
        return [replace(blank, reason=str(error)) for blank in blanks.values()]
    return [compare(blank, rates["paceline"], rates[name]) for name, blank in blanks.items()]


def compare_alone(setup: Setup, peers_folder: Path, num_rounds: int) -> list[Comparison]:
    """All peers one after the other, then again, so that a slow minute hits more than one."""
    rates: dict[str, list[Rate]] = {peer.name: [] for peer in PEERS}
    reasons: dict[str, str] = {}
    for number in range(num_rounds):
        for peer in PEERS:
            if peer.name in reasons:
                continue
            try:
                measured = measure(peer, install(peer, peers_folder), setup)
            except PeerFailedError as error:
                reasons[peer.name] = str(error)
                measured = []
            rates[peer.name] += measured
            shown = ", ".join(f"{rate.per_second:.0f}" for rate in measured)
            say(f"  {setup.size}, round {number + 1}, {peer.name}: {shown or reasons[peer.name]}")
    return [
        replace(blank, reason=reasons.get(name, reasons.get("paceline", "no figures")))
        if not (rates[name] and rates["paceline"])
        else compare(blank, rates["paceline"], rates[name])
        for name, blank in (
            (peer.name, Comparison(setup.size, peer.name, "own", 1.5)) for peer in PEERS[1:]
        )
    ]


# ---------------------------------------------------------------- the script


def say(text: str) -> None:
    print(text, flush=True)


def table(comparisons: list[Comparison]) -> str:
    lines = [
        "| size | peer | batches | our tok/s | its tok/s | ratio | CPU ratio | wanted | pairs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in comparisons:
        figures = f"{one.paceline_rate:.0f} | {one.peer_rate:.0f} | {one.ratio:.2f} | "
        figures += f"{one.cpu_ratio:.2f} | {one.wanted_ratio} | {one.num_pairs}"
        if one.reason:
            figures = f"- | - | - | - | {one.wanted_ratio} | {one.reason}"
        lines.append(f"| {one.size} | {one.peer} | {one.batches} | {figures} |")
    return "\n".join(lines)


def shortened(setup: Setup) -> Setup:
    return replace(setup, steps_per_interval=2, num_intervals=1, batch_tokens=1_500)


def run(arguments: argparse.Namespace) -> list[Comparison]:
    text = find_text(arguments.text)
    sizes = ["small"] if arguments.quick else arguments.sizes.split(",")
    comparisons: list[Comparison] = []
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            setup = replace(SETUPS[size], folder=str(Path(folder) / size))
            setup = shortened(setup) if arguments.quick else setup
            prepare_text(*text, setup)
            say(f"{size}: {count_parameters(setup.shape):,} parameters, {setup}")
            comparisons += compare_in_turns(setup, arguments.peers)
            say(table(comparisons))
            num_rounds = 1 if arguments.quick else arguments.rounds
            comparisons += compare_alone(setup, arguments.peers, num_rounds)
    return comparisons


def parse() -> argparse.Namespace:
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", type=Path, help="folder with train.en and train.de, maybe .gz")
    parser.add_argument("--peers", type=Path, default=cache / "paceline" / "benchmark-peers")
    parser.add_argument("--sizes", default="small,base")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="small only, one short round")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    if arguments.worker:
        name, setup = arguments.worker
        WORKERS[name](Setup(**json.loads(setup)))
        return
    start = time.perf_counter()
    comparisons = run(arguments)
    say(f"\n{num_cores()} cores, torch {torch.__version__}, {time.perf_counter() - start:.0f} s\n")
    say(table(comparisons))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(one) for one in comparisons], indent=1))


if __name__ == "__main__":
    main()
