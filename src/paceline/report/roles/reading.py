"""Reading what chief, workers and servers recorded, where processes have roles."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from paceline.record.columns import RankRecord, StepColumns
from paceline.record.events import Event, read_events
from paceline.record.schema import PHASES, START_UP, RunDirectory
from paceline.report.facts.facts import HostUse
from paceline.report.facts.world_times import LOOP, WorldTimes
from paceline.report.roles.use import RolesUse, RoleUse, ServerUse, Waits
from paceline.settings import default_staleness


def read_roles(run: RunDirectory, settings: dict[str, Any], numbers: list[int]) -> RolesUse | None:
    """None of a run whose processes are all alike. `numbers`: the ranks that left events."""
    strategy = settings.get("strategy")
    if not isinstance(strategy, dict) or strategy.get("kind") != "parameter-server":
        return None
    told = {rank: read_events(run.rank_events(rank)) for rank in numbers}
    first = told.get(0, [])
    roles = _all_roles(first)
    started = min((float(e["time"]) - float(e["seconds"]) for e in _of(first, "begin")), default=0)
    trains = [rank for rank in told if rank or strategy.get("chief_trains", True)]
    uses = {rank: _use(events, rank, roles, started) for rank, events in told.items()}
    lines = _of(first, "steps")
    servers = tuple(
        _server(path, roles, started) for path in sorted(run.events.glob("server-*.jsonl"))
    )
    trainers = _with_chiefs_steps(tuple(uses[rank] for rank in trains), lines)
    return RolesUse(
        mode=str(strategy.get("mode", "sync")),
        backup=int(strategy.get("backup") or 0),
        all_roles=roles,
        trainers=trainers,
        servers=servers,
        chief=None if 0 in trains else uses.get(0),
        waits=_waits(told, trains),
        staleness=dict(Counter(int(s) for line in lines for s in line.get("staleness", ()))),
        most_staleness=_limit(strategy, len(trains)),
        num_dropped=int(_sum(lines, "num_dropped")),
        dropped_units=_sum(lines, "dropped_units"),
        lost=tuple(str(e["text"]) for e in _of(first, "warning") if "lost_rank" in e),
        pushed_bytes_per_update=_pushed_per_update(servers),
    )


def with_links(found: RolesUse | None, hosts: list[HostUse]) -> RolesUse | None:
    """With how fast the link of each server's host is, as far as its probes know."""
    if found is None:
        return None
    links = {use.host: use.link_bits_per_second for use in hosts}
    servers = [replace(use, link_bits_per_second=links.get(use.host)) for use in found.servers]
    return replace(found, servers=tuple(servers))


def _all_roles(first: list[Event]) -> tuple[str, ...]:
    begins = [e["all_roles"] for e in _of(first, "begin") if e.get("all_roles")]
    return tuple(begins[-1]) if begins else ()


def _of(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event["kind"] == kind]


def _sum(events: list[Event], name: str) -> float:
    return float(sum(event.get(name) or 0 for event in events))


def _limit(strategy: dict[str, Any], num_trainers: int) -> int | None:
    if strategy.get("mode") != "bounded":
        return None
    told = strategy.get("staleness")
    return int(told) if isinstance(told, int) else default_staleness(num_trainers)


def _phases(events: list[Event]) -> dict[str, float]:
    totals: Counter[str] = Counter()
    for event in events:
        totals.update(event.get("phases", {}))
    return dict(totals)


def _name(rank: int, roles: tuple[str, ...], role: str | None = None) -> str:
    if rank >= len(roles):
        return f"rank {rank}"
    wanted = role or roles[rank].split("+")[0]
    same = [n for n, each in enumerate(roles) if wanted in each.split("+")]
    return wanted if wanted == "chief" else f"{wanted} {same.index(rank)}"


def _use(events: list[Event], rank: int, roles: tuple[str, ...], started: float) -> RoleUse:
    lines, begins = _of(events, "steps"), _of(events, "begin")
    return RoleUse(
        name=_name(rank, roles),
        rank=rank,
        host=str(begins[-1].get("host", "")) if begins else "",
        phases=_phases(events),
        num_steps=int(_sum(lines, "num_steps")),
        num_units=_sum(lines, "num_units"),
        num_dropped=int(_sum(lines, "num_dropped")) if rank else 0,
        times=np.array([float(line["time"]) - started for line in lines]),
        steps=np.array([float(line["step"]) for line in lines]),
    )


