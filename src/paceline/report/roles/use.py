"""What chief, workers and servers did, where processes have roles. Pure data and judgement."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from paceline.record.schema import NETWORK, OPTIMIZER

Numbers = NDArray[np.float64]

SERVER_LINK = "server link"
SERVER_COMPUTE = "server compute"


@dataclass(frozen=True)
class Waits:
    """What trainers waited for within the phase network, in seconds of all of them together."""

    push: float = 0.0
    pull: float = 0.0
    update: float = 0.0
    """Until servers had made the update whose weights they needed."""
    chief: float = 0.0
    """For the chief's word: in step for the slowest trainer, else for the next lease."""

    @property
    def total(self) -> float:
        return self.push + self.pull + self.update + self.chief


@dataclass(frozen=True)
class RoleUse:
    """One process in one role, over all attempts."""

    name: str
    """'chief', 'worker 0', 'server 1'."""
    rank: int
    host: str
    phases: dict[str, float]
    """Start-up included; they add up to the time that it lived."""
    num_steps: int = 0
    """Of a trainer: updates that its gradients made or were part of."""
    num_units: float = 0.0
    num_dropped: int = 0
    """Gradients that came too late."""
    times: Numbers = field(default_factory=lambda: np.zeros(0))
    """Of its lines, in seconds since the run began."""
    steps: Numbers = field(default_factory=lambda: np.zeros(0))
    """The number of the run's last step that was its own by then."""

    @property
    def seconds(self) -> float:
        return sum(self.phases.values())


@dataclass(frozen=True)
class ServerUse(RoleUse):
    number: int = 0
    shard_bytes: float = 0.0
    sent_bytes: float = 0.0
    received_bytes: float = 0.0
    loop_seconds: float = 0.0
    """Without start-up."""
    link_bits_per_second: float | None = None

    @property
    def link_share(self) -> float | None:
        """Of what its link could have carried in its busier direction while the run trained."""
        if not self.link_bits_per_second or not self.loop_seconds:
            return None
        most = max(self.sent_bytes, self.received_bytes)
        return 8 * most / (self.link_bits_per_second * self.loop_seconds)

    def share_in(self, phase: str) -> float:
        return self.phases.get(phase, 0.0) / self.loop_seconds if self.loop_seconds else 0.0


@dataclass(frozen=True)
class RolesUse:
    mode: str
    """sync, async or bounded."""
    backup: int
    all_roles: tuple[str, ...]
    trainers: tuple[RoleUse, ...]
    servers: tuple[ServerUse, ...]
    chief: RoleUse | None = None
    """Where it does not train itself."""
    waits: Waits = field(default_factory=Waits)
    staleness: dict[int, int] = field(default_factory=dict)
    """How many updates had which staleness."""
    most_staleness: int | None = None
    """That was allowed, where there was a limit."""
    num_dropped: int = 0
    dropped_units: float = 0.0
    lost: tuple[str, ...] = ()
    """What was said when workers were gone."""
    pushed_bytes_per_update: float = 0.0

    @property
    def mean_staleness(self) -> float:
        total = sum(self.staleness.values())
        return sum(s * n for s, n in self.staleness.items()) / total if total else 0.0

    @property
    def is_sync(self) -> bool:
        return self.mode == "sync"

    @property
    def busiest(self) -> ServerUse | None:
        """The server whose link or processor had most to do."""
        if not self.servers:
            return None
        return max(self.servers, key=lambda s: s.share_in(NETWORK) + s.share_in(OPTIMIZER))


def split_network(waits: Waits, network_share: float) -> dict[str, float]:
    """The share of the loop that trainers spend in the network, by what it was spent on."""
    if not waits.total or network_share <= 0:
        return {NETWORK: network_share}
    per_second = network_share / waits.total
    return {
        SERVER_LINK: (waits.push + waits.pull) * per_second,
        SERVER_COMPUTE: waits.update * per_second,
        NETWORK: waits.chief * per_second,
    }
