"""Unmodified scripts of the frameworks people use: every step seen, phases that add up, scores."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.report.own.run import read_run
from tests.observed_scripts import booked_and_wall, of_kind, paceline_run, phases_of, write_script

pytestmark = pytest.mark.frameworks

_LOOP = ("input", "compute", "network", "optimizer", "checkpoint", "unexplained")
_SLEEP = """
import time, torch
torch.set_num_threads(1)


class Slow(torch.autograd.Function):
    '''Takes its time in forward and backward, as a large network does.'''

    @staticmethod
    def forward(ctx, x):
        time.sleep(0.05)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.05)
        return gradient


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 2)

    def forward(self, x=None, labels=None):
        logits = Slow.apply(self.linear(x))
        if labels is None:
            return logits
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def data(size):
    return torch.utils.data.TensorDataset(torch.randn(size, 8), torch.randint(0, 2, (size,)))
"""
SCRIPTS = {
    "accelerate": """
from accelerate import Accelerator

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
loader = torch.utils.data.DataLoader(data(48), 2, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(x, y)["loss"])
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
accelerator.save_state("saved")
""",
    "lightning": """
import lightning


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, _):
        return self.net(*batch)["loss"]

    def validation_step(self, batch, _):
        found = self.net(*batch)
        self.log("val_loss", found["loss"])
        self.log("val_acc", (found["logits"].argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-3)


def loader(size):
    return torch.utils.data.DataLoader(data(size), 2)


trainer = lightning.Trainer(
    max_epochs=2, accelerator="cpu", logger=lightning.pytorch.loggers.CSVLogger("."),
    enable_progress_bar=False, gradient_clip_val=1.0, enable_model_summary=False,
)
trainer.fit(Module(), loader(12), loader(4))
""",
    "transformers": """
from transformers import Trainer, TrainingArguments


def collate(samples):
    x, y = (torch.stack(list(part)) for part in zip(*samples))
    return {"x": x, "labels": y}


arguments = TrainingArguments(
    "out", per_device_train_batch_size=2, gradient_accumulation_steps=2, num_train_epochs=1,
    logging_steps=4, eval_strategy="steps", eval_steps=6, save_steps=6, report_to=[], use_cpu=True,
    disable_tqdm=True, per_device_eval_batch_size=2,
)
Trainer(Net(), arguments, collate, data(48), data(4)).train()
""",
    "compiled": """
model = torch.compile(Net(), backend="eager")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for x, y in torch.utils.data.DataLoader(data(24), 2):
    model(x, y)["loss"].backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    "sharded": """
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = Net()
fully_shard(model)


class SlowPart:
    '''Asked for by each process between two collectives of the save.'''

    def state_dict(self):
        time.sleep(0.5)
        return {"value": torch.ones(1000)}

    def load_state_dict(self, values):
        raise NotImplementedError


optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for x, y in torch.utils.data.DataLoader(data(24), 2):
    model(x, y)["loss"].backward()
    optimizer.step()
    optimizer.zero_grad()
dcp.save({"model": model.state_dict(), "slow": SlowPart()}, checkpoint_id="saved")
dist.destroy_process_group()
""",
}


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run of a script by its name; each is run once."""

    @functools.cache
    def run(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        write_script(folder, _SLEEP + SCRIPTS[name])
        procs = ("--procs", "2") if name == "sharded" else ()
        ended = paceline_run(folder, *procs, "train.py")
        assert ended.returncode == 0, ended.stderr
        return folder / "runs" / "train"

    return run


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_step_is_seen_and_nearly_all_time_explained(
    run_of: Callable[[str], Path], name: str
) -> None:
    run = run_of(name)
    lines = of_kind(run, "steps")
    assert sum(line["num_steps"] for line in lines) == 12
    assert all("loss" in line for line in lines)
    booked, wall = booked_and_wall(run)
    assert booked == pytest.approx(wall, rel=0.005)
    phases = phases_of(run)
    loop = sum(phases.get(phase, 0.0) for phase in _LOOP)
    assert phases["compute"] >= 12 * 0.1
    assert phases["unexplained"] <= 0.05 * loop + _first_line(lines)
    facts = read_run(run)
    assert sum(facts.phases.values()) == pytest.approx(facts.wall_seconds, rel=0.005)


def _first_line(lines: list[dict[str, dict[str, float]]]) -> float:
    """Frameworks look around once after the first step, on a busy machine for long."""
    return sum(line["phases"].get("unexplained", 0.0) for line in lines[:2])


def test_scores_and_saves_of_a_framework_keep_their_names(run_of: Callable[[str], Path]) -> None:
    run = run_of("transformers")
    scores = [event["scores"] for event in of_kind(run, "score") if event["split"] == "validation"]
    assert len(scores) == 2
    assert all("eval_loss" in values for values in scores)
    assert phases_of(run)["evaluate"] >= 2 * 0.05 * 2
    saves = of_kind(run, "checkpoint")
    assert [save["step"] for save in saves] == [6, 12]
    assert all(save["num_files"] > 1 and save["num_bytes"] > 0 for save in saves)
    assert all(line["num_micro_batches"] == 2 * line["num_steps"] for line in of_kind(run, "steps"))


def test_a_sharded_save_counts_with_its_collectives_and_files(
    run_of: Callable[[str], Path],
) -> None:
    run = run_of("sharded")
    (save,) = of_kind(run, "checkpoint")
    assert save["path"].endswith("saved") and save["num_bytes"] > 4000
    assert save["copy_seconds"] >= 0.5
    assert phases_of(run)["checkpoint"] == pytest.approx(save["copy_seconds"], abs=1e-3)


def test_lightning_tells_its_validation_scores(run_of: Callable[[str], Path]) -> None:
    run = run_of("lightning")
    scores = [event["scores"] for event in of_kind(run, "score") if event["split"] == "validation"]
    assert len(scores) == 2
    assert all({"val_loss", "val_acc"} <= values.keys() for values in scores)
    assert read_run(run).learning.best_by == "val_acc"
    assert all("gradient_norm" in line for line in of_kind(run, "steps"))
