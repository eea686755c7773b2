"""The log of another tool as facts, with holes where it says nothing.

What the answers judge is the same for every run; only what is known differs.
"""

from dataclasses import replace
from statistics import median, quantiles
from typing import Any

import numpy as np

from paceline.record.schema import INPUT, NETWORK
from paceline.report.facts.consistency import checked
from paceline.report.facts.facts import (
    Facts,
    HostUse,
    Learning,
    Options,
    RankInput,
    Rate,
    Saving,
    Score,
    Slowest,
    StepTimes,
    TrainingSet,
    World,
)
from paceline.report.facts.learning import is_lower_better
from paceline.report.facts.network import predicted_per_step, seconds_on_link
from paceline.report.facts.trend import LEAST_POINTS, Points
from paceline.report.facts.verdict import Verdict, judge_shares
from paceline.report.foreign.counters.counters import CPU, DEVICE, SENT
from paceline.report.foreign.counters.host_use import Stretch, host_uses
from paceline.report.foreign.counters.host_use import in_words as counters_in_words
from paceline.report.foreign.imagenet_example import NUM_TRAINING_PICTURES
from paceline.report.foreign.imagenet_example import TOOL as PICTURES
from paceline.report.foreign.openseq2seq import schedule_of
from paceline.report.foreign.run import Curve, ForeignRun
from paceline.units import format_count

_ADAM_BYTES = 12
"""Per parameter: the weight and Adam's two averages, 4 bytes each."""
_HALF_BYTES = 2
"""More in mixed precision: the weight in 16 bits, beside its 32-bit copy."""
_DATA_SETTINGS = ("source_file", "target_file", "dataset_files", "dataset_path", "data_dir")
_ENDED = "ended"


def as_facts(run: ForeignRun, options: Options) -> Facts:
    facts = Facts(
        run=run.path,
        tool=run.tool,
        began=run.began,
        reason=_ENDED if run.has_end else "",
        first_step=run.first_step,
        failure=run.failure,
        step=run.step,
        steps_wanted=run.steps_wanted,
        steps_per_line=run.print_every_steps or 1,
        printed=run.config,
        begin={"unit": run.unit} if run.unit else {},
        num_parameters=run.num_parameters,
        loader_workers=run.loader_workers,
        warnings=[*run.notes, *(note for one in run.counters for note in one.notes)],
        options=options,
        wall_seconds=run.wall_seconds or _timed_seconds(run),
        wall_how=run.wall_how or "the printed times of steps, start-up and evaluations, added up",
        is_wall_estimated=run.wall_seconds is None,
        is_wall_whole=run.is_wall_whole,
        booked=_booked(run),
        pause_seconds=run.pause_seconds,
        num_steps=run.step_times.num_steps,
        step_times=_step_times(run),
        world=_world(run),
        learning=_learning(run),
        rate=_rate(run),
        data=_training_set(run),
        saving=_saving(run),
    )
    return checked(replace(facts, verdict=_verdict(facts, run)))


def _timed_seconds(run: ForeignRun) -> float:
    """Every time that the log prints, where it does not print how long it took in all."""
    others = (run.start_up_seconds or 0.0) + (run.evaluation_seconds or 0.0)
    return run.step_times.total_seconds + others


def _booked(run: ForeignRun) -> dict[str, float]:
    """By purpose, as far as they are told apart; they add up to the wall time. Of a log that begins
    in the middle only the end is known, so it says nothing of the whole."""
    if run.is_wall_whole and run.first_step and run.step_times.num_steps < run.step:
        return {}
    parts = {
        "training": run.step_times.total_seconds,
        "start_up": run.start_up_seconds or 0.0,
        "evaluation": run.evaluation_seconds or 0.0,
    }
    rest = (run.wall_seconds or _timed_seconds(run)) - sum(parts.values())
    name = "rest" if run.evaluation_seconds else "evaluation_and_rest"
    if parts["training"] and rest > 0:
        parts[name] = rest
    return {name: seconds for name, seconds in parts.items() if seconds}


def _step_times(run: ForeignRun) -> StepTimes | None:
    times = run.step_times
    values = [seconds for _, seconds in times.curve.points]
    mean = times.mean_seconds
    if not values and mean is None:
        return None
    # A slow first step, or an evaluation between two lines, does not move the median.
    middle = median(values) if values else mean or 0.0
    low, high = None, None
    if len(values) >= LEAST_POINTS:
        low, *_, high = quantiles(values, n=20, method="inclusive")
    return StepTimes(
        num_steps=times.num_steps,
        median_seconds=middle,
        mean_seconds=mean if mean is not None else middle,
        low_seconds=low,
        high_seconds=high,
        timings=np.array(values),
        steps_per_timing=times.steps_per_timing,
        num_timings=times.curve.num_points,
        units_per_second=run.units_per_second,
        is_sample=times.is_sample and times.curve.num_points < times.num_steps,
        slowest=Slowest(*times.slowest) if times.slowest is not None else None,
        how=times.how,
    )


