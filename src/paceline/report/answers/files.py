"""Answers about what lies on disk: the training set, and a checkpoint with its cost."""

import math
from typing import Any

from paceline.report.answers.answer import QUESTIONS, Answer
from paceline.report.answers.words import go_on, listed
from paceline.report.facts.facts import CheckpointContents, DataCard, Facts
from paceline.units import count_of, format_bytes, format_count, format_seconds, percent

_HIGH_SHARE = 0.05


def data(facts: Facts) -> Answer:
    if facts.data.card is not None:
        return _by_card(facts, facts.data.card)
    counts = _counted(facts)
    if counts:
        return _by_task(facts, counts)
    if facts.is_own:
        return Answer(
            "data",
            QUESTIONS["data"],
            f"Not known here: the data '{listed([*facts.data.named])}' is not on this machine.",
            missing="the data's card.json; set PACELINE_DATA to where the data lies",
        )
    return _by_settings(facts)


def _by_card(facts: Facts, card: DataCard) -> Answer:
    counts = card.train_counts or card.num_by_split
    shown = [f"{count:,} {name}" for name, count in counts.items()]
    others = [f"{n:,} {split}" for split, n in card.num_by_split.items() if split != "train"]
    kind = "A stand-in that Paceline made: " if card.is_stand_in else ""
    sentence = f"{kind}{format_bytes(card.total_bytes)} with {listed(shown)} for training"
    sentence += f" ({listed(others)} besides)." if others else "."
    epochs = facts.data.epochs
    if epochs:
        sentence += f" The run went through it {epochs:.1f} times."
    if card.is_other:
        sentence += " It has been prepared anew since: the run was trained on something else."
    figures: dict[str, Any] = {
        "total_bytes": card.total_bytes,
        "train": card.train_counts,
        "num_by_split": card.num_by_split,
        "epochs": epochs,
        "is_stand_in": card.is_stand_in,
        "is_other": card.is_other,
    }
    how = f"the data card in {card.directory}"
    return Answer("data", QUESTIONS["data"], sentence, figures, how)


def _counted(facts: Facts) -> dict[str, int]:
    """Samples by split, as a task without a card counted them when it opened its data."""
    told = facts.begin.get("split_sizes") if facts.begin else None
    if not isinstance(told, dict):
        return {}
    return {str(name): num for name, num in told.items() if type(num) is int and num >= 0}


def _by_task(facts: Facts, counts: dict[str, int]) -> Answer:
    others = [f"{num:,} {split}" for split, num in counts.items() if split != "train"]
    sentence = f"{count_of(counts.get('train', 0), 'sample')} for training"
    sentence += f" ({listed(others)} besides)." if others else "."
    epochs = facts.data.epochs
    if epochs:
        sentence += f" The run went through it {epochs:.1f} times."
    figures: dict[str, Any] = {"num_by_split": counts, "epochs": epochs}
    how = "counted by the task when it opened its data"
    return Answer("data", QUESTIONS["data"], sentence, figures, how)


def _by_settings(facts: Facts) -> Answer:
    """What the number of batches and the files that were named tell without the data itself."""
    known, sentences = facts.data, []
    figures: dict[str, Any] = {}
    if known.named:
        figures["files"] = list(known.named)
        sentences.append(f"The configuration names {listed([*known.named])}.")
    if known.steps_per_epoch:
        figures["steps_per_epoch"] = known.steps_per_epoch
        text = f"An epoch is {known.steps_per_epoch:,} batches"
        if known.num_known_samples:
            figures |= {"num_pictures": known.num_known_samples, "global_batch": known.global_batch}
            text += (
                f", which fits the {known.num_known_samples:,} pictures of ILSVRC 2012 in batches "
                f"of {known.global_batch:,} and no other size"
            )
        sentences.append(f"{text}.")
    if known.global_batch and facts.step:
        seen = figures["num_samples_seen"] = known.global_batch * facts.step
        sentences.append(f"{format_count(seen)} samples were drawn in {facts.step:,} steps.")
    return Answer(
        "data",
        QUESTIONS["data"],
        " ".join(sentences) or "The log does not tell.",
        figures,
        known.batch_how,
        "bytes, lines or pictures, tokens: look at the files; "
        "`paceline data` writes a card with them",
    )


def checkpoint(facts: Facts) -> Answer:
    if not facts.is_own:
        return _checkpoint_of_log(facts)
    held, cost = facts.saving.newest, facts.saving.cost
    parts = [_holds(facts, held)] if held else ["No whole checkpoint is there."]
    figures: dict[str, Any] = {"num_saves": cost.num_saves, "num_failed": cost.num_failed}
    if held:
        figures |= _content_figures(facts, held)
    if cost.num_saves or cost.num_failed:
        parts.append(_saving(facts))
        figures |= _cost_figures(facts)
    missing = "" if held else "a checkpoint; checkpoint.every_steps says when one is saved"
    return Answer(
        "checkpoint",
        QUESTIONS["checkpoint"],
        " ".join(parts),
        figures,
        "sizes from the manifest; the loop's standing still from its clock; "
        "writing and hashing go on in a thread beside it",
        missing,
        _save_less(facts),
    )


