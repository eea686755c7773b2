"""What training tells the world: event lines, TensorBoard scalars and a line of progress."""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.record.schema import START_UP, RunDirectory
from paceline.record.writer import EventFile
from paceline.settings import LogSettings
from paceline.tasks.contract import Scores
from paceline.trackers.live import LiveTracker
from paceline.train.measure.device_clock import (
    DeviceStep,
    SettlingClock,
    UnreadNumbers,
)
from paceline.train.measure.practice import clock_of
from paceline.train.measure.progress import ProgressLine
from paceline.train.measure.scalars import Scalars
from paceline.train.step import Measures, StepResult
from paceline.units import Scale, format_scores
from paceline.world import World

_SOMETIMES = ("gradient_norm", "loss_scale")


@dataclass(frozen=True)
class TimedStep:
    step: int
    seconds: float
    phases: dict[str, float]

    def facts(self) -> dict[str, Any]:
        phases = {name: round(seconds, 6) for name, seconds in self.phases.items()}
        known = {name: seconds for name, seconds in phases.items() if seconds}
        return {"step": self.step, "seconds": round(self.seconds, 6), "phases": known}


def as_the_device_saw(
    host: Sequence[TimedStep], device: Sequence[DeviceStep]
) -> Sequence[TimedStep]:
    """The host's steps with the device's times, where there is a device. A host that runs ahead
    queues a step in a moment, and then waits long for all of them in what it calls the last."""
    if len(host) != len(device):
        return host
    return [
        TimedStep(queued.step, done.seconds, done.beside(queued.phases))
        for queued, done in zip(host, device, strict=True)
    ]


@dataclass(frozen=True)
class Interval:
    """Steps that make one event line; what the device says of them may still be on its way."""

    steps: list[tuple[int, float, StepResult]]
    timed: list[TimedStep]
    epochs: float
    measures: Measures
    numbers: UnreadNumbers

    @classmethod
    def of(
        cls,
        steps: list[tuple[int, float, StepResult]],
        timed: list[TimedStep],
        epochs: float,
        measures: Measures,
    ) -> "Interval":
        losses = [result.loss for _, _, result in steps]
        beside = (steps[-1][2].gradient_norm, measures.loss_scale)
        more = [value.to(losses[0].dtype) for value in beside if value is not None]
        return cls(steps, timed, epochs, measures, UnreadNumbers([*losses, *more]))

    def read(self) -> "ReadInterval":
        """Waits for the device."""
        numbers = self.numbers.read()
        num, more = len(self.steps), iter(numbers[len(self.steps) :])
        norm = None if self.steps[-1][2].gradient_norm is None else next(more)
        scale = None if self.measures.loss_scale is None else next(more)
        return ReadInterval(self, numbers[:num], norm, scale, self.measures.steps.read())


@dataclass(frozen=True)
class ReadInterval:
    interval: Interval
    losses: list[float]
    gradient_norm: float | None
    loss_scale: float | None
    device_steps: list[DeviceStep]

    def steps(self) -> Iterator[tuple[int, float, float]]:
        """(step, rate, loss)"""
        for (step, rate, _), loss in zip(self.interval.steps, self.losses, strict=True):
            yield step, rate, loss


