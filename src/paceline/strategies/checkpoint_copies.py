"""Checkpoints on hosts whose run directory is their own: the chief sends each a copy of every one.

So no host's loss is the run's, as in runs without servers.
"""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from paceline.record.schema import RunDirectory
from paceline.settings import CheckpointSettings
from paceline.strategies.channel import (
    Channel,
    ChannelLostError,
    Message,
    name_of_type,
    type_named,
)
from paceline.strategies.rendezvous import Rendezvous
from paceline.train.save import CheckpointSaver, Snapshot

_DOOR = "copies"
_LAST_SECONDS = 120.0
"""For the last copies to arrive, when all else is done."""


class CheckpointCopies:
    """At the chief."""

    def __init__(self, rendezvous: Rendezvous) -> None:
        self._lines: list[Channel] = []
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="copies")
        self._last: Future[None] | None = None
        rendezvous.accept(_DOOR, self._let_in)

    def _let_in(self, channel: Channel, _who: Message) -> None:
        with self._lock:
            self._lines.append(channel)

    def send(self, snapshot: Snapshot) -> None:
        """In the background: nobody waits for it."""
        if self._lines:
            self._last = self._thread.submit(self._send, snapshot)

    def _send(self, snapshot: Snapshot) -> None:
        for line in list(self._lines):
            try:
                _send_snapshot(line, snapshot)
            except ChannelLostError:  # that host is gone, and gets the next one when it is back
                with self._lock:
                    self._lines.remove(line)

    def finish(self) -> None:
        if self._last is not None:
            self._last.exception(timeout=_LAST_SECONDS)
        for line in list(self._lines):
            _say_goodbye(line)


def _say_goodbye(line: Channel) -> None:
    try:
        line.ask({"over": True})
    except ChannelLostError:
        return


def _send_snapshot(line: Channel, snapshot: Snapshot) -> None:
    described = {
        file: [[name, name_of_type(t.dtype), list(t.shape)] for name, t in own.items()]
        for file, own in snapshot.files.items()
    }
    line.send(
        {
            "step": snapshot.step,
            "best_step": snapshot.best_step,
            "numbers": snapshot.numbers,
            "files": described,
        }
    )
    for tensors in snapshot.files.values():
        for tensor in tensors.values():
            line.send_tensor(tensor.contiguous().reshape(-1))
    line.receive()


class CheckpointKeeper:
    """On a host with a run directory of its own: writes what the chief sends, in a thread."""

    def __init__(
        self, rendezvous: Rendezvous, run: RunDirectory, settings: CheckpointSettings, rank: int
    ) -> None:
        self._run, self._settings, self._rendezvous, self._rank = run, settings, rendezvous, rank
        self.is_over = threading.Event()
        threading.Thread(target=self._work, name="keeper", daemon=True).start()

    def _work(self) -> None:
        saver = CheckpointSaver(self._run, self._settings, _note_nothing)
        try:
            line = self._rendezvous.connect(_DOOR, {"rank": self._rank})
            while not (told := line.receive()).get("over"):
                saver.save_snapshot(_receive_snapshot(line, told), copy_seconds=0.0)
                saver.wait()
                line.send({"step": told["step"]})
            line.send({"over": True})
        except (ChannelLostError, RuntimeError):  # the chief is gone, which others say
            pass
        saver.close()
        self.is_over.set()

    def finish(self, is_end: bool) -> None:
        """At the end of the run its last checkpoint is waited for; who leaves earlier does not."""
        self.is_over.wait(_LAST_SECONDS if is_end else 0.0)


def _note_nothing(_kind: str, **_fields: Any) -> None:
    """The chief tells of checkpoints."""


def _receive_snapshot(line: Channel, told: Message) -> Snapshot:
    files: dict[str, dict[str, torch.Tensor]] = {}
    for file, tensors in told["files"].items():
        files[str(file)] = {}
        for name, dtype, shape in tensors:
            tensor = torch.empty(shape, dtype=type_named(dtype))
            line.receive_into(tensor.view(-1))
            files[str(file)][str(name)] = tensor
    return Snapshot(int(told["step"]), told["best_step"], files, told["numbers"])
