"""Weights & Biases. Its environment decides where to: WANDB_MODE=offline, WANDB_PROJECT, ..."""

import os
from collections.abc import Mapping
from typing import Any

import wandb

from paceline.trackers.tracker import PROJECT, Wanted


def open_run(wanted: Wanted, is_named: bool) -> "WandbRun":
    named = wanted.run if is_named else os.environ.get("WANDB_RUN_ID") or wanted.run
    *place, run_id = (named or "").split("/")
    entity, project = [None, None, *place][-2:]
    return WandbRun(
        wandb.init(
            entity=entity,
            project=project or os.environ.get("WANDB_PROJECT") or PROJECT,
            id=run_id or None,
            name=None if run_id else os.environ.get("WANDB_NAME") or wanted.title,
            resume="allow",
            settings=wandb.Settings(silent=True, console="off"),
        )
    )


class WandbRun:
    def __init__(self, run: Any) -> None:
        self._run = run
        self.run = "/".join(part for part in (run.entity, run.project, run.id) if part)
        self.place = str(run.dir if run.offline else run.url)
        # A restart goes back in steps, which W&B's own counter cannot.
        run.define_metric("step")
        run.define_metric("*", step_metric="step")

    def add_scalars(self, values: Mapping[str, float], step: int) -> None:
        self._run.log({**values, "step": step})

    def add_report(self, values: Mapping[str, float | str], page: str) -> None:
        self._run.summary.update(dict(values))
        self._run.log({"paceline/report": wandb.Html(page, inject=False)})

    def close(self) -> None:
        self._run.finish()
