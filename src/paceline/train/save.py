"""Saving in the background and restoring exactly.

The loop stands still only while tensors are copied aside. A thread then writes, flushes, hashes and
renames; a checkpoint therefore exists completely or not at all. Files are safetensors and JSON, so
loading one runs no code from it.
"""

import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from paceline.files import remove_directory, sha256_of, whole_directory
from paceline.record import checkpoints as stored
from paceline.record.schema import RunDirectory
from paceline.settings import CheckpointSettings
from paceline.train.measure.practice import pause_disk
from paceline.train.reduce import Tensors
from paceline.train.reduce.own_state import OwnStates, newest_common
from paceline.train.state import (
    TrainState,
    device_of,
    load_numbers,
    load_optimizer_tensors,
    load_own_tensors,
    numbers_of,
    optimizer_tensors,
    own_tensors,
    weight_tensors,
)
from paceline.world import World, new_stream

_STORAGE_SECONDS = 120.0
_WITHOUT_OWN_STATES = (
    "the checkpoint does not have the own state of every process of this world (it was saved by "
    "another number of processes, or a host lost it), so training goes on from the weights that "
    "all had agreed on; what single processes had not exchanged yet is lost"
)
_AWAY = (errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.EHOSTDOWN, errno.ETIMEDOUT, errno.ENODEV)


@dataclass(frozen=True)
class Snapshot:
    """A copy of the state that training may no longer change."""

    step: int
    best_step: int | None
    files: dict[str, Tensors]
    numbers: dict[str, Any]
    copied: Any = None
    """A CUDA event: until the device has passed it, the copies are not there."""
    num_own_states: int = 0
    """Files with what differs between processes, that all savers of a world write together."""


