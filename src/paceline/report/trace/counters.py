"""What each host did, as counters: a value holds from the beginning of its interval on."""

from collections.abc import Iterator
from dataclasses import dataclass

from paceline.record.events import Event

_RATES = {
    "sent": "sent_bytes",
    "received": "received_bytes",
    "disk read": "disk_read_bytes",
    "disk written": "disk_written_bytes",
}


@dataclass(frozen=True)
class Counter:
    attempt: int
    name: str
    time: float
    value: float


def counters_of(probes: list[Event], most: int) -> Iterator[Counter]:
    """A probe is a mean over the seconds before it; of too many, evenly spread ones are drawn."""
    per_probe = max((len(list(_values(probe, 1.0))) for probe in probes[:1]), default=1)
    stride = max(1, -(-len(probes) * max(per_probe, 1) // max(most, 1)))
    for probe in probes[::stride]:
        seconds = probe["seconds"]
        time = probe["time"] - max(seconds, 0.0)
        for name, value in _values(probe, seconds):
            yield Counter(probe["attempt"], name, time, value)


def _values(probe: Event, seconds: float) -> Iterator[tuple[str, float]]:
    if "cpu_share" in probe:
        yield "cores busy (%)", 100 * probe["cpu_share"]
    if "memory_bytes" in probe:
        yield "memory (GB)", probe["memory_bytes"] / 1e9
    for name, counter in _RATES.items():
        if seconds > 0 and counter in probe:
            yield f"{name} (MB/s)", probe[counter] / seconds / 1e6
    for number, device in enumerate(probe.get("devices", ())):
        if "utilisation" in device:
            yield f"device {number} busy (%)", 100 * device["utilisation"]
        if "power_watts" in device:
            yield f"device {number} power (W)", device["power_watts"]
