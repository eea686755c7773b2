"""Where the loop gets its micro-batches: how many threads read ahead, and whether the loop waits.

The number of threads is found: the first steps measure how fast the model takes samples and how
fast one thread gives them. On a machine without GPUs both share the cores, so what counts is what
was measured while both ran. How threads read is the business of `data.ahead`, and what a
micro-batch holds does not depend on any of it.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any, Final, Protocol

import torch

from paceline.data.readahead import Busy, ReadAhead, as_it_is
from paceline.machine.cores import cores_of_process, memory_of_process
from paceline.record.schema import CHECKPOINT, EVALUATE, INPUT
from paceline.tasks.batch_values import Staged, stage
from paceline.tasks.contract import ReadsAhead, Task
from paceline.train.state import Progress
from paceline.train.step import StepPlan, plan_step
from paceline.units import count_of, format_bytes, plural
from paceline.world import World, new_stream

_FIRST_WORKERS: Final = 2
_NUM_FIRST_STEPS: Final = 3
_CHECK_SECONDS: Final = 5.0
_SAY_AGAIN_SECONDS: Final = 600.0
_MARGIN: Final = 1.25
_WAITS_A_LITTLE: Final = 0.05
_WAITS: Final = 0.10
_SHARE_OF_MEMORY: Final = 0.25
# What one thread holds of a large photograph (20 million pixels) while it makes it smaller.
_WORKER_BYTES: Final = 64_000_000

Note = Callable[..., None]


class PhaseTotals(Protocol):
    """Seconds by phase so far: of the clock, or as settled with what the device did."""

    def totals(self) -> dict[str, float]: ...


@dataclass(frozen=True)
class Limits:
    """How far reading ahead may go on this host, for one process."""

    num_workers: int
    num_ahead: int
    most_ahead: int
    """Where a batch is filled by one thread, and more threads than that are wanted."""
    why: str


def limits_for(batch_bytes: int, num_mine: int, num_cores: int, memory_bytes: int) -> Limits:
    """Two steps ahead, and a quarter of the free memory at most; a thread per core."""
    room = int(memory_bytes * _SHARE_OF_MEMORY)
    most_ahead = max(1, room // max(batch_bytes, 1))
    num_ahead = min(2 * num_mine, most_ahead)
    by_memory = max(1, (room - num_ahead * batch_bytes) // _WORKER_BYTES)
    if by_memory < num_cores:
        return Limits(
            by_memory, num_ahead, most_ahead, f"{format_bytes(memory_bytes)} of free memory"
        )
    return Limits(num_cores, num_ahead, most_ahead, f"{count_of(num_cores, 'core')} per process")


@dataclass(frozen=True)
class Window:
    """What one process did over some steps; evaluation and saving do not count."""

    num_samples: int
    seconds: float
    input_seconds: float
    busy: Busy
    """What the threads did meanwhile."""

    @property
    def model_rate(self) -> float:
        """Samples per second that the model could take."""
        return self.num_samples / max(self.seconds - self.input_seconds, 1e-9)

    @property
    def given_rate(self) -> float:
        """Samples per second that reached the model."""
        return self.num_samples / max(self.seconds, 1e-9)

    @property
    def worker_rate(self) -> float:
        """Samples per second of one thread while it works."""
        return self.busy.num_samples / max(self.busy.seconds, 1e-9)

    @property
    def waiting_share(self) -> float:
        return self.input_seconds / max(self.seconds, 1e-9)


def wanted_workers(window: Window, limit: int) -> int:
    """Threads that keep the model fed, with a margin; as many as allowed if that is not enough."""
    if window.busy.num_samples == 0:
        return limit
    return max(1, min(limit, ceil(_MARGIN * window.model_rate / window.worker_rate)))


@dataclass(frozen=True)
class Coming:
    """The micro-batches that a process will take, and how many of them in each step; none where
    nothing is left to do."""

    indices: Iterator[int]
    num_each: int


class Input:
    """Micro-batches for the loop, read ahead where the task's take reading."""

    def __init__(self, task: Task, world: World, phases: PhaseTotals, note: Note) -> None:
        self.task, self.world = task, world
        self.phases, self._note = phases, note
        self._on_device = world.device.type != "cpu"
        # The thread that queues work for a device has no time to make batches, however cheap.
        reads_ahead = isinstance(task, ReadsAhead) and (task.reads_ahead or self._on_device)
        self._source = task if isinstance(task, ReadsAhead) and reads_ahead else None
        self._asked = self._source.asked_workers if self._source else 0
        self._ahead: ReadAhead | None = None
        self._limits = Limits(0, 0, 0, "")
        self._num_mine = 0
        self._copies: BatchCopies | None = None
        self.num_workers = 0
        self._num_steps = 0
        self._is_warm = False
        self._is_found = self._source is None
        self._said_at = float("-inf")

    def start(self, coming: Coming) -> None:
        """Begin to read what the coming steps of this process take."""
        self._start_window()
        if self._source is None or not coming.num_each:
            return
        self._num_mine = coming.num_each
        self._limits = limits_for(
            self._source.largest_batch_bytes,
            coming.num_each,
            cores_of_process(),
            memory_of_process(),
        )
        if self._asked == 0:
            return
        self.num_workers = self._asked or min(_FIRST_WORKERS, self._limits.num_workers)
        prepare: Callable[[Any], Any] = as_it_is
        if self._on_device:
            self._copies = BatchCopies(self.world.device)
            prepare = partial(stage, device=self.world.device)
        self._ahead = ReadAhead(
            self._source.begin_batch,
            coming.indices,
            self.num_workers,
            self._limits.num_ahead,
            prepare,
            self._limits.most_ahead,
        )
        self._start_window()

    def take(self, plan: StepPlan) -> list[Any]:
        if self._ahead is None or self._source is None:
            return [self.task.micro_batch(index) for index in plan.mine]
        taken = [self._take_next(self._ahead) for _ in plan.mine]
        if [index for index, _ in taken] != list(plan.mine):
            raise AssertionError(f"read ahead {taken[0][0]} ..., but the step takes {plan.mine}")
        if self._copies is None:
            return [self._source.on_device(batch) for _, batch in taken]
        if self._ahead.is_next_ready:  # one batch ahead: copied while this step computes
            self._copies.send(*self._ahead.take())
        return [batch for _, batch in taken]

    def _take_next(self, ahead: ReadAhead) -> tuple[int, Any]:
        if self._copies is None:
            return ahead.take()
        if not self._copies.num_sent:
            self._copies.send(*ahead.take())
        return self._copies.receive()

    @property
    def step_bytes(self) -> int:
        """Of the batches of one step, where they are read ahead."""
        return self._num_mine * self._source.largest_batch_bytes if self._source else 0

    def after_step(self, step: int, plan: StepPlan, is_settled: bool = True) -> None:
        """Count the step; now and then see whether the threads keep up.

        On a device only where steps were just settled: a host that is ahead waits for batches that
        the device does not need yet, and that is no waiting.
        """
        self._num_steps += 1
        if not self._is_warm and (is_settled or not self._on_device):
            self._is_warm = True
            self._start_window()  # the first step waits for the first batch, whatever the number
            return
        self._num_samples += sum(map(self.task.num_units, plan.mine))
        self._world_scale = plan.num_units / sum(map(self.task.num_units, plan.mine))
        if self._on_device and not is_settled:
            return
        is_first_time = not self._is_found and self._num_steps > _NUM_FIRST_STEPS
        if is_first_time or time.perf_counter() - self._began >= _CHECK_SECONDS:
            self._judge(step, self._window())
            self._start_window()

    def close(self) -> None:
        if self._ahead is not None:
            self._ahead.close()

    def _start_window(self) -> None:
        self._began = time.perf_counter()
        self._phases_before = self.phases.totals()
        self._busy_before = self._ahead.busy() if self._ahead else Busy()
        self._num_samples = 0
        self._world_scale = 1.0

    def _window(self) -> Window:
        totals = self.phases.totals()
        spent = {name: totals[name] - self._phases_before.get(name, 0.0) for name in totals}
        aside = spent.get(EVALUATE, 0.0) + spent.get(CHECKPOINT, 0.0)
        seconds = sum(spent.values()) - aside  # phases add up to the time that passed
        busy = self._ahead.busy().since(self._busy_before) if self._ahead else Busy()
        return Window(self._num_samples, seconds, spent.get(INPUT, 0.0), busy)

    def _judge(self, step: int, window: Window) -> None:
        limit = self._limits.num_workers
        if not self._is_found:
            self._is_found = True
            found = wanted_workers(window, limit) if self._asked is None else self._asked
            self._use(found, step, window)
            if self._asked is not None and window.waiting_share >= _WAITS:
                self._say_that_it_waits(step, window)  # a number that was asked for stays
        elif window.waiting_share < _WAITS_A_LITTLE:
            return
        elif self._asked is None and self.num_workers < limit:
            more = max(self.num_workers + 1, wanted_workers(window, limit))
            self._use(min(more, limit), step, window)
        elif window.waiting_share >= _WAITS:
            self._say_that_it_waits(step, window)

    def _use(self, num_workers: int, step: int, window: Window) -> None:
        self.num_workers = num_workers
        if self._ahead is not None:
            self._ahead.use_workers(num_workers)
        model, worker = (
            rate * self._world_scale for rate in (window.model_rate, window.worker_rate)
        )
        units = plural(self.task.unit)
        limit = f"at most {self._limits.num_workers}: {self._limits.why}"
        given = f", one thread of each process gives {worker:,.0f}" if num_workers else ""
        text = (
            f"input: {count_of(num_workers, 'thread')} per process to read ahead; the model takes "
            f"{model:,.0f} {units}/s{given} ({limit if self._asked is None else 'as asked for'})"
        )
        self._note_input(step, (num_workers * worker, model), text, is_limit=False)

    def _say_that_it_waits(self, step: int, window: Window) -> None:
        """At once, and again every ten minutes as long as it lasts."""
        if time.monotonic() - self._said_at < _SAY_AGAIN_SECONDS:
            return
        self._said_at = time.monotonic()
        model, given = (rate * self._world_scale for rate in (window.model_rate, window.given_rate))
        units = plural(self.task.unit)
        text = (
            f"input is the limit: the model could take {model:,.0f} {units}/s, the loader gives "
            f"{given:,.0f} ({100 * window.waiting_share:.0f} % of the time is spent waiting for "
            f"it); {self._remedy()}"
        )
        self._note_input(step, (given, model), text, is_limit=True)
        self._note("warning", step=step, text=text)

    def _remedy(self) -> str:
        if self._source is None:
            return "the loop makes its batches itself, so a faster processor or disk is what helps"
        if self.num_workers < self._limits.num_workers:
            return (
                f"raise input.workers from {self.num_workers} (up to {self._limits.num_workers} "
                "make sense here), or leave it out"
            )
        return (
            f"it has {count_of(self.num_workers, 'thread')}, the most for {self._limits.why}: "
            f"use more cores, {self._source.input_remedy}, or see how fast the data can be read"
        )

    def _note_input(self, step: int, rates: tuple[float, float], text: str, is_limit: bool) -> None:
        loader, model = rates
        self._note(
            "input",
            step=step,
            loader_workers=self.num_workers,
            units_per_second_loader=round(loader, 3),
            units_per_second_model=round(model, 3),
            is_limit=is_limit,
            text=text,
        )