class SnapshotMemory:
    """Where copies are made. On CUDA it is pinned and kept from one save to the next, so that the
    device copies beside what the host does; the device's next work waits for it, the host does not.
    Written for CUDA and not measured on it by us."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, new_stream(device)
        self._kept: dict[tuple[str, str], torch.Tensor] = {}

    def copy(self, files: dict[str, Tensors]) -> tuple[dict[str, Tensors], Any]:
        """Copies, and the event after which they are there; None if they are."""
        if self._stream is None:
            return {
                name: {key: _copy_to_cpu(tensor) for key, tensor in tensors.items()}
                for name, tensors in files.items()
            }, None
        computing = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(computing)
        with torch.cuda.stream(self._stream):
            copies = self.copy_to_kept(files)
        copied = self._stream.record_event()
        computing.wait_event(copied)  # else the next update could be part of the copy
        return copies, copied

    def copy_to_kept(self, files: dict[str, Tensors]) -> dict[str, Tensors]:
        return {
            name: {
                key: self._place(name, key, tensor).copy_(tensor.detach(), non_blocking=True)
                for key, tensor in tensors.items()
            }
            for name, tensors in files.items()
        }

    def _place(self, name: str, key: str, tensor: torch.Tensor) -> torch.Tensor:
        kept = self._kept.get((name, key))
        if kept is None or kept.shape != tensor.shape or kept.dtype != tensor.dtype:
            is_pinned = self._device.type == "cuda"
            kept = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=is_pinned)
            self._kept[name, key] = kept
        return kept


def take_snapshot(state: TrainState, memory: SnapshotMemory) -> Snapshot:
    """What is in it may not be there before `copied` has passed."""
    exchange = state.exchange
    files = {
        stored.WEIGHTS: weight_tensors(exchange.agreed),
        stored.OPTIMIZER: optimizer_tensors(state),
    }
    if state.average is not None:
        files[stored.AVERAGE] = weight_tensors(state.average.module)
    if shared := exchange.shared_tensors():
        files[stored.EXCHANGE] = shared
    if exchange.has_own_state:
        files[stored.own_state_name(exchange.world.rank)] = own_tensors(state)
    copies, copied = memory.copy(files)
    progress, num = state.progress, exchange.world.size if exchange.has_own_state else 0
    return Snapshot(progress.step, progress.best_step, copies, numbers_of(state), copied, num)


def _copy_to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    # safetensors stores plain row-major arrays; channels-last is restored on load.
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


class OwnStateGiver:
    """The saver of a process that writes nothing itself: its state goes to who does."""

    problem: str | None = None

    def __init__(self, states: OwnStates) -> None:
        self._states = states
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None
        self._memory: SnapshotMemory | None = None

    def save(self, state: TrainState) -> None:
        self.wait()
        self._memory = self._memory or SnapshotMemory(device_of(state))
        copies, copied = self._memory.copy({"own": own_tensors(state)})
        self._pending = self._thread.submit(self._give, copies["own"], copied)

    def _give(self, own: Tensors, copied: Any) -> None:
        if copied is not None:
            copied.synchronize()
        self._states.give(own)

    def wait(self) -> None:
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def close(self) -> None:
        self.wait()
        self._thread.shutdown()


class CheckpointSaver:
    """The first process's saver: one save at a time, in a thread; failures never stop the run."""

    def __init__(
        self,
        run: RunDirectory,
        settings: CheckpointSettings,
        note: Callable[..., None],
        states: OwnStates | None = None,
    ) -> None:
        self._run = run
        self._states = states
        self._settings = settings
        self._note = note
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None
        self._memory: SnapshotMemory | None = None
        self._had_recipe = run.exists()
        self.last_saved_step: int | None = None
        self.problem: str | None = None
        _remove_leftovers(run.checkpoints)

    def save(self, state: TrainState) -> None:
        """Copy the state and return; waits only if the save before has not finished."""
        began = time.perf_counter()
        self.wait()
        waited = time.perf_counter()
        self._memory = self._memory or SnapshotMemory(device_of(state))
        snapshot = take_snapshot(state, self._memory)
        self._submit(snapshot, waited - began, time.perf_counter() - waited)

    def save_snapshot(self, snapshot: Snapshot, copy_seconds: float) -> None:
        """The same of a copy that was made elsewhere, in so many seconds."""
        began = time.perf_counter()
        self.wait()
        self._submit(snapshot, time.perf_counter() - began, copy_seconds)

    def _submit(self, snapshot: Snapshot, wait_seconds: float, copy_seconds: float) -> None:
        stood_still = {
            "wait_seconds": round(wait_seconds, 6),
            "copy_seconds": round(copy_seconds, 6),
        }
        self._pending = self._thread.submit(self._write, snapshot, stood_still)

    def wait(self) -> None:
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def close(self) -> None:
        self.wait()
        self._thread.shutdown()

    def _write(self, snapshot: Snapshot, stood_still: dict[str, float] | None = None) -> None:
        began = time.perf_counter()
        if snapshot.copied is not None:
            snapshot.copied.synchronize()
        states = self._states.take() if self._states is not None else {}
        try:
            pause_disk()
            final = self._write_patiently(snapshot, states)
            self.last_saved_step, self.problem = snapshot.step, None
            self._tidy(snapshot)
        except (OSError, SafetensorError) as error:
            self.problem = _explain(error, self._run.checkpoints)
            # First make room: on a full disk the warning could not be written either.
            _remove_leftovers(self._run.checkpoints)
            self._note("warning", step=snapshot.step, text=self.problem, failed_save=True)
            return
        num_bytes = sum(path.stat().st_size for path in final.iterdir())
        self._note(
            "checkpoint",
            step=snapshot.step,
            num_bytes=num_bytes,
            **(stood_still or {}),
            write_seconds=round(time.perf_counter() - began, 6),
        )

    def _write_patiently(self, snapshot: Snapshot, states: Mapping[str, bytes]) -> Path:
        """Shared storage that goes away for a while comes back; meanwhile nothing may be written
        to where it was, which is another disk now."""
        until = time.monotonic() + _STORAGE_SECONDS
        while True:
            try:
                if not self._is_there():
                    raise FileNotFoundError(errno.ENOENT, "it is not there", str(self._run.path))
                return write_checkpoint(self._run.checkpoints, snapshot, states)
            except (OSError, SafetensorError) as error:
                if not _may_pass(error, self._is_there()) or time.monotonic() > until:
                    raise
                time.sleep(1)

    def _is_there(self) -> bool:
        return self._run.exists() if self._had_recipe else self._run.path.is_dir()

    def _tidy(self, snapshot: Snapshot) -> None:
        """Point `best` at the best one, and remove what is neither recent nor best."""
        checkpoints = self._run.checkpoints
        best = snapshot.best_step
        if best is not None and (checkpoints / stored.checkpoint_name(best)).is_dir():
            _point(self._run.best, Path("checkpoints") / stored.checkpoint_name(best))
        kept = stored.all_checkpoints(checkpoints)[-self._settings.keep_last :]
        for checkpoint in stored.all_checkpoints(checkpoints):
            if checkpoint not in kept and stored.step_of(checkpoint) != best:
                remove_directory(checkpoint)


def _may_pass(error: Exception, is_there: bool) -> bool:
    """Whether the storage is away, rather than full or forbidden."""
    return not is_there or (isinstance(error, OSError) and error.errno in _AWAY)


def write_checkpoint(
    directory: Path, snapshot: Snapshot, states: Mapping[str, bytes] | None = None
) -> Path:
    """Complete or absent. A step saved again, by a run that was set back, replaces the old one.
    `states` are the own states of other processes, by the names of their files."""
    final = directory / stored.checkpoint_name(snapshot.step)
    with whole_directory(final) as aside:
        for name, tensors in snapshot.files.items():
            save_file(tensors, aside / name)
        for name, data in (states or {}).items():
            (aside / name).write_bytes(data)
        (aside / stored.STATE).write_text(json.dumps(snapshot.numbers), encoding="utf-8")
        manifest = _manifest(aside, snapshot.step)
        if snapshot.num_own_states:
            manifest["num_own_states"] = snapshot.num_own_states
        (aside / stored.MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    return final


def _manifest(aside: Path, step: int) -> dict[str, Any]:
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
        for path in sorted(aside.iterdir())
    }
    return {
        "step": step,
        "files": files,
        "weights_sha256": stored.weights_sha256(aside / stored.WEIGHTS),
    }


