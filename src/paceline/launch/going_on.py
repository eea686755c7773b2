"""Going on with a run: whether there is anything to go on with, or left to do, and what becomes of
the learning rate. What may change is marked in the settings (`fixed`), and checked in `recipe.py`.
"""

import math
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from paceline import config
from paceline.errors import Say, UserError
from paceline.recipe import read_settings, refuse_meaningless_change
from paceline.record.checkpoints import all_checkpoints, damage, step_of
from paceline.record.directory import read_launch, refuse_newer
from paceline.record.events import parse_events, spread_lines
from paceline.record.schema import RunDirectory
from paceline.schedule import ScheduleSettings, batch_scale, rate_at
from paceline.settings import Recipe
from paceline.units import format_number

if TYPE_CHECKING:
    from paceline.launch.claim import Job

_MOST_SAMPLES = 1000
_JUMP = 0.1
"""By what share of itself the rate may change in one step, beside what the plan does anyway."""


def newest_step(run: RunDirectory) -> int:
    """Of the newest checkpoint: where a run goes on."""
    return max((step_of(path) for path in all_checkpoints(run.checkpoints)), default=0)


def is_trained(run: RunDirectory) -> bool:
    """Whether any step was made, as far as this directory knows."""
    launch = read_launch(run)
    is_elsewhere = bool(launch.get("collect_from")) and launch.get("code") is None
    if is_elsewhere or all_checkpoints(run.checkpoints):
        return True
    lines = (line for path in run.events.glob("rank-*.jsonl") for line in spread_lines(path))
    return any(event.get("step", 0) > 0 for event in parse_events(lines))


def clear_untrained(run: RunDirectory) -> None:
    """Take away what starts have left that never made a step; what was printed stays. Hosts that
    keep their own events have this attempt in them, so that it must stay counted."""
    if not run.path.is_dir() or is_trained(run) or read_launch(run).get("collect_from"):
        return
    for path in (run.environment, run.launch, run.stop_request):
        path.unlink(missing_ok=True)
    for folder in (run.events, run.tensorboard):
        shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        run.checkpoints.rmdir()


@contextmanager
def forgetting_untrained(run: RunDirectory) -> Iterator[None]:
    """When it ends without a step, nothing is left that would be listed as a run or refuse another
    seed. A recipe that a user put there is as it was."""
    was_launched = run.launch.exists() or run.launcher_events.exists()
    users = run.recipe.read_bytes() if run.exists() and not was_launched else None
    try:
        yield
    finally:
        if run.path.is_dir() and not is_trained(run):
            clear_untrained(run)
            if users is None:
                run.recipe.unlink(missing_ok=True)
            else:
                run.recipe.write_bytes(users)


def is_finished(job: "Job", say: Say) -> bool:
    """Whether nothing is left to do, which is said then. Fewer steps than trained are refused."""
    run, steps = job.run, job.recipe.steps
    if not run.exists() or not is_trained(run):
        return False
    refuse_newer(run)
    refuse_meaningless_change(read_settings(run.recipe), job.recipe, run.path)
    trained = newest_step(run)
    if trained > steps:
        raise UserError(
            f"{run.path} has been trained for {trained:,} steps already, and steps={steps} is less",
            f"to go further give more, e.g. steps={2 * trained}; to begin anew name another --run",
        )
    if trained < steps or damage(all_checkpoints(run.checkpoints)[-1]) is not None:
        return False
    say(f"{run.path} is finished: all {steps:,} steps are trained. To go further:")
    say(f"  {_with_steps(job.command, 2 * steps)}")
    say("To begin anew, name another --run.")
    return True


def _with_steps(command: str, steps: int) -> str:
    """What the user typed, with another number of steps."""
    kept: list[str] = []
    words = iter(shlex.split(command))
    for word in words:
        name = word.lstrip("-").partition("=")[0]
        if name not in ("steps", "epochs"):
            kept.append(word)
        elif "=" not in word:
            next(words, None)
    return shlex.join([*kept, f"steps={steps}"])


@dataclass(frozen=True)
class RatePlan:
    """The learning rate over all steps of a run."""

    schedule: ScheduleSettings
    steps: int
    scale: float = 1.0
    """What the size of the batch multiplies it with."""

    def at(self, step: int) -> float:
        return rate_at(self.schedule, step, self.steps) * self.scale

    def course_after(self, step: int) -> str:
        """What the rate does from the step after this one: '0.21 at step 61, 0.003 at step 120'."""
        rates = {s: self.at(s) for s in _spread(step + 1, self.steps)}
        first, last = step + 1, self.steps
        highest = max(rates, key=lambda s: rates[s])
        told = [first, *([highest] if highest not in (first, last) else []), last]
        return ", ".join(f"{format_number(rates[s])} at step {s:,}" for s in dict.fromkeys(told))