def _with_chiefs_steps(trainers: tuple[RoleUse, ...], lines: list[Event]) -> tuple[RoleUse, ...]:
    """The chief's lines tell of all steps; which of them were its own is told beside them, where
    not everybody has a part in every step."""
    made = Counter(int(rank) for line in lines for rank in line.get("trainers", ()))
    if not trainers or trainers[0].rank != 0 or not made:
        return trainers
    num_all = max(sum(made.values()), 1)
    chief = trainers[0]
    own = RoleUse(
        chief.name,
        0,
        chief.host,
        chief.phases,
        made[0],
        chief.num_units * made[0] / num_all,
        0,
        chief.times,
        chief.steps,
    )
    return (own, *trainers[1:])


def _waits(told: dict[int, list[Event]], trains: list[int]) -> Waits:
    lines = [line for rank in trains for line in _of(told[rank], "steps")]
    return Waits(
        push=_sum(lines, "push_seconds"),
        pull=_sum(lines, "pull_seconds"),
        update=_sum(lines, "update_seconds"),
        chief=_sum(lines, "chief_seconds"),
    )


def _server(path: Path, roles: tuple[str, ...], started: float) -> ServerUse:
    events = read_events(path)
    begins, number = _of(events, "begin"), int(path.stem.removeprefix("server-"))
    last = begins[-1] if begins else {}
    phases, rank = _phases(events), int(last.get("rank", 0))
    lines = [event for event in events if event["kind"] in ("steps", "end")]
    host = str(last.get("host", ""))
    return ServerUse(
        name=_name(rank, roles, "server"),
        rank=rank,
        host=host,
        phases=phases,
        num_steps=int(_sum(lines, "num_steps")),
        times=np.array([float(line["time"]) - started for line in lines]),
        steps=np.array([float(line["step"]) for line in lines]),
        number=number,
        shard_bytes=float(last.get("shard_bytes", 0)),
        sent_bytes=_sum(lines, "sent_bytes"),
        received_bytes=_sum(lines, "received_bytes"),
        loop_seconds=sum(phases.values()) - phases.get(START_UP, 0.0),
    )


def _pushed_per_update(servers: tuple[ServerUse, ...]) -> float:
    num_updates = max((server.num_steps for server in servers), default=0)
    return sum(server.received_bytes for server in servers) / num_updates if num_updates else 0.0


def times_out_of_step(rows: StepColumns, records: list[RankRecord], roles: RolesUse) -> WorldTimes:
    """How trainers spent the time of an update, where each makes its own: the shares of each
    one's loop, of the mean time from update to update. There is nothing to line up."""
    own = only_trainers(records, roles)
    totals = np.array([record.steps.phases.sum(axis=0) for record in own])
    loop = [PHASES.index(phase) for phase in LOOP]
    in_loop = totals[:, loop].sum(axis=1, keepdims=True)
    num_steps = rows.total("num_steps")
    update_seconds = float(rows.step_seconds.sum(dtype=np.float64)) / max(num_steps, 1.0)
    known = in_loop[:, 0] > 0
    shares = totals[known] / in_loop[known]
    return WorldTimes(
        ranks=tuple(record.rank for record, is_known in zip(own, known, strict=True) if is_known),
        hosts=tuple(
            str(record.facts.get("host", ""))
            for record, is_known in zip(own, known, strict=True)
            if is_known
        ),
        seconds=(shares * update_seconds)[:, None, :],
        num_steps=np.array([num_steps]),
        last_steps=np.array([rows["step"].max(initial=0.0)]),
    )


def expected_ranks(begin: dict[str, Any], world_size: int) -> list[int]:
    """Ranks that leave events of their own; servers write theirs elsewhere."""
    roles = begin.get("all_roles")
    if not isinstance(roles, list):
        return list(range(world_size))
    return [rank for rank, role in enumerate(roles) if str(role) != "server"]


def only_trainers(records: list[RankRecord], roles: RolesUse | None) -> list[RankRecord]:
    """Those whose steps are compared; a chief that does not train waits for all of them."""
    if roles is None:
        return records
    ranks = {use.rank for use in roles.trainers}
    return [record for record in records if record.rank in ranks]
