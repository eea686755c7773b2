"""What a supervisor does on its own host for the processes of a user's script. No torch."""

import json
import os
import socket
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from paceline.doctor.probe import project_facts
from paceline.launch.script.environment import ObserveOrder, observing_environment
from paceline.launch.script.hang_watch import RECORDED
from paceline.launch.script.probing import probing
from paceline.launch.script.remote.progress import read_progress
from paceline.launch.script.vital_signs import VitalSigns
from paceline.order import WorkerOrder
from paceline.record.schema import RunDirectory

Message = dict[str, Any]

_LOG_LEVEL = "TORCH_CPP_LOG_LEVEL"
"""The agent is to be quiet; the script says what it says without Paceline."""


def script_environment(num_procs: int, interface: str) -> dict[str, str]:
    """As torchrun sets it, and the way between the hosts; nothing that would make the script
    another program than it is without Paceline. What the user has set stays."""
    settings = {
        "GLOO_SOCKET_IFNAME": interface,
        **RECORDED,
        "PYTHONUNBUFFERED": "1",  # else a pipe shows what is printed minutes later
    }
    if interface != "lo":
        settings["NCCL_SOCKET_IFNAME"] = interface
    if num_procs > 1:
        settings["OMP_NUM_THREADS"] = "1"
    return {name: os.environ.get(name, value) for name, value in settings.items()}


class ScriptHere:
    def __init__(self, run: Path, folder: Path) -> None:
        self._run, self._folder = run, folder
        self._signs = VitalSigns(folder)
        self._probe = ExitStack()

    @staticmethod
    def environment(num_procs: int, interface: str) -> dict[str, str]:
        return {_LOG_LEVEL: "ERROR", **script_environment(num_procs, interface)}

    def prepare(self, message: Message) -> Message:
        self._signs = VitalSigns(self._folder)
        self._run.mkdir(parents=True, exist_ok=True)
        script, given = message["script"], message["environment"]
        about = RunDirectory(self._run).script
        if not about.exists():
            about.write_text(json.dumps(script["document"]), encoding="utf-8")
        found = project_facts(message["project"])
        place = found["path"] if found else None
        order = WorkerOrder.from_document(message["order"])
        observe = self._observe_order(message, order)
        host = order.host or socket.gethostname()
        watched = probing(RunDirectory(self._run), order.attempt, host, message["interface"])
        self._probe.enter_context(watched)
        variables = observing_environment(observe, os.environ | given)
        return {
            "worker": replace(order, pulse_directory=str(self._folder)).as_document(),
            "directory": place,
            "script": {
                "words": [sys.executable, *script["words"]],
                "folder": str(self._folder),
                "unset": [] if _LOG_LEVEL in os.environ else [_LOG_LEVEL],
                "variables": variables,
            },
        }

    def _observe_order(self, message: Message, order: WorkerOrder) -> ObserveOrder:
        return ObserveOrder(
            run=str(self._run),
            attempt=order.attempt,
            launched_at=time.time() - message["seconds_since"],
            host=order.host,
            num_hosts=message["num_hosts"],
            interface=message["interface"],
            pulse_directory=str(self._folder),
        )

    def end_round(self) -> None:
        self._probe.close()

    def look(self) -> Message:
        """Steps of the script's own checkpoints do not count as ours, which a restart reads."""
        return {"newest_step": None, "progress": read_progress(self._run).as_document()}

    def beats(self) -> list[Message]:
        return self._signs.beats()

    def workers(self) -> list[psutil.Process]:
        found = []
        for pid in self._signs.pids():
            try:
                found.append(psutil.Process(pid))
            except psutil.Error:
                continue
        return found

    def keep_stacks(self) -> None:
        self._signs.want_stacks()