class SettledPhases:
    """Seconds by phase of all steps that were written: what the device says counts in them."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self.num_steps = 0

    def add(self, phases: Mapping[str, float], num_steps: int = 0) -> None:
        self.num_steps += num_steps
        for name, seconds in phases.items():
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def totals(self) -> dict[str, float]:
        return dict(self._seconds)


class Recorder:
    """One per process. Every process writes its events; the first one also shows progress."""

    def __init__(
        self,
        run: RunDirectory,
        settings: LogSettings,
        world: World,
        unit: str,
        scales: Mapping[str, Scale],
    ) -> None:
        self.clock = clock_of(world.rank)
        self.events = EventFile(run.rank_events(world.rank), world.attempt)
        self._settings, self._scales = settings, scales
        self._is_first = world.is_first
        self._pending: list[tuple[int, float, StepResult]] = []
        self._unread: deque[Interval] = deque()
        self._reads_late = world.device.type != "cpu"
        self._timed: list[TimedStep] = []
        self.settled = SettledPhases()
        self._settling = SettlingClock()
        self._start_step()
        self._cpu_seconds = 0.0
        self._last_step = 0
        self._boards: list[Any] = []
        self.line = ProgressLine(settings.show_seconds, unit) if world.is_first else None
        self._run = run
        self.steps_go_on = False
        """While this process evaluates or saves, because others make them."""

    def open_board(self, step: int) -> None:
        """Takes a moment, so it is done while the others still start as well."""
        if self._is_first:
            self._boards = [open_tensorboard(self._run.tensorboard, step)]
            if self._settings.tracker is not None:
                self._boards.append(
                    LiveTracker(self._settings.tracker, self._run.path, self._warn_of_tracker)
                )

    def _warn_of_tracker(self, text: str) -> None:
        self.note("warning", step=self._last_step, text=text)

    def begin(self, step: int, position: int, launched_at: float, facts: dict[str, Any]) -> None:
        """The loop starts now; what came before, back to the launcher's start, is start-up."""
        self.clock.take()
        start_up = max(time.time() - launched_at, 0.0)
        self.events.write(
            "begin",
            step=step,
            position=position,
            seconds=start_up,
            phases={START_UP: start_up},
            cpu_seconds=self._take_cpu_seconds(),
            **facts,
        )
        self._start_step()

    def add_step(self, step: int, rate: float, result: StepResult) -> None:
        before, since = self._phases_before, self._last_step_ended
        self._start_step()
        spent = {k: v - before.get(k, 0.0) for k, v in self._phases_before.items()}
        self._timed.append(TimedStep(step, self._last_step_ended - since, spent))
        self._pending.append((step, rate, result))
        self._last_step = step

    def _start_step(self) -> None:
        self._phases_before = self.clock.totals()
        self._last_step_ended = time.perf_counter()

    def ends_interval(self, step: int) -> bool:
        return step % self._settings.every_steps == 0

    def close_interval(self, epochs: float, measures: Measures) -> None:
        """The steps since the last time make a line; their numbers begin their way to the host."""
        if self._pending:
            self._unread.append(Interval.of(self._pending, self._timed, epochs, measures))
            self._pending, self._timed = [], []

    def read_interval(self, wait: bool) -> ReadInterval | None:
        """The oldest that is not written. On a device the newest is left for the next time, unless
        `wait`: while the host waits for one, the device then has the next to do."""
        num_left = 1 if self._reads_late and not wait else 0
        return self._unread.popleft().read() if len(self._unread) > num_left else None

    def write_steps(self, total_steps: int, read: ReadInterval) -> None:
        """One event line."""
        interval, losses = read.interval, read.losses
        step, rate, _ = interval.steps[-1]
        are_more = bool(self._unread or self._pending)
        phases = self._settling.settle(self.clock.take(), read.device_steps, are_more)
        self.settled.add(phases, len(losses))
        timed = as_the_device_saw(interval.timed, read.device_steps)
        fields = {
            "step": step,
            "num_steps": len(losses),
            "loss": sum(losses) / len(losses),
            "rate": rate,
            "num_units": sum(result.num_units for _, _, result in interval.steps),
            "seconds": sum(phases.values()),
            "phases": phases,
            "step_seconds": [round(step.seconds, 6) for step in timed],
            "cpu_seconds": self._take_cpu_seconds(),
            "epochs": round(interval.epochs, 4),
            "reduced_bytes": interval.measures.reduced_bytes,
            "slowest_step": max(timed, key=lambda step: step.seconds).facts(),
        }
        if self._is_first:  # they are the same in all processes
            fields["rates"] = [float(f"{rate:.9g}") for _, rate, _ in interval.steps]
            fields["losses"] = [float(f"{loss:.7g}") for loss in losses]
        sometimes = {"loss_scale": read.loss_scale, "gradient_norm": read.gradient_norm}
        fields.update({name: value for name, value in sometimes.items() if value is not None})
        fields.update(interval.measures.more)
        self.events.write("steps", **fields)
        self._show_steps(fields, total_steps)

    def _take_cpu_seconds(self) -> float:
        """CPU time of this process since the last event, threads that spin while they wait too."""
        before, self._cpu_seconds = self._cpu_seconds, time.process_time()
        return round(self._cpu_seconds - before, 6)

    def _show_steps(self, fields: dict[str, Any], total_steps: int) -> None:
        units_per_second = fields["num_units"] / max(fields["seconds"], 1e-9)
        if self._boards:
            scalars = {
                "loss": fields["loss"],
                "learning rate": fields["rate"],
                "units per second": units_per_second,
                **{n.replace("_", " "): fields[n] for n in _SOMETIMES if n in fields},
                **{
                    f"phase/{name}": seconds / max(fields["seconds"], 1e-9)
                    for name, seconds in fields["phases"].items()
                },
            }
            for name, value in scalars.items():
                for board in self._boards:
                    board.add_scalar(name, value, fields["step"])
        if self.line is not None:
            self.line.show(fields, units_per_second, total_steps)

    def score(self, step: int, split: str, scores: Scores) -> None:
        self.events.write(
            "score",
            step=step,
            split=split,
            scores=scores.values,
            signature=scores.signature,
            samples=list(scores.samples),
        )
        self.saved_aside()  # the time of an evaluation is not part of any step
        for board in self._boards:
            for name, value in scores.values.items():
                board.add_scalar(f"{split}/{name}", value, step)
            for number, sample in enumerate(scores.samples):
                board.add_text(f"{split}/sample {number + 1}", sample, step)
        if self.line is not None:
            shown = format_scores(scores.values, self._scales)
            self.line.say(f"step {step:,}  {split}: {shown}")
            for sample in scores.samples:
                self.line.say(f"  {sample}")

    def saved_aside(self) -> None:
        if not self.steps_go_on:
            self._start_step()

    def note(self, kind: str, **fields: Any) -> None:
        """An event without phases; also called from the saver's thread, after it has written."""
        if kind == "checkpoint":
            fields["until_step"] = max(self._last_step, fields["step"]) + 1
        self.events.write(kind, **fields)
        if kind == "warning" and self.line is not None:
            self.line.say(f"warning: {fields['text']}")
        is_news = kind in ("start", "note", "reduce") or (
            kind == "input" and not fields["is_limit"]
        )
        if is_news and self.line is not None:
            self.line.say(fields["text"])

    def end(self, step: int, reason: str, **fields: Any) -> None:
        phases = added(self.clock.take(), self._settling.take_rest())
        self.events.write(
            "end",
            step=step,
            reason=reason,
            seconds=sum(phases.values()),
            phases=phases,
            cpu_seconds=self._take_cpu_seconds(),
            **fields,
        )
        for board in self._boards:
            board.close()
        if self.line is not None:
            self.line.finish()
        self.events.close()


def added(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in {**one, **other}}


def open_tensorboard(directory: Path, step: int) -> Any:
    # TensorBoard drops points of a lost attempt from this step on, so curves continue cleanly.
    return Scalars(directory, purge_step=step + 1)
