"""The answer about money and energy, idle time and failed attempts included."""

import math
from typing import Any

from paceline.report.answers.answer import QUESTIONS, Answer
from paceline.report.answers.words import format_money
from paceline.report.facts.durations import failed_start_up_seconds, idle_seconds
from paceline.report.facts.facts import Facts
from paceline.report.facts.learning import best_score, is_doubtful_start, series
from paceline.task_finder import scales_of
from paceline.units import count_of, format_seconds, percent


def cost(facts: Facts) -> Answer:
    wall, num_hosts = facts.wall_seconds, facts.world.num_hosts or 1
    if not wall:
        sentence, missing = "The log holds no times.", "how long it took"
        if facts.is_own:
            sentence = "Nothing: no time was recorded."
        return Answer("cost", QUESTIONS["cost"], sentence, missing=missing)
    idle = idle_seconds(facts.attempts)
    host_hours = num_hosts * wall / 3600
    figures: dict[str, Any] = {
        "host_hours": host_hours,
        "num_hosts": num_hosts,
        "idle_host_hours": num_hosts * idle / 3600,
    }
    energy = energy_kwh(facts)
    if energy is not None:
        figures["device_kwh"] = energy
    per_hour = sum(prices(facts)) if wall else 0.0
    sentence = f"{host_hours:.3g} host-hours{_of_hosts(facts)}{_energy(energy)}."
    missing = _missing_price(facts)
    if per_hour:
        money, missing = _money(facts, per_hour, idle), ""
        figures |= money
        sentence = f"{_money_sentence(facts, money)}{_energy(energy)}."
    if energy is None and facts.is_own:
        missing = "; ".join(filter(None, [missing, "power, which only NVIDIA devices tell"]))
    return Answer(
        "cost",
        QUESTIONS["cost"],
        sentence,
        figures,
        "wall time of all attempts, failed ones too, times hosts and their price per hour"
        + (f": {facts.options.price_source}" if facts.options.price_source else ""),
        missing,
    )


def _missing_price(facts: Facts) -> str:
    told = "the price of a host-hour: --price 0.50"
    told += ", or price_per_hour in the hosts file" if facts.is_own else ""
    cloud, _, kind = str(facts.environment.get("machine_type") or "").partition(" ")
    kind = kind.removesuffix(" spot")
    return f"{told}, or ask: paceline cloud check {cloud} --type {kind}" if kind else told


def prices(facts: Facts) -> list[float]:
    """Per hour, one for each host."""
    if facts.options.price_per_hour is not None:
        return [facts.options.price_per_hour] * (facts.world.num_hosts or 1)
    hosts = facts.environment.get("hosts")
    listed = hosts if isinstance(hosts, list) else []
    known = [host.get("price_per_hour") for host in listed if isinstance(host, dict)]
    found = [float(price) for price in known if isinstance(price, int | float)]
    return found if len(found) == len(known) else []


def _if_one(facts: Facts) -> str:
    return "" if facts.world.num_hosts else ", if it was one host"


def _of_hosts(facts: Facts) -> str:
    """Of a run the hosts stand above; of a log it matters how many the guess rests on."""
    if facts.is_own:
        return ""
    num_hosts = facts.world.num_hosts
    return f" of {count_of(num_hosts, 'host')}" if num_hosts else _if_one(facts)


def _energy(energy: float | None) -> str:
    return f", {energy:.3g} kWh in the devices" if energy is not None else ""


def energy_kwh(facts: Facts) -> float | None:
    known = [use for use in facts.world.hosts if math.isfinite(use.power_watts)]
    if not known:
        return None
    return sum(use.power_watts for use in known) / 1000 * facts.wall_seconds / 3600


def _money(facts: Facts, per_hour: float, idle: float) -> dict[str, Any]:
    lost = facts.booked.get("restart", 0.0) + failed_start_up_seconds(facts.attempts)
    total = per_hour * facts.wall_seconds / 3600
    money: dict[str, Any] = {
        "price_per_hour": per_hour,
        "cost": total,
        "cost_of_lost_work": per_hour * lost / 3600,
        "cost_if_kept_while_idle": total + per_hour * idle / 3600,
    }
    points = score_points(facts)
    if points:
        money |= {"score_points": points, "cost_per_point": total / points}
    return money


def score_points(facts: Facts) -> float | None:
    """The best score, in points: of a share a point is one percent. None where it cannot be known
    what the score is of: 0.38 may be a poor BLEU or a fair accuracy."""
    learning, best = facts.learning, best_score(facts.learning)
    scale = scales_of(facts.settings.get("workload")).get(learning.best_by)
    curve = series(learning.scores, learning.best_by)
    if scale is None or best is None or learning.lower_is_better:
        return None  # fewer errors are more, so there is no price of a point
    if is_doubtful_start(curve, learning, facts.step):
        return None
    value = best.values[learning.best_by]
    if value <= 0:
        return None
    return value if scale.whole == "100" else 100 * value


def _money_sentence(facts: Facts, money: dict[str, Any]) -> str:
    total, per_hour, num_hosts = money["cost"], money["price_per_hour"], facts.world.num_hosts or 1
    text = (
        f"{format_money(total)} for {format_seconds(facts.wall_seconds)} at {per_hour:g} an hour "
        f"for {'one host' if num_hosts == 1 else f'{num_hosts} hosts together'}{_if_one(facts)}"
    )
    if money["cost_of_lost_work"] > 0.005 * total:
        share = percent(money["cost_of_lost_work"] / total)
        lost = format_money(money["cost_of_lost_work"])
        text += f", {lost} of it ({share}) for work that was lost and done again"
    if money["cost_if_kept_while_idle"] > 1.005 * total:
        kept = format_money(money["cost_if_kept_while_idle"])
        text += f"; {kept} if the hosts were also paid for between the attempts"
    if "cost_per_point" in money:
        by = facts.learning.best_by
        title = scales_of(facts.settings.get("workload"))[by].title
        text += f"; {money['cost_per_point']:.3g} per point of {title}"
    return text
