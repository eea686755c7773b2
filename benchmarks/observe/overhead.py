"""What observing a script costs in a step: processor time of the script's process, with the
observer and without, in turns, on a loop so small that nothing else is felt.

    python -m benchmarks.observe

A step of the loop takes a batch, calls backward and clips, and its optimizer steps, so that every
boundary is passed. Of many short passes over the data the fifth that disturbs least is looked at:
what else runs on the machine changes processor time, too.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from paceline.launch.script.environment import ObserveOrder, observing_environment

_NUM_ROUNDS = 5
_NUM_STEPS = 150
_NUM_PASSES = 100
_MOST_MICROSECONDS = 30.0
_SCRIPT = f"""
import time, torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
data = DataLoader(TensorDataset(torch.randn({_NUM_STEPS}, 4)), 1)


def train():
    for (x,) in data:
        model(x).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def timed():
    begin = time.thread_time()
    train()
    return (time.thread_time() - begin) / {_NUM_STEPS}


for _ in range(5):
    train()
print(sorted(timed() for _ in range({_NUM_PASSES}))[{_NUM_PASSES} // 5])
"""


def step_seconds(folder: Path, is_observed: bool) -> float:
    """Processor time of a step, of the thread that trains."""
    variables = {k: v for k, v in os.environ.items() if k != "PACELINE_OBSERVE"}
    if is_observed:
        run = tempfile.mkdtemp(dir=folder)
        variables |= observing_environment(ObserveOrder(run, 1, time.time()), variables)
    script = folder / "train.py"
    script.write_text(_SCRIPT, encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, str(script)], env=variables, capture_output=True, text=True, check=True
    )
    return float(ended.stdout)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        pairs = [
            (step_seconds(Path(name), False), step_seconds(Path(name), True))
            for _ in range(_NUM_ROUNDS)
        ]
    costs = [1e6 * (observed - plain) for plain, observed in pairs]
    plain = 1e6 * statistics.median(plain for plain, _ in pairs)
    print(f"a step without the observer: {plain:.0f} us of processor time")
    shown = ", ".join(f"{cost:.1f}" for cost in costs)
    print(f"the observer adds: {statistics.median(costs):.1f} us (rounds: {shown})")
    print(f"allowed: {_MOST_MICROSECONDS:.0f} us")


if __name__ == "__main__":
    main()
