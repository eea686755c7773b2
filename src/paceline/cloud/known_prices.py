"""Prices that a cloud has told, kept for reports."""

import time

from paceline.cloud.facts import CloudFacts, Wanted
from paceline.report.prices import ON_DEMAND, SPOT, Price, remember_price


def remember(wanted: Wanted, facts: CloudFacts) -> None:
    machine, now = f"aws {wanted.type}", time.time()
    if facts.price_on_demand is not None:
        remember_price(machine, Price(facts.price_on_demand, ON_DEMAND, wanted.region, now))
    if facts.price_spot:
        cheapest = min(facts.price_spot.values())
        remember_price(machine, Price(cheapest, SPOT, wanted.region, now))
