"""A remedy that is offered: what to do, what it would gain, and how it can be tried."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from paceline.errors import UserError
from paceline.pace.predict import Range
from paceline.pace.remedies import Change, Situation, gain_in_words, gain_of, is_worth_it
from paceline.report.facts.facts import Facts, Finding
from paceline.report.remedies.situation import situation_of


@dataclass(frozen=True)
class Idea:
    """What may help, before it is known by how much."""

    name: str
    """One word, for `paceline try`."""
    text: str
    change: Change
    how: str = ""
    """A command or a line of code that does it; empty where the text says all."""
    setting: str = ""
    """Of the recipe, as on the command line; empty where no setting does it."""
    gain: Range | None = None
    """Where it follows from the phases alone, without the model."""
    changes_result: bool = False
    """Whether the same samples then teach something else."""


@dataclass(frozen=True)
class Offer:
    name: str
    text: str
    gain: Range | None
    """Times as many units a second; None where the run does not tell enough to predict it."""
    how: str = ""
    setting: str = ""
    why_no_gain: str = ""
    changes_result: bool = False

    @property
    def in_words(self) -> str:
        told = gain_in_words(self.gain) if self.gain else f"gain not known: {self.why_no_gain}"
        return f"{self.text} ({told})" + (f": {self.how}" if self.how else "")


_FALLS_AWAY = (0.9, 0.7, 1.0)
"""Of what a change saves: the middle, the least and the most."""

Ideas = Callable[[Facts, Situation | None], Iterable[Idea]]


def offers_of(facts: Facts, ideas: Ideas) -> list[Offer]:
    """Those that are worth it, the best first; where nothing can be predicted, the first idea."""
    try:
        now = situation_of(facts)
    except UserError as error:
        first = next(iter(ideas(facts, None)), None)
        if first is not None and first.gain is not None:
            return [Offer(first.name, first.text, first.gain, first.how, first.setting)]
        return [_unknown(first, error.what)] if first else []
    found = [offer for idea in ideas(facts, now) if (offer := _offer(idea, now))]
    return sorted(found, key=lambda offer: -(offer.gain.middle if offer.gain else 0.0))


def _offer(idea: Idea, now: Situation) -> Offer | None:
    after = idea.change(now)
    job, processes = after.job, after.size.processes
    if job.micro_batches and not job.grows_with_world and processes > job.micro_batches:
        return None
    if processes > 1 and job.gradient_bytes is None:
        return _unknown(idea, "how large the gradients are is not told")
    gain = gain_of(now, idea.change)
    if not is_worth_it(gain):
        return None
    return Offer(
        idea.name, idea.text, gain, idea.how, idea.setting, changes_result=idea.changes_result
    )


def shown_first(offers: Sequence[Offer], most: int = 3) -> list[Offer]:
    """The best, and of what changes the result no more than one while there is something else."""
    same = [offer for offer in offers if not offer.changes_result]
    changed = [offer for offer in offers if offer.changes_result]
    chosen = [*same[: most - 1], *changed[:1]]
    rest = [offer for offer in offers if offer not in chosen]
    chosen += rest[: most - len(chosen)]
    return [offer for offer in offers if offer in chosen]


def gain_or_none(facts: Facts, change: Change) -> Range | None:
    """None where it cannot be predicted, or is not worth a word."""
    try:
        gain = gain_of(situation_of(facts), change)
    except UserError:
        return None
    return gain if is_worth_it(gain) else None


def gain_without(seconds: float, saved: float) -> Range | None:
    """When a part of some seconds falls away: most of it, by experience."""
    left = [max(seconds - part * saved, 0.05 * seconds) for part in _FALLS_AWAY]
    if seconds <= 0 or not is_worth_it(Range(seconds / left[0], 1.0, 1.0)):
        return None
    return Range(*(seconds / each for each in left))


def with_gain(finding: Finding) -> str:
    """What to change, and what that brings."""
    return finding.change + (f" ({gain_in_words(finding.gain)})" if finding.gain else "")


def _unknown(idea: Idea, why: str) -> Offer:
    return Offer(idea.name, idea.text, None, idea.how, idea.setting, why)
