"""How far a script has come and what it has saved, from the events of its ranks on this host."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paceline.record.events import parse_events
from paceline.record.schema import RunDirectory

_LAST_BYTES = 1 << 20


@dataclass(frozen=True)
class Progress:
    step: int = 0
    """The last optimizer step that was recorded, of any attempt."""
    saved_step: int | None = None
    """When the script last saved anything; None if it never did."""
    saved_path: str = ""

    def as_document(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "Progress":
        return cls(document["step"], document["saved_step"], document["saved_path"])


def read_progress(run: Path) -> Progress:
    """From the end of each file: a long run's events are many."""
    step, saved_step, saved_path, saved_at = 0, None, "", 0.0
    for path in sorted(RunDirectory(run).events.glob("rank-*.jsonl")):
        for event in parse_events(_last_lines(path)):
            step = max(step, int(event.get("step", 0)))
            if event["kind"] == "checkpoint" and event["time"] >= saved_at:
                saved_at, saved_step = event["time"], int(event.get("step", 0))
                saved_path = str(event.get("path", ""))
    return Progress(step, saved_step, saved_path)


def _last_lines(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LAST_BYTES))
            return file.read().splitlines()
    except OSError:
        return []


def newest(known: list[Progress]) -> Progress:
    """Of all hosts: the furthest step, and the last save of the attempt that got there."""
    step = max((progress.step for progress in known), default=0)
    saved = [progress for progress in known if progress.saved_step is not None]
    last = max(saved, key=lambda progress: progress.saved_step or 0, default=Progress())
    return Progress(step, last.saved_step, last.saved_path)


def loss_in_words(progress: Progress, last_step: int) -> str:
    """What an end costs, as far as it can be known from outside of the script. `last_step`: that
    its processes told last, of which events are written a little later."""
    step = max(progress.step, last_step)
    if step == 0:
        return "no step of an optimizer was seen, so no step is lost"
    if progress.saved_step is None:
        return f"the script saved nothing that was seen, so all {step:,} steps are lost"
    place = f" ({progress.saved_path})" if progress.saved_path else ""
    lost = step - min(progress.saved_step, step)
    return (
        f"the script last saved at step {progress.saved_step:,}{place}: if it resumes from there, "
        f"{lost:,} of {step:,} steps are lost, else all of them"
    )
