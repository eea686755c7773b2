"""Which roles the processes of each host have: as the user says, or placed for them. Pure.

The chief's host comes first, because its first process is rank 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.errors import UserError
from paceline.settings import Recipe
from paceline.strategies.roles import (
    CHIEF,
    SERVER,
    WORKER,
    Roles,
    in_rank_order,
    make_roles,
    parse_placed,
)


@dataclass(frozen=True)
class Placement:
    hosts: tuple[str, ...]
    """In the order of ranks."""
    counts: tuple[int, ...]
    """Processes of each."""
    roles: Roles

    def first_rank(self, host: str) -> int:
        return sum(self.counts[: self.hosts.index(host)])

    def ranks_of(self, host: str) -> range:
        first = self.first_rank(host)
        return range(first, first + self.counts[self.hosts.index(host)])

    def in_words(self) -> str:
        shown = []
        for host in self.hosts:
            names = [self.roles.by_rank[rank] for rank in self.ranks_of(host)]
            counts = [f"{name}={names.count(name)}" for name in dict.fromkeys(names)]
            shown.append(f"{host}: {', '.join(counts)}")
        return "; ".join(shown)


def place(
    recipe: Recipe,
    hosts: Sequence[str],
    num_trainers: Mapping[str, int],
    asked: str | None,
    pinned: Mapping[str, Sequence[str]],
    absent: Sequence[str] = (),
) -> Placement:
    """`hosts` are those that there are, in order; `num_trainers` how many processes each would have
    without roles. `asked` is what --roles says, `pinned` what the hosts file says of each host.
    `absent` are hosts of the file that are lost, without which the run goes on."""
    is_pinned = any(pinned.get(host) for host in hosts)
    if asked and is_pinned:
        raise UserError(
            "roles are given both in the hosts file and with --roles", "keep one of the two"
        )
    if asked:
        here = [member for member in parse_placed(asked) if member[1] not in absent]
        by_host = _spread(hosts, here)
    elif is_pinned:
        by_host = {h: list(pinned.get(h) or [WORKER] * num_trainers[h]) for h in hosts}
    else:
        by_host = {host: [*[WORKER] * num_trainers[host], SERVER] for host in hosts}
    if not asked or absent:
        _complete(by_host)
    ordered = {host: in_rank_order(own) for host, own in by_host.items() if own}
    return _placement(recipe, ordered, is_short=bool(absent))


def _spread(hosts: Sequence[str], members: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """Each where it is told to be; else where there are fewest so far."""
    by_host: dict[str, list[str]] = {host: [] for host in hosts}
    for member, host in members:
        if host and host not in by_host:
            raise UserError(
                f"--roles puts a {member} on '{host}', which the hosts file does not name",
                f"name one of: {', '.join(hosts)}",
            )
    for member, host in [*(m for m in members if m[1]), *(m for m in members if not m[1])]:
        least = min(hosts, key=lambda each: len(by_host[each]))
        by_host[host or least].append(member)
    return by_host


def _complete(by_host: dict[str, list[str]]) -> None:
    """Somebody decides and somebody holds the weights, also when the host that did is gone."""
    first = next(iter(by_host.values()))
    if not any(CHIEF in member for own in by_host.values() for member in own):
        place_of_worker = first.index(WORKER) if WORKER in first else None
        if place_of_worker is None:
            first.append(CHIEF)
        else:
            first[place_of_worker] = CHIEF
    if not any(SERVER in member for own in by_host.values() for member in own):
        first.append(SERVER)


def _placement(recipe: Recipe, by_host: Mapping[str, tuple[str, ...]], is_short: bool) -> Placement:
    chiefs = [h for h, own in by_host.items() if any(CHIEF in member for member in own)]
    order = sorted(by_host, key=lambda host: host not in chiefs[:1])  # else as they were
    members = [member for host in order for member in by_host[host]]
    counts = tuple(len(by_host[host]) for host in order)
    return Placement(tuple(order), counts, make_roles(recipe, members, is_short))
