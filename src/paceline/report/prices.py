"""What rented machines cost, as `paceline cloud` has learned it from the clouds.

Kept in a file of the user's cache, so that a report is about money without asking anybody.
"""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.files import write_whole

ON_DEMAND, SPOT = "on demand", "spot"


@dataclass(frozen=True)
class Price:
    per_hour: float
    """Of one machine, in US dollars."""
    way: str
    """On demand or spot."""
    region: str
    asked: float
    """When, in seconds since 1970."""

    def in_words(self) -> str:
        day = time.strftime("%Y-%m-%d", time.localtime(self.asked))
        return f"{self.way} in {self.region}, asked on {day}"


def prices_file() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return Path(cache or "~/.cache").expanduser() / "paceline" / "prices.json"


def remember_price(machine: str, price: Price, file: Path | None = None) -> None:
    """`machine` without its way of paying: 'aws g5.xlarge'."""
    path = file or prices_file()
    known = _read(path)
    known.setdefault(machine, {}).setdefault(price.way, {})[price.region] = {
        "per_hour": price.per_hour,
        "asked": price.asked,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(known, indent=1) + "\n")


def find_price(machine: str | None, file: Path | None = None) -> Price | None:
    """The newest of any region; None where nobody has asked."""
    if not machine:
        return None
    name, way = (machine.removesuffix(" spot"), SPOT if machine.endswith(" spot") else ON_DEMAND)
    by_region = _read(file or prices_file()).get(name, {}).get(way, {})
    found = [
        Price(float(known["per_hour"]), way, str(region), float(known["asked"]))
        for region, known in by_region.items()
    ]
    return max(found, key=lambda price: price.asked, default=None)


def _read(path: Path) -> dict[str, Any]:
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
