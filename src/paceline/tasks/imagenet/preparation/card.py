"""What the card of prepared ImageNet says, and what of it is said aloud."""

from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np

from paceline.data.card import fingerprint, read_card
from paceline.tasks.imagenet.preparation.pack import FOLDER_OF, Work, described_files
from paceline.tasks.imagenet.shards import SPLITS, WAYS, WORKLOAD, index_name
from paceline.units import count_of, format_bytes

_SHOWN: Final = 5


def describe(work: Work, entries: list[dict[str, Any]], key: str) -> dict[str, Any]:
    """The card, from the journal's entries and the files as they are."""
    found = work.source
    arrays = described_files(work)
    changes: Counter[str] = Counter()
    for entry in entries:
        changes.update(entry["changes"])
    return {
        "workload": WORKLOAD,
        "source": {
            "kind": "stand-in" if found.stand_in else found.kind,
            "location": "drawn here" if found.stand_in else str(found.location),
            "key": key,
            "is_official": found.is_official,
        },
        "stand_in": found.stand_in,
        "files": list(found.files),
        "layout": work.layout,
        "pictures_in": str(found.location) if work.in_place else None,
        "settings": {"max_side": work.max_side, "seed": work.seed},
        "num_classes": len(found.classes),
        "splits": {split: _describe_split(work, split, entries) for split in SPLITS},
        "changed": dict(sorted(changes.items())),
        "broken": [
            {"split": entry["split"], "in": entry["unit"], "name": name, "reason": reason}
            for entry in entries
            for name, reason in entry["broken"]
        ],
        "total_mb": round(_total_bytes(work) / 1e6, 3),
        "arrays": arrays,
        "fingerprint": fingerprint({name: array["sha256"] for name, array in arrays.items()}),
    }


def _total_bytes(work: Work) -> int:
    return sum(path.stat().st_size for path in work.new.rglob("*") if path.is_file())


def _describe_split(work: Work, split: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
    ours = [entry for entry in entries if entry["split"] == split]
    index = np.load(work.new / index_name(split))
    counts = np.bincount(index["label"], minlength=len(work.source.classes)).tolist()
    num_broken = sum(len(entry["broken"]) for entry in ours)
    return {
        "num_pictures": len(index),
        **_sizes(work, split, ours),
        "num_read": len(index) + num_broken,
        "num_expected": work.source.expected_counts()[split],
        "num_broken": num_broken,
        "smallest": [int(index["width"].min()), int(index["height"].min())],
        "largest": [int(index["width"].max()), int(index["height"].max())],
        "mean_size": [round(float(index[side].mean()), 1) for side in ("width", "height")],
        "num_per_class": {
            wnid: count for (wnid, _), count in zip(work.source.classes, counts, strict=True)
        },
        "shards": sorted(path.name for path in work.new.glob(f"{split}-*.tar")),
    }


def _sizes(work: Work, split: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
    """The pictures as they were given, where the whole journal tells, and as they are stored."""
    given = [entry.get("given_bytes") for entry in entries]
    sizes: dict[str, Any] = {}
    if None not in given:
        sizes["given"] = {"bytes": sum(given), "form": "pictures as files"}
    if not work.in_place:
        files = [*work.new.glob(f"{split}[-.]*"), *(work.new / FOLDER_OF[split]).rglob("*")]
        sizes["stored_bytes"] = sum(path.stat().st_size for path in files if path.is_file())
    return sizes


def what_was_met(card: dict[str, Any]) -> list[str]:
    """Pictures left out or changed, and counts that are not the published ones."""
    lines = []
    for split, counts in card["splits"].items():
        difference = counts["num_read"] - counts["num_expected"]
        if difference:
            lines.append(
                f"{split} has {count_of(counts['num_read'], 'picture')}: {abs(difference):,} "
                f"{'more' if difference > 0 else 'fewer'} than the {counts['num_expected']:,} "
                f"{'that were drawn' if card['stand_in'] else 'of ILSVRC 2012'}"
            )
    if card["changed"]:
        changes = ", ".join(f"{num:,} {change}" for change, num in card["changed"].items())
        lines.append(f"pictures that were not plain JPEGs: {changes}")
    if broken := card["broken"]:
        shown = [f"  {b['in']} {b['name']}: {b['reason']}" for b in broken[:_SHOWN]]
        rest = "  ... all of them are listed in card.json" if len(broken) > _SHOWN else None
        lines += [f"{count_of(len(broken), 'picture')} broken and left out:", *shown]
        lines += [rest] if rest else []
    return lines


def summary(to: Path) -> str:
    card = read_card(to, WORKLOAD, WAYS)
    counts = ", ".join(f"{card['splits'][s]['num_pictures']:,} {s}" for s in SPLITS)
    drawn = " drawn" if card["stand_in"] else ""
    where = f" in {card['pictures_in']}, which stays as it is" if card["pictures_in"] else ""
    return (
        f"{to} holds {counts}{drawn} pictures of {card['num_classes']:,} classes as "
        f"{card['layout']}{where}, {format_bytes(card['total_mb'] * 1e6)} "
        f"(fingerprint {card['fingerprint']})"
    )
