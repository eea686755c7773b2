"""What a machine costs for an hour: as given, as `paceline cloud check` has learned it, or from the
catalogue that SkyPilot keeps for its user. None of that is shipped."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paceline.report.prices import find_price

CATALOGUES: Final = Path("~/.sky/catalogs")
_HOME_REGION: Final = "us-east-1"


@dataclass(frozen=True)
class HourPrice:
    """In US dollars, unless the user means otherwise."""

    per_hour: float
    source: str


def price_of(
    type_name: str, given: float | None, catalogues: Path = CATALOGUES
) -> HourPrice | None:
    if given is not None:
        return HourPrice(given, "given with --price")
    known = find_price(f"aws {type_name}")
    if known is not None:
        return HourPrice(known.per_hour, f"asked of AWS: {known.in_words()}")
    return _of_skypilot(type_name, catalogues.expanduser())


def _of_skypilot(type_name: str, catalogues: Path) -> HourPrice | None:
    """On demand; in its home region where it is there, else where it costs least."""
    versions = sorted(catalogues.glob("v*/aws/vms.csv"), key=_version, reverse=True)
    for file in versions:
        found = _prices_in(file, type_name)
        if found:
            region = _HOME_REGION if _HOME_REGION in found else min(found, key=lambda r: found[r])
            name = f"SkyPilot's catalogue here ({file.parent.parent.name}), {region}"
            return HourPrice(found[region], name)
    return None


def _version(file: Path) -> int:
    digits = re.sub(r"\D", "", file.parent.parent.name)
    return int(digits) if digits else 0


def _prices_in(file: Path, type_name: str) -> dict[str, float]:
    """By region; nothing of a file that is not as SkyPilot writes it."""
    found: dict[str, float] = {}
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines):
                price = row.get("Price") or ""
                if row.get("InstanceType") == type_name and _is_number(price):
                    region = row.get("Region") or "?"
                    found[region] = min(float(price), found.get(region, float("inf")))
    except (OSError, UnicodeDecodeError, csv.Error):
        return {}
    return found


def _is_number(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False
