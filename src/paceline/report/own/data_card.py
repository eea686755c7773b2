"""What the data directory of a run says of itself. Figures only."""

import json
from typing import Any

from paceline.data.card import read_card
from paceline.data.places import data_directory
from paceline.errors import UserError
from paceline.record import checkpoints as stored
from paceline.report.facts.facts import CheckpointContents, DataCard, GivenData


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
            train_bytes=_train_bytes(card),
            given=_given(card),
        )
    except (UserError, OSError, RuntimeError, LookupError, TypeError, ValueError, AttributeError):
        return None  # cards belong to workloads, and a report does not fail over one
    except StopIteration:
        return None


def _train_bytes(card: dict[str, Any]) -> float | None:
    """As stored; older cards tell it file by file."""
    stored = card["splits"].get("train", {}).get("stored_bytes")
    if isinstance(stored, int):
        return stored
    arrays = card.get("arrays")
    files = arrays.items() if isinstance(arrays, dict) else ()
    # A directory of pictures that stayed where they were stores no more than their index.
    if card.get("pictures_in") or card.get("layout") == "folders":
        return None
    sizes = [int(file["bytes"]) for name, file in files if name.startswith(("train-", "train."))]
    return sum(sizes) or None


def _given(card: dict[str, Any]) -> GivenData | None:
    """As the user gave it; older cards tell it of text alone, by corpus."""
    given = card["splits"].get("train", {}).get("given")
    if isinstance(given, dict):
        lines, parts = given.get("num_lines"), given.get("bytes_by_part", {})
        return GivenData(float(given["bytes"]), str(given["form"]), lines, dict(parts))
    corpora = card.get("corpora")
    ours = [c for c in corpora if c["split"] == "train"] if isinstance(corpora, list) else []
    if not ours:
        return None
    num_bytes = 1e6 * sum(float(corpus["text_mb"]) for corpus in ours)
    return GivenData(num_bytes, "text", sum(int(corpus["num_lines"]) for corpus in ours))


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
