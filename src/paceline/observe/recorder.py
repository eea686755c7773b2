"""Lines of events about the steps of one process, as `paceline/record/schema.py` describes them.

A line holds some steps, about a second of them at first and more as a run grows old, so that a run
of a week stays small. Lines end at multiples of a power of two, so that those of all ranks end at
the same steps. A line is written one step later: only then does DDP tell of its last step, and a
device has passed on its losses.
"""

import os
import sys
import time
from typing import Any

from . import facts
from .boundaries import COMPUTE, NETWORK
from .events import EventFile
from .imports import failures
from .measures.collectives import ExposedNetwork
from .measures.loss import LateNumbers, Reading
from .measures.units import Units

_LINE_SECONDS = 1.0
_LINES_OF_FULL_DETAIL = 2000
"""So many seconds are told second by second; afterwards lines grow as the run does."""
_MOST_LISTED = 100_000
"""Steps that are told one by one; later lines have means."""
_MOST_IN_A_LINE = 4096
_FREE_SCORES = 2000
_SCORE_SHARE = 0.25
"""Of a line's time: after so many evaluations, more are told no faster than this."""
_MOST_IDLE_BYTES = 1 << 16


class _Line:
    """Steps since the last line."""

    def __init__(self, losses: LateNumbers, is_listed: bool) -> None:
        self.num_steps = 0
        self.is_listed = is_listed
        """Its steps are told one by one."""
        self.step_seconds: list[float] = []
        self.rates: list[float] = []
        self.backwards_of_step: list[int] = []
        self.rate: float | None = None
        self.slowest: dict[str, Any] = {}
        self.slowest_seconds = 0.0
        self.losses = losses
        self.owners: list[int] = []
        """Of each loss: the optimizer that stepped next."""
        self.has_norm = False
        """The last of the numbers is that of the gradient."""
        self.num_collectives = 0
        self.collective_bytes = 0


