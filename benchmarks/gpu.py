"""The table of the README for a GPU: speeds, share of the device's peak, and the same peers.

    python -m benchmarks.gpu                     on the first CUDA device
    python -m benchmarks.gpu --device cpu        tiny, to see that the script works; no figures

Ours is a real `paceline train` with one process, measured from its own event lines; the peer is
the loop that a tutorial teaches, in the same precision, on the same data, with the best number of
loader processes; for translation also OpenNMT-py, eole and Hugging Face's Trainer, installed as
`benchmarks.nmt` does (--toolkits, the default on a device). Rounds alternate, and the ratio is the
median of the paired ones. Nobody has run it on a device yet.
"""

import argparse
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from statistics import median

import torch

from benchmarks.nmt.on_device import TOOLKITS, speed_of_toolkit, write_prepared
from benchmarks.nmt.peers import PEERS_FOLDER, PeerFailedError
from benchmarks.nmt.text import Setup
from benchmarks.pictures import Speed, progress, speed_of_peer, speed_of_run
from paceline.errors import EXIT_USER_ERROR, UserError
from paceline.machine.arithmetic import best_precision
from paceline.record.events import read_events
from paceline.record.schema import RunDirectory
from paceline.tasks.cifar10 import prepare as cifar10
from paceline.tasks.imagenet import shards
from paceline.tasks.imagenet.preparation import prepare as imagenet
from paceline.tasks.nmt.preparation import prepare as nmt
from paceline.tasks.nmt.vocabulary import Vocabulary

WARM_UP_STEPS = 5
_QUIET = ("log.every_steps=1", "log.show_seconds=100000", "log.probe_seconds=1")
_NOTHING_ELSE = ("evaluate.every_steps=null", "checkpoint.every_steps=null")


@dataclass(frozen=True)
class Place:
    device: str
    precision: str
    is_tiny: bool
    has_toolkits: bool = False

    @property
    def worker_counts(self) -> tuple[int, ...]:
        return (0,) if self.is_tiny else (2, 4, 8)


@dataclass(frozen=True)
class Case:
    """One row: what is trained, and who else trains it."""

    name: str
    unit: str
    recipe: str
    settings: list[str]
    peer_name: str
    peer_module: str
    peer_words: dict[str, object] = field(default_factory=dict)
    peer_has_loader: bool = True
    toolkit: Setup | None = None
    """What it is to train, where the peer is one of the toolkits."""


@dataclass(frozen=True)
class OwnSpeed:
    speed: Speed
    share_of_peak: float


