"""How long `paceline report` takes on 500 MB of other tools' logs, and in how much memory.

    python -m benchmarks.logs                  # every shape below
    python -m benchmarks.logs imagenet many    # some of them

Whatever the tool, 500 MB in one log or in a thousand must take at most 20 processor seconds and
200 MB of memory. The logs are made up, in the shapes that `tests/long_logs.py` knows.
"""

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.report import measure

MOST_CPU_SECONDS, MOST_BYTES = 20.0, 200e6
ALL_BYTES = 500_000_000
NUM_RUNS = 1000
EPOCH_STEPS = 5000
_AT_ONCE = 10_000


def imagenet_lines() -> Iterator[str]:
    step = 0
    while True:
        epoch, index = divmod(step, EPOCH_STEPS)
        wait = 0.1 + step % 7 / 100
        yield (
            f"Epoch: [{epoch}][{index:4d}/{EPOCH_STEPS}]\tTime  0.512 ( 0.{500 + step % 9})\t"
            f"Data  {wait:.3f} ( 0.103)\tLoss {7 / (1 + step / 1e5):.4e} (6.9e+00)\t"
            f"Acc@1   1.56 (  1.20)\tAcc@5   4.30 (  4.10)"
        )
        step += 1


def hugging_face_lines() -> Iterator[str]:
    step = 0
    while True:
        step += 10
        loss = 3 / (1 + step / 1e5)
        yield f"{{'loss': {loss:.4f}, 'learning_rate': 1e-05, 'epoch': {step / 1e4:.4f}}}"


def torchtitan_lines() -> Iterator[str]:
    step = 0
    while True:
        step += 1
        clock = f"{step // 3600 % 24:02d}:{step // 60 % 60:02d}:{step % 60:02d}"
        day = step // 86400
        yield (
            f"[rank0]:[titan] 2025-{1 + day // 28:02d}-{1 + day % 28:02d} {clock},500 - root - "
            f"INFO - step: {step}  loss: {8 / (1 + step / 1e5):7.4f}  memory: 41.31GiB(52.19%)  "
            f"tps: 5,900  mfu: 34.90%"
        )


def chatter() -> Iterator[str]:
    """Almost nothing but lines that no reader knows."""
    for number, line in enumerate(torchtitan_lines()):
        yield line
        for other in range(50):
            yield f"2025-01-01 10:00:00 worker {other} opened shard {number * 50 + other} of data"


SHAPES: dict[str, Callable[[], Iterator[str]]] = {
    "imagenet": imagenet_lines,
    "hugging-face": hugging_face_lines,
    "torchtitan": torchtitan_lines,
    "chatter": chatter,
}


def write_log(path: Path, lines: Iterator[str], num_bytes: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < num_bytes:
            # A thousand short logs need fewer lines at once than a long one.
            count = min(_AT_ONCE, max(num_bytes // 200, 1))
            file.write("".join(f"{next(lines)}\n" for _ in range(count)))


def make(folder: Path, shape: str) -> Path:
    if shape != "many":
        write_log(folder / f"{shape}.log", SHAPES[shape](), ALL_BYTES)
        return folder / f"{shape}.log"
    for number in range(NUM_RUNS):
        lines = imagenet_lines()
        write_log(folder / "many" / f"run{number}" / "train.log", lines, ALL_BYTES // NUM_RUNS)
    return folder / "many"


def show(shape: str) -> bool:
    folder = Path(tempfile.mkdtemp(prefix="paceline-logs-"))
    try:
        path = make(folder, shape)
        num_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        taken = measure(path)
    finally:
        shutil.rmtree(folder)
    is_within = taken.cpu_seconds <= MOST_CPU_SECONDS and taken.peak_bytes <= MOST_BYTES
    print(
        f"{shape:<13} {num_bytes / 1e6:4.0f} MB: {taken.cpu_seconds:5.1f} processor seconds, "
        f"{taken.peak_bytes / 1e6:4.0f} MB at most: {'within' if is_within else 'OVER'}",
        flush=True,
    )
    return is_within


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    choices = [*SHAPES, "many"]
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=", ".join(choices))
    shapes = parser.parse_args().shapes or choices
    if unknown := set(shapes) - set(choices):
        parser.error(f"no shape {', '.join(sorted(unknown))}; there are {', '.join(choices)}")
    return 0 if all([show(shape) for shape in shapes]) else 1


if __name__ == "__main__":
    raise SystemExit(main())
