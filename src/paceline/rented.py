"""What kind of rented machine this is, by its firmware's word; and what such machines cost.

Prices come from `paceline cloud`, which asks the clouds; here they are only kept, in a file of the
user's cache, so that a report can be about money a year later and without any network.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.files import write_whole

_FIRMWARE = Path("/sys/class/dmi/id")
ON_DEMAND, SPOT = "on demand", "spot"


def machine_type(
    firmware: Path = _FIRMWARE, variables: Mapping[str, str] = os.environ
) -> str | None:
    """'aws g5.xlarge', or 'aws g5.xlarge spot' where the job file says so. Nothing is asked over
    the network: a machine that is not rented would wait for an answer."""
    try:
        vendor = (firmware / "sys_vendor").read_text(encoding="utf-8").strip()
        product = (firmware / "product_name").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    if vendor != "Amazon EC2" or "." not in product:
        return None
    return f"aws {product}{' spot' if variables.get('PACELINE_SPOT') == '1' else ''}"


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
