"""What one process has seen so far, told to by the hooks; the recorder writes it down.

Between two calls of a hook torch's work pushes this code out of the processor's caches: a step pays
for each line it reaches and each function it enters several times what they take in a loop of their
own. What a usual step does is therefore kept short and flat, and all else is in functions of its
own. An error ends the observing, never the script.
"""

import functools
import multiprocessing
import threading
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import Any, TypeVar

from .boundaries import CHECKPOINT, INPUT, NETWORK, Boundaries, Iteration
from .habits.watch import HabitWatch
from .imports import note_failure
from .measures import scores as score_names
from .measures.batches import BatchSizes
from .measures.loss import read_scalar
from .order import Order
from .recorder import Recorder, note_idle
from .unseen import UnseenSteps

Method = TypeVar("Method", bound=Callable[..., Any])


def unfailing(method: Method) -> Method:
    """An error of ours is noted and ends the observing. What every step calls does so itself: a
    call more would double what it costs."""

    @functools.wraps(method)
    def call(self: "Observer", *arguments: Any) -> Any:
        try:
            return method(self, *arguments)
        except Exception as error:
            self.give_up(error)
            return None

    return call  # type: ignore[return-value]


class Loader:
    """A DataLoader of the script, and how far it has come."""

    __slots__ = (
        "facts",
        "is_training",
        "iteration",
        "num_batches",
        "num_before",
        "num_got",
        "num_passes",
        "sizes",
    )

    def __init__(self, facts: dict[str, Any], num_batches: int | None) -> None:
        self.facts = facts
        self.num_batches = num_batches
        self.is_training = False
        self.iteration: Iteration | None = None
        self.num_passes = 0
        self.num_got = 0
        """Batches of the pass that is under way."""
        self.num_before = 0
        self.sizes = BatchSizes()

    @property
    def num_in_all(self) -> int:
        return self.num_before + self.num_got

    def start_over(self) -> None:
        self.num_before += self.num_got
        self.num_got = 0

    @property
    def share_of_pass(self) -> float:
        return min(self.num_got / self.num_batches, 1.0) if self.num_batches else 0.0


