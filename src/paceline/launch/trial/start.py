"""Where a trial of a run begins: with its newest checkpoint, which is linked and never touched."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from paceline.launch.trial.steps import Place
from paceline.record.checkpoints import all_checkpoints, damage, step_of
from paceline.record.directory import read_launch
from paceline.record.schema import RunDirectory


@dataclass(frozen=True)
class Start:
    step: int = 0
    checkpoint: Path | None = None
    """None begins anew: nothing was saved, or the hosts keep it for themselves."""
    beside: Path | None = None
    """The run that the trial lies beside; None in the temporary directory."""

    @classmethod
    def of(cls, run: Path, place: Place) -> "Start":
        files = RunDirectory(run)
        is_elsewhere = place.hosts is not None and bool(read_launch(files).get("collect_from"))
        beside = run if os.access(run.absolute().parent, os.W_OK) and not is_elsewhere else None
        whole = [path for path in all_checkpoints(files.checkpoints) if damage(path) is None]
        if is_elsewhere or not whole:
            return cls(beside=beside)
        return cls(step_of(whole[-1]), whole[-1], beside)

    def copy_checkpoint(self, run: Path) -> None:
        """Links where the disk has them: a checkpoint is never written to once it has its name."""
        if self.checkpoint is not None:
            target = RunDirectory(run).checkpoints / self.checkpoint.name
            shutil.copytree(self.checkpoint, target, copy_function=_link_or_copy)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
