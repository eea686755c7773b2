"""Speed on CIFAR-10 against a plain PyTorch loop, in one run, as ratios: `make bench`.

Rounds alternate (A B A B ...) because other tenants of the machine come and go; what is reported is
the median of the paired ratios. Images per CPU-second stand beside images per second: stolen time
does not touch them.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.pictures import Speed, compare, progress, speed_of_peer, speed_of_run
from paceline.record.events import read_events
from paceline.record.schema import CHECKPOINT, RunDirectory
from paceline.tasks.cifar10 import prepare as cifar10

WARM_UP_STEPS = 3


def ours(data: Path, num_procs: int, num_steps: int) -> Speed:
    """A real `paceline train`, measured from its own event lines after a warm-up."""
    with tempfile.TemporaryDirectory() as folder:
        train(Path(folder), data, num_procs, WARM_UP_STEPS + num_steps, "log.every_steps=1")
        return speed_of_run(Path(folder), WARM_UP_STEPS)


def train(run: Path, data: Path, num_procs: int, steps: int, *settings: str) -> None:
    command = [sys.executable, "-m", "paceline.cli", "train", "cifar10-resnet44", f"data={data}"]
    quiet = ["evaluate.every_steps=null", "log.show_seconds=1000"]
    if not any(word.startswith("checkpoint.every_steps") for word in settings):
        quiet.append("checkpoint.every_steps=null")
    where = ["--run", str(run), "--procs", str(num_procs)]
    subprocess.run(
        [*command, f"steps={steps}", *quiet, *settings, *where], check=True, capture_output=True
    )


def plain(data: Path, num_steps: int, num_workers: int) -> Speed:
    words = {"--data": data, "--steps": num_steps, "--workers": num_workers}
    return speed_of_peer("plain_cifar10", words)


def saving_cost(data: Path, num_windows: int) -> None:
    """Within one run, windows of 50 steps that hold a save against windows that do not."""
    folder = Path(tempfile.mkdtemp())
    every = ["log.every_steps=50", "checkpoint.every_steps=100"]
    train(folder, data, 2, 50 * (2 * num_windows + 1), *every)
    events = read_events(RunDirectory(folder).rank_events(0))
    windows = [event for event in events if event["kind"] == "steps"][1:]
    shutil.rmtree(folder)
    # The save after step 100 falls into the window that begins there.
    pairs = list(zip(windows[::2], windows[1::2], strict=False))
    ratios = [after["seconds"] / before["seconds"] for before, after in pairs]
    cpu = [after["cpu_seconds"] / before["cpu_seconds"] for before, after in pairs]
    stalls = [window["phases"].get(CHECKPOINT, 0.0) / window["seconds"] for window in windows[1::2]]
    figures = f"{median(ratios):.3f} | {median(cpu):.3f}"
    print(f"| time with a save every 50 steps, against none | | | {figures} |")
    print(f"\nThe loop stood still for {100 * median(stalls):.2f} % of a window with a save.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="measured steps per round")
    parser.add_argument(
        "--windows", type=int, default=3, help="pairs of windows for saving; 0: skip"
    )
    options = parser.parse_args()
    data = cifar10.prepare("stand-in", cifar10.default_directory("stand-in"), progress)
    workers = max((0, 2), key=lambda count: plain(data, options.steps, count).per_second)
    progress(f"the plain loop is fastest with {workers} loader processes; that is what it gets")
    print(
        "| cifar10-resnet44, 2 cores | peer, images/s | ours, images/s | ratio | per CPU-second |"
    )
    print("|---|---|---|---|---|")
    compare(
        "against a plain PyTorch loop",
        lambda: ours(data, 2, options.steps),
        lambda: plain(data, options.steps, workers),
        options.rounds,
    )
    compare(
        "2 processes x 1 thread against 1 process x 2 threads",
        lambda: ours(data, 2, options.steps),
        lambda: ours(data, 1, options.steps),
        options.rounds,
    )
    if options.windows:
        saving_cost(data, options.windows)


if __name__ == "__main__":
    main()