def ours(case: Case, place: Place, num_steps: int) -> OwnSpeed:
    with tempfile.TemporaryDirectory() as folder:
        steps, device = f"steps={WARM_UP_STEPS + num_steps}", f"device={place.device}"
        precision = f"precision={place.precision}"
        settings = [*case.settings, steps, device, precision, *_QUIET, *_NOTHING_ELSE]
        where = ["--run", folder, "--procs", "1"]
        command = [sys.executable, "-m", "paceline.cli", "train", case.recipe]
        done = subprocess.run(
            [*command, *settings, *where], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{case.name}: {done.stderr.strip()[-800:]}")
        return OwnSpeed(speed_of_run(Path(folder), WARM_UP_STEPS), share_of_peak(Path(folder)))


def share_of_peak(run: Path) -> float:
    """Operations that were done in the steps after the warm-up, against a matrix multiplication in
    the same precision."""
    events = read_events(RunDirectory(run).rank_events(0))
    begin = next(event for event in events if event["kind"] == "begin")
    if not begin.get("flops_per_unit") or not begin.get("peak_flops"):
        return math.nan
    per_second = speed_of_run(run, WARM_UP_STEPS).per_second
    return float(per_second * begin["flops_per_unit"] / begin["peak_flops"])


def peer(case: Case, place: Place, num_steps: int, num_workers: int) -> Speed:
    if case.toolkit is not None:
        setup = replace(
            case.toolkit, steps_per_interval=ceil(num_steps / case.toolkit.num_intervals)
        )
        return speed_of_toolkit(case.peer_name, setup, PEERS_FOLDER)
    words: dict[str, object] = {"--steps": num_steps, "--device": place.device}
    words |= {"--precision": place.precision, **case.peer_words}
    if case.peer_has_loader:
        words["--workers"] = num_workers
    return speed_of_peer(case.peer_module, words)


def compare_case(case: Case, place: Place, num_steps: int, rounds: int) -> None:
    counts = place.worker_counts if case.peer_has_loader else (0,)
    best = max(counts, key=lambda n: peer(case, place, num_steps, n).per_second)
    pairs = []
    for number in range(rounds):
        pairs.append((peer(case, place, num_steps, best), ours(case, place, num_steps)))
        progress(f"{case.name} against {case.peer_name}, round {number + 1} of {rounds}")
    ratio = median(own.speed.per_second / other.per_second for other, own in pairs)
    theirs = max(other.per_second for other, _ in pairs)
    own = max((own for _, own in pairs), key=lambda each: each.speed.per_second)
    print(
        f"| {case.name} | {case.unit}/s | {own.speed.per_second:,.0f} | "
        f"{100 * own.share_of_peak:.0f} % | {case.peer_name} | {theirs:,.0f} | {ratio:.2f} |",
        flush=True,
    )


def all_cases(place: Place, folder: Path) -> Iterator[Case]:
    yield from picture_cases(place, folder)
    yield from translation_cases(place, folder)


def picture_cases(place: Place, folder: Path) -> Iterator[Case]:
    data = cifar10.prepare("stand-in", cifar10.default_directory("stand-in"), progress)
    batch = 16 if place.is_tiny else 128
    depth = 8 if place.is_tiny else 44
    cut = [f"batch.global={batch}", f"batch.micro={batch}"]
    words = {"--data": data, "--depth": depth, "--batch": batch}
    name = "cifar10-tiny" if place.is_tiny else "cifar10-resnet44-gpu"
    settings = [f"data={data}", *cut]
    yield Case(name, "images", name, settings, "a plain loop", "plain_cifar10", words)
    photos = imagenet.prepare("stand-in", folder / "photos", imagenet.Options(), progress)
    num_classes = len(shards.classes(photos))
    for depth, batch in ((18, 4),) if place.is_tiny else ((18, 128), (50, 128)):
        size = 64 if place.is_tiny else 224
        recipe = f"imagenet-resnet{depth}-gpu"
        settings = [f"data={photos}", f"model.num_classes={num_classes}", f"augment.size={size}"]
        settings += [f"batch.global={batch}", f"batch.micro={batch}"]
        words = {"--data": photos, "--depth": depth, "--batch": batch, "--size": size}
        yield Case(recipe, "images", recipe, settings, "a plain loop", "plain_imagenet", words)


def translation_cases(place: Place, folder: Path) -> Iterator[Case]:
    pairs = 2000 if place.is_tiny else 60_000
    text = nmt.prepare("stand-in", folder / "text", nmt.Options(num_pairs=pairs), progress)
    vocab = Vocabulary.load(text).size
    recipe, tokens = ("nmt-tiny", 256) if place.is_tiny else ("nmt-base-gpu", 6144)
    settings = [f"data={text}", f"model.vocab_size={vocab}"]
    settings += [f"batch.global={tokens}", f"batch.micro={tokens}"]
    words = {"--data": text, "--recipe": recipe, "--vocab": vocab, "--tokens": tokens}
    for name, package in (("torch.nn", None), ("marian", "transformers")):
        if package and not is_installed(package):
            progress(f"left out: {name}, which needs `pip install {package}`")
            continue
        chosen = {**words, "--peer": name}
        yield Case(recipe, "tokens", recipe, settings, name, "plain_nmt", chosen, False)
    if place.has_toolkits:
        size = "tiny" if place.is_tiny else "base"
        setup = Setup(size, vocab, tokens, 0, 0, folder=str(folder / "pieces"))
        setup = replace(setup, device=place.device, precision=place.precision)
        write_prepared(text, setup)
        for name in TOOLKITS:
            yield Case(recipe, "tokens", recipe, settings, name, "", {}, False, setup)


def is_installed(package: str) -> bool:
    from importlib.util import find_spec

    return find_spec(package) is not None


def choose_place(device: str) -> Place:
    if device == "cpu":
        progress("on the processor, tiny: this shows that the script works, and measures nothing")
        return Place("cpu", "fp32", is_tiny=True)
    if not torch.cuda.is_available():
        raise UserError(
            "there is no CUDA device that torch can use here",
            "run it where there is one, or see that the script works: --device cpu",
        )
    return Place("cuda", best_precision(torch.cuda.get_device_capability()), is_tiny=False)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument(
        "--toolkits",
        action=argparse.BooleanOptionalAction,
        help="OpenNMT-py, eole, Hugging Face's Trainer (default: where there is a device)",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100, help="measured steps per round")
    return parser.parse_args()


def main() -> None:
    options = parse()
    try:
        place = choose_place(options.device)
    except UserError as error:
        progress(str(error))
        sys.exit(EXIT_USER_ERROR)
    has_toolkits = not place.is_tiny if options.toolkits is None else options.toolkits
    place = replace(place, has_toolkits=has_toolkits)
    rounds, steps = (1, 2) if place.is_tiny else (options.rounds, options.steps)
    name = "processor" if place.is_tiny else torch.cuda.get_device_name()
    print(f"| {name}, {place.precision} | unit | ours | share of peak | peer | peer's | ratio |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for case in all_cases(place, Path(folder)):
            try:
                compare_case(case, place, steps, rounds)
            except PeerFailedError as error:
                progress(f"left out: {case.peer_name}, which {error}")


if __name__ == "__main__":
    main()
