"""What Hugging Face's Trainer logs, printed or in `trainer_state.json`, as facts."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from paceline.report.foreign.run import Curve, ForeignRun
from paceline.report.foreign.tags import by_importance, meaning_of

_HOW = (
    "train_runtime without the evaluations, over its steps; saving checkpoints and everything else "
    "between steps is in it"
)
_ASIDE = ("_runtime", "_per_second", "_samples", "_steps_per_second", "_jit_compilation_time")


_MOST_EPOCHS = 1e9


class Entry(NamedTuple):
    values: dict[str, float]
    epoch: float | None = None
    step: int | None = None


def epoch_of(values: dict[str, float]) -> float | None:
    """None where it is none, or damaged."""
    epoch = values.get("epoch")
    return epoch if epoch is not None and 0 <= epoch < _MOST_EPOCHS else None


def fill_from_entries(
    run: ForeignRun, entries: Sequence[Entry], per_epoch: float | None, total: int | None
) -> None:
    """`per_epoch` are the steps of an epoch where they are known, `total` those of the run."""
    per_epoch = per_epoch or _steps_per_epoch(entries)
    steps = _steps_of(entries, per_epoch)
    is_counted = steps is None
    for step, entry in zip(steps or range(1, len(entries) + 1), entries, strict=True):
        _fill_curves(run, step, entry.values)
    run.scores = {name: run.scores[name] for name in by_importance(run.scores)}
    if is_counted:
        run.notes.append(
            "the log names no steps: what is called a step here is a logged line, "
            "of which the trainer writes one every `logging_steps` steps"
        )
    else:
        _fill_times(run, entries)
    if per_epoch and not is_counted:
        run.steps_per_epoch = round(per_epoch)
    first, spacing = run.training_loss.first, run.training_loss.spacing
    if first and spacing and not is_counted and first[0] > 2 * spacing:
        run.first_step = first[0]
    if total and run.step >= total:
        run.has_end = True


def _steps_of(entries: Sequence[Entry], per_epoch: float | None) -> list[int] | None:
    """As they are told, else from the epochs; None where the log says nothing of steps."""
    if all(entry.step is not None for entry in entries):
        return [entry.step or 0 for entry in entries]
    if not per_epoch or any(entry.epoch is None for entry in entries):
        return None
    guessed = [(entry.epoch or 0.0) * per_epoch for entry in entries]
    every = _logging_steps(
        [g for g, e in zip(guessed, entries, strict=True) if "loss" in e.values], per_epoch
    )
    if not every:
        return [round(guess) for guess in guessed]
    return _on_multiples(guessed, entries, every, per_epoch)


def _on_multiples(
    guessed: Sequence[float], entries: Sequence[Entry], every: int, per_epoch: float
) -> list[int]:
    """Epochs have two digits, which may be hundreds of steps; losses come every so many steps.
    Where an epoch is not of whole steps, the guess is less and less right."""
    steps: list[int] = []
    num_losses = 0
    for guess, entry in zip(guessed, entries, strict=True):
        error = _rounding(per_epoch) + guess / per_epoch
        if "loss" not in entry.values:
            steps.append(steps[-1] if steps and abs(steps[-1] - guess) <= error else round(guess))
            continue
        num_losses += 1
        counted, nearest = num_losses * every, round(guess / every) * every
        is_ambiguous = error >= every / 2 and abs(counted - guess) <= error
        steps.append(counted if is_ambiguous else nearest)
    return steps


def _rounding(per_epoch: float) -> float:
    """By how many steps an epoch with two digits may be wrong."""
    return 0.5 + 0.005 * per_epoch


def _logging_steps(guessed: Sequence[float], per_epoch: float) -> int | None:
    """The distance of which all logged steps are multiples, as far as rounding lets it be seen:
    the usual one between two lines, or where that is lost in the rounding, the mean."""
    if len(guessed) < 3 or guessed[-1] <= 0:
        return None
    usual = median(b - a for a, b in pairwise(guessed))
    if usual > 4 * _rounding(per_epoch):
        every = round(usual)
        return every if _are_multiples(guessed, every, per_epoch) else None
    mean = guessed[-1] / len(guessed)
    every = round(mean)
    fits = every > 0 and abs(mean - every) < (0.25 / len(guessed) + 1 / per_epoch) * every
    return every if fits else None


def _are_multiples(guessed: Sequence[float], every: int, per_epoch: float) -> bool:
    near = [
        abs(guess - round(guess / every) * every) <= _rounding(per_epoch) + guess / per_epoch
        for guess in guessed
    ]
    return sum(near) >= 0.9 * len(near)


def _steps_per_epoch(entries: Sequence[Entry]) -> float | None:
    """From the summary at the end: its rate times its time are the steps of all its epochs."""
    for entry in reversed(entries):
        rate, seconds = (
            entry.values.get("train_steps_per_second"),
            entry.values.get("train_runtime"),
        )
        if rate and seconds and entry.epoch and 20 < rate * seconds < _MOST_EPOCHS:
            exact = round(rate * seconds)
            # The rate is printed with three digits after the point: that must settle the count.
            if 0.0005 * seconds < 0.5:
                return exact / entry.epoch
    return None


def _fill_curves(run: ForeignRun, step: int, values: dict[str, float]) -> None:
    run.step = max(run.step, step)
    if "train_runtime" in values:
        run.wall_seconds = values["train_runtime"]
        run.wall_how = "train_runtime, which the trainer logs at its end"
        run.is_wall_whole = True
        run.has_end = True
        return
    last = run.training_loss.last
    if "loss" in values and last is not None and last[0] == step:
        return  # printed twice
    rate = values.get("learning_rate")
    if rate is not None and "loss" in values:
        run.rate.add(step, rate)
    for name, value in values.items():
        if name == "loss":
            run.training_loss.add(step, value)
        elif name == "eval_runtime":
            run.evaluation_seconds = (run.evaluation_seconds or 0.0) + value
        elif name.startswith("eval_") and not name.endswith(_ASIDE):
            _fill_evaluated(run, step, name, value)


def _fill_evaluated(run: ForeignRun, step: int, name: str, value: float) -> None:
    meaning = meaning_of(name)
    short = name.removeprefix("eval_")
    if name == "eval_loss":
        run.validation_loss.add(step, value)
    elif name == "eval_wer":
        run.scores.setdefault("WER", Curve()).add(step, value)
    elif meaning is not None and meaning.kind == "score":
        # With several validation sets each has a name of its own: 'eval_news_accuracy'.
        is_plain = short.lower() in (meaning.name.lower(), meaning.name.lower().replace("-", "_"))
        curve = run.scores.setdefault(meaning.name if is_plain else short, Curve())
        if curve.last is None or curve.last[0] != step:
            curve.add(step, value)


def _fill_times(run: ForeignRun, entries: Sequence[Entry]) -> None:
    wall = run.wall_seconds
    if not wall or not run.step:
        return
    times = run.step_times
    times.num_steps = run.step
    times.total_seconds = max(wall - (run.evaluation_seconds or 0.0), 0.0)
    times.how = _HOW
    rate = next((e.values.get("train_samples_per_second") for e in reversed(entries)), None)
    if rate and times.total_seconds and run.step >= (run.steps_wanted or run.step):
        # Its rate is over everything, and for the steps that were planned.
        run.unit, run.units_per_second = "sample", rate * wall / times.total_seconds