def _checkpoint_of_log(facts: Facts) -> Answer:
    figures: dict[str, Any] = {}
    sentences, remedy = [], ""
    size, every = facts.saving.predicted_bytes, facts.saving.every_steps
    if size and facts.num_parameters:
        figures["predicted_bytes"] = size
        sentences.append(
            f"With Adam's two averages a checkpoint holds {size / facts.num_parameters:g} bytes "
            f"for each of {format_count(facts.num_parameters)} parameters, about "
            f"{format_bytes(size)}."
        )
    if every:
        figures["every_steps"] = every
        text = f"It was set to save every {every:,} steps"
        if every > (facts.steps_wanted or facts.step):
            text += (
                ", which is more than the whole run has, so besides a best one kept at evaluations "
                "a crash loses everything"
            )
            remedy = "save more often (`save_checkpoint_steps`; here `checkpoint.every_steps=1000`)"
        sentences.append(f"{text}.")
    return Answer(
        "checkpoint",
        QUESTIONS["checkpoint"],
        " ".join(sentences) or "The log does not tell.",
        figures,
        missing="the files themselves, and how long a save held the steps up; "
        "`paceline checkpoint RUN` lists them file by file",
        remedy=remedy,
    )


def _num_parameters(facts: Facts, held: CheckpointContents) -> int:
    return int(facts.num_parameters or held.num_weights or 1)


def _holds(facts: Facts, held: CheckpointContents) -> str:
    count = _num_parameters(facts, held)
    files = [
        f"{name} {format_bytes(size)} ({size / count:.2f} bytes per parameter)"
        if size >= 0.005 * held.total_bytes
        else f"{name} {format_bytes(size)}"
        for name, size in sorted(held.bytes_by_file.items(), key=lambda file: (-file[1], file[0]))
    ]
    return f"{format_bytes(held.total_bytes)}: {listed(files)}."


def _content_figures(facts: Facts, held: CheckpointContents) -> dict[str, Any]:
    count = _num_parameters(facts, held)
    return {
        "total_bytes": held.total_bytes,
        "bytes_by_file": held.bytes_by_file,
        "bytes_per_parameter": held.total_bytes / count,
        "num_parameters": count,
        "step": held.step,
    }


def _stall_per_save(facts: Facts) -> float:
    cost = facts.saving.cost
    return cost.stall_seconds / max(cost.num_saves + cost.num_failed, 1)


def _share_at(facts: Facts, every_steps: int) -> float:
    """Share of the time that saving every so many steps would take."""
    step_seconds = facts.verdict.step_seconds * (1 - facts.verdict.shares.get("checkpoint", 0))
    each = _stall_per_save(facts)
    return each / (each + every_steps * step_seconds) if step_seconds else math.nan


def _saving(facts: Facts) -> str:
    cost, wall, every = facts.saving.cost, facts.wall_seconds, facts.saving.every_steps
    share = percent(cost.stall_seconds / wall) if wall else "?"
    failed = f", {cost.num_failed:,} failed" if cost.num_failed else ""
    stood, each = format_seconds(cost.stall_seconds), format_seconds(_stall_per_save(facts))
    text = (
        f"{count_of(cost.num_saves, 'save')}{failed}: the run stood still for {stood} ({share}), "
        f"{each} each; written in the background in {format_seconds(cost.background_seconds)}."
    )
    if every and facts.verdict.step_seconds:
        often = max(every // 10, 1)
        text += (
            f" Every {every:,} steps costs {percent(_share_at(facts, every))} of the loop; "
            f"every {often:,} would cost {percent(_share_at(facts, often))}, "
            f"every {every * 10:,} {percent(_share_at(facts, every * 10))}."
        )
    return text


def _cost_figures(facts: Facts) -> dict[str, Any]:
    cost, every = facts.saving.cost, facts.saving.every_steps
    figures: dict[str, Any] = {
        "stall_seconds": cost.stall_seconds,
        "stall_seconds_per_save": _stall_per_save(facts),
        "background_seconds": cost.background_seconds,
    }
    if every and facts.verdict.step_seconds:
        figures["every_steps"] = every
        figures["share_by_every_steps"] = {
            str(n): _share_at(facts, n) for n in (max(every // 10, 1), every, every * 10)
        }
    return figures


def _save_less(facts: Facts) -> str:
    every = facts.saving.every_steps
    if not every or not facts.saving.cost.num_saves:
        return ""
    if facts.verdict.shares.get("checkpoint", 0.0) < _HIGH_SHARE:
        return ""
    return f"save less often: {go_on(facts.run, f'checkpoint.every_steps={every * 10}')}"
