"""Habits of a script that a reviewer would ask about: counted where they happen, judged elsewhere.

Numbers and places (`file.py:12`) only; whether something is a mistake depends on the whole run,
which a report sees.
"""

import os
import sys
import weakref
from types import CodeType, FrameType
from typing import Any

_OBSERVER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
_MOST_PLACES = 64
_TOLD_PLACES = 8
_MOST_SHAPES = 16
_MOST_LOADERS = 8
_MOST_SAVES = 4
_FRAMEWORKS = (
    "transformers",
    "accelerate",
    "lightning",
    "pytorch_lightning",
    "lightning_fabric",
    "torchmetrics",
    "deepspeed",
    "trl",
    "peft",
)
MOST_KEPT = 32
"""Of samplers, schedulers and networks: scripts may make new ones in every epoch."""


def library_folders() -> tuple[str, ...]:
    """Frames in these are not the script's own: nobody can change a line there."""
    torch = sys.modules.get("torch")
    own = os.path.dirname(getattr(torch, "__file__", None) or "")  # noqa: PTH120
    if not own:
        return (_OBSERVER,)
    beside = os.path.dirname(own)  # noqa: PTH120
    return (_OBSERVER, *(f"{beside}/{name}/" for name in ("torch", *_FRAMEWORKS)))


def calling_place(frame: FrameType | None, folders: tuple[str, ...]) -> str:
    """The innermost line outside of torch, of frameworks and of this observer."""
    while frame is not None and frame.f_code.co_filename.startswith(folders):
        frame = frame.f_back
    if frame is None:
        return ""
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"  # noqa: PTH119


def calling_framework(frame: FrameType | None, folders: tuple[str, ...]) -> str:
    """The framework on whose behalf the line is executed; empty if it is the script's own."""
    found = ""
    while frame is not None and frame.f_code.co_filename.startswith(folders):
        path = frame.f_code.co_filename
        names = [name for name in _FRAMEWORKS if f"/{name}/" in path]
        found, frame = (names[0] if names else found), frame.f_back
    return found


class Habits:
    """Of one process."""

    def __init__(self) -> None:
        self.folders: tuple[str, ...] = ()
        self.reads: dict[tuple[CodeType, int], list[Any]] = {}
        """How often a value was read from a tensor there, of which device, and the place."""
        self.samplers: dict[int, dict[str, Any]] = {}
        self.loaders: dict[int, tuple[dict[str, Any], Any]] = {}
        self.loader_places: Any = weakref.WeakKeyDictionary()
        """Where each was made."""
        self.schedulers: dict[int, dict[str, Any]] = {}
        self.saved: list[dict[str, Any]] = []
        self.networks: list[dict[str, Any]] = []
        self.shapes: set[tuple[int, ...]] = set()
        self.uses: dict[str, str] = {}
        """What the script makes use of, e.g. `compile`, and where."""

    def place(self) -> str:
        """Of the script's line that led here."""
        if not self.folders:
            self.folders = library_folders()
        return calling_place(sys._getframe(1), self.folders)

    def framework(self) -> str:
        if not self.folders:
            self.folders = library_folders()
        return calling_framework(sys._getframe(1), self.folders)

    def read_value(self, device: str, frame: FrameType) -> None:
        """Torch reads values itself, for example of an optimizer's counter: not the script's."""
        if not self.folders:
            self.folders = library_folders()
        code = frame.f_code
        key = (code, frame.f_lasti)  # to ask for the line takes longer than all the rest
        known = self.reads.get(key)
        if known is not None:
            known[0] += 1
        elif len(self.reads) < _MOST_PLACES and not code.co_filename.startswith(self.folders):
            name = os.path.basename(code.co_filename)  # noqa: PTH119
            self.reads[key] = [1, device, f"{name}:{frame.f_lineno}"]

    def saw_shape(self, shape: tuple[int, ...]) -> None:
        if len(self.shapes) < _MOST_SHAPES:
            self.shapes.add(shape)

    def saw_loader(self, key: int, told: dict[str, Any], own: Any) -> None:
        """`own` counts its batches."""
        if key in self.loaders or len(self.loaders) < _MOST_LOADERS:
            before, _ = self.loaders.get(key, ({}, own))
            self.loaders[key] = ({**before, **told}, own)

    def _told_loaders(self) -> list[dict[str, Any]]:
        return [
            {**told, "is_training": own.is_training, "num_batches_got": own.num_in_all}
            for told, own in self.loaders.values()
        ]

    def told(self) -> dict[str, Any]:
        """For an event line."""
        by_place: dict[str, tuple[int, str]] = {}
        for count, device, place in self.reads.values():  # a line may read several values
            by_place[place] = max(by_place.get(place, (0, "")), (count, device))
        most = sorted(by_place.items(), key=lambda read: -read[1][0])[:_TOLD_PLACES]
        reads = [{"place": place, "count": n, "device": on} for place, (n, on) in most]
        found: dict[str, Any] = {
            "reads": reads,
            "samplers": list(self.samplers.values()),
            "loaders": self._told_loaders(),
            "schedulers": list(self.schedulers.values()),
            "saved": self.saved,
            "networks": self.networks,
            "num_shapes": len(self.shapes),
            "uses": self.uses,
        }
        return {name: value for name, value in found.items() if value}


def saved_names(content: Any) -> list[str]:
    """Names at the top of what is saved; of bare weights a single one."""
    if not isinstance(content, dict):
        return [type(content).__name__]
    if content and all(hasattr(value, "element_size") for value in content.values()):
        return ["(weights)"]
    return [str(name) for name in list(content)[:40]]


def describe_saved(habits: Habits, content: Any, place: str) -> None:
    """Each kind of save once."""
    told = {"names": saved_names(content), "place": place}
    if told not in habits.saved and len(habits.saved) < _MOST_SAVES:
        habits.saved.append(told)
