"""Checkpoints: torch.save, safetensors, torch.distributed.checkpoint."""

import os
import sys
from typing import Any

from .. import compiled
from . import wrap

State = Any


def watch_torch_save(state: State, module: Any) -> None:
    """`torch.serialization`, before torch passes `save` on; a notebook has it already."""
    wrap(module, "save", lambda original: _save(state, original, 1, "f"))
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "save"):
        torch.save = module.save  # type: ignore[attr-defined]


def watch_safetensors(state: State, module: Any) -> None:
    wrap(module, "save_file", lambda original: _save(state, original, 1, "filename"))


def watch_lightning(state: State, module: Any) -> None:
    """`lightning.fabric.utilities.cloud_io`, which saves into memory and then writes that."""
    wrap(module, "_atomic_save", lambda original: _save(state, original, 1, "filepath"))


def watch_distributed_checkpoint(state: State, module: Any) -> None:
    for name in ("save", "async_save"):
        wrap(module, name, lambda original: _save(state, original, 99, "checkpoint_id"))


def _save(state: State, original: Any, place: int, name: str) -> Any:
    """`place` and `name` of the argument that says where to."""

    def save(*arguments: Any, **options: Any) -> Any:
        if compiled.is_compiling():
            return original(*arguments, **options)
        observer = state[0]
        if not observer.here():
            return original(*arguments, **options)
        target = options.get(name, arguments[place] if len(arguments) > place else None)
        observer.begin_save()
        try:
            return original(*arguments, **options)
        finally:
            observer.end_save(*_written(target))

    return save


def _written(target: Any) -> tuple[str, int]:
    """Path and bytes; nothing of what was saved into memory."""
    try:
        if isinstance(target, (str, os.PathLike)):
            path = os.path.abspath(os.fspath(target))  # noqa: PTH100
            return str(path), _size(path)
        if isinstance(getattr(target, "name", None), str) and hasattr(target, "tell"):
            return os.path.abspath(target.name), int(target.tell())  # noqa: PTH100
    except Exception:
        return "", 0
    return "", 0


def _size(path: str) -> int:
    """Of a file, or of the files that this host has written to a folder."""
    if not os.path.isdir(path):  # noqa: PTH112
        return os.path.getsize(path)  # noqa: PTH202
    with os.scandir(path) as entries:
        return sum(entry.stat().st_size for entry in entries if entry.is_file())
