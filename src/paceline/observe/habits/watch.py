"""What an observer is told of a script's habits. An error here ends the counting, nothing else."""

import functools
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from ..compiled import leave_observer_alone
from .counted import MOST_KEPT, Habits, describe_saved

Method = TypeVar("Method", bound=Callable[..., Any])


def harmless(method: Method) -> Method:
    @functools.wraps(method)
    def call(self: "HabitWatch", *arguments: Any) -> None:
        try:
            method(self, *arguments)
        except Exception:
            self.counts_reads = False

    return call  # type: ignore[return-value]


class HabitWatch:
    """The part of an observer that looks at habits."""

    thread: int
    is_watching: bool

    def __init__(self) -> None:
        self.habits = Habits()
        self.counts_reads = False
        """From the first backward on: what is read before is part of the start."""
        self.may_step_unseen = False
        """An optimizer that is compiled steps without its hooks."""
        self._pass_began = 0.0

    @harmless
    def saw_read(self, tensor: Any, frame: FrameType) -> None:
        if threading.get_ident() == self.thread:
            self.habits.read_value(tensor.device.type, frame)

    @harmless
    def begins_to_compile(self) -> None:
        self.saw_use("compile")
        self.may_step_unseen = True
        leave_observer_alone()

    @harmless
    def saw_use(self, name: str) -> None:
        self.habits.uses.setdefault(name, self.habits.place())

    @harmless
    def saw_sampler(self, sampler: Any) -> None:
        shuffles = bool(getattr(sampler, "shuffle", False))
        told = {"place": self.habits.place(), "num_set_epoch": 0, "shuffle": shuffles}
        if len(self.habits.samplers) < MOST_KEPT:
            self.habits.samplers[id(sampler)] = told

    @harmless
    def saw_set_epoch(self, sampler: Any) -> None:
        known = self.habits.samplers.get(id(sampler))
        if known is not None:
            known["num_set_epoch"] += 1

    @harmless
    def saw_scheduler(self, scheduler: Any) -> None:
        told = {"kind": type(scheduler).__name__, "place": self.habits.place()}
        if len(self.habits.schedulers) < MOST_KEPT:
            self.habits.schedulers.setdefault(id(scheduler), told)

    @harmless
    def saw_saved(self, content: Any) -> None:
        describe_saved(self.habits, content, self.habits.place())

    @harmless
    def saw_network(self, network: Any) -> None:
        finds_unused = bool(getattr(network, "find_unused_parameters", False))
        told = {"place": self.habits.place(), "finds_unused": finds_unused}
        told["framework"] = self.habits.framework()
        if len(self.habits.networks) < MOST_KEPT:
            self.habits.networks.append(told)

    @harmless
    def saw_loader_made(self, loader: Any) -> None:
        self.habits.loader_places[loader] = self.habits.place()

    @harmless
    def pass_begins(self) -> None:
        self._pass_began = time.perf_counter()

    @harmless
    def pass_made(self, loader: Any, own: Any) -> None:
        """`loader` is the script's DataLoader, `own` what is known of it here."""
        sampler = getattr(loader, "sampler", None)
        known = self.habits.samplers.get(id(sampler))
        seconds = time.perf_counter() - self._pass_began
        before, _ = self.habits.loaders.get(id(loader), ({}, own))
        told = {
            **own.facts,
            "num_passes": own.num_passes,
            "start_seconds": round(before.get("start_seconds", 0.0) + seconds, 6),
            "place": self.habits.loader_places.get(loader, ""),
        }
        if known is not None:
            known["num_passes"] = own.num_passes
        self.habits.saw_loader(id(loader), told, own)