class Recorder:
    def __init__(self, observer: Any) -> None:
        self._observer = observer
        self._times = observer.times
        self._torch = sys.modules["torch"]
        self._tensor = self._torch.Tensor
        self._read_item = self._torch._C.TensorBase.item
        self._num_listed = 0
        self._line = self._new_line()
        self._waiting: tuple[dict[str, Any], Reading, _Line] | None = None
        self._network = ExposedNetwork(observer.networks)
        self._file: EventFile | None = None
        self._saves: dict[str, Any] = {}
        self._scores: dict[str, tuple[int, dict[str, float]]] = {}
        self._scores_written = 0.0
        self._num_scores = 0
        self._cpu_seconds = 0.0
        self._every = 1
        self._close_at = 1
        """The step that ends the line, unless a save does before."""
        self._num_lines = 0
        self._step_began = 0.0
        self._seconds_before: dict[str, float] = {}
        self._looks_at_graph = True
        """For what a step's throughput is counted in; a loader tells it, once a step is done."""
        self._collective_names: dict[str, int] = {}
        self._unmeasured: dict[str, str] = {}
        self.place = facts.find_place()
        self.step = 0
        self.units = Units()
        self.gradient_norm: Any = None

    @property
    def has_begun(self) -> bool:
        return self._file is not None

    # ---- one call per boundary

    def add_loss(self, tensors: Any) -> None:
        if type(tensors) is not self._tensor or self._looks_at_graph:
            if tensors is None or type(tensors) in (list, tuple):
                return
            self._look_at_graph(tensors)
        if self._observer.scales_losses:
            tensors = getattr(tensors, "_paceline_unscaled", tensors)
        if type(tensors) is self._tensor and tensors.is_cpu and tensors.numel() == 1:
            self._numbers.append(self._read_item(tensors))
        else:
            self._line.losses.add(tensors)

    def _look_at_graph(self, loss: Any) -> None:
        observer = self._observer
        has_loader = observer.training_loader is not None
        if self._file is None or not has_loader:
            self.units.add_loss(loss, observer.keeps_tensors_itself, has_loader)
        else:
            self._looks_at_graph = False

    def add_update(self, optimizer: Any, key: int, is_primary: bool) -> None:
        line = self._line
        owners = line.owners
        num_new = len(self._numbers) - len(owners)
        if num_new == 1:
            owners.append(key)
        elif num_new:
            owners += [key] * num_new
        if is_primary:
            rate = optimizer.param_groups[0].get("lr")
            line.rate = rate if type(rate) is float else facts.as_rate(rate)
            if self._file is None:
                self._optimizer = optimizer

    def add_collective(self, name: str, num_bytes: int, is_timed: bool) -> None:
        self._line.num_collectives += 1
        self._line.collective_bytes += num_bytes
        if not is_timed and name not in self._unmeasured:
            self._unmeasured[name] = f"time of {name}: it runs beside the script"

    def add_save(self, path: str, num_bytes: int, seconds: float) -> None:
        """Files saved between two steps are one checkpoint."""
        if not self.has_begun:
            return
        saves = self._saves or {
            "step": self.step, "path": path, "num_bytes": 0, "copy_seconds": 0.0, "num_files": 0
        }  # fmt: skip
        saves["num_bytes"] += num_bytes
        saves["copy_seconds"] = round(saves["copy_seconds"] + seconds, 6)
        saves["num_files"] += 1
        if saves["num_files"] > 1:
            saves["path"] = os.path.commonpath([saves["path"], path])
        self._saves = saves

    def add_scores(self, split: str, values: dict[str, float]) -> None:
        """Progress is told once a line; of validation every score, unless there are very many."""
        kept = self._scores_of(split)
        again = [name for name in values if kept.get(name, values[name]) != values[name]]
        is_again = split != "progress" and bool(again)
        if is_again and self._may_write_scores():
            self._write_scores()
            kept = self._scores_of(split)
        kept.update(values)
        if is_again:
            self._scores[split] = (self.step, kept)

    def _may_write_scores(self) -> bool:
        if self._num_scores < _FREE_SCORES:
            return True
        return time.monotonic() - self._scores_written > _SCORE_SHARE * self._line_seconds()

    def _scores_of(self, split: str) -> dict[str, float]:
        """What waits to be written, with the step after which it was logged."""
        return self._scores.setdefault(split, (self.step, {}))[1]

    # ---- steps

    def begin(self) -> bool:
        """The first step is done, so it is a training; False if it cannot be recorded here."""
        order, times = self._observer.order, self._observer.times
        name = f"rank-{self.place.rank:05d}.jsonl"
        file = EventFile(os.path.join(order.run, "events", name), order.attempt)  # noqa: PTH118
        if file.is_taken() or file.has_attempt():
            file.write("warning", step=0, text=facts.SECOND_TRAINING)
            file.close()
            return False
        self._file = file
        started = times.loop_started or times.since
        began = _when(started)
        start_up = max(began - order.launched_at, 0.0)
        self._step_began = started
        self.step = facts.first_step(self._optimizer) - 1
        self.units.add_batch(*self._observer.take_samples())
        told = {
            **facts.describe(self._observer, self._optimizer, self.place),
            **self.units.settle(),
        }
        if self.place.rank == 0:
            facts.write_script(order)
            facts.write_environment(order, told, self.place)
        file.write(
            "begin",
            time=began,
            step=self.step,
            seconds=round(start_up, 6),
            phases={"start-up": round(start_up, 6)},
            cpu_seconds=self._take_cpu_seconds(),
            **told,
        )
        for text in failures:
            file.write("note", step=0, text=f"not observed: {text}")
        return True

    def end_step(self) -> None:
        """The wait for it, if there was one, is over: the line before can be written."""
        if self._waiting is not None:
            self._write_waiting()
        times, line = self._times, self._line
        self.step = step = self.step + 1
        line.num_steps += 1
        ended = times.since
        seconds = ended - self._step_began - times.aside_seconds
        times.aside_seconds = 0.0
        self._step_began = ended
        if line.is_listed:
            line.step_seconds.append(seconds)
            line.rates.append(line.rate or 0.0)
            line.backwards_of_step.append(len(self._numbers))
        if seconds > line.slowest_seconds:
            line.slowest_seconds = seconds
            line.slowest = {"step": step, "seconds": seconds, "phases": self._phases_of_step()}
        self._seconds_before = times.seconds.copy()
        if step >= self._close_at or self._saves:
            self._close_line()

    def _new_line(self) -> _Line:
        losses = LateNumbers(self._read_item)
        self._numbers = losses.numbers
        return _Line(losses, self._num_listed < _MOST_LISTED)

    def _phases_of_step(self) -> dict[str, float]:
        before, now = self._seconds_before, self._observer.times.seconds
        spent = {name: round(value - before.get(name, 0.0), 6) for name, value in now.items()}
        return {name: value for name, value in spent.items() if value}

    def _line_seconds(self) -> float:
        return max(_LINE_SECONDS, self._age() / _LINES_OF_FULL_DETAIL)

    def _age(self) -> float:
        return time.time() - float(self._observer.order.launched_at)

    def _close_line(self) -> None:
        observer, line = self._observer, self._line
        phases = observer.times.take()
        self._seconds_before = {}
        passed = sum(phases.values())
        fields: dict[str, Any] = {
            "time": _when(observer.times.since),
            "step": self.step,
            "num_steps": line.num_steps,
            "phases": phases,
            "seconds": passed,
            "cpu_seconds": self._take_cpu_seconds(),
            "num_micro_batches": len(line.losses.numbers),
        }
        line.owners += [0] * (len(line.losses.numbers) - len(line.owners))
        self._add_known(fields)
        if self.gradient_norm is not None:
            line.losses.add(self.gradient_norm)
            line.has_norm, self.gradient_norm = True, None
        self._waiting = (fields, line.losses.start_reading(self._torch), line)
        self._num_listed += len(line.step_seconds)
        if self._num_listed > _MOST_LISTED:
            line.step_seconds.clear()
        self._line = self._new_line()
        self._choose_every(passed, line.num_steps)

    def _add_known(self, fields: dict[str, Any]) -> None:
        line, observer = self._line, self._observer
        if line.rate is not None:
            fields["rate"] = line.rate
        self.units.add_batch(*observer.take_samples())
        num_units = self.units.take(line.num_steps, self.place.world_size)
        if num_units:
            fields["num_units"] = num_units
        epochs = observer.epochs
        if epochs is not None:
            fields["epochs"] = round(epochs, 4)
        if line.num_collectives:
            fields["num_collectives"] = line.num_collectives
            fields["collective_bytes"] = line.collective_bytes
        if line.slowest:
            slow = line.slowest
            fields["slowest_step"] = {**slow, "seconds": round(slow["seconds"], 6)}

    def _choose_every(self, passed: float, num_steps: int) -> None:
        wanted = self._line_seconds() * num_steps / max(passed, 1e-9)
        if wanted >= 2 * self._every and self.step % (2 * self._every) == 0:
            self._every *= 2
        elif wanted < self._every / 2 and self._every > 1:
            self._every //= 2
        to_multiple = self._every - self.step % self._every
        self._close_at = self.step + min(to_multiple, _MOST_IN_A_LINE)

    def _write_waiting(self, is_last: bool = False) -> None:
        if self._waiting is None or self._file is None:
            return
        (fields, reading, line), self._waiting = self._waiting, None
        _move_network(fields, self._network.take_seconds(line.num_steps, is_last))
        if self._network.reduced_bytes:
            fields["reduced_bytes"] = self._network.reduced_bytes * line.num_steps
        lists = self._add_losses(fields, reading.numbers(), line)
        fields["phases"] = {name: round(value, 6) for name, value in fields["phases"].items()}
        fields["seconds"] = round(sum(fields["phases"].values()), 6)
        self._file.write("steps", lists=lists, **fields)
        self._write_habits()
        self._write_saves()
        self._write_scores()

    def _add_losses(
        self, fields: dict[str, Any], read: list[float | None], line: _Line
    ) -> dict[str, list[float]]:
        """The sum of what backward was called on is what a step made smaller. Returns what is told
        of each step."""
        names = self._observer.optimizers
        norm = read.pop() if line.has_norm else None
        if norm is not None:
            fields["gradient_norm"] = _short(norm)
        known = [(owner, n) for owner, n in zip(line.owners, read) if n is not None]  # noqa: B905
        if known:
            own = names and next(iter(names))
            mine = [number for owner, number in known if owner == own] or [n for _, n in known]
            fields["loss"] = _short(sum(mine) / line.num_steps)
        if len(names) > 1:
            fields["optimizer_losses"] = _by_optimizer(known, names, line.num_steps)
        if not line.step_seconds or len(line.step_seconds) != line.num_steps:
            return {}
        lists = {"step_seconds": line.step_seconds}
        if self.place.rank == 0:
            lists["rates"] = line.rates
            if len(known) == len(line.owners) and len(names) == 1:
                lists["losses"] = _sums(read, line.backwards_of_step)
        return lists

    def _write_habits(self, is_last: bool = False) -> None:
        """Ever more seldom, and at the end: a run that is killed has told most of them."""
        self._num_lines += 1
        if self._file is not None and (is_last or self._num_lines & (self._num_lines - 1) == 0):
            self._file.write("habits", step=self.step, habits=self._observer.habits.told())

    def _write_saves(self) -> None:
        if self._saves and self._file is not None:
            saves, self._saves = self._saves, {}
            self._file.write("checkpoint", until_step=self.step, write_seconds=0.0, **saves)

    def _write_scores(self) -> None:
        kept, self._scores = self._scores, {}
        for split, (step, values) in kept.items():
            if values and self._file is not None:
                self._num_scores += 1
                self._file.write("score", step=step, split=split, scores=values)
        self._scores_written = time.monotonic()

    def _take_cpu_seconds(self) -> float:
        before, self._cpu_seconds = self._cpu_seconds, time.process_time()
        return round(self._cpu_seconds - before, 6)

    # ---- the end

    def warn(self, text: str) -> None:
        if self._file is not None:
            self._file.write("warning", step=self.step, text=text)

    def end(self, reason: str) -> None:
        if self._file is None:
            return
        if self._line.num_steps:
            if self._waiting is not None:
                self._write_waiting()
            self._close_line()
        self._write_waiting(is_last=True)
        times = self._observer.times
        phases = {n: round(s, 6) for n, s in times.finish().items()}
        ended = _when(times.since)
        self._write_saves()
        self._write_scores()
        self._write_habits(is_last=True)
        self._file.write(
            "end",
            time=ended,
            step=self.step,
            reason=reason,
            seconds=round(sum(phases.values()), 6),
            phases=phases,
            cpu_seconds=self._take_cpu_seconds(),
            seen=self._observer.seen,
            unmeasured=list(self._unmeasured.values()),
        )