class BatchCopies:
    """Batches on their way to a device.

    On CUDA each is one copy from pinned memory on a stream of its own, beside what the device
    computes; what is queued after `receive` waits on the device until the copy is done, and the
    host does not. Written for CUDA and not measured on it by us.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = new_stream(device)
        self._sent: deque[tuple[int, Staged, torch.Tensor, Any]] = deque()

    @property
    def num_sent(self) -> int:
        """Not received yet."""
        return len(self._sent)

    def send(self, index: int, staged: Staged) -> None:
        with torch.cuda.stream(self._stream):  # without one, where it is
            memory = staged.memory.to(self._device, non_blocking=True)
        copied = self._stream.record_event() if self._stream is not None else None
        self._sent.append((index, staged, memory, copied))

    def receive(self) -> tuple[int, Any]:
        index, staged, memory, copied = self._sent.popleft()
        if copied is not None:
            computing = torch.cuda.current_stream(self._device)
            computing.wait_event(copied)
            memory.record_stream(computing)  # else it could be given out again too early
        return index, staged.unpacked(memory)


def coming_steps(task: Task, progress: Progress, num_steps: int, world: World) -> Coming:
    """What this process will take from here to the end of the run."""
    if progress.step >= num_steps:
        return Coming(iter(()), 0)
    plan = plan_step(task, progress.position, world)
    return Coming(_coming_indices(task, progress, num_steps, world), len(plan.mine))


def _coming_indices(task: Task, progress: Progress, num_steps: int, world: World) -> Iterator[int]:
    position = progress.position
    for _ in range(progress.step, num_steps):
        plan = plan_step(task, position, world)
        yield from plan.mine
        position = plan.indices.stop
