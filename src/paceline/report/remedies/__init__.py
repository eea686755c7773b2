"""What would make a run faster, and by how much: from its facts, by the model of a step."""

from paceline.report.facts.facts import Facts
from paceline.report.remedies import log, own, script
from paceline.report.remedies.offer import Offer, offers_of


def remedies_of(facts: Facts) -> list[Offer]:
    """Those that are worth it, the best first."""
    if facts.is_observed:
        return offers_of(facts, script.ideas)
    return offers_of(facts, own.ideas if facts.is_own else log.ideas)