def _world(run: ForeignRun) -> World:
    gradients, parts = None, ""
    if run.num_parameters:
        gradients = float(run.num_parameters * run.gradient_bytes_each)
        count = format_count(run.num_parameters)
        parts = f"{count} parameters x {run.gradient_bytes_each} bytes"
    stretch = Stretch(run.begin_time, run.end_time)
    return World(
        size=run.world,
        how=run.world_how,
        num_hosts=len(run.hosts) or None,
        host_names=run.hosts,
        device_names=run.devices,
        rank_inputs=tuple(
            RankInput(rank.name, rank.input_share)
            for rank in run.ranks
            if rank.input_share is not None
        ),
        main_cpu_seconds=run.cpu_seconds or 0.0,
        gradient_bytes=gradients,
        gradient_parts=parts,
        gradient_how=run.gradient_how,
        hosts=_hosts(run),
        counters_how=counters_in_words(run.counters, stretch, (DEVICE, CPU)),
        traffic_how=counters_in_words(run.counters, stretch, (SENT,)),
    )


def _hosts(run: ForeignRun) -> list[HostUse]:
    """By the logs of tools that watched the machines meanwhile."""
    stretch = Stretch(run.begin_time, run.end_time)
    seconds, num_steps = run.step_times.mean_seconds or 0.0, run.step_times.num_steps
    return host_uses(run.counters, stretch, seconds, num_steps)


def _learning(run: ForeignRun) -> Learning:
    loss = run.training_loss
    validation = {**run.scores, "loss": run.validation_loss}
    return Learning(
        loss=_points(loss),
        not_finite_from=loss.not_finite_from,
        not_finite_at=loss.first_not_finite,
        scores=_scores("validation", validation),
        progress_scores=_scores("training", run.training_scores),
        best_by=(best_by := next(iter(run.scores), "")),
        lower_is_better=is_lower_better(best_by),
    )


def _points(curve: Curve) -> Points:
    return Points.of(curve.points)


def _scores(split: str, curves: dict[str, Curve]) -> list[Score]:
    """What was scored at each step, with the measures in the order of the curves."""
    by_step: dict[int, dict[str, float]] = {}
    for name, curve in curves.items():
        for step, value in curve.points:
            by_step.setdefault(step, {})[name] = value
    return [Score(step, split, by_step[step]) for step in sorted(by_step)]


def _rate(run: ForeignRun) -> Rate:
    schedule = schedule_of(run.config)
    if schedule is not None:
        return Rate(schedule, how="computed from the printed configuration")
    policy = run.config.get("lr_policy")
    given = run.config.get("lr_policy_params")
    told = f"{policy} with {given}" if policy else ""
    return Rate(logged=_points(run.rate), policy=told, how="as logged")


def _training_set(run: ForeignRun) -> TrainingSet:
    given = run.config.get("data_layer_params")
    settings = given if isinstance(given, dict) else {}
    named = tuple(str(settings[name]) for name in _DATA_SETTINGS if settings.get(name))
    fits = bool(run.tool == PICTURES and run.steps_per_epoch and run.global_batch)
    return TrainingSet(
        named=named,
        steps_per_epoch=run.steps_per_epoch,
        num_known_samples=NUM_TRAINING_PICTURES if fits else None,
        global_batch=run.global_batch,
        batch_how=run.batch_how,
    )


def _saving(run: ForeignRun) -> Saving:
    every: Any = run.config.get("save_checkpoint_steps")
    is_adam = "adam" in str(run.config.get("optimizer", "")).lower()
    is_mixed = "mixed" in str(run.config.get("dtype", "")).lower()
    size = (
        checkpoint_bytes(run.num_parameters, is_mixed) if run.num_parameters and is_adam else None
    )
    is_known = isinstance(every, int) and every > 0
    return Saving(every_steps=every if is_known else None, predicted_bytes=size)


def checkpoint_bytes(num_parameters: int, is_mixed: bool) -> int:
    """With Adam's state."""
    return (_ADAM_BYTES + _HALF_BYTES * is_mixed) * num_parameters


def _verdict(facts: Facts, run: ForeignRun) -> Verdict:
    """From the waits that the log prints and the bytes that the link has to carry."""
    times = facts.step_times
    step_seconds = times.typical_seconds if times is not None else 0.0
    waits, lacking = {}, []
    if run.step_times.input_share is not None:
        waits[INPUT] = run.step_times.input_share
    else:
        lacking.append("how long a step waits for its batch")
    on_link = seconds_on_link(facts)
    if on_link is not None and step_seconds:
        waits[NETWORK] = on_link / step_seconds
    elif facts.world.size != 1:
        has_ring = predicted_per_step(facts) is not None and facts.world.num_hosts != 1
        lacking.append("the speed of the link (`--link`)" if has_ring else "what it sent")
    return judge_shares(waits, step_seconds, run.step_times.num_steps, lacking)
