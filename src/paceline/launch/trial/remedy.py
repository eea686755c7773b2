"""`paceline try`: a few steps as a run was and a few with a remedy, beside what was predicted."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from paceline.errors import Say, UserError
from paceline.hosts.file import load_hosts
from paceline.launch.trial.start import Start
from paceline.launch.trial.steps import Place, for_trial, scratch_run, train_steps
from paceline.pace.predict import Range
from paceline.recipe import load
from paceline.record.directory import read_launch, require_run
from paceline.record.schema import RunDirectory
from paceline.report import foreign
from paceline.report.facts.facts import Facts
from paceline.report.own.run import read_run
from paceline.report.remedies import remedies_of
from paceline.report.remedies.job import LEAST_STEPS, typical_step
from paceline.report.remedies.offer import Offer
from paceline.settings import ReduceSettings

NUM_STEPS: Final = 20
_MOST_BETWEEN_SAVES: Final = 20
_HOSTS: Final = "hosts"
_ONE_HOST: Final = "one-host"
_SAVES: Final = "saves"
_NOT_HERE: Final[Mapping[str, str]] = {
    "link": "faster links: move the hosts to such a network, or try them in a practice cluster "
    "(`paceline lab up --link 10Gbit`)",
    "disk": "another disk: put the data there and train with data=DIR",
    "straggler": "a repaired host: put it right, or leave it out of the hosts file",
    "alone": "an idle machine: stop the other programs and train again",
}
"""What no setting of a recipe does."""


@dataclass(frozen=True)
class Tried:
    """Predicted beside measured."""

    name: str
    text: str
    setting: str
    predicted: Range | None
    measured: float
    """Times as many units a second."""
    num_steps: int
    seconds_before: float
    """Of a step as it was."""
    seconds_after: float
    from_step: int
    how: str = ""

    @property
    def is_inside(self) -> bool | None:
        if self.predicted is None:
            return None
        return self.predicted.low <= self.measured <= self.predicted.high


@dataclass(frozen=True)
class Asked:
    run: Path
    remedy: str
    num_steps: int = NUM_STEPS
    hosts: Path | None = None


def try_remedy(asked: Asked, say: Say) -> Tried:
    facts = _facts(asked.run)
    offer = find_offer(facts, asked.remedy)
    num_steps, kept = _steps_and_saves(facts, offer, asked.num_steps)
    reduce = _reduce_of(asked.run, offer)
    num_steps = whole_periods(num_steps, reduce.every or 1)
    as_it_was, changed = _places(facts, offer, asked)
    started = Start.of(asked.run, as_it_was)
    if offer.setting.startswith("reduce."):  # what it remembers is not in the checkpoint
        started = Start(beside=started.beside)
    with scratch_run(changed.hosts or as_it_was.hosts, started.beside) as scratch:

        def trial(name: str, place: Place, setting: str, **saves: int | None) -> Facts:
            recipe = load(str(asked.run / "recipe.yaml"), setting.split())
            started.copy_checkpoint(scratch / name)
            some = for_trial(recipe, started.step, num_steps, **saves)
            say(f"{name}: {num_steps} steps {place.in_words}")
            return train_steps(some, scratch / name, place)

        before = trial("as-it-was", as_it_was, "", **kept)
        after = trial(f"with-{offer.name}", changed, offer.setting)
    seconds = [step_seconds(one, offer, reduce) for one in (before, after)]
    units = [one.num_units / one.num_steps for one in (before, after)]
    return Tried(
        name=offer.name,
        text=offer.text,
        setting=offer.setting,
        predicted=offer.gain,
        measured=units[1] / seconds[1] / (units[0] / seconds[0]),
        num_steps=num_steps,
        seconds_before=seconds[0],
        seconds_after=seconds[1],
        from_step=started.step,
        how=offer.how,
    )


def _facts(run: Path) -> Facts:
    if foreign.is_foreign(run):
        raise UserError(
            f"{run} is the log of another tool, and nothing can be run from it",
            f"`paceline report {run}` tells what each remedy would gain; `paceline run` observes "
            "the training itself",
        )
    require_run(run)
    facts = read_run(run)
    if facts.is_observed:
        raise UserError(_of_script(facts), _how_for_script(facts))
    return facts


def _of_script(facts: Facts) -> str:
    offers = "; ".join(offer.in_words for offer in remedies_of(facts))
    told = f"; the report offers: {offers}" if offers else ""
    return f"{facts.run} is a run of a script, whose lines only you can change{told}"


def _how_for_script(facts: Facts) -> str:
    script = facts.settings.get("script", "train.py")
    return (
        f"change it, then: paceline run --run {facts.run}-2 {script} ... (a hundred steps are "
        f"enough); paceline report {facts.run} {facts.run}-2 tells what it brought"
    )


def find_offer(facts: Facts, remedy: str) -> Offer:
    """One of those that the report offers, or any setting; without a prediction then."""
    offers = remedies_of(facts)
    for offer in offers:
        if remedy in (offer.name, offer.setting):
            return offer
    if "=" in remedy:
        return Offer("setting", f"with {remedy}", None, "", remedy, "no remedy of the report")
    if remedy in (_HOSTS, _ONE_HOST):
        return Offer(remedy, remedy, None, why_no_gain="the report does not offer it")
    names = ", ".join(offer.name for offer in offers) or "none that would gain 3 %"
    raise UserError(
        f"'{remedy}' is no remedy that the report of {facts.run} offers",
        f"it offers: {names}; any setting can be tried as well, like batch.global=256",
    )


def _places(facts: Facts, offer: Offer, asked: Asked) -> tuple[Place, Place]:
    """Where the steps are done as it was, and with the remedy."""
    if not offer.setting and offer.name in _NOT_HERE:
        raise UserError(
            f"'{offer.name}' is nothing that a few steps here could show", _NOT_HERE[offer.name]
        )
    was = _place_of(facts, asked)
    if offer.name == _HOSTS:
        if asked.hosts is None:
            raise UserError("the hosts to try it on are not named", "add --hosts hosts.yaml")
        return was, Place(load_hosts(asked.hosts), was.num_procs)
    if offer.name == _ONE_HOST and was.hosts is not None:
        alone = replace(was.hosts, hosts=was.hosts.hosts[:1], min=None)
        return was, replace(was, hosts=alone)
    return was, was


def _place_of(facts: Facts, asked: Asked) -> Place:
    num_hosts, size = facts.world.num_hosts or 1, facts.world.size or 1
    each = size // num_hosts
    named = read_launch(RunDirectory(asked.run)).get("hosts_file")
    if num_hosts == 1 and not named:
        return Place(None, each)
    file = asked.hosts or (Path(named) if named else None)
    if file is None or not file.is_file():
        raise UserError(
            f"{asked.run} was trained on {num_hosts} hosts, and their hosts file is not known",
            "name it: --hosts hosts.yaml",
        )
    loaded = load_hosts(file)
    return Place(replace(loaded, hosts=loaded.hosts[:num_hosts], min=None), each)


def _steps_and_saves(facts: Facts, offer: Offer, asked: int) -> tuple[int, dict[str, int | None]]:
    """How many steps, and how often they are saved as it was."""
    if asked < LEAST_STEPS:
        raise UserError(f"--steps {asked} is too few to tell", f"give {LEAST_STEPS} or more")
    if offer.name != _SAVES:
        return asked, {}
    every = facts.saving.every_steps
    if not every or every > _MOST_BETWEEN_SAVES:
        raise UserError(
            f"a save every {every} steps cannot be seen in a few steps",
            f"go on with the run so and compare: {offer.how}",
        )
    return max(asked, 4 * every), {"every_steps": every}


def _reduce_of(run: Path, offer: Offer) -> ReduceSettings:
    """With the remedy."""
    return load(str(run / "recipe.yaml"), offer.setting.split()).reduce


def whole_periods(num_steps: int, period: int) -> int:
    """So many that exchanges have their share: the last one is that of the end."""
    return num_steps if period == 1 else period * max(-(-num_steps // period), 2)


def step_seconds(facts: Facts, offer: Offer, reduce: ReduceSettings) -> float:
    """Saving is between steps, so its remedy is judged by the whole loop. Where few steps have an
    exchange, these are not the disturbed ones that a typical step leaves out."""
    times, single = facts.world.times, facts.step_times
    if times is None or offer.name == _SAVES:
        return facts.verdict.step_seconds
    if reduce.every is None or single is None:
        return sum(typical_step(times).values())
    # After the last step of DiLoCo nothing goes on beside the exchange, once in a run.
    counted = single.timings[:-1] if reduce.kind == "diloco" else single.timings
    return float(np.mean(counted))