class Observer(HabitWatch):
    """One per process, made anew in a process that was forked."""

    def __init__(self, order: Order) -> None:
        super().__init__()
        self.order = order
        self.is_watching = True
        self.thread = threading.get_ident()
        self.times = Boundaries()
        self.recorder: Recorder | None = None
        self._num_batches = self._num_steps = self._num_saves = 0
        self.optimizers: dict[int, str] = {}
        self._stepping: list[Any] = []
        """The same, weakly."""
        self.networks: list[Any] = []
        """Of DDP, weakly; they know what communication was not hidden."""
        self.training_loader: Loader | None = None
        self._epochs_done = 0.0
        """Before the pass that is under way; scripts may make a new loader for each."""
        self._fresh: set[Loader] = set()
        """Other loaders than that one that gave a batch since the last backward."""
        self._is_fresh = False
        """Whether that one did."""
        self._num_samples = self._num_tokens = 0
        """In batches that a backward has followed."""
        self._samples_got = self._tokens_got = 0
        self._last_shape: tuple[int, ...] | None = None
        """Of a training batch."""
        self.keeps_tensors_itself = False
        """The script has hooks on tensors that autograd keeps; to look at one would call them."""
        self.scales_losses = False
        """What backward is called on is not the loss, but has it."""
        self.autocast = ""
        """The type that an autocast of the script lowers to."""
        self._collective_depth = 0
        self._save_depth = 0
        self._stepped: set[int] = set()
        self._expected: set[int] = set()
        self._num_repeats = 0
        self._primary: int | None = None
        self._lone: int | None = None
        """The optimizer that makes up each step by itself, as most do."""
        self._unseen = UnseenSteps()
        self._backwards_before = 0
        """When the last step was done."""
        self._before_begin: list[tuple[str, dict[str, float]]] = []

    def here(self) -> bool:
        """Whether this call is in the thread that trains, and anybody still looks."""
        return self.is_watching and get_ident() == self.thread

    @property
    def seen(self) -> dict[str, int]:
        return {
            "batches": self._num_batches,
            "backwards": self.times.num_backwards,
            "optimizer_steps": self._num_steps,
            "saves": self._num_saves,
        }

    def give_up(self, error: Exception) -> None:
        self.is_watching = False
        note_failure(f"observing ended: {error!r}")
        try:
            if self.recorder is not None:
                self.recorder.warn(f"the script is no longer observed: {error!r}")
        except Exception:
            return

    # ---- batches

    @unfailing
    def begin_pass(self, loader: Loader) -> None:
        """Its iterator is being made, with its worker processes."""
        self.times.begin_pass()
        self.times.enter()

    @unfailing
    def made_pass(self, loader: Loader) -> None:
        self.times.leave(INPUT)
        if loader is self.training_loader:  # the pass before was left before its end
            self._epochs_done += loader.share_of_pass
        loader.num_passes += 1
        loader.start_over()
        loader.iteration = self.times.begin_iteration()

    def got(self, loader: Loader, batch: Any) -> None:
        try:
            times = self.times
            times.got()
            loader.num_got += 1
            self._num_batches += 1
            if times.is_evaluating:
                return
            if loader is self.training_loader:
                self._is_fresh = True
            else:
                self._fresh.add(loader)
            samples, tokens, shape = loader.sizes.of(batch)
            self._samples_got += samples
            self._tokens_got += tokens
            if shape is not self._last_shape:
                self._saw_shape(loader, shape)
        except Exception as error:
            self.give_up(error)

    def _saw_shape(self, loader: Loader, shape: tuple[int, ...] | None) -> None:
        if loader.is_training and shape is not None:
            self._last_shape = shape
            self.habits.saw_shape(shape)

    @unfailing
    def end_pass(self, loader: Loader) -> None:
        if self.may_step_unseen:
            self.catch_up()
        if loader.iteration is not None:
            had = loader.iteration.num_backwards
            self.times.end_iteration(loader.iteration)
            if had == self.times.num_backwards:  # an evaluation, as it turned out
                self._forget_fresh(loader)
            elif loader is self.training_loader:
                self._epochs_done += 1.0
                loader.start_over()

    def _forget_fresh(self, loader: Loader) -> None:
        self._fresh.discard(loader)
        if loader is self.training_loader:
            self._is_fresh = False
        self._samples_got, self._tokens_got = self._num_samples, self._num_tokens

    def take_samples(self) -> tuple[int, int]:
        """And tokens, of batches that a backward has followed since the last time."""
        samples, tokens = self._num_samples, self._num_tokens
        self._samples_got -= samples
        self._tokens_got -= tokens
        self._num_samples = self._num_tokens = 0
        return samples, tokens

    @property
    def epochs(self) -> float | None:
        loader = self.training_loader
        return None if loader is None else self._epochs_done + loader.share_of_pass

    # ---- backward

    def begin_backward(self, tensors: Any) -> None:
        try:
            if self.may_step_unseen:
                self.catch_up()
            self.times.begin_backward()
            self.counts_reads = True
            recorder = self.recorder or self._begin_recording()
            if self._fresh:
                self._know_training_loaders()
            self._is_fresh = False
            self._num_samples = self._samples_got
            self._num_tokens = self._tokens_got
            recorder.add_loss(tensors)
        except Exception as error:
            self.give_up(error)

    def _begin_recording(self) -> Recorder:
        self.recorder = Recorder(self)
        return self.recorder

    def _know_training_loaders(self) -> None:
        if self._is_fresh and self.training_loader is not None:
            self._fresh.add(self.training_loader)
        for loader in self._fresh:
            loader.is_training = True
            self.training_loader = loader
        self._fresh.clear()

    # ---- steps

    @unfailing
    def made_optimizer(self, optimizer: Any) -> None:
        self.times.sign()
        self._expected.add(id(optimizer))
        self._lone = None
        self._unseen.follow(optimizer)

    def begin_step(self, optimizer: Any) -> None:
        try:
            self.thread = get_ident()  # whoever steps is who trains
            if self._stepped and id(optimizer) in self._stepped and not self.times.is_stepping:
                self._repeat()
            self.times.begin_step()
        except Exception as error:
            self.give_up(error)

    def catch_up(self) -> None:
        """With the steps of a compiled optimizer, which are known only afterwards."""
        stepped = self._unseen.stepped()
        if self.times.num_backwards == self._backwards_before:
            return
        for optimizer in stepped:
            self.begin_step(optimizer)
            self.end_step(optimizer)

    def other_optimizers(self) -> list[Any]:
        """Than the first that stepped."""
        alive = (weak() for weak in self._stepping[1:])
        return [optimizer for optimizer in alive if optimizer is not None]

    def _repeat(self) -> None:
        """An optimizer steps again before all others did: the step is over without them."""
        self._num_repeats += 1
        if self._num_repeats > 1:
            self._expected &= self._stepped
        self._close_step()

    def end_step(self, optimizer: Any) -> None:
        try:
            recorder = self.recorder
            if not self.times.end_step() or recorder is None:
                return
            self._num_steps += 1
            key = id(optimizer)
            if key == self._lone and not self.may_step_unseen:
                recorder.add_update(optimizer, key, True)
                recorder.end_step()
            else:
                self._end_unusual_step(recorder, optimizer, key)
        except Exception as error:
            self.give_up(error)

    def _end_unusual_step(self, recorder: Recorder, optimizer: Any, key: int) -> None:
        """The first of all, or one of several optimizers, or of a script that compiles."""
        self._lone = None
        if self.may_step_unseen:
            self._unseen.note(optimizer)
        if key not in self.optimizers:
            self.optimizers[key] = type(optimizer).__name__
            self._stepping.append(weakref.ref(optimizer))
        self._primary = self._primary or key
        self._stepped.add(key)
        recorder.add_update(optimizer, key, key == self._primary)
        if self._expected <= self._stepped:
            is_lone = self._stepped == {self._primary}
            self._close_step()
            if is_lone:
                self._lone = key

    def _close_step(self) -> None:
        self._stepped.clear()
        self._backwards_before = self.times.num_backwards
        recorder = self.recorder
        if recorder is None:
            return
        if not recorder.has_begun:
            if not recorder.begin():
                self.is_watching = False
                return
            for split, values in self._before_begin:
                recorder.add_scores(split, values)
        recorder.end_step()

    # ---- beside the loop

    @unfailing
    def begin_save(self) -> bool:
        self._save_depth += 1
        if self._save_depth == 1:
            self.times.enter()
        return True

    @unfailing
    def end_save(self, path: str, num_bytes: int) -> None:
        self._save_depth = max(self._save_depth - 1, 0)
        if self._save_depth:
            return
        seconds = self.times.leave(CHECKPOINT)
        self._num_saves += 1
        if self.recorder is not None and path:
            self.recorder.add_save(path, num_bytes, seconds)

    @unfailing
    def begin_collective(self) -> bool:
        """Those of a save are a part of it."""
        self._collective_depth += 1
        if self._collective_depth == 1 and not self._save_depth:
            self.times.enter()
        return True

    @unfailing
    def end_collective(self, name: str, num_bytes: int, timing: str) -> None:
        self._collective_depth = max(self._collective_depth - 1, 0)
        if self._collective_depth or self._save_depth:
            return
        self.times.leave_as(NETWORK if timing == "timed" else None)
        if self.recorder is not None and name:
            self.recorder.add_collective(name, num_bytes, timing != "untimed")

    @unfailing
    def scored(self, values: dict[str, Any]) -> None:
        """What the script gave to a logger, under its own names."""
        if threading.get_ident() == self.thread:
            self.times.evaluated()
        by_split: dict[str, dict[str, float]] = {}
        for name, value in values.items():
            number = read_scalar(value)
            if number is not None:
                by_split.setdefault(score_names.split_of(name), {})[str(name)] = number
        for split, found in by_split.items():
            if self.recorder is not None and self.recorder.has_begun:
                self.recorder.add_scores(split, found)
            elif len(self._before_begin) < 100:
                self._before_begin.append((split, found))

    # ---- the end

    def finish(self, reason: str) -> None:
        self.is_watching = self.counts_reads = False
        try:
            if self.may_step_unseen and self.recorder is not None:
                self.catch_up()
            if self.recorder is not None and self.recorder.has_begun:
                if self._stepped:
                    self._close_step()
                self.recorder.end(reason)
            elif multiprocessing.parent_process() is None or self.times.num_backwards:
                note_idle(self.order, reason, self.seen)
        except Exception as error:
            note_failure(repr(error))
