"""Answers about what lies on disk: the training set, and a checkpoint with its cost."""

import math
from typing import Any

from paceline.report.answer import QUESTIONS, Answer
from paceline.report.checkpoint import CheckpointContents
from paceline.report.summary import Summary
from paceline.report.wording import go_on, listed, percent
from paceline.units import count_of, format_bytes, format_seconds

_HIGH_SHARE = 0.05


def data(summary: Summary) -> Answer:
    card = summary.data
    if card is None:
        return Answer(
            "data",
            QUESTIONS["data"],
            f"Not known here: the data '{summary.settings.get('data')}' is not on this machine.",
            missing="the data's card.json; set PACELINE_DATA to where the data lies",
        )
    counts = card.train_counts or card.num_by_split
    shown = [f"{count:,} {name}" for name, count in counts.items()]
    others = [f"{n:,} {split}" for split, n in card.num_by_split.items() if split != "train"]
    kind = "A stand-in that Paceline made: " if card.is_stand_in else ""
    sentence = f"{kind}{format_bytes(card.total_bytes)} with {listed(shown)} for training"
    sentence += f" ({listed(others)} besides)." if others else "."
    epochs = _epochs(summary)
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
    return Answer(
        "data", QUESTIONS["data"], sentence, figures, f"the data card in {card.directory}"
    )


def _epochs(summary: Summary) -> float | None:
    column = summary.curves["epochs"]
    last = float(column[-1]) if len(column) else math.nan
    return last if math.isfinite(last) else None


def checkpoint(summary: Summary) -> Answer:
    held, cost = summary.checkpoint, summary.checkpoint_cost
    parts = [_holds(summary, held)] if held else ["No whole checkpoint is there."]
    figures: dict[str, Any] = {"num_saves": cost.num_saves, "num_failed": cost.num_failed}
    if held:
        figures |= _content_figures(summary, held)
    if cost.num_saves or cost.num_failed:
        parts.append(_saving(summary))
        figures |= _cost_figures(summary)
    missing = "" if held else "a checkpoint; checkpoint.every_steps says when one is saved"
    return Answer(
        "checkpoint",
        QUESTIONS["checkpoint"],
        " ".join(parts),
        figures,
        "sizes from the manifest; the loop's standing still from its clock; "
        "writing and hashing go on in a thread beside it",
        missing,
        _save_less(summary),
    )


def _num_parameters(summary: Summary, held: CheckpointContents) -> int:
    return int(summary.facts.get("num_parameters") or held.num_weights or 1)


def _holds(summary: Summary, held: CheckpointContents) -> str:
    count = _num_parameters(summary, held)
    files = [
        f"{name} {format_bytes(size)} ({size / count:.2f} bytes per parameter)"
        if size >= 0.005 * held.total_bytes
        else f"{name} {format_bytes(size)}"
        for name, size in sorted(held.bytes_by_file.items(), key=lambda file: (-file[1], file[0]))
    ]
    return f"{format_bytes(held.total_bytes)}: {listed(files)}."


def _content_figures(summary: Summary, held: CheckpointContents) -> dict[str, Any]:
    count = _num_parameters(summary, held)
    return {
        "total_bytes": held.total_bytes,
        "bytes_by_file": held.bytes_by_file,
        "bytes_per_parameter": held.total_bytes / count,
        "num_parameters": count,
        "step": held.step,
    }


def stall_per_save(summary: Summary) -> float:
    cost = summary.checkpoint_cost
    return cost.stall_seconds / max(cost.num_saves + cost.num_failed, 1)


def share_at(summary: Summary, every_steps: int) -> float:
    """Share of the time that saving every so many steps would take."""
    step_seconds = summary.verdict.step_seconds * (1 - summary.verdict.shares.get("checkpoint", 0))
    each = stall_per_save(summary)
    return each / (each + every_steps * step_seconds) if step_seconds else math.nan


def _every_steps(summary: Summary) -> int | None:
    every = (summary.settings.get("checkpoint") or {}).get("every_steps")
    return every if isinstance(every, int) else None


def _saving(summary: Summary) -> str:
    cost, wall = summary.checkpoint_cost, summary.story.wall_seconds
    share = percent(cost.stall_seconds / wall) if wall else "?"
    failed = f", {cost.num_failed:,} failed" if cost.num_failed else ""
    stood, each = format_seconds(cost.stall_seconds), format_seconds(stall_per_save(summary))
    text = (
        f"{count_of(cost.num_saves, 'save')}{failed}: the run stood still for {stood} ({share}), "
        f"{each} each; written in the background in {format_seconds(cost.background_seconds)}."
    )
    every = _every_steps(summary)
    if every and summary.verdict.step_seconds:
        often = max(every // 10, 1)
        text += (
            f" Every {every:,} steps costs {percent(share_at(summary, every))} of the loop; "
            f"every {often:,} would cost {percent(share_at(summary, often))}, "
            f"every {every * 10:,} {percent(share_at(summary, every * 10))}."
        )
    return text


def _cost_figures(summary: Summary) -> dict[str, Any]:
    cost, every = summary.checkpoint_cost, _every_steps(summary)
    figures: dict[str, Any] = {
        "stall_seconds": cost.stall_seconds,
        "stall_seconds_per_save": stall_per_save(summary),
        "background_seconds": cost.background_seconds,
    }
    if every and summary.verdict.step_seconds:
        figures["every_steps"] = every
        figures["share_by_every_steps"] = {
            str(n): share_at(summary, n) for n in (max(every // 10, 1), every, every * 10)
        }
    return figures


def _save_less(summary: Summary) -> str:
    every = _every_steps(summary)
    if not every or not summary.checkpoint_cost.num_saves:
        return ""
    if summary.verdict.shares.get("checkpoint", 0.0) < _HIGH_SHARE:
        return ""
    return f"save less often: {go_on(summary.run, f'checkpoint.every_steps={every * 10}')}"
