"""Training ResNet-18 and -50 against a plain PyTorch loop, in one run, as ratios.

Rounds alternate (A B A B ...) because other tenants of the machine come and go; what is reported is
the median of the paired ratios. Images per CPU-second stand beside images per second: stolen time
does not touch them. The pictures are real photographs where there are some, else the stand-in.

    python -m benchmarks.imagenet [--quick] [--rounds N] [--pictures DIR]
"""

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.pictures import Speed, compare, progress, speed_of_peer, speed_of_run
from paceline.tasks.imagenet import shards
from paceline.tasks.imagenet.preparation import prepare as imagenet

WARM_UP_STEPS = 2

SAMPLE = Path(__file__).parents[2] / "shared" / "data" / "imagenet-sample"


@dataclass(frozen=True)
class Case:
    data: Path
    depth: int
    batch: int
    num_steps: int
    size: int


def ours(case: Case, num_procs: int) -> Speed:
    """A real `paceline train`, measured from its own event lines after a warm-up."""
    settings = [
        f"data={case.data}",
        f"model.num_classes={len(shards.classes(case.data))}",
        f"batch.global={case.batch}",
        f"batch.micro={case.batch // num_procs}",
        f"augment.size={case.size}",
        f"steps={WARM_UP_STEPS + case.num_steps}",
        "precision=fp32",
        "log.every_steps=1",
        "log.show_seconds=1000",
        "evaluate.every_steps=null",
        "checkpoint.every_steps=null",
    ]
    with tempfile.TemporaryDirectory() as folder:
        where = ["--run", folder, "--procs", str(num_procs)]
        command = [sys.executable, "-m", "paceline.cli", "train", f"imagenet-resnet{case.depth}"]
        subprocess.run([*command, *settings, *where], check=True, capture_output=True)
        return speed_of_run(Path(folder), WARM_UP_STEPS)


def plain(case: Case, num_workers: int) -> Speed:
    words: dict[str, object] = {
        "--data": case.data,
        "--depth": case.depth,
        "--batch": case.batch,
        "--size": case.size,
        "--steps": case.num_steps,
        "--workers": num_workers,
    }
    return speed_of_peer("plain_imagenet", words)


def compare_case(case: Case, rounds: int, num_procs: int) -> None:
    workers = max((0, 1, 2), key=lambda count: plain(case, count).per_second)
    progress(f"ResNet-{case.depth}: the plain loop gets {workers} loader processes, its best")
    name = f"ResNet-{case.depth}, {case.size} px, batch {case.batch}"
    compare(name, lambda: ours(case, num_procs), lambda: plain(case, workers), rounds)


def prepare(pictures: Path, folder: Path) -> Path:
    """Photographs named WNID_name.JPEG as a tree of class folders; without any, the stand-in."""
    files = sorted(pictures.glob("*.JPEG")) if pictures.is_dir() else []
    for file in files:
        for split in ("train", "val"):
            place = folder / "tree" / split / file.name.partition("_")[0]
            place.mkdir(parents=True, exist_ok=True)
            (place / file.name).symlink_to(file.resolve())
    source = str(folder / "tree") if files else "stand-in"
    return imagenet.prepare(source, folder / "data", imagenet.Options(), progress)


def main() -> None:
    parser = argparse.ArgumentParser(description="ResNets against a plain PyTorch loop")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="measured steps per round")
    parser.add_argument("--procs", type=int, default=2, help="processes of ours")
    parser.add_argument("--pictures", type=Path, default=SAMPLE)
    parser.add_argument("--quick", action="store_true", help="smaller pictures, one round")
    options = parser.parse_args()
    rounds, size, steps = options.rounds, 224, options.steps
    if options.quick:
        rounds, size, steps = 1, 128, 2
    with tempfile.TemporaryDirectory() as folder:
        data = prepare(options.pictures, Path(folder))
        print("| 2 cores | plain loop, images/s | ours, images/s | ratio | per CPU-second |")
        print("|---|---|---|---|---|")
        compare_case(Case(data, 18, 32, steps, size), rounds, options.procs)
        compare_case(Case(data, 50, 16, steps, size), rounds, options.procs)


if __name__ == "__main__":
    main()
