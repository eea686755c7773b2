"""Scores that a script gives to trackers are in its record, under its own names."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from paceline.report.own.run import read_run
from tests.observed_scripts import of_kind, paceline_run, write_script

pytestmark = pytest.mark.frameworks

SCRIPT = """
import os, torch
from importlib.util import find_spec
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

here = os.getcwd()
os.environ.update(
    WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=here, TRACKIO_DIR=here + "/trackio",
    MLFLOW_TRACKING_URI="file://" + here + "/mlflow", MLFLOW_ALLOW_FILE_STORE="true",
    HF_HUB_OFFLINE="1",
)
writer = SummaryWriter("board")
logs = {"writer": lambda values, step: [writer.add_scalar(*pair, step) for pair in values.items()]}
if find_spec("wandb"):
    import wandb
    wandb.init(project="p")
    logs["wandb"] = lambda values, step: wandb.log(values, step=step)
if find_spec("trackio"):
    import trackio
    trackio.init(project="p", embed=False)
    logs["trackio"] = lambda values, step: trackio.log(values)
if find_spec("mlflow"):
    import mlflow
    run = mlflow.start_run().info.run_id
    client = mlflow.MlflowClient()
    logs["mlflow"] = lambda values, step: mlflow.log_metrics(values, step=step)
    logs["mlflow-client"] = lambda values, step: [
        client.log_metric(run, name, value, step=step) for name, value in values.items()
    ]

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
step = 0
for epoch in range(4):
    for (x,) in DataLoader(TensorDataset(torch.randn(32, 4)), 8):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
    for tracker, log in logs.items():
        log({f"{tracker}-val/accuracy": 0.2 * epoch, f"{tracker}-train/loss": 1.0}, step)
"""
TRACKERS = {"wandb": ["wandb"], "trackio": ["trackio"], "mlflow": ["mlflow", "mlflow-client"]}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scores")
    write_script(folder, SCRIPT)
    ended = paceline_run(folder, "--run", "run", "train.py")
    assert ended.returncode == 0, ended.stderr
    return folder / "run"


@pytest.mark.parametrize("tracker", ["tensorboard", *TRACKERS])
def test_every_validation_score_is_recorded_with_its_step(run: Path, tracker: str) -> None:
    if tracker in TRACKERS and find_spec(tracker) is None:
        pytest.skip(f"{tracker} is not installed (extra 'trackers')")
    for name in TRACKERS.get(tracker, ["writer"]):
        scores = [
            (event["step"], event["scores"][f"{name}-val/accuracy"])
            for event in of_kind(run, "score")
            if event["split"] == "validation" and f"{name}-val/accuracy" in event["scores"]
        ]
        assert dict(scores) == pytest.approx({4: 0.0, 8: 0.2, 12: 0.4, 16: 0.6}), name
    assert len(read_run(run).learning.scores) >= 4
