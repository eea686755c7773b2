"""`reduce: auto`: kinds of exchange are timed before the first step, and the fastest is kept.

Steps of a trial are made with copies of the network and an optimizer of their own, which are thrown
away: nothing of it is training, so a run that is killed in the middle of it has lost nothing. What
was chosen is an event at once and part of every checkpoint; a run that goes on keeps it.
"""

import copy
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import nn

from paceline.config import dump
from paceline.machine.arithmetic import Arithmetic
from paceline.record import checkpoints as stored
from paceline.record.events import read_events
from paceline.record.phases import PhaseClock
from paceline.record.schema import RunDirectory
from paceline.schedule import rate_at
from paceline.settings import Recipe, ReduceSettings
from paceline.tasks.contract import Task
from paceline.train.reduce import choice
from paceline.train.reduce.hierarchy import hierarchical_share
from paceline.train.state import build_state
from paceline.train.step import Stepper, plan_step
from paceline.world import World

EVENT = "reduce"
_TIMED_STEPS = 3
_PASSES = _TIMED_STEPS + 2
"""With the rehearsal, and one step in which the optimizer makes its state."""
_PROBE_VALUES = 1 << 20

Note = Callable[..., None]


@dataclass(frozen=True)
class Trial:
    """What is needed to make steps with any kind of exchange."""

    recipe: Recipe
    task: Task
    network: nn.Module
    world: World
    arithmetic: Arithmetic

    def step_seconds(self, settings: ReduceSettings | None) -> float:
        """Of the slowest process; without any exchange where there are no settings."""
        recipe = _with(self.recipe, settings or ReduceSettings(kind="local", every=1 << 30))
        stepper = self._stepper(recipe)
        plan = plan_step(self.task, 0, self.world)
        batches = [self.task.micro_batch(index) for index in plan.mine]
        rate = rate_at(recipe.schedule, 1, recipe.steps)
        stepper.rehearse(plan, batches)
        seconds = []
        for _ in range(_TIMED_STEPS + 1):
            began = time.perf_counter()
            stepper.step(plan, batches, rate, want_norm=False)
            stepper.state.progress.step += 1
            self._wait_for_device()
            seconds.append(time.perf_counter() - began)
            stepper.take_measures()
        stepper.finish()
        stepper.exchange.close()
        (slowest,) = self.world.largest_of([int(1e6 * median(seconds[1:]))])
        return slowest / 1e6

    def _stepper(self, recipe: Recipe) -> Stepper:
        state = build_state(recipe, copy.deepcopy(self.network), self.world, self.arithmetic)
        clock = PhaseClock()
        return Stepper(recipe, self.arithmetic, self.task, state, self.world, clock)

    def _wait_for_device(self) -> None:
        if self.world.device.type == "cuda":
            torch.cuda.synchronize(self.world.device)

    def bytes_per_second(self) -> float:
        """That an all-reduce gets through, by one of a few megabytes."""
        values = torch.zeros(_PROBE_VALUES, device=self.world.device)
        seconds = 0.0
        for _ in range(2):  # the first makes connections
            self.world.largest_of([0])
            began = time.perf_counter()
            self.world.add_up(values)
            self._wait_for_device()
            seconds = time.perf_counter() - began
        (slowest,) = self.world.largest_of([int(1e9 * seconds)])
        return values.numel() * values.element_size() / max(slowest / 1e9, 1e-9)


def settle_exchange(trial: Trial, run: RunDirectory, note: Note) -> Recipe:
    """The recipe with a kind in place of auto: what was chosen before, else by a trial."""
    recipe, world = trial.recipe, trial.world
    if recipe.reduce.kind != "auto":
        return recipe
    if world.size == 1:
        return _with(recipe, recipe.reduce.model_copy(update={"kind": "plain"}))
    before = world.send_value(recorded_choice(run) if world.is_first else None)
    if before is not None:
        return _with(recipe, ReduceSettings.model_validate(before))
    return _with(recipe, _try_out(trial, note))


def _try_out(trial: Trial, note: Note) -> ReduceSettings:
    weights = [weight for weight in trial.network.parameters() if weight.requires_grad]
    known = choice.Measured(
        compute_seconds=trial.step_seconds(None),
        bytes_per_second=trial.bytes_per_second(),
        gradient_bytes=sum(weight.numel() * weight.element_size() for weight in weights),
        num_procs=trial.world.size,
        hierarchical_share=hierarchical_share(trial.world),
    )
    settings = trial.recipe.reduce
    kinds = choice.kinds_to_try(settings, known, on_cuda=trial.world.device.type == "cuda")
    found = _time_all(trial, known, kinds)
    chosen = choice.settings_of(choice.choose(kinds, found), known, settings)
    note(
        EVENT,
        step=0,
        text=choice.in_words(chosen, settings, found, known),
        chosen=dump(chosen),
        timed_seconds=found.timed,
        least_seconds=found.at_least,
    )
    return chosen


def _time_all(trial: Trial, known: choice.Measured, kinds: list[str]) -> choice.Found:
    """The most promising first, so that the hopeless need not be timed. What would be taken is
    timed again, and plain beside it: a moment's luck is no reason."""
    settings, found = trial.recipe.reduce, choice.Found()
    for kind in sorted(kinds, key=lambda kind: choice.least_seconds(kind, known, settings)):
        least = choice.least_seconds(kind, known, settings)
        if choice.is_worth_timing(least, known, found, _PASSES, trial.recipe.steps):
            found.timed[kind] = max(trial.step_seconds(_settings(trial, known, kind)), least)
        else:
            found.at_least[kind] = least
    again = {choice.choose(kinds, found), "plain"}
    for kind in sorted(again & found.timed.keys()) if len(again) > 1 else ():
        seconds = trial.step_seconds(_settings(trial, known, kind))
        found.timed[kind] = max(min(found.timed[kind], seconds), found.at_least.get(kind, 0.0))
    return found


def _settings(trial: Trial, known: choice.Measured, kind: str) -> ReduceSettings:
    return choice.settings_of(kind, known, trial.recipe.reduce)


def recorded_choice(run: RunDirectory) -> dict[str, Any] | None:
    """In the newest checkpoint that tells, else in the events: it is older than the first one."""
    for checkpoint in reversed(stored.all_checkpoints(run.checkpoints)):
        try:
            told = json.loads((checkpoint / stored.STATE).read_text(encoding="utf-8"))
            found = told["progress"].get("exchange")
        except (OSError, ValueError, LookupError, AttributeError, TypeError):
            continue
        if isinstance(found, dict):
            return found
    events = [event for event in read_events(run.rank_events(0)) if event["kind"] == EVENT]
    chosen = events[-1].get("chosen") if events else None
    return chosen if isinstance(chosen, dict) else None


def _with(recipe: Recipe, settings: ReduceSettings) -> Recipe:
    return recipe.model_copy(update={"reduce": settings})