def _point(link: Path, target: Path) -> None:
    aside = link.with_name(f".{link.name}.{os.getpid()}")
    aside.unlink(missing_ok=True)
    aside.symlink_to(target)
    if link.is_dir() and not link.is_symlink():
        shutil.rmtree(link)  # a second copy, in a run that was copied with links followed
    aside.replace(link)


def _remove_leftovers(directory: Path) -> None:
    if directory.is_dir():
        for path in directory.glob(".*step-*"):
            shutil.rmtree(path, ignore_errors=True)


def build_saver(
    run: RunDirectory, settings: CheckpointSettings, note: Callable[..., None], state: TrainState
) -> "CheckpointSaver | OwnStateGiver | None":
    """None in a process that has nothing to do with saving."""
    world = state.exchange.world
    states = OwnStates(world) if state.exchange.has_own_state else None
    if world.saves:
        return CheckpointSaver(run, settings, note, states)
    return OwnStateGiver(states) if states is not None else None


def _explain(error: Exception, directory: Path) -> str:
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    # safetensors wraps the system's error in its own and keeps only the text.
    if full or "No space left" in str(error) or "os error 28" in str(error):
        return (
            f"no space left in {directory}: this checkpoint was not saved, earlier ones are intact"
        )
    return f"a checkpoint could not be saved in {directory} ({error}); earlier ones are intact"


def restore(state: TrainState, run: RunDirectory, world: World) -> list[str]:
    """Bring every process to the newest undamaged checkpoint; the first process alone reads what
    all have alike.

    Returns what there is to warn of. Without any checkpoint the state stays as it is.
    """
    exact = newest_common(run.checkpoints, world) if state.exchange.has_own_state else None
    checkpoint, problems = exact, list[str]()
    if exact is None and world.is_first:
        checkpoint, problems = stored.newest_whole(run.checkpoints)
    warnings = [f"damaged checkpoint: {problem}" for problem in problems]
    found = world.send_value(str(checkpoint) if checkpoint else None)
    if found is None:
        return warnings
    shared = _restore_common(state, checkpoint if world.is_first else None, world)
    if exact is not None:
        load_own_tensors(state, load_file(exact / stored.own_state_name(world.rank)), shared)
    elif state.exchange.has_own_state:
        warnings.append(_WITHOUT_OWN_STATES)
    return warnings


def _restore_common(state: TrainState, checkpoint: Path | None, world: World) -> Tensors:
    """What is the same in all processes; returns what the exchange remembers of it."""
    numbers = None
    if checkpoint is not None:
        numbers = json.loads((checkpoint / stored.STATE).read_text(encoding="utf-8"))
        _load_weights(state, checkpoint)
    _send_weights(state, world)
    optimizer = load_file(checkpoint / stored.OPTIMIZER) if checkpoint else {}
    load_optimizer_tensors(state, _send_all(optimizer, world))
    load_numbers(state, world.send_value(numbers))
    state.exchange.adopt()
    path = checkpoint / stored.EXCHANGE if checkpoint else None
    shared = _send_all(load_file(path) if path and path.is_file() else {}, world)
    state.exchange.load_shared(shared)
    return shared


def _load_weights(state: TrainState, checkpoint: Path) -> None:
    state.network.load_state_dict(load_file(checkpoint / stored.WEIGHTS))
    if state.average is not None:
        state.average.module.load_state_dict(load_file(checkpoint / stored.AVERAGE))


def _send_weights(state: TrainState, world: World) -> None:
    networks = [state.network, *([state.average.module] if state.average is not None else [])]
    for network in networks:
        for tensor in network.state_dict().values():
            world.send_tensor(tensor)
    if state.average is not None:
        # A fresh average copies the model on its first update; a restored one must not.
        state.average.n_averaged.fill_(1)


def _send_all(tensors: Tensors, world: World) -> Tensors:
    """The first process's named tensors in every process."""
    shapes = {
        name: [str(t.dtype).removeprefix("torch."), list(t.shape)] for name, t in tensors.items()
    }
    shapes = world.send_value(shapes)
    received: Tensors = {}
    for name, (dtype, shape) in shapes.items():
        tensor = (
            tensors[name] if world.is_first else torch.empty(shape, dtype=getattr(torch, dtype))
        )
        world.send_tensor(tensor)
        received[name] = tensor
    return received
