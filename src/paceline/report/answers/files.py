"""Answers about what lies on disk: the training set, and a checkpoint with its cost."""

from typing import Any

from paceline.report.answers.answer import QUESTIONS, Answer
from paceline.report.answers.script import checkpoint_of_script, data_of_script
from paceline.report.answers.words import listed
from paceline.report.commands import go_on
from paceline.report.facts.facts import CheckpointContents, DataCard, Facts, GivenData
from paceline.report.facts.learning import is_below_one_epoch
from paceline.report.facts.saving import (
    SaveCost,
    cost_of_save,
    other_frequencies,
    seconds_at,
    share_of_loop,
)
from paceline.units import count_of, format_bytes, format_count, format_seconds, percent

_HIGH_SHARE = 0.05
_TINY = 0.01
_NO_COST = " What a save costs while training goes on is not known from so few."


def data(facts: Facts) -> Answer:
    if facts.is_observed:
        return data_of_script(facts)
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
    kind = "A stand-in that Paceline made. " if card.is_stand_in else ""
    sentence = f"{kind}{_training_split(card)}."
    others = [f"{n:,} {split}" for split, n in card.num_by_split.items() if split != "train"]
    if others:
        sentence += (
            f" There are also {listed(others)} {card.noun}; all splits together are stored in "
            f"{format_bytes(card.total_bytes)}."
        )
    epochs = facts.data.epochs
    if epochs:
        sentence += f" {_epochs(facts, epochs)}"
    if card.is_other:
        sentence += (
            " It was prepared again since then, with another result: the run was trained on other "
            "data."
        )
    how = f"the data card in {card.directory}"
    return Answer("data", QUESTIONS["data"], sentence, _data_figures(card, epochs), how)


def _data_figures(card: DataCard, epochs: float | None) -> dict[str, Any]:
    given = card.given
    return {
        "train_given_bytes": given.num_bytes if given else None,
        "train_given_lines": given.num_lines if given else None,
        "train_stored_bytes": card.train_bytes,
        "total_stored_bytes": card.total_bytes,
        "train": card.train_counts,
        "num_by_split": card.num_by_split,
        "epochs": epochs,
        "is_stand_in": card.is_stand_in,
        "is_other": card.is_other,
    }


def _training_split(card: DataCard) -> str:
    """In the form that the user gave, and as it is stored."""
    counts = [f"{count:,} {name}" for name, count in card.train_counts.items()]
    counted = listed(counts or [f"{n:,} {split}" for split, n in card.num_by_split.items()])
    given, stored = card.given, card.train_bytes
    if given is None:
        size = format_bytes(card.total_bytes if stored is None else stored)
        what = "all splits together" if stored is None else "as stored"
        return f"{counted} for training, {size} {what}"
    text = f"{_given(given)} for training, {counted}"
    return text + (f", stored in {format_bytes(stored)}" if stored is not None else "")


def _given(given: GivenData) -> str:
    parts = [f"{format_bytes(size)} {name}" for name, size in given.bytes_by_part.items()]
    by_part = f" ({listed(parts)})" if parts else ""
    size = f"{format_bytes(given.num_bytes)} of {given.form}"
    if given.num_lines is None:
        return f"{size}{by_part}"
    return f"{size}{by_part} in {count_of(given.num_lines, 'line')} on each side"


