"""Reading checkpoints without torch: which there are, whether they are whole, what is in them.

A checkpoint is a directory `step-0001000` that appears under its name only when it is complete:

    weights.safetensors      the model
    average.safetensors      the averaged model, where the recipe asks for one
    optimizer.safetensors    the optimizer's state, named after the weights it belongs to
    state.json               step, position in the data, best score, scaler, guard
    manifest.json            bytes and sha256 of each file, and one sha256 over all weights
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import UserError

WEIGHTS = "weights.safetensors"
AVERAGE = "average.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
MANIFEST = "manifest.json"
_PREFIX = "step-"
_CHUNK_BYTES = 1 << 20


def checkpoint_name(step: int) -> str:
    return f"{_PREFIX}{step:07d}"


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix(_PREFIX))


def all_checkpoints(directory: Path) -> list[Path]:
    """Complete checkpoints, oldest first; what a killed save left behind has another name."""
    found = [
        path for path in directory.glob(f"{_PREFIX}*") if path.name.removeprefix(_PREFIX).isdigit()
    ]
    return sorted(found, key=step_of)


def read_manifest(checkpoint: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8"))
        return {**manifest, "files": dict(manifest["files"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{checkpoint} has no readable {MANIFEST}: {error}", _OLDER) from error


_OLDER = "the run goes on from the checkpoint before it; delete this one"


def damage(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint, or None: every byte is compared with the manifest."""
    try:
        manifest = read_manifest(checkpoint)
    except UserError as error:
        return error.what
    for name, expected in manifest["files"].items():
        path = checkpoint / name
        if not path.is_file():
            return f"{path} is missing"
        if path.stat().st_size != expected["bytes"]:
            return f"{path} has {path.stat().st_size:,} bytes instead of {expected['bytes']:,}"
        if sha256_of(path) != expected["sha256"]:
            return f"{path} does not have the content that was written (sha256 differs)"
    return None


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


@dataclass(frozen=True)
class StoredTensor:
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def num_bytes(self) -> int:
        return self.end - self.begin


def stored_tensors(path: Path) -> list[StoredTensor]:
    """The tensors of a safetensors file, by name, from its header alone."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    first = 8 + length
    return [
        StoredTensor(
            name, entry["dtype"], tuple(entry["shape"]),
            first + entry["data_offsets"][0], first + entry["data_offsets"][1],
        )
        for name, entry in sorted(header.items())
    ]  # fmt: skip


def weights_sha256(path: Path) -> str:
    """One hash over all tensors (name, type, shape, bytes in order of name): equal if and only if
    the weights are, however the file lays them out."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for tensor in stored_tensors(path):
            digest.update(f"{tensor.name} {tensor.dtype} {list(tensor.shape)}\n".encode())
            file.seek(tensor.begin)
            for chunk in _chunks(file, tensor.num_bytes):
                digest.update(chunk)
    return digest.hexdigest()


def _chunks(file: Any, num_bytes: int) -> Iterator[bytes]:
    while num_bytes > 0:
        chunk = file.read(min(num_bytes, _CHUNK_BYTES))
        if not chunk:
            return
        num_bytes -= len(chunk)
        yield chunk


def newest_whole(directory: Path) -> tuple[Path | None, list[str]]:
    """The newest checkpoint that is undamaged, and what was wrong with newer ones."""
    problems: list[str] = []
    for checkpoint in reversed(all_checkpoints(directory)):
        problem = damage(checkpoint)
        if problem is None:
            return checkpoint, problems
        problems.append(problem)
    return None, problems


def choose(run: Path, which: str) -> Path:
    """The checkpoint a user names: 'best', 'newest' or a step."""
    directory = run / "checkpoints"
    if which == "best" and (run / "best").exists():
        return directory / (run / "best").readlink().name
    if which in ("newest", "best"):
        newest, _ = newest_whole(directory)
        if newest is None:
            raise UserError(f"{run} has no undamaged checkpoint", "train it first")
        return newest
    wanted = directory / checkpoint_name(int(which)) if which.isdigit() else None
    if wanted is None or not wanted.is_dir():
        steps = ", ".join(str(step_of(path)) for path in all_checkpoints(directory)) or "none"
        raise UserError(f"{run} has no checkpoint '{which}'", f"there are: best, newest, {steps}")
    return wanted