def _spread(first: int, last: int) -> list[int]:
    """Steps from first to last, both among them, evenly spread where there are many."""
    count = min(last - first + 1, _MOST_SAMPLES)
    if count <= 1:
        return [last]
    return [first + (last - first) * n // (count - 1) for n in range(count)]


def rate_plan(recipe: Recipe, num_procs: int) -> RatePlan:
    scale = batch_scale(recipe.schedule, recipe.whole_batch(num_procs or 1))
    return RatePlan(recipe.schedule, recipe.steps, scale)


def changed_rate(job: "Job", old_settings: dict[str, Any]) -> str | None:
    """What becomes of the learning rate when the job goes on with a run of these settings."""
    kind, batch = type(job.recipe), job.recipe.batch
    if batch.per_device and not job.num_procs and job.recipe.schedule.scaling != "none":
        return None  # how many processes the hosts start, and with it the rate, is not known yet
    try:
        old = kind.model_validate(config.with_defaults(old_settings, kind))
    except ValidationError:
        return None
    step = newest_step(job.run)
    plans = rate_plan(old, job.num_procs), rate_plan(job.recipe, job.num_procs)
    return rate_change_in_words(*plans, step, recorded_rate(job.run, step))


def recorded_rate(run: RunDirectory, step: int) -> float | None:
    """That the first process used in this step; a checkpoint's step always ends a line."""
    mark = f'"step": {step},'.encode()
    lines = (line for line in spread_lines(run.rank_events(0)) if mark in line)
    rates = [e["rate"] for e in parse_events(lines) if e["kind"] == "steps" and e["step"] == step]
    return float(rates[-1]) if rates else None


def rate_change_in_words(
    old: RatePlan, new: RatePlan, step: int, recorded: float | None = None
) -> str | None:
    """None where the rates to come are those that were planned, or where nothing was trained."""
    if not 0 < step < new.steps:
        return None
    before = old.at(step) if recorded is None else recorded
    if not _differs(old, new, step, before):
        return None
    after = new.at(step + 1)
    natural = new.at(step + 1) - new.at(step)  # how far this plan moves in a step anyway
    if abs(after - before) <= abs(natural) + _JUMP * before:
        was = f" (planned before: {old.course_after(step)})" if step < old.steps else ""
        return f"  learning rate from here on: {new.course_after(step)}{was}"
    up = "; a jump upwards usually makes the loss worse at first" if after > before else ""
    return (
        f"  warning: the learning rate jumps from {format_number(before)} (step {step:,}) to "
        f"{format_number(after)} (step {step + 1:,}){_reason(old, new)}\n"
        f"    then: {new.course_after(step)}{up}\n"
        f"    to keep it smooth, press Ctrl-C and {_smooth_way(old, new, step, before)}"
    )


def _differs(old: RatePlan, new: RatePlan, step: int, before: float) -> bool:
    """From what was planned; or the step before was made by yet another plan."""
    if step >= old.steps or not math.isclose(before, new.at(step), rel_tol=1e-6):
        return True
    common = _spread(step + 1, min(old.steps, new.steps))
    return any(not math.isclose(old.at(s), new.at(s), rel_tol=1e-6) for s in common)


def _reason(old: RatePlan, new: RatePlan) -> str:
    if old.schedule != new.schedule or old.steps == new.steps:
        return ""
    return (
        f"\n    why: '{new.schedule.policy}' spreads over all steps of the run, and these change "
        f"from {old.steps:,} to {new.steps:,}"
    )


def _smooth_way(old: RatePlan, new: RatePlan, step: int, before: float) -> str:
    stay = f"add schedule.policy=fixed schedule.rate={before / new.scale:.4g}"
    stay += " schedule.warmup_steps=0" if new.schedule.warmup_steps else ""
    stay += " (the rate stays where it was)"
    anew = f"begin anew with steps={new.steps} in another --run"
    if step >= old.steps or old.steps == new.steps:
        return f"{stay}, or {anew}"
    return f"give steps={old.steps} again, or {anew}, or {stay}"
