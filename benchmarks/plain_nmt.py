"""The peers for translation on a device: torch.nn.Transformer or Marian, on batches of our size.

Batches are sorted by length and cut by tokens, as ours are; the step is the tutorials', with
autocast. fp16 goes without a loss scale here: it changes what is learnt, and not the speed. Prints
one JSON line: target tokens per second and per CPU-second.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from benchmarks.nmt.models import Step, marian_step, torch_step
from benchmarks.nmt.text import BOS, EOS, Batch, padded
from benchmarks.plain_loop import add_place, place_of
from paceline import recipe
from paceline.models.shapes import TransformerShape
from paceline.tasks.nmt.network import nmt_shape
from paceline.tasks.nmt.preparation.prepare import open_split
from paceline.tasks.nmt.settings import NmtRecipe

WARM_UP_STEPS = 3
PEERS: dict[str, Callable[[TransformerShape], Step]] = {
    "torch.nn": torch_step,
    "marian": marian_step,
}


def batches_of(data: Path, num_tokens: int) -> Iterator[Batch]:
    """Neighbours in length, in random order, again and again."""
    pairs = open_split(data, "train")
    order = np.argsort(pairs.target_lengths, kind="stable")
    ends = np.cumsum(pairs.target_lengths[order] + 1) // num_tokens
    groups = [order[ends == number] for number in range(int(ends[-1]) + 1)]
    chooser = np.random.default_rng(1)
    while True:
        for number in chooser.permutation(len(groups)):
            sources = [[*map(int, pairs.source(n)), EOS] for n in groups[number]]
            targets = [[*map(int, pairs.target(n)), EOS] for n in groups[number]]
            before = [[BOS, *target[:-1]] for target in targets]
            yield padded(sources), padded(before), padded(targets)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--recipe", required=True)
    parser.add_argument("--vocab", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True, help="target tokens of a batch")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--peer", choices=sorted(PEERS), default="torch.nn")
    add_place(parser)
    options = parser.parse_args()
    loaded = recipe.load(options.recipe, [f"model.vocab_size={options.vocab}"])
    assert isinstance(loaded, NmtRecipe)
    place = place_of(options)
    with torch.device(place.device):
        step = PEERS[options.peer](nmt_shape(loaded))
    num_tokens, began, cpu_began = 0, 0.0, 0.0
    for number, batch in enumerate(batches_of(options.data, options.tokens)):
        if number == WARM_UP_STEPS:
            place.wait()
            num_tokens, began, cpu_began = 0, time.perf_counter(), time.process_time()
        if number == WARM_UP_STEPS + options.steps:
            break
        source, target_in, target_out = (each.to(place.device) for each in batch)
        with place.autocast():
            step((source, target_in, target_out))
        num_tokens += int((batch[2] != 0).sum())
    place.wait()
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    told = {"per_second": num_tokens / seconds, "per_cpu_second": num_tokens / cpu_seconds}
    print(json.dumps(told), flush=True)
    os._exit(0)  # a device's libraries take seconds to unload


if __name__ == "__main__":
    main()
