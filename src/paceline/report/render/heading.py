"""What a report is of, in a line or a few."""

from paceline.report.facts.facts import Facts
from paceline.units import count_of, format_count, format_seconds


def heading(facts: Facts) -> list[str]:
    """The first line is a title; the others follow it."""
    return _of_run(facts) if facts.is_own else _of_log(facts)


def _of_run(facts: Facts) -> list[str]:
    return [
        str(facts.run),
        f"{facts.settings.get('workload')}, {facts.reason} {facts.how_far}, "
        f"{format_seconds(facts.wall_seconds)}",
    ]


def _of_log(facts: Facts) -> list[str]:
    """With what a reader of the log should know and no answer would say."""
    title = f"{facts.run}: {facts.tool}"
    if facts.step:
        title += f", step {facts.step:,}"
    if facts.steps_wanted:
        title += f" of {facts.steps_wanted:,}"
    if facts.began:
        title += f", begun {facts.began}"
    known = _known(facts)
    notes = [f"note: {note}" for note in facts.warnings]
    if facts.first_step:
        notes.insert(0, f"note: the log begins in the middle, at step {facts.first_step:,}")
    if facts.failure is not None:
        what = f" ({facts.failure.kind})" if facts.failure.kind else ""
        notes.append(f"note: it ended with: {facts.failure.line}{what}")
        if facts.failure.remedy:
            notes.append(f"what to do: {facts.failure.remedy}")
    return [title, *([", ".join(known)] if known else []), *notes]


def _known(facts: Facts) -> list[str]:
    world, known = facts.world, []
    if world.size:
        names = world.host_names
        hosts = f" on {count_of(len(names), 'host')} ({', '.join(names)})" if names else ""
        known.append(f"{count_of(world.size, 'process')}{hosts}")
    if world.device_names:
        known.append(" and ".join(world.device_names))
    if facts.num_parameters:
        known.append(f"{format_count(facts.num_parameters)} parameters")
    if facts.data.global_batch:
        known.append(f"batch {facts.data.global_batch:,} ({facts.data.batch_how})")
    return known