def _epochs(facts: Facts, epochs: float) -> str:
    if is_below_one_epoch(facts):
        return f"The run saw {percent(epochs)} of it, less than one epoch."
    times = "once" if round(epochs, 1) == 1 else f"{epochs:.1f} times"
    return f"The run went through it {times}."


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
        text = f"An epoch is {count_of(known.steps_per_epoch, 'batch')}"
        if known.num_known_samples:
            figures |= {"num_pictures": known.num_known_samples, "global_batch": known.global_batch}
            text += (
                f", which fits the {known.num_known_samples:,} pictures of ILSVRC 2012 in batches "
                f"of {known.global_batch:,} and no other size"
            )
        sentences.append(f"{text}.")
    if known.global_batch and facts.step:
        seen = figures["num_samples_seen"] = known.global_batch * facts.step
        sentences.append(
            f"{format_count(seen)} samples were drawn in {count_of(facts.step, 'step')}."
        )
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
    if facts.is_observed:
        return checkpoint_of_script(facts)
    if not facts.is_own:
        return _checkpoint_of_log(facts)
    held, cost = facts.saving.newest, facts.saving.cost
    parts = [_holds(facts, held)] if held else ["There is no complete checkpoint."]
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
        "sizes from the manifest; a clock around each save in the loop; steps beside the writing "
        "thread compared with the other steps",
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
            "With Adam's two running averages a checkpoint holds "
            f"{size / facts.num_parameters:g} bytes for each of "
            f"{format_count(facts.num_parameters)} parameters, about {format_bytes(size)}."
        )
    if every:
        figures["every_steps"] = every
        text = f"It was set to save {_every(every)}"
        if every > (facts.steps_wanted or facts.step):
            text += (
                ", which is more than the whole run has: except for a best one kept at "
                "evaluations, a crash loses everything"
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


def _saving(facts: Facts) -> str:
    cost, wall = facts.saving.cost, facts.wall_seconds
    share = percent(cost.stall_seconds / wall) if wall else "?"
    failed = f", {cost.num_failed:,} failed" if cost.num_failed else ""
    text = (
        f"{count_of(cost.num_saves, 'save')}{failed}: the loop stood still for "
        f"{format_seconds(cost.stall_seconds)} in all ({share} of the wall time)"
    )
    if cost.end_seconds:
        text += (
            f", {format_seconds(cost.end_seconds)} of it after the last step, until the last one "
            "was written"
        )
    text += (
        f"; a thread wrote for {format_seconds(cost.background_seconds)} in all while training "
        "went on."
    )
    one = cost_of_save(cost)
    return f"{text} {_one_save(one)}{_frequency(facts, one)}" if one else f"{text}{_NO_COST}"


def _one_save(one: SaveCost) -> str:
    """The mean, what it is made of, and how sure that is."""
    text = f"On the way a save cost {format_seconds(one.seconds)}"
    if one.error_seconds is not None:
        low = format_seconds(max(one.seconds - one.error_seconds, 0.0))
        text += f" ({low} to {format_seconds(one.seconds + one.error_seconds)})"
    if one.copy_seconds is not None:
        text += f": {listed(_parts_of_save(one))}"
    sure = f"from {count_of(one.num_saves, 'save')}"
    return f"{text}; {sure}{', so this is rough' if one.error_seconds is None else ''}."


def _parts_of_save(one: SaveCost) -> list[str]:
    parts = [f"copying {format_seconds(one.copy_seconds or 0.0)}"]
    if one.wait_seconds > _TINY * one.seconds:
        parts.append(f"waiting for the save before {format_seconds(one.wait_seconds)}")
    if one.slowed_seconds is None:
        parts.append("an unknown time for slower steps beside the writing thread")
    elif one.slowed_seconds == 0:
        parts.append("nothing for slower steps beside the writing thread")
    else:
        slowed = format_seconds(one.slowed_seconds)
        parts.append(f"{slowed} more in the steps beside the writing thread")
    return parts


def _frequency(facts: Facts, one: SaveCost) -> str:
    every = facts.saving.every_steps
    if not every or not facts.verdict.step_seconds:
        return ""
    now = percent(_share_at(facts, one, every))
    shares = [(percent(_share_at(facts, one, n)), _every(n)) for n in other_frequencies(every)]
    others = [f"{share} {often}" for share, often in shares]
    told = f"it would cost {listed(others)}"
    if all(share == now for share, _ in shares):
        told = f"it would cost as little {' or '.join(often for _, often in shares)}"
    return (
        f" Saving {_every(every)} costs {_at_least(one)}{now} of the loop"
        f"{_range_of_share(facts, one, every)}; {told}."
    )


def _at_least(one: SaveCost) -> str:
    return "at least " if one.copy_seconds is not None and one.slowed_seconds is None else ""


def _every(steps: int) -> str:
    return "at every step" if steps == 1 else f"every {steps:,} steps"


def _share_at(facts: Facts, one: SaveCost, every_steps: int) -> float:
    return share_of_loop(facts, every_steps, seconds_at(facts, one, every_steps))


def _range_of_share(facts: Facts, one: SaveCost, every: int) -> str:
    if one.error_seconds is None:
        return ""
    low, high = (
        percent(share_of_loop(facts, every, max(one.seconds + way * one.error_seconds, 0.0)))
        for way in (-1, 1)
    )
    return f" ({low} to {high})" if low != high else ""


def _cost_figures(facts: Facts) -> dict[str, Any]:
    cost, every, one = facts.saving.cost, facts.saving.every_steps, cost_of_save(facts.saving.cost)
    figures: dict[str, Any] = {
        "stall_seconds": cost.stall_seconds,
        "stall_seconds_at_end": cost.end_seconds,
        "background_seconds": cost.background_seconds,
    }
    if one is None:
        return figures
    figures |= {f"save_{name}": value for name, value in vars(one).items() if name != "num_saves"}
    figures["num_saves_on_the_way"] = one.num_saves
    if every and facts.verdict.step_seconds:
        figures["every_steps"] = every
        figures["share_by_every_steps"] = {
            str(n): _share_at(facts, one, n) for n in sorted([every, *other_frequencies(every)])
        }
    return figures


def _save_less(facts: Facts) -> str:
    every = facts.saving.every_steps
    if not every or not facts.saving.cost.num_saves:
        return ""
    if facts.verdict.shares.get("checkpoint", 0.0) < _HIGH_SHARE:
        return ""
    return f"save less often: {go_on(facts.run, f'checkpoint.every_steps={every * 10}')}"
