"""The others: how each is installed, told what to do, and started."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.nmt.text import BEAM_SIZE, DECODED_BATCH, DECODED_LENGTH, EXTRA_LENGTH, Setup


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
    decode: Callable[[Path, Setup], list[str]] | None = None
    """How its own decoding is started, with the weights that its training left."""
    output: str | None = None
    """Where its translations are, if in a file: each must be as long as it was told."""
    seconds: str = r"decoded in ([\d.]+) s"
    """What it says of the time it took; several such figures add up."""
    variables: tuple[tuple[str, str], ...] = ()
    """Environment without which it does not run beside this torch."""


PEERS_FOLDER = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / (
    "paceline/benchmark-peers"
)
"""Where their environments are kept."""


class PeerFailedError(Exception):
    """Why a peer has no figures."""


def worker_command(name: str) -> Callable[[Path, Setup], list[str]]:
    def command(python: Path, setup: Setup) -> list[str]:
        return [str(python), "-m", "benchmarks.nmt", "--worker", name, json.dumps(asdict(setup))]

    return command


def opennmt_command(python: Path, setup: Setup) -> list[str]:
    shape, folder = setup.shape, setup.text
    settings = {
        **shared_settings(setup),
        "save_model": str(folder / "opennmt"),
        "encoder_type": "transformer",
        "decoder_type": "transformer",
        "position_encoding": True,
        "enc_layers": shape.num_encoder_layers,
        "dec_layers": shape.num_decoder_layers,
        "heads": shape.num_heads,
        "hidden_size": shape.width,
        "word_vec_size": shape.width,
        "transformer_ff": shape.inner_width,
        "share_decoder_embeddings": True,
        "share_embeddings": True,
        "param_init": 0,
        "param_init_glorot": True,
        "report_every": setup.steps_per_interval,
        "model_dtype": "fp32" if setup.precision == "fp32" else "fp16",
        **training_settings(setup),
    }
    config = write_config(folder / "opennmt.yaml", settings)
    return [str(python.with_name("onmt_train")), "-config", str(config)]


def opennmt_decoding(python: Path, setup: Setup) -> list[str]:
    words = {
        "-model": setup.text / f"opennmt_step_{setup.num_steps}.pt",
        **decoding_words(setup),
        "-output": setup.text / "opennmt.out",
        "-length_penalty": "wu",
        "-alpha": 0.6,
    }
    return [str(python.with_name("onmt_translate")), *flat(words), "-report_time"]


def eole_decoding(python: Path, setup: Setup) -> list[str]:
    words = {
        "-model_path": setup.text / "eole",
        **decoding_words(setup),
        "-world_size": 0,
        "-output": setup.text / "eole.out",
        "-length_penalty": "wu",
        "-alpha": 0.6,
    }
    return [str(python.with_name("eole")), "predict", *flat(words), "-report_time"]


def decoding_words(setup: Setup) -> dict[str, object]:
    length = DECODED_LENGTH + EXTRA_LENGTH
    return {
        "-src": setup.text / "decode.en",
        "-beam_size": BEAM_SIZE,
        "-batch_size": DECODED_BATCH,
        "-min_length": length,
        "-max_length": length,
    }


def flat(words: dict[str, object]) -> list[str]:
    return [str(word) for pair in words.items() for word in pair]


def eole_command(python: Path, setup: Setup) -> list[str]:
    shape, folder = setup.shape, setup.text
    settings = {
        **shared_settings(setup),
        "vocab_size_multiple": 8,
        "overwrite": True,
        "report_every": setup.steps_per_interval,
        "training": {
            **training_settings(setup),
            "model_path": str(folder / "eole"),
            "compute_dtype": setup.precision,
            "param_init_method": "xavier_uniform",
            "bucket_size_init": 29_000,
        },
        "model": {
            "architecture": "transformer",
            "layers": shape.num_encoder_layers,
            "heads": shape.num_heads,
            "hidden_size": shape.width,
            "transformer_ff": shape.inner_width,
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "mlp_activation_fn": "relu",
            "add_ffnbias": True,
            "embeddings": {
                "word_vec_size": shape.width,
                "position_encoding_type": "SinusoidalInterleaved",
            },
        },
    }
    config = write_config(folder / "eole.yaml", settings)
    return [str(python.with_name("eole")), "train", "-c", str(config)]


def shared_settings(setup: Setup) -> dict[str, Any]:
    """What OpenNMT-py and eole, its successor, call by the same names."""
    vocab, folder = str(setup.text / "vocab.counts"), setup.text
    text = {"path_src": str(folder / "train.en"), "path_tgt": str(folder / "train.de")}
    return {
        "src_vocab": vocab,
        "tgt_vocab": vocab,
        "share_vocab": True,
        "data": {"text": text},
        "src_vocab_size": setup.vocab_size,
        "tgt_vocab_size": setup.vocab_size,
        "seed": 1,
    }


def training_settings(setup: Setup) -> dict[str, Any]:
    shape = setup.shape
    return {
        "batch_type": "tokens",
        "batch_size": setup.batch_tokens,
        "bucket_size": 29_000,
        "num_workers": 0,
        "dropout": [shape.residual_dropout],
        "attention_dropout": [shape.attention_dropout],
        "label_smoothing": shape.label_smoothing,
        "optim": "adam",
        "adam_beta2": 0.998,
        "learning_rate": 2,
        "decay_method": "noam",
        "warmup_steps": 4_000,
        "normalization": "tokens",
        "train_steps": setup.num_steps,
        "valid_steps": 10**6,
        "save_checkpoint_steps": 10**6,
        **({"world_size": 1, "gpu_ranks": [0]} if setup.device == "cuda" else {}),
    }


def joey_command(python: Path, setup: Setup) -> list[str]:
    shape, folder = setup.shape, setup.text
    side = {"level": "word", "lowercase": False, "voc_file": str(folder / "vocab.txt")}
    stack = {
        "type": "transformer",
        "num_heads": shape.num_heads,
        "hidden_size": shape.width,
        "ff_size": shape.inner_width,
        "dropout": shape.residual_dropout,
        "layer_norm": "pre",
        "embeddings": {"embedding_dim": shape.width, "scale": True, "dropout": 0.1},
    }
    settings = {
        "name": "bench",
        "model_dir": str(folder / "joey"),
        "use_cuda": False,
        "random_seed": 1,
        "data": {
            "train": str(folder / "train"),
            "dev": str(folder / "valid"),
            "dataset_type": "plain",
            "src": {**side, "lang": "en"},
            "trg": {**side, "lang": "de"},
        },
        "testing": {"batch_size": 64},
        "training": {
            "optimizer": "adam",
            "adam_betas": [0.9, 0.98],
            "learning_rate": 5e-4,
            "learning_rate_min": 0.0,
            "scheduling": "warmupinversesquareroot",
            "learning_rate_warmup": 4_000,
            "normalization": "tokens",
            "label_smoothing": 0.1,
            "batch_size": setup.batch_tokens,
            "batch_type": "token",
            "epochs": 9,
            "updates": setup.num_steps,
            "logging_freq": setup.steps_per_interval,
            "validation_freq": 10**6 * setup.steps_per_interval,
            "overwrite": True,
        },
        "model": {
            "tied_embeddings": True,
            "tied_softmax": True,
            "initializer": "xavier_uniform",
            "embed_initializer": "xavier_uniform",
            "encoder": {**stack, "num_layers": shape.num_encoder_layers},
            "decoder": {**stack, "num_layers": shape.num_decoder_layers},
        },
    }
    config = write_config(folder / "joey.yaml", settings)
    return [str(python), "-m", "joeynmt", "train", str(config), "--skip-test"]


def joey_decoding(python: Path, setup: Setup) -> list[str]:
    length = DECODED_LENGTH + EXTRA_LENGTH
    settings = json.loads((setup.text / "joey.yaml").read_text())
    settings["data"]["test"] = str(setup.text / "decode")
    settings["load_model"] = str(setup.text / "joey" / f"{setup.num_steps}.ckpt")
    settings["testing"] = {
        "batch_size": DECODED_BATCH * BEAM_SIZE,
        "batch_type": "sentence",
        "beam_size": BEAM_SIZE,
        "beam_alpha": 0.6,
        "min_output_length": length,
        "max_output_length": length,
        "eval_metrics": [],
    }
    config = write_config(setup.text / "joey-decoding.yaml", settings)
    return [str(python), "-m", "joeynmt", "test", str(config), "-o", str(setup.text / "joey.out")]


def write_config(path: Path, settings: dict[str, Any]) -> Path:
    path.write_text(json.dumps(settings, indent=1))  # JSON is YAML
    return path


_TEXT_TOOLS = ("tensorboard", "sacrebleu", "pyyaml", "six", "pandas", "datasets")
_OPENNMT_NEEDS = ("configargparse", "pyonmttok", "rapidfuzz", "pyahocorasick", "waitress", "spacy")
MARIAN_PACKAGES = {"packages": ("accelerate==1.15.0",), "needs": ("transformers==5.22.2", "psutil")}
PEERS = [
    Peer("paceline", worker_command("paceline"), has_fast_allocator=True),
    Peer("torch.nn.Transformer loop", worker_command("torch.nn.Transformer loop")),
    Peer(
        "Seq2SeqTrainer + Marian",
        worker_command("Seq2SeqTrainer + Marian"),
        decode=worker_command("Marian decoding"),
        **MARIAN_PACKAGES,  # type: ignore[arg-type]
    ),
    Peer(
        "OpenNMT-py",
        opennmt_command,
        r"Step .*/ *([\d.]+) tok/s",
        ("OpenNMT-py==3.5.1",),
        (*_TEXT_TOOLS, *_OPENNMT_NEEDS, "ctranslate2", "flask", "fasttext-wheel"),
        # It loads the checkpoint it has just written, a pickle, which torch by now refuses.
        variables=(("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1"),),
        decode=opennmt_decoding,
        output="opennmt.out",
        seconds=r"Total translation time \(s\): ([\d.]+)",
    ),
    Peer(
        "eole",
        eole_command,
        r"Step .*/ *([\d.]+) tok/s",
        ("eole==0.6.4", "torch-optimi==0.3.3"),
        (
            *_TEXT_TOOLS,
            *_OPENNMT_NEEDS,
            "ctranslate2",
            "aiohttp",
            "fastapi",
            "uvicorn",
            "rich",
            "pydantic",
            "safetensors",
            "sentencepiece<=0.2.2",
            "tokenizers",
            "subword-nmt",
            "huggingface_hub",
            "protobuf==7.36.2",
        ),
        decode=eole_decoding,
        output="eole.out",
        seconds=r"(?:Step 0 time|Subsequent prediction time including all) \(s\): ([\d.]+)",
    ),
    Peer(
        "JoeyNMT",
        joey_command,
        r"Tokens per Sec: +([\d.]+)",
        ("joeynmt==2.3.0",),
        (
            *_TEXT_TOOLS,
            "importlib_metadata",
            "sentencepiece==0.2.0",
            "protobuf<3.21",
            "subword-nmt",
            "sacremoses",
            "packaging",
            "matplotlib",
            "seaborn",
        ),
        decode=joey_decoding,
        output="joey.out.test",
        seconds=r"Generation took ([\d.]+)\[sec\]",
    ),
]
EXPORTED, EXPORTED_INT8 = (
    Peer(name, worker_command(name), decode=worker_command(name))
    for name in ("exported", "exported int8")
)
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
