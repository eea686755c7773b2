"""Training speed of the Transformer against others, as ratios of target tokens/s from one run.

    python -m benchmarks.nmt                    # small and base, all peers: about 20 minutes
    python -m benchmarks.nmt --quick            # small only, one short round

Comparisons, for the same model shape, text, vocabulary and tokens per batch:

  same batches  One process, the very same length-sorted batches for Paceline's model, Hugging
                Face's Marian and torch.nn.Transformer, in turns, all with the same fused AdamW and
                the same allocator settings. Ratios are medians over pairs of steps.
  decoding      In the same way, beam 4, sentences of one length, weights that never end a sentence,
                so that both write equally many pieces.
  own batches   Each in its own process as its users run it, one after the other, several rounds:
                OpenNMT-py, eole, JoeyNMT, Hugging Face's Seq2SeqTrainer with Marian, a plain loop
                around torch.nn.Transformer; Paceline with its own batches. Ratios are medians over
                the reporting intervals of all rounds; the first interval of a run is left out.
  exported      Sentences/s of the exported model (fp32 and int8, CTranslate2) against each peer's
                own decoding, beam 4, sentences of one length, translations of one length for all.

Tokens are target tokens without padding. Seconds suffer from whoever else is at work on the
machine, CPU-seconds hardly; both are given. Peers are installed into virtual environments of their
own (--peers) beside the torch that runs this script. One that cannot be installed or fails is
listed with the reason. Text is any pair of plain or gzip files, TRAIN.en and TRAIN.de.
"""

import argparse
import json
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch

from benchmarks.nmt.measuring import (
    Comparison,
    compare_alone,
    compare_decoding,
    compare_in_turns,
    say,
)
from benchmarks.nmt.peers import PEERS_FOLDER
from benchmarks.nmt.text import SETUPS, Setup, find_text, prepare_text
from benchmarks.nmt.workers import WORKERS
from paceline.machine.cores import num_cores
from paceline.models.shapes import count_parameters


def table(comparisons: list[Comparison]) -> str:
    lines = [
        "| size | peer | batches | ours | its | ratio | CPU ratio | wanted | pairs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in comparisons:
        cpu_ratio = "-" if one.cpu_ratio is None else f"{one.cpu_ratio:.2f}"
        figures = f"{one.paceline_rate:,.0f} | {one.peer_rate:,.0f} | {one.ratio:.2f} | "
        figures += f"{cpu_ratio} | {one.wanted_ratio} | {one.num_pairs}"
        if one.reason:
            figures = f"- | - | - | - | {one.wanted_ratio} | {one.reason}"
        lines.append(f"| {one.size} | {one.peer} | {one.batches} | {figures} |")
    return "\n".join(lines)


def shortened(setup: Setup) -> Setup:
    return replace(setup, steps_per_interval=2, num_intervals=1, batch_tokens=1_500, num_decoded=32)


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
            comparisons += compare_decoding(setup, arguments.peers, num_rounds)
            say(table(comparisons))
    return comparisons


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", type=Path, help="folder with train.en and train.de, maybe .gz")
    parser.add_argument("--peers", type=Path, default=PEERS_FOLDER)
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
