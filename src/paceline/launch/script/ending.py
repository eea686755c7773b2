"""What is said when a script has ended: the verdict in one line, or why there is none."""

from dataclasses import dataclass
from typing import Any

from paceline.errors import Say, UserError
from paceline.record.events import Event, read_events
from paceline.record.schema import RunDirectory
from paceline.units import count_of, format_seconds, percent


@dataclass(frozen=True)
class Conclusion:
    is_recorded: bool
    """At least one step was seen."""
    text: str


def conclude(run: RunDirectory, code: int, attempt: int, say: Say) -> Conclusion:
    idle = [event for event in read_events(run.idle_events) if event["attempt"] == attempt]
    run.idle_events.unlink(missing_ok=True)
    if not any(run.events.glob("rank-*.jsonl")):
        found = Conclusion(False, no_step_in_words(idle, code))
    else:
        found = Conclusion(True, verdict_in_words(run))
    say(found.text)
    return found


def verdict_in_words(run: RunDirectory) -> str:
    # Takes numpy, for which a start need not wait.
    from paceline.report.answers.verdict import sentence  # noqa: PLC0415
    from paceline.report.own.run import read_run  # noqa: PLC0415
    from paceline.report.remedies.situation import cores_of_others  # noqa: PLC0415

    try:
        facts = read_run(run.path)
    except UserError as error:
        return f"the script was observed, but its run cannot be read: {error}"
    told = f"{count_of(facts.step, 'step')} in {format_seconds(facts.wall_seconds)}"
    others = cores_of_others(facts)
    beside = f" Other programs used {percent(others)} of the cores." if others else ""
    return f"paceline: {told}. {sentence(facts.verdict)}{beside}\n  paceline report {run.path}"


def no_step_in_words(idle: list[Event], code: int) -> str:
    """Of a script that never trained: what was seen instead."""
    ended = "ended" if code == 0 else f"failed with exit code {code}; its own message is above"
    seen = _seen(idle, ended)
    return f"paceline: no training step was seen, so there is no run to report on. {seen}"


def _seen(idle: list[Event], ended: str) -> str:
    if not idle:
        return (
            f"The script {ended}. The observer was not loaded in any of its processes: `python -I` "
            "and `-E` leave it out; `import paceline.observe` in the script puts it in"
        )
    seen: dict[str, Any] = {}
    for event in idle:
        for name, count in (event.get("seen") or {}).items():
            seen[name] = seen.get(name, 0) + int(count)
    if not seen.get("torch"):
        return f"The script {ended}. It never imported torch"
    told = [
        f"{seen.get('batches', 0):,} batches of a DataLoader",
        f"{seen.get('backwards', 0):,} calls of backward",
        "no step of an optimizer of torch.optim",
    ]
    return f"The script {ended}. Seen: torch was imported, {', '.join(told)}"
