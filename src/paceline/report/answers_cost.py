"""The answer about money and energy, idle time and failed attempts included."""

import math
from typing import Any

from paceline.report.answer import QUESTIONS, Answer
from paceline.report.answers_time import booked, idle_seconds
from paceline.report.summary import Summary
from paceline.report.wording import percent
from paceline.units import format_seconds


def prices(summary: Summary) -> list[float]:
    """Per hour, one for each host."""
    if summary.options.price_per_hour is not None:
        return [summary.options.price_per_hour] * summary.num_hosts
    hosts = summary.environment.get("hosts")
    listed = hosts if isinstance(hosts, list) else []
    known = [host.get("price_per_hour") for host in listed if isinstance(host, dict)]
    found = [float(price) for price in known if isinstance(price, int | float)]
    return found if len(found) == len(known) else []


def cost(summary: Summary) -> Answer:
    wall, idle = summary.story.wall_seconds, idle_seconds(summary)
    host_hours = summary.num_hosts * wall / 3600
    figures: dict[str, Any] = {
        "host_hours": host_hours,
        "num_hosts": summary.num_hosts,
        "idle_host_hours": summary.num_hosts * idle / 3600,
    }
    energy = energy_kwh(summary)
    if energy is not None:
        figures["device_kwh"] = energy
    per_hour = sum(prices(summary)) if wall else 0.0
    sentence = f"{host_hours:.3g} host-hours{_energy(energy)}."
    missing = "the price of a host-hour: --price 0.50, or price_per_hour in the hosts file"
    if per_hour:
        money, missing = _money(summary, per_hour, wall, idle), ""
        figures |= money
        sentence = f"{_money_sentence(summary, money)}{_energy(energy)}."
    if energy is None:
        missing = "; ".join(filter(None, [missing, "power, which only NVIDIA devices tell"]))
    return Answer(
        "cost",
        QUESTIONS["cost"],
        sentence,
        figures,
        "wall time of all attempts, failed ones too, times hosts and their price per hour",
        missing,
    )


def _energy(energy: float | None) -> str:
    return f", {energy:.3g} kWh in the devices" if energy is not None else ""


def energy_kwh(summary: Summary) -> float | None:
    known = [use for use in summary.hosts if math.isfinite(use.power_watts)]
    if not known:
        return None
    return sum(use.power_watts for use in known) / 1000 * summary.story.wall_seconds / 3600


def _money(summary: Summary, per_hour: float, wall: float, idle: float) -> dict[str, Any]:
    parts = booked(summary)
    lost = parts["restart"] + _failed_start_ups(summary)
    total = per_hour * wall / 3600
    money: dict[str, Any] = {
        "price_per_hour": per_hour,
        "cost": total,
        "cost_of_lost_work": per_hour * lost / 3600,
        "cost_if_kept_while_idle": total + per_hour * idle / 3600,
    }
    points = score_points(summary)
    if points:
        money |= {"score_points": points, "cost_per_point": total / points}
    return money


def _failed_start_ups(summary: Summary) -> float:
    """Wall time of attempts that never reached the loop."""
    last = max((a.number for a in summary.story.attempts), default=0)
    return sum(
        a.wall_seconds for a in summary.story.attempts if not a.booked_seconds and a.number != last
    )


def score_points(summary: Summary) -> float | None:
    """The best score, in points: accuracies are shares, and a point is one percent."""
    values = [s.values[summary.best_by] for s in summary.scores if summary.best_by in s.values]
    if not values or max(values) <= 0:
        return None
    return 100 * max(values) if max(values) <= 1 else max(values)


def _money_sentence(summary: Summary, money: dict[str, Any]) -> str:
    total, per_hour = money["cost"], money["price_per_hour"]
    text = (
        f"{total:.2f} for {format_seconds(summary.story.wall_seconds)} at {per_hour:g} an hour "
        f"for {'one host' if summary.num_hosts == 1 else f'{summary.num_hosts} hosts together'}"
    )
    if money["cost_of_lost_work"] > 0.005 * total:
        share = percent(money["cost_of_lost_work"] / total)
        text += f", of which {money['cost_of_lost_work']:.2f} ({share}) for work that was lost"
    if money["cost_if_kept_while_idle"] > 1.005 * total:
        text += (
            f"; {money['cost_if_kept_while_idle']:.2f} if the hosts were paid for between attempts"
        )
    if "cost_per_point" in money:
        text += f"; {money['cost_per_point']:.3g} per point of {summary.best_by}"
    return text
