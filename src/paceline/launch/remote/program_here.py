"""What a supervisor does on its own host that depends on what the workers execute.

`TrainingHere` is for our own workers; that of a user's script is `launch/script/program_here.py`.
No torch.
"""

import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import psutil

from paceline.doctor.probe import project_facts
from paceline.launch.remote.host_facts import newest_step, read_pulses, with_data_of_project
from paceline.machine.tuning import speed_environment
from paceline.order import WorkerOrder

Message = dict[str, Any]


class ProgramHere(Protocol):
    def __init__(self, run: Path, folder: Path) -> None:
        """`folder`: of the round, on this host alone."""

    @staticmethod
    def environment(num_procs: int, interface: str) -> dict[str, str]:
        """What agent and workers get, beside what the user has set."""

    def prepare(self, message: Message) -> Message:
        """Before a round; what the agent's order says about the workers."""

    def end_round(self) -> None:
        """What was begun by `prepare` ends, with or without workers."""

    def look(self) -> Message:
        """What was saved, as far as this host knows."""

    def beats(self) -> list[Message]:
        """Where each worker here is."""

    def workers(self) -> list[psutil.Process]: ...

    def keep_stacks(self) -> None:
        """Have every worker here show where it is."""


class TrainingHere:
    def __init__(self, run: Path, folder: Path) -> None:
        self._run, self._folder = run, folder

    @staticmethod
    def environment(num_procs: int, interface: str) -> dict[str, str]:
        level = os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR")
        return {**speed_environment(num_procs, interface), "TORCH_CPP_LOG_LEVEL": level}

    def prepare(self, message: Message) -> Message:
        recipe = with_data_of_project(message["recipe"], message.get("project"))
        (self._folder / "recipe.yaml").write_text(recipe, encoding="utf-8")
        if not (self._run / "recipe.yaml").exists():
            self._run.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._folder / "recipe.yaml", self._run / "recipe.yaml")
        order = replace(
            WorkerOrder.from_document(message["order"]),
            launched_at=time.time() - message["seconds_since"],
            recipe=str(self._folder / "recipe.yaml"),
            pulse_directory=str(self._folder),
        )
        # Workers start where the user's code is, as they do on the launcher's machine.
        found = project_facts(message.get("project"))
        return {"worker": order.as_document(), "directory": found["path"] if found else None}

    def end_round(self) -> None:
        """Workers begin and end everything themselves."""

    def look(self) -> Message:
        return {"newest_step": newest_step(self._run)}

    def beats(self) -> list[Message]:
        return [{**beat, "silent_seconds": age} for beat, age in read_pulses(self._folder)]

    def workers(self) -> list[psutil.Process]:
        found = []
        for beat, _ in read_pulses(self._folder):
            try:
                process = psutil.Process(beat["pid"])
                if "paceline.train.worker" in process.cmdline():
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def keep_stacks(self) -> None:
        """A stopped process prints its stack too, once it is woken; it is killed right after."""
        for process in self.workers():
            process.send_signal(signal.SIGUSR1)
            process.send_signal(signal.SIGCONT)
