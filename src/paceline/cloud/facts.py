"""What was learned from a cloud; what it did not say is None, with the reason beside it."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Wanted:
    type: str
    num_hosts: int
    region: str
    spot: bool = False
    hours: float | None = None


@dataclass(frozen=True)
class CloudFacts:
    account: str
    num_vcpus: int
    num_gpus: int
    gpu: str
    zones: tuple[str, ...]
    quota_vcpus: float | None = None
    used_vcpus: float | None = None
    image: str | None = None
    price_on_demand: float | None = None
    """Per host and hour, in US dollars; so is the other."""
    price_spot: dict[str, float] = field(default_factory=dict)
    """By zone."""
    baseline_gbit: float | None = None
    burst_gbit: float | None = None
    unknown: dict[str, str] = field(default_factory=dict)
    """What could not be asked, and why."""


@dataclass(frozen=True)
class Machine:
    """One that is up and costs money."""

    id: str
    type: str
    region: str
    state: str
    since_seconds: float
    name: str = ""
    is_spot: bool = False
    price_per_hour: float | None = None
    cluster: str | None = None
    """The tag that SkyPilot has given it: its cluster's name, and a number."""
