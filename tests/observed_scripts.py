"""Scripts of other people's kind, written into a folder, and runs of them read back."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from paceline.record.columns import read_rank
from paceline.record.schema import RunDirectory
from paceline.record.story import join_story

PLAIN = """
import hashlib, sys, torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

torch.manual_seed(0)
torch.set_num_threads(1)
data = TensorDataset(torch.randn(96, 8), torch.randint(0, 3, (96,)))
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Dropout(0.1), torch.nn.Linear(32, 3))
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
writer = SummaryWriter("board")
loader = DataLoader(data, 8, shuffle=True, num_workers=1)
for epoch in range(2):
    model.train()
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    schedule.step()
    model.eval()
    with torch.no_grad():
        right = [(model(x).argmax(1) == y).float().mean().item() for x, y in DataLoader(data, 32)]
    writer.add_scalar("accuracy/val", sum(right) / len(right), epoch)
    torch.save(model.state_dict(), f"epoch-{epoch}.pt")
writer.close()
weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
print("weights", hashlib.sha256(weights).hexdigest(), sys.argv[1:])
"""


def write_script(folder: Path, text: str, name: str = "train.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def paceline_run(folder: Path, *words: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    # The variable of an active environment would choose another Python than the tests'.
    hidden = ("VIRTUAL_ENV", "CONDA_PREFIX", "PACELINE_OBSERVE")
    variables = {k: v for k, v in os.environ.items() if k not in hidden}
    return subprocess.run(
        [sys.executable, "-m", "paceline.cli", "run", *words],
        cwd=folder,
        env={**variables, **options.pop("env", {})},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **options,
    )


def lines_of(run: Path, rank: int = 0) -> list[dict[str, Any]]:
    path = RunDirectory(run).rank_events(rank)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def of_kind(run: Path, kind: str, rank: int = 0) -> list[dict[str, Any]]:
    return [event for event in lines_of(run, rank) if event["kind"] == kind]


def phases_of(run: Path, rank: int = 0) -> dict[str, float]:
    """Over all events of a rank."""
    sums: dict[str, float] = {}
    for event in lines_of(run, rank):
        for name, seconds in event.get("phases", {}).items():
            sums[name] = sums.get(name, 0.0) + seconds
    return sums


def booked_and_wall(run: Path, rank: int = 0) -> tuple[float, float]:
    """What a rank's events book, and what passed from the launcher's start to its last event."""
    files = RunDirectory(run)
    record = read_rank(files, rank)
    story = join_story(record, []).story
    started = story.of_kind("begin")[0]["time"] - story.of_kind("begin")[0]["seconds"]
    return sum(phases_of(run, rank).values()), lines_of(run, rank)[-1]["time"] - started
