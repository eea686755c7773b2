"""What differs between two runs besides the number of machines, and may explain their speed."""

from collections.abc import Iterator
from typing import Any

from paceline.report.facts.facts import Facts
from paceline.report.own.data_card import trained_with

_NOT_SPEED = (
    "about",
    "seed",
    "steps",
    "log",
    "guard",
    "target",
    "evaluate",
    "schedule",
    "label_smoothing",
    "batch.global",
    "batch.per_device",
)
_SOFTWARE = ("paceline", "python", "libraries", "platform", "settings")
_HARDWARE = ("device_name", "num_cores", "memory_bytes")


def what_differs(first: Facts, other: Facts) -> list[dict[str, str]]:
    """Everything but the number of machines that may explain a difference in speed.

    What one of the two does not tell is no difference: older runs know fewer settings.
    """
    before, after = _all_facts(first), _all_facts(other)
    return [
        {"name": name, "first": shown(before[name]), "other": shown(after[name])}
        for name in before
        if name in after and before[name] != after[name]
    ]


def _all_facts(facts: Facts) -> dict[str, Any]:
    found = {
        name: value
        for name, value in _flat(facts.settings)
        if not any(name == skip or name.startswith(f"{skip}.") for skip in _NOT_SPEED)
    }
    known = {
        "global batch": facts.data.global_batch,
        "data (fingerprint)": _fingerprint(facts),
        "loader workers": facts.begin.get("loader_workers"),
        "device": facts.begin.get("device"),
        "precision": facts.begin.get("precision"),
        "tf32": facts.begin.get("tf32"),
    }
    for name in (*_SOFTWARE, *_HARDWARE):
        value = facts.environment.get(name)
        known |= dict(_flat({name: value}))
    if known["data (fingerprint)"] is not None:
        found.pop("data", None)  # the same files may lie elsewhere
    return found | {name: value for name, value in known.items() if value is not None}


def _flat(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _fingerprint(facts: Facts) -> str | None:
    card = facts.data.card
    return trained_with(facts.saving.newest) or (card.fingerprint if card else None)


def shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
