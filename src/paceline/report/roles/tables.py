"""Tables of a run whose processes have roles: phases by role, staleness, step numbers over time."""

import numpy as np

from paceline.record.schema import PHASES
from paceline.report.render.svg import Axis, Line, histogram, line_plot
from paceline.report.roles.use import RolesUse, RoleUse
from paceline.units import format_bytes, format_seconds

Rows = list[list[str]]

_MOST_BAR = 40
_MOMENTS = (0.25, 0.5, 0.75, 1.0)
_LEAST_SHARE = 0.0005


def phase_rows(found: RolesUse) -> Rows:
    """Seconds by phase of every role; the last column is their sum."""
    uses = _all_uses(found)
    shown = [
        name
        for name in PHASES
        if any(use.phases.get(name, 0.0) >= _LEAST_SHARE * use.seconds > 0 for use in uses)
    ]
    head = ["role", "host", *shown, "in all", "steps"]
    rows = [
        [
            use.name,
            use.host,
            *(f"{use.phases.get(name, 0.0):,.1f}" for name in shown),
            f"{use.seconds:,.1f}",
            f"{use.num_steps:,}",
        ]
        for use in uses
    ]
    return [head, *rows]


def role_tables(found: RolesUse) -> list[Rows]:
    """All that there is something to tell of."""
    tables = [phase_rows(found), traffic_rows(found), staleness_rows(found), step_rows(found)]
    return [rows for rows in tables if len(rows) > 1]


def _all_uses(found: RolesUse) -> list[RoleUse]:
    chief = [found.chief] if found.chief is not None else []
    return [*chief, *found.trainers, *found.servers]


def traffic_rows(found: RolesUse) -> Rows:
    head = ["server", "host", "shard", "gradients in", "weights out", "of its link"]
    rows = []
    for use in found.servers:
        share = use.link_share
        rows.append(
            [
                use.name,
                use.host,
                format_bytes(use.shard_bytes),
                format_bytes(use.received_bytes),
                format_bytes(use.sent_bytes),
                "-" if share is None else f"{100 * share:.0f} %",
            ]
        )
    return [head, *rows]


def staleness_rows(found: RolesUse) -> Rows:
    """How many updates had which staleness, with a bar."""
    if not found.staleness:
        return []
    most = max(found.staleness.values())
    ages = range(max(found.staleness) + 1)
    return [
        ["staleness", "updates", ""],
        *(
            [str(age), f"{number:,}", "#" * round(_MOST_BAR * number / most)]
            for age in ages
            if (number := found.staleness.get(age, 0))
        ),
    ]


def step_rows(found: RolesUse) -> Rows:
    """The last step number of each trainer when a quarter, half, ... of the time was over."""
    if found.is_sync and not found.backup:
        return []
    known = [use.times for use in found.trainers if len(use.times)]
    if not known:
        return []
    first, last = min(float(t[0]) for t in known), max(float(t[-1]) for t in known)
    moments = [first + share * (last - first) for share in _MOMENTS]
    head = ["step number of", *(f"after {format_seconds(moment)}" for moment in moments)]
    return [head, *([use.name, *(_step_at(use, m) for m in moments)] for use in found.trainers)]


def _step_at(use: RoleUse, moment: float) -> str:
    place = int(np.searchsorted(use.times, moment + 1e-6))
    return f"{int(use.steps[place - 1]):,}" if place else "-"


def role_plots(found: RolesUse | None) -> list[str]:
    if found is None or found.is_sync:
        return []
    ages = np.repeat(
        np.array(sorted(found.staleness), dtype=float),
        [found.staleness[age] for age in sorted(found.staleness)],
    )
    lines = [
        Line(use.name, use.times / 60, use.steps, number % 6)
        for number, use in enumerate(found.trainers)
    ]
    whole = Axis("updates", lambda value: f"{value:,.0f}", is_whole=True)
    return [
        line_plot(
            "Step numbers of each worker",
            Axis("minutes", lambda value: f"{value:.4g}"),
            Axis("step", lambda value: f"{value:,.0f}", is_whole=True),
            lines,
        ),
        histogram("Staleness of gradients", whole, ages) if len(ages) else "",
    ]
