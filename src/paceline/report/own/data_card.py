"""What the data directory of a run says of itself. Figures only."""

import json
from typing import Any

from paceline.data.card import read_card
from paceline.data.places import data_directory
from paceline.errors import UserError
from paceline.record import checkpoints as stored
from paceline.report.facts.facts import CheckpointContents, DataCard


def data_card(named: Any, held: CheckpointContents | None) -> DataCard | None:
    """What the data directory says of itself, where it is still to be found."""
    try:
        directory = data_directory(str(named))
        card = read_card(directory)
        splits = {name: _counts(split) for name, split in card["splits"].items()}
        noun = next(iter(next(iter(splits.values()))))
        return DataCard(
            directory=directory,
            noun=noun,
            num_by_split={name: next(iter(counts.values())) for name, counts in splits.items()},
            total_bytes=1e6 * float(card["total_mb"]),
            is_stand_in=bool(card.get("stand_in")),
            is_other=trained_with(held) not in (None, card.get("fingerprint")),
            fingerprint=str(card.get("fingerprint") or ""),
            train_counts=splits.get("train", {}),
        )
    except (UserError, OSError, RuntimeError, LookupError, TypeError, ValueError, AttributeError):
        return None  # cards belong to workloads, and a report does not fail over one
    except StopIteration:
        return None


def _counts(split: dict[str, Any]) -> dict[str, int]:
    """Workloads name what they count: `num_pictures`, `num_pairs`. The samples come first."""
    counts = {
        name.removeprefix("num_").replace("_", " "): int(count)
        for name, count in split.items()
        if name.startswith("num_") and not isinstance(count, dict)
    }
    if not counts:
        raise ValueError("a split that counts nothing")
    return counts


def trained_with(held: CheckpointContents | None) -> str | None:
    """The fingerprint of the data that a checkpoint was trained on."""
    try:
        state = json.loads((held.path / stored.STATE).read_text(encoding="utf-8")) if held else {}
        found = state["progress"]["data_fingerprint"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return str(found) if found else None
