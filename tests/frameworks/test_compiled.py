"""Scripts that compile more than their network keep their graphs and weights when observed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.report.own.run import read_run
from tests.observed_scripts import of_kind, paceline_run, write_script

pytestmark = pytest.mark.frameworks

CHANGING = "batches of changing shapes go through a compiled model"
SCRIPT = """
import hashlib, sys, torch
from torch._dynamo.utils import counters
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x) * (x.abs().sum().item() > -1)  # breaks the graph


model = Net()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)


@torch.compile(backend="eager", fullgraph=True)
def clip():
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def update():
    clip()
    optimizer.step()


def step(x):
    loss = model(x).square().mean()
    loss.backward()
    update()


data = TensorDataset(torch.randn(96, 8))
batches = DataLoader(data, 8)
if sys.argv[1] == "shapes":
    model = torch.compile(model, backend="eager")
    sizes = [range(8 * n, 8 * n + 1 + n % 6) for n in range(12)]
    batches = DataLoader(data, batch_sampler=sizes)
elif sys.argv[1] == "step":
    step = torch.compile(step, backend="eager")
else:
    update = torch.compile(update, backend="eager")
for (x,) in batches:
    step(x)
    optimizer.zero_grad()
weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
breaks = sum(counters["graph_break"].values())
print(hashlib.sha256(weights).hexdigest(), dict(counters["stats"]), breaks)
"""


@pytest.mark.parametrize("kind", ["update", "step"])
def test_compiled_updates_keep_their_graphs_and_every_step_is_seen(
    tmp_path: Path, kind: str
) -> None:
    script = write_script(tmp_path, SCRIPT)
    alone = subprocess.run(
        [sys.executable, str(script), kind],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PACELINE_OBSERVE"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert alone.returncode == 0, alone.stderr
    ended = paceline_run(tmp_path, "--run", "run", "train.py", kind)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == alone.stdout
    lines = of_kind(tmp_path / "run", "steps")
    assert sum(line["num_steps"] for line in lines) == 12
    assert sum(line["num_units"] for line in lines) == 96
    assert CHANGING not in [one.what for one in read_run(tmp_path / "run").findings]


def test_batches_of_changing_shapes_are_named_where_a_model_is_compiled(tmp_path: Path) -> None:
    write_script(tmp_path, SCRIPT)
    ended = paceline_run(tmp_path, "--run", "run", "train.py", "shapes")
    assert ended.returncode == 0, ended.stderr
    found = {one.what: one for one in read_run(tmp_path / "run").findings}
    assert "6 shapes were seen" in found[CHANGING].evidence
    assert found[CHANGING].place.startswith("train.py:")
