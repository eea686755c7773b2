"""Copies of the state on the way to a checkpoint: reused memory, and nothing written too early."""

import threading
from pathlib import Path
from typing import Any

import torch

from paceline.record.schema import RunDirectory
from paceline.settings import CheckpointSettings
from paceline.train.save import CheckpointSaver, Snapshot, SnapshotMemory

CPU = torch.device("cpu")


def test_memory_for_copies_is_kept_from_one_save_to_the_next() -> None:
    memory = SnapshotMemory(CPU)
    weights = {"kernel": torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)}
    first = memory.copy_to_kept({"weights": weights})["weights"]["kernel"]
    assert torch.equal(first, weights["kernel"]) and first.is_contiguous()
    weights["kernel"].add_(1)
    assert not torch.equal(first, weights["kernel"]), "a copy, not a view"
    second = memory.copy_to_kept({"weights": weights})["weights"]["kernel"]
    assert torch.equal(second, weights["kernel"])
    assert second.data_ptr() == first.data_ptr()
    weights["kernel"] = torch.randn(5, 3, 2, 2)
    assert memory.copy_to_kept({"weights": weights})["weights"]["kernel"].shape == (5, 3, 2, 2)


class Copying:
    """A device that has not got there yet."""

    def __init__(self) -> None:
        self.passed = threading.Event()

    def synchronize(self) -> None:
        assert self.passed.wait(60)


def test_a_checkpoint_is_written_when_the_device_has_copied_all_of_it(tmp_path: Path) -> None:
    run, notes = RunDirectory(tmp_path / "run"), []
    run.checkpoints.mkdir(parents=True)

    def note(kind: str, **_fields: Any) -> None:
        notes.append(kind)

    saver, copying, values = CheckpointSaver(run, CheckpointSettings(), note), Copying(), {}
    values["w"] = torch.zeros(3)
    files = {"weights.safetensors": values, "optimizer.safetensors": {}}
    saver._pending = saver._thread.submit(saver._write, Snapshot(5, None, files, {}, copying))
    assert not list(run.checkpoints.glob("*step*")), "nothing yet"
    values["w"].fill_(7)  # what the device copies meanwhile
    copying.passed.set()
    saver.close()
    stored = (run.checkpoints / "step-0000005" / "weights.safetensors").read_bytes()
    assert torch.full((3,), 7.0).numpy().tobytes() in stored
    assert notes == ["checkpoint"]
