"""trackio, whose store is a SQLite file on this machine unless its environment says otherwise."""

import os
from collections.abc import Mapping
from typing import Any

import trackio

from paceline.trackers.tracker import PROJECT, Wanted


def open_run(wanted: Wanted, is_named: bool) -> "TrackioRun":
    """A run is named `PROJECT/NAME`."""
    project, _, name = (wanted.run or "").rpartition("/")
    project = project or os.environ.get("TRACKIO_PROJECT") or PROJECT
    title = name or wanted.title
    opened = trackio.init(
        project=project, name=title, resume="allow", embed=False, auto_log_gpu=False
    )
    return TrackioRun(opened, f"{project}/{title}")


class TrackioRun:
    def __init__(self, opened: Any, run: str) -> None:
        self._opened, self.run = opened, run
        self.place = f"{run} (trackio show --project {run.split('/', maxsplit=1)[0]})"

    def add_scalars(self, values: Mapping[str, float], step: int) -> None:
        self._opened.log(dict(values), step=step)

    def add_report(self, values: Mapping[str, float | str], page: str) -> None:
        self._opened.log({**values, "paceline/report": trackio.Html(page)})

    def close(self) -> None:
        self._opened.finish()
