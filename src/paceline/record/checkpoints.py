"""Reading checkpoints without torch: which there are, whether they are whole, what is in them.

A checkpoint is a directory `step-0001000` that appears under its name only when it is complete:

    weights.safetensors      the model
    average.safetensors      the averaged model, where the recipe asks for one
    optimizer.safetensors    the optimizer's state, named after the weights it belongs to
    exchange.safetensors     what the exchange between processes remembers, the same in all of them
    rank-00001.safetensors   what a process has that differs from the others', where there is such
    state.json               step, position in the data, best score, scaler, guard
    manifest.json            bytes and sha256 of each file, and one sha256 over all weights
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import UserError
from paceline.files import sha256_of

WEIGHTS = "weights.safetensors"
AVERAGE = "average.safetensors"
OPTIMIZER = "optimizer.safetensors"
EXCHANGE = "exchange.safetensors"
STATE = "state.json"
MANIFEST = "manifest.json"
_ALWAYS_THERE = (WEIGHTS, OPTIMIZER, STATE)
_PREFIX = "step-"
_OWN_STATE = "rank-"
_CHUNK_BYTES = 1 << 20


def checkpoint_name(step: int) -> str:
    return f"{_PREFIX}{step:07d}"


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix(_PREFIX))


def own_state_name(rank: int) -> str:
    """The file with what a process has that differs from the others'."""
    return f"{_OWN_STATE}{rank:05d}.safetensors"


def is_own_state(name: str) -> bool:
    return name.startswith(_OWN_STATE)


def all_checkpoints(directory: Path) -> list[Path]:
    """Complete checkpoints, oldest first; what a killed save left behind has another name."""
    found = [
        path for path in directory.glob(f"{_PREFIX}*") if _is_step(path.name.removeprefix(_PREFIX))
    ]
    return sorted(found, key=step_of)


def _is_step(text: str) -> bool:
    return text.isascii() and text.isdigit()


def read_manifest(checkpoint: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8"))
        _check_manifest(manifest)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{checkpoint} has no readable {MANIFEST}: {error}", _OLDER) from error
    return {**manifest, "files": dict(manifest["files"])}


_OLDER = "the run goes on from the checkpoint before it; delete this one"


def _check_manifest(manifest: Any) -> None:
    """A flipped bit may leave valid JSON that says something else, or nothing."""
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict) or not isinstance(manifest.get("weights_sha256"), str):
        raise ValueError("it lacks 'files' or 'weights_sha256'")
    for name, entry in files.items():
        numbers = entry if isinstance(entry, dict) else {}
        if not isinstance(numbers.get("bytes"), int) or not isinstance(numbers.get("sha256"), str):
            raise ValueError(f"it does not give 'bytes' and 'sha256' of {name!r}")
    unnamed = [name for name in _ALWAYS_THERE if name not in files]
    if unnamed:
        raise ValueError(f"it does not name {', '.join(unnamed)}")


def damage(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint, or None: every byte is compared with the manifest."""
    try:
        files = read_manifest(checkpoint)["files"]
        problems = (_file_damage(checkpoint / name, entry) for name, entry in files.items())
        return next((problem for problem in problems if problem), None)
    except UserError as error:
        return error.what
    except (OSError, ValueError) as error:
        return f"{checkpoint} cannot be read: {error}"


def own_state_damage(checkpoint: Path, rank: int) -> str | None:
    """Of the file with one process's state alone; it must be there."""
    name = own_state_name(rank)
    try:
        expected = read_manifest(checkpoint)["files"].get(name)
        if expected is None:
            return f"{checkpoint} has no {name}"
        return _file_damage(checkpoint / name, expected)
    except UserError as error:
        return error.what
    except OSError as error:
        return f"{checkpoint} cannot be read: {error}"


def _file_damage(path: Path, expected: dict[str, Any]) -> str | None:
    return size_damage(path, expected) or content_damage(path, expected)


def size_damage(path: Path, expected: dict[str, Any]) -> str | None:
    """What a look at the directory shows, without reading the file."""
    if not path.is_file():
        return f"{path} is missing"
    num_bytes = path.stat().st_size
    if num_bytes != expected["bytes"]:
        return f"{path} has {num_bytes:,} bytes instead of {expected['bytes']:,}"
    return None


def content_damage(path: Path, expected: dict[str, Any]) -> str | None:
    if sha256_of(path) != expected["sha256"]:
        return f"{path} does not have the content that was written (sha256 differs)"
    return None


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
    """The tensors of a safetensors file, by name, from its header alone; ValueError if it is none.

    Nothing in the header is trusted: a flipped bit in its length asks for petabytes.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        first = 8 + int.from_bytes(file.read(8), "little")
        if first > size:
            raise ValueError(f"its header claims {first - 8:,} bytes, the file has {size:,}")
        try:
            header = json.loads(file.read(first - 8))
        except RecursionError as error:
            raise ValueError("its header is nested too deeply") from error
    if not isinstance(header, dict):
        raise ValueError("its header names no tensors")
    header.pop("__metadata__", None)
    return [_stored_tensor(name, entry, first, size) for name, entry in sorted(header.items())]


def _stored_tensor(name: str, entry: Any, first: int, size: int) -> StoredTensor:
    try:
        begin, end = (first + int(offset) for offset in entry["data_offsets"])
        tensor = StoredTensor(name, str(entry["dtype"]), _shape(entry["shape"]), begin, end)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"its header says nothing clear of {name!r}") from error
    if not first <= tensor.begin <= tensor.end <= size:
        raise ValueError(f"its header places {name!r} outside of the file")
    return tensor


def _shape(sides: Any) -> tuple[int, ...]:
    shape = tuple(int(side) for side in sides)
    if any(side < 0 for side in shape):
        raise ValueError("a negative side")
    return shape


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


def choose(run: Path, which: str, say: Callable[[str], None] = lambda _text: None) -> Path:
    """The checkpoint a user names: 'best', 'newest' or a step; `say` hears which were skipped."""
    directory = run / "checkpoints"
    if which == "best" and (best := _best(run)) is not None:
        return best
    if which in ("newest", "best"):
        newest, problems = newest_whole(directory)
        for problem in problems:
            say(f"skipped a damaged checkpoint: {problem}")
        if newest is None:
            raise UserError(f"{run} has no undamaged checkpoint", "train it first")
        return newest
    wanted = directory / checkpoint_name(int(which)) if _is_step(which) else None
    if wanted is None or not wanted.is_dir():
        steps = ", ".join(str(step_of(path)) for path in all_checkpoints(directory)) or "none"
        raise UserError(f"{run} has no checkpoint '{which}'", f"there are: best, newest, {steps}")
    return wanted


def _best(run: Path) -> Path | None:
    """A link, or a second copy of a checkpoint where the run was copied with links followed."""
    best = run / "best"
    try:
        name = best.readlink().name if best.is_symlink() else _name_of_copy(best)
    except (OSError, UserError):
        return None
    found = run / "checkpoints" / name
    return found if found.is_dir() else None


def _name_of_copy(checkpoint: Path) -> str:
    step = read_manifest(checkpoint).get("step")
    return checkpoint_name(step) if isinstance(step, int) else ""
