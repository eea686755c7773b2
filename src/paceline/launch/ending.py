"""What a launcher says when a run is finished: how long, how good, where, and what to do next."""

import time
from collections.abc import Iterator
from typing import Any

from paceline.data.card import read_card
from paceline.data.places import data_directory
from paceline.errors import UserError
from paceline.recipe import read_settings
from paceline.record.events import Event, parse_events, read_events, spread_lines
from paceline.record.schema import RunDirectory
from paceline.task_finder import find_task
from paceline.units import count_of, format_score, format_seconds


def ending_in_words(run: RunDirectory, started: float) -> str:
    settings = read_settings(run.recipe)
    lines = [
        f"finished: {count_of(int(settings['steps']), 'step')} {_how_long(run, started)}",
        *_how_good(run, settings),
        f"  the run is in {run.path}; next:",
        *_next_commands(run, settings),
    ]
    return "\n".join(lines)


def _how_long(run: RunDirectory, started: float) -> str:
    took = f"in {format_seconds(time.time() - started)}"
    launches = [e for e in read_events(run.launcher_events) if e["kind"] == "launch"]
    if len(launches) < 2:
        return took
    from paceline.record.story import read_story  # noqa: PLC0415  (numpy, which a start need not pay)

    whole = format_seconds(read_story(run).wall_seconds)
    return f"{took}; {whole} in all, over {len(launches)} starts"


def _how_good(run: RunDirectory, settings: dict[str, Any]) -> Iterator[str]:
    scores = [event for event in _score_events(run) if event["split"] == "validation"]
    best_by = next((e["best_by"] for e in _begin_events(run) if "best_by" in e), None)
    known = [event for event in scores if best_by in event["scores"]]
    if best_by is None or not known:
        yield "  not scored while training; `paceline evaluate` scores what was saved"
        return
    scale = find_task(str(settings["workload"])).score_scales.get(best_by)
    last, best = known[-1], max(known, key=lambda event: event["scores"][best_by])
    told = f"  {format_score(best_by, last['scores'][best_by], scale)} on validation data"
    if best["scores"][best_by] > last["scores"][best_by]:
        top = format_score(best_by, best["scores"][best_by], scale)
        told += f" at the end; best: {top} at step {best['step']:,}"
    yield told


def _score_events(run: RunDirectory) -> Iterator[Event]:
    """Of a file that may have a hundred thousand other lines."""
    lines = (line for line in spread_lines(run.rank_events(0)) if b'"score"' in line)
    return (e for e in parse_events(lines) if e["kind"] == "score" and "scores" in e)


def _begin_events(run: RunDirectory) -> Iterator[Event]:
    lines = (line for line in spread_lines(run.rank_events(0)) if b'"begin"' in line)
    return (event for event in parse_events(lines) if event["kind"] == "begin")


def was_stopped(run: RunDirectory) -> bool:
    """Whether the newest attempt ended before it was finished, because somebody asked it to."""
    lines = (line for line in spread_lines(run.rank_events(0)) if b'"end"' in line)
    reasons = [event.get("reason") for event in parse_events(lines) if event["kind"] == "end"]
    return reasons[-1:] == ["stopped"]


def _next_commands(run: RunDirectory, settings: dict[str, Any]) -> Iterator[str]:
    commands = [(f"paceline report {run.path}", "where the time went, and what came of it")]
    if _has_test_data(settings):
        commands.append((f"paceline evaluate {run.path} --split test", "the score on unseen data"))
    width = max(len(command) for command, _ in commands)
    for command, why in commands:
        yield f"    {command:<{width}}   # {why}"


def _has_test_data(settings: dict[str, Any]) -> bool:
    try:
        return "test" in read_card(data_directory(str(settings["data"]))).get("splits", {})
    except UserError:
        return False
