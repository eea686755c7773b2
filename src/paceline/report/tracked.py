"""What a tracker is told of a run: the verdict, phases and the network of each host. Pure."""

import math

from paceline.report.answers import answers
from paceline.report.facts.facts import Facts, HostUse
from paceline.report.facts.learning import series

Values = dict[str, float | str]


def tracked_values(facts: Facts) -> Values:
    """Flat, under names that begin with `paceline/` and carry their units."""
    told = {answer.key: answer.sentence for answer in answers(facts)}
    values: Values = {"verdict": facts.verdict.word, "wall_seconds": facts.wall_seconds}
    for key in ("verdict", "duration", "network", "input"):
        if key in told:
            values[f"{key}_sentence"] = told[key]
    values |= _phases(facts) | _steps(facts)
    for host in facts.world.hosts:
        values |= _of_host(host)
    known = {n: v for n, v in values.items() if isinstance(v, str) or math.isfinite(v)}
    return {f"paceline/{name}": value for name, value in known.items()}


def _phases(facts: Facts) -> Values:
    total = sum(facts.phases.values()) or math.nan
    seconds: Values = {f"phase_seconds/{name}": s for name, s in facts.phases.items()}
    return seconds | {f"phase_share/{name}": s / total for name, s in facts.phases.items()}


def _steps(facts: Facts) -> Values:
    values: Values = {}
    if facts.step_times is not None:
        values["step_seconds_median"] = facts.step_times.median_seconds
        if facts.step_times.units_per_second is not None:
            values["units_per_second"] = facts.step_times.units_per_second
    scores = series(facts.learning.scores, facts.learning.best_by)
    if len(scores):
        values[f"best_{facts.learning.best_by}"] = float(scores.values.max())
    return values


def _of_host(host: HostUse) -> Values:
    values: Values = {
        "sent_bytes_per_second": host.sent_bytes_per_second,
        "received_bytes_per_second": host.received_bytes_per_second,
        "cpu_share": host.cpu_share,
        "device_share": host.device_share,
    }
    if host.link_bits_per_second:
        values["sent_share_of_link"] = 8 * host.sent_bytes_per_second / host.link_bits_per_second
    return {f"host/{host.host}/{name}": value for name, value in values.items()}