def _when(moment: float) -> float:
    """A moment of the steady clock in seconds since 1970."""
    return time.time() - (time.perf_counter() - moment)


def note_idle(order: Any, reason: str, seen: dict[str, int]) -> None:
    """This process trained nothing; what it did instead, for a launcher that wonders. Nothing where
    no launcher would read it."""
    path = os.path.join(order.run, "events", "idle.jsonl")  # noqa: PTH118
    is_launched = os.path.isdir(os.path.dirname(path))  # noqa: PTH112, PTH120
    is_full = os.path.exists(path) and os.path.getsize(path) > _MOST_IDLE_BYTES  # noqa: PTH110, PTH202
    if is_full or not is_launched:
        return
    file = EventFile(path, order.attempt)
    file.write("note", step=0, reason=reason, seen={**seen, "torch": int("torch" in sys.modules)})
    file.close()


def _move_network(fields: dict[str, Any], exposed: float) -> None:
    """Communication that was not hidden was counted as backward, which is compute."""
    phases = fields["phases"]
    moved = max(min(exposed, phases.get(COMPUTE, 0.0)), 0.0)
    if moved:
        phases[COMPUTE] -= moved
        phases[NETWORK] = phases.get(NETWORK, 0.0) + moved


def _by_optimizer(
    known: list[tuple[int, float]], names: dict[int, str], num_steps: int
) -> dict[str, float]:
    found = {}
    for number, (key, name) in enumerate(names.items(), 1):
        mine = [loss for owner, loss in known if owner == key]
        if mine:
            found[f"{name} {number}"] = _short(sum(mine) / num_steps)
    return found


def _sums(read: list[float | None], ends: list[int]) -> list[float]:
    """Of each step: of the losses up to its end in the list."""
    sums, begin = [], 0
    for end in ends:
        one = read[begin] if end == begin + 1 else sum(n or 0.0 for n in read[begin:end])
        sums.append(one or 0.0)
        begin = end
    return sums


def _short(number: float) -> float:
    return float(f"{number:.7g}")
