"""MLflow. Its environment decides where to: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, ..."""

import math
import os
import time
from collections.abc import Mapping

from mlflow import MlflowClient
from mlflow.entities import Metric, RunTag

from paceline.trackers.tracker import PROJECT, Wanted

_MOST_TEXT = 5000
"""Characters of a tag."""


def open_run(wanted: Wanted, is_named: bool) -> "MlflowRun":
    client = MlflowClient()
    named = wanted.run if is_named else os.environ.get("MLFLOW_RUN_ID") or wanted.run
    if named:
        return MlflowRun(client, client.get_run(named).info.run_id, ends_run=wanted.going_on)
    title = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
    experiment = client.get_experiment_by_name(title)
    number = experiment.experiment_id if experiment else client.create_experiment(title)
    made = client.create_run(number, run_name=wanted.title)
    return MlflowRun(client, made.info.run_id, ends_run=True)


class MlflowRun:
    def __init__(self, client: MlflowClient, run: str, ends_run: bool) -> None:
        self._client, self.run, self._ends_run = client, run, ends_run
        self.place = f"{os.environ.get('MLFLOW_TRACKING_URI', 'MLflow')}, run {run}"

    def add_scalars(self, values: Mapping[str, float], step: int) -> None:
        now = int(1000 * time.time())
        known = {name: float(v) for name, v in values.items() if math.isfinite(v)}
        metrics = [Metric(name, value, now, step) for name, value in known.items()]
        self._client.log_batch(self.run, metrics=metrics)

    def add_report(self, values: Mapping[str, float | str], page: str) -> None:
        words = {name: value for name, value in values.items() if isinstance(value, str)}
        numbers = {name: float(v) for name, v in values.items() if not isinstance(v, str)}
        self.add_scalars(numbers, 0)
        tags = [RunTag(name, text[:_MOST_TEXT]) for name, text in words.items()]
        self._client.log_batch(self.run, tags=tags)
        self._client.log_text(self.run, page, "paceline/report.html")

    def close(self) -> None:
        if self._ends_run:
            self._client.set_terminated(self.run)
