"""What is strange about a record, so that its figures are read with care, and what it warned of."""

from itertools import pairwise
from typing import Any

from paceline.record.columns import RankRecord
from paceline.record.events import Event
from paceline.record.story import LongStory, Story
from paceline.report.roles.reading import expected_ranks
from paceline.units import count_of, format_seconds

_MOST_DIFFERENCE = 0.01


def warnings_of(
    launcher: list[Event], records: list[RankRecord], long: LongStory, begin: dict[str, Any]
) -> list[str]:
    """In the order in which they are told; the last matter most."""
    return [*_told_warnings(long.story), *_failures(launcher), *_odd(records, long, begin)]


def _told_warnings(story: Story) -> list[str]:
    warnings = [str(event.get("text", "?")) for event in story.of_kind("warning")]
    num_lost = sum(event.get("num_lost", 0) for event in [*story.events, *story.lost])
    if num_lost:
        warnings.append(f"the disk was full: events that could not be written: {num_lost:,}")
    return warnings


def _failures(launcher: list[Event]) -> list[str]:
    """Why attempts failed, as the launcher of several hosts saw it."""
    return [
        f"attempt {event['attempt']} ended: {event['text']}"
        for event in launcher
        if event["kind"] == "exit" and event.get("code") and event.get("text")
    ]


def _odd(records: list[RankRecord], long: LongStory, begin: dict[str, Any]) -> list[str]:
    """What is strange about the record itself, so that its figures are read with care."""
    found = []
    there = {record.rank for record in records}
    expected = expected_ranks(begin, int(begin.get("world_size") or 0))
    missing = [rank for rank in expected if rank not in there]
    if missing and there and begin:
        named = ", ".join(str(rank) for rank in missing[:8])
        found.append(
            f"no events of {'rank' if len(missing) == 1 else 'ranks'} {named}: "
            "what they did, and who waited for them, is not known"
        )
    for jump in long.jumps[:3]:
        way = "forward" if jump.seconds > 0 else "back"
        found.append(
            f"before step {jump.step:,} the system clock jumped "
            f"{format_seconds(abs(jump.seconds))} {way} "
            "(it was set, or the machine slept); that time is not counted"
        )
    return found + _overlaps(long.story) + _changed_kernels(long.story) + _sums_that_differ(long)


def _sums_that_differ(long: LongStory) -> list[str]:
    """What agrees if the record is whole: steps with their numbers, phases with the wall time."""
    found, story = [], long.story
    begins, rows = story.of_kind("begin"), long.kept
    if begins and len(rows):
        wanted = int(rows["step"].max()) - min(int(event["step"]) for event in begins)
        missing = wanted - int(rows.total("num_steps"))
        if missing > 0:
            found.append(
                f"{missing:,} of {count_of(wanted, 'step')} are not in the record: sums of times, "
                "losses and bytes are without them"
            )
    booked, wall = sum(story.phases.values()), story.wall_seconds
    if abs(booked - wall) > _MOST_DIFFERENCE * max(wall, 1.0):
        found.append(
            f"the phases add up to {format_seconds(booked)}, but the wall time is "
            f"{format_seconds(wall)}"
        )
    return found


def _overlaps(story: Story) -> list[str]:
    spans = [(a.started, a.ended, a.number) for a in story.attempts if a.started is not None]
    spans.sort()
    return [
        f"attempts {one} and {other} ran at the same time for "
        f"{format_seconds(min(ended, other_ended) - begun)}: both are counted"
        for (_, ended, one), (begun, other_ended, other) in pairwise(spans)
        if min(ended, other_ended) - begun > 1
    ]


def _changed_kernels(story: Story) -> list[str]:
    """A run that goes on elsewhere may go on with other kernels: faster, slower, rounding."""
    known = [event for event in story.of_kind("begin") if event.get("kernels")]
    found = []
    for before, after in pairwise(known):
        changed = [
            f"{name} ({before['kernels'][name]} to {way})"
            for name, way in after["kernels"].items()
            if before["kernels"].get(name, way) != way
        ]
        if changed:
            found.append(
                f"from attempt {before['attempt']} to {after['attempt']} kernels changed: "
                f"{', '.join(changed)}; speed and rounding before and after are not the same"
            )
    return found
