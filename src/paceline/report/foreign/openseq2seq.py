"""What OpenSeq2Seq prints: its configuration, its variables, losses, scores and step times.

Horovod's and NCCL's lines between them tell how many processes there were and on which hosts.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.report.foreign.failures import Failures
from paceline.report.foreign.run import Curve, ForeignRun
from paceline.report.foreign.text_lines import without_stamp
from paceline.schedule import ScheduleSettings

TOOL = "OpenSeq2Seq"

_MARKS = (
    "open_seq2seq",
    "*** Global step ",
    "*** Building graph in Horovod rank",
    "time per step = ",
)
_STEP = re.compile(r"(?:Epoch (\d+), )?[Gg]lobal step (\d+):(.*)")
_LOSS = re.compile(r"(?:Train loss:|loss =)\s*([-+\w.]+)")
_TIME = re.compile(r"time per step = (\d{1,4}):(\d{1,2}):(\d{1,2}(?:\.\d+)?)(?![\d.])")
_VALIDATION_LOSS = re.compile(r"Validation loss:\s*([-+\w.]+)")
# The tool itself writes BLUE; later versions write BLEU.
_SCORE = re.compile(r"Eval (BL[UE]{2}|[\w ]+?) score:?\s*([-+\w.]+)", re.IGNORECASE)
_WORD_ERRORS = re.compile(r"(?:Validation|Eval) (WER):?\s*([-+\w.]+)")
_PARAMETERS = re.compile(r"Total trainable parameters:\s*(\d+)")
_HOROVOD_RANK = re.compile(r"Building graph in Horovod rank: (\d+)")
_NCCL = re.compile(r"^(\S+?):\d+:\d+ \[\d+\] NCCL INFO")
_NUM_RANKS = re.compile(r"\bnranks (\d+)")
_STAMP = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d):\d\d")
_DEVICE = re.compile(r"^name: (.+?) major: \d")
_EPOCH_SIZE = re.compile(r"(\d+) steps in epoch", re.IGNORECASE)
_NOT_A_LITERAL = re.compile(r"<(?:class|function|bound method) '?([\w.]+)[^<>]*>|<dtype: '(\w+)'>")
_CONFIG_MOST_LINES = 2000


def is_openseq2seq(line: str) -> bool:
    return any(mark in line for mark in _MARKS)


def read(path: Path, lines: Iterator[str]) -> list[ForeignRun]:
    """The runs in a log, in order: a run that is started again appends to the same file."""
    reader = _Reader(path)
    for line in lines:
        reader.take(line, lines)
    return reader.finish()


@dataclass
class _Progress:
    """What is known of a run's lines only when all were seen."""

    has_head: bool = False
    """The log shows how the run was started: its first time holds the start-up."""
    first_step: int | None = None
    timed_step: int = -1
    num_timings: int = 0
    seconds: float = 0.0
    """Of all timings; each is the mean of as many steps as lie between two lines."""
    gaps: Counter[int] = field(default_factory=Counter)
    early: list[tuple[str, float]] = field(default_factory=list)
    """Evaluations before the first line with a step."""

    @property
    def spacing(self) -> int | None:
        """Steps between two lines; lost lines make some gaps longer, so the usual one counts."""
        usual = max(self.gaps.values(), default=0)
        return min((gap for gap, count in self.gaps.items() if count == usual), default=None)


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._runs: list[ForeignRun] = []
        self._progress_of: dict[int, _Progress] = {}
        self._run = self._begin()
        self._failures = Failures()

    def _begin(self) -> ForeignRun:
        run = ForeignRun(self._path, TOOL)
        run.step_times.how = "the mean that OpenSeq2Seq prints for the steps since its last line"
        run.gradient_how = (
            "4 bytes for each: OpenSeq2Seq turns gradients into 32 bits before Horovod adds them"
        )
        self._runs.append(run)
        self._progress_of[id(run)] = _Progress()
        self._hosts: dict[str, None] = {}
        self._devices: dict[str, None] = {}
        return run

    @property
    def _now(self) -> _Progress:
        return self._progress_of[id(self._run)]

    def take(self, line: str, lines: Iterator[str]) -> None:
        if "***" in line and (text := without_stamp(line)).startswith("***"):
            self._starred(text, lines)
        elif "time per step" in line:
            self._time(line)
        elif "NCCL INFO" in line or line.startswith(("name: ", "20")):
            self._machine(line)
        else:
            self._failures.look_at(line)

    def _starred(self, line: str, lines: Iterator[str]) -> None:
        if "EVAL " in line or "Train Source" in line or "Train Target" in line:
            return
        if "raining config" in line:
            self._config(lines)
        elif match := _STEP.search(line):
            self._progress(int(match[2]), match[3])
        elif match := _VALIDATION_LOSS.search(line):
            self._evaluation("", _number(match[1]))
        elif match := _SCORE.search(line) or _WORD_ERRORS.search(line):
            self._evaluation(_measure(match[1]), _number(match[2]))
        elif match := _PARAMETERS.search(line):
            self._run.num_parameters = int(match[1])
            self._now.has_head = True
        elif match := _HOROVOD_RANK.search(line):
            self._now.has_head = True
            self._count_world(int(match[1]) + 1, "Horovod's ranks in the log")
        elif match := _EPOCH_SIZE.search(line):
            self._run.steps_per_epoch = int(match[1])

    def _config(self, lines: Iterator[str]) -> None:
        config = _read_config(lines)
        if not config:
            return
        if self._run.training_loss or self._run.config:
            self._close()
            self._run = self._begin()
        self._now.has_head = True
        self._apply(config)

    def _apply(self, config: dict[str, Any]) -> None:
        run = self._run
        run.config = config
        run.steps_wanted = _whole(config.get("max_steps"))
        run.print_every_steps = _whole(config.get("print_loss_steps"))
        run.batch_per_process = _whole(config.get("batch_size_per_gpu"))
        if not config.get("use_horovod") and (num_gpus := _whole(config.get("num_gpus"))):
            self._count_world(num_gpus, "num_gpus in the printed configuration")

    def _progress(self, step: int, rest: str) -> None:
        if step == self._run.step and self._now.first_step is not None:
            return  # the same line once more
        if self._run.training_loss and step < self._run.step:
            self._close()
            before, self._run = self._run, self._begin()
            self._apply(before.config)
            self._run.num_parameters = before.num_parameters
        elif not self._run.training_loss:
            self._return_to_a_run_that_goes_on(step)
        run, now = self._run, self._now
        self._failures.went_on(run)
        if now.first_step is None:
            self._begin_at(step)
        elif step > run.step:
            now.gaps[step - run.step] += 1
        run.step = step
        if match := _LOSS.search(rest):
            run.training_loss.add(step, _number(match[1]))
        self._time(rest)

    def _return_to_a_run_that_goes_on(self, step: int) -> None:
        """A second start in the same log may fail while the first keeps training."""
        before = self._runs[-2] if len(self._runs) > 1 else None
        if before is None or not step or self._now.first_step is not None:
            return
        every = before.print_every_steps or self._progress_of[id(before)].spacing or 0
        if before.step + every == step:
            before.notes += [*self._runs.pop().notes, f"started again before step {step:,}"]
            before.failure = None
            self._run = before

    def _begin_at(self, step: int) -> None:
        """An evaluation before the first step is one of step 0 only if the run begins there."""
        run, now = self._run, self._now
        now.first_step = step
        if not now.early or step == 0 or now.has_head:
            self._put_early(0 if step <= (run.print_every_steps or 0) else step)
            return
        told = ", ".join(f"{name or 'validation loss'} {value:.4g}" for name, value in now.early)
        run.notes.append(f"left out, because the log does not tell its step: {told}")
        now.early = []

    def _put_early(self, step: int) -> None:
        early, self._now.early = self._now.early, []
        for name, value in early:
            self._add_evaluation(name, step, value)

    def _time(self, text: str) -> None:
        if not (match := _TIME.search(text)):
            return
        now, step = self._now, self._run.step
        if now.first_step is None or now.timed_step == step:
            return  # its step was cut off, or the line is there twice
        now.timed_step = step
        seconds = int(match[1]) * 3600 + int(match[2]) * 60 + float(match[3])
        if step == now.first_step and (now.has_head or step == 0):
            # Before its first line the tool divides its whole start-up by the steps between lines.
            self._run.start_up_seconds = seconds
            return
        self._run.step_times.add(step, seconds)
        now.num_timings += 1
        now.seconds += seconds

    def _evaluation(self, name: str, value: float) -> None:
        """Printed after the line of its step, or before the first one."""
        if self._now.first_step is None:
            self._now.early.append((name, value))
        else:
            self._add_evaluation(name, self._run.step, value)

    def _add_evaluation(self, name: str, step: int, value: float) -> None:
        scores = self._run.scores
        curve = scores.setdefault(name, Curve()) if name else self._run.validation_loss
        if curve.last is None or curve.last[0] < step:
            curve.add(step, value)

    def _machine(self, line: str) -> None:
        if match := _NCCL.match(line):
            self._hosts.setdefault(match[1])
            if count := _NUM_RANKS.search(line):
                self._count_world(int(count[1]), "NCCL's lines in the log")
        elif match := _DEVICE.match(line):
            self._devices.setdefault(match[1])
        elif match := _STAMP.match(line):
            self._run.began = self._run.began or match[1]

    def _count_world(self, world: int, how: str) -> None:
        if world > (self._run.world or 0):
            self._run.world, self._run.world_how = world, how

    def _close(self) -> None:
        run = self._run
        self._failures.ended(run)
        if self._now.has_head and self._now.first_step is None:
            self._put_early(0)
        run.hosts = tuple(dict.fromkeys([*run.hosts, *self._hosts]))
        run.devices = tuple(dict.fromkeys([*run.devices, *self._devices]))
        if run.world and run.batch_per_process:
            run.global_batch = run.world * run.batch_per_process
            run.batch_how = "batch_size_per_gpu in the printed configuration"
        run.has_end = run.steps_wanted is not None and run.step >= run.steps_wanted - 1

    def finish(self) -> list[ForeignRun]:
        self._close()
        for run in self._runs:
            _sum_times(run, self._progress_of[id(run)])
        return [run for run in self._runs if run.config or run.training_loss or run.failure]


def _sum_times(run: ForeignRun, progress: _Progress) -> None:
    every = run.print_every_steps or progress.spacing or 1
    run.print_every_steps = run.print_every_steps or progress.spacing
    times = run.step_times
    times.steps_per_timing = every
    times.num_steps = every * progress.num_timings
    times.total_seconds = every * progress.seconds
    if run.start_up_seconds is not None:
        run.start_up_seconds *= every
    first = progress.first_step
    if first is not None and first > every:
        run.first_step = first + 1 if progress.has_head else first - every + 1


def _measure(printed: str) -> str:
    return "BLEU" if printed.upper() in ("BLUE", "BLEU") else printed


def _read_config(lines: Iterator[str]) -> dict[str, Any]:
    """The dictionary that follows, printed over many lines."""
    text = ""
    for count, line in enumerate(lines):
        text += line + "\n"
        if count == 0 and not line.lstrip().startswith("{"):
            return {}
        if line.rstrip().endswith("}") and text.count("{") <= text.count("}"):
            break
        if count > _CONFIG_MOST_LINES:
            return {}
    try:
        value = ast.literal_eval(_NOT_A_LITERAL.sub(_as_literal, text).strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _as_literal(match: re.Match[str]) -> str:
    return repr(match[1] or match[2])


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def schedule_of(config: dict[str, Any]) -> ScheduleSettings | None:
    """From OpenSeq2Seq's `lr_policy` and `lr_policy_params`; None where ours has no such form."""
    given = config.get("lr_policy_params")
    policy = str(config.get("lr_policy", "")).rpartition(".")[2]
    if not isinstance(given, dict) or policy not in _MAKERS:
        return None
    settings = _MAKERS[policy](given)
    try:
        return ScheduleSettings.model_validate(settings) if settings else None
    except ValueError:
        return None


def _transformer(given: dict[str, Any]) -> dict[str, Any] | None:
    if given.get("max_lr") is not None:
        return None
    return {
        "policy": "transformer",
        "rate": given.get("learning_rate", 1.0) * given.get("coefficient", 1.0),
        "warmup_steps": given.get("warmup_steps"),
        "width": given.get("d_model"),
    }


def _fixed(given: dict[str, Any]) -> dict[str, Any] | None:
    return {"policy": "fixed", "rate": given.get("learning_rate")}


def _exponential(given: dict[str, Any]) -> dict[str, Any] | None:
    if given.get("use_staircase_decay") or given.get("begin_decay_at") or given.get("min_lr"):
        return None
    return {
        "policy": "exponential",
        "rate": given.get("learning_rate"),
        "factor": given.get("decay_rate"),
        "decay_steps": given.get("decay_steps"),
    }


_MAKERS = {"transformer_policy": _transformer, "fixed_lr": _fixed, "exp_decay": _exponential}
