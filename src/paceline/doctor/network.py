"""Judgements about the network: interfaces, reachability, speed, and what it means for a recipe.

Pure functions from what was found to rows of the table. Nothing is asked or measured here.
"""

import ipaddress
from collections.abc import Mapping, Sequence

from paceline.doctor.rows import Facts, Row, all_of
from paceline.machine.interfaces import leads_out
from paceline.settings import ReduceSettings
from paceline.units import format_bytes, format_seconds

Pair = tuple[str, str]
"""(from, to)"""

_FELT_SECONDS = 0.05
"""Of a step: a host that computes less than that is not what networks are made for."""
_SLOW_SHARE = 0.5
_SLOW_BITS_PER_SECOND = 2e8
_SLOW_TRIP_SECONDS = 0.002


def judge_addresses(found: Mapping[str, Facts], private: Mapping[str, Sequence[str]]) -> list[Row]:
    """`private`: what each host's private address means on that host."""
    rows = []
    for name, addresses in private.items():
        own = found[name]["addresses"]
        if addresses and not set(addresses) & set(own):
            usable = [a for a, i in own.items() if leads_out(i) and ":" not in a]
            shown = f"{addresses[0]} is not an address of {name} itself"
            hint = f" (it has {', '.join(usable)})" if usable else ""
            remedy = f"set 'private_address' to the one the hosts use among themselves{hint}"
            rows.append(Row(name, "address", "fail", shown, remedy))
        elif any(_is_public(address) for address in addresses):
            shown = f"the hosts would use the public address {addresses[0]} among themselves"
            remedy = "set 'private_address', or be sure that a firewall admits these hosts alone"
            rows.append(Row(name, "address", "warn", shown, remedy))
    return rows


def _is_public(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_global


def judge_interfaces(ways: Mapping[Pair, str | None]) -> list[Row]:
    """Which interface the route from one host to another takes."""
    rows = []
    for (source, target), interface in ways.items():
        where = f"{source} -> {target}"
        if interface is None:
            remedy = f"check the routes there: ip route get ADDRESS-OF-{target}"
            rows.append(Row(where, "route", "fail", "there is no route", remedy))
        elif not leads_out(interface):
            shown = f"the route takes {interface}, which does not leave the host"
            remedy = f"set 'private_address' of {target} to its address on the real network"
            rows.append(Row(where, "route", "fail", shown, remedy))
    if rows or not ways:
        return rows
    chosen = choose_interfaces(ways)
    for host, interface in chosen.items():
        others = sorted({i for (source, _), i in ways.items() if source == host and i})
        if len(others) > 1:
            shown = f"routes take {', '.join(others)}; {interface} is used"
            remedy = "give all hosts private addresses in one network"
            rows.append(Row(host, "route", "warn", shown, remedy))
    if rows:
        return rows
    used = sorted(set(chosen.values()))
    return [Row(all_of(chosen), "route", "ok", f"over {', '.join(used)}")]


def choose_interfaces(ways: Mapping[Pair, str | None]) -> dict[str, str]:
    """For each host the interface that most of its routes take."""
    taken: dict[str, list[str]] = {}
    for (source, _), interface in ways.items():
        if interface is not None and leads_out(interface):
            taken.setdefault(source, []).append(interface)
    return {host: max(sorted(set(used)), key=used.count) for host, used in taken.items()}


def judge_listening(listening: Mapping[str, Facts]) -> list[Row]:
    rows = []
    for name, answer in listening.items():
        if "error" in answer:
            shown = f"cannot listen on its private address: {answer['error']}"
            remedy = "set 'private_address' to an address of that host"
            rows.append(Row(name, "port", "fail", shown, remedy))
    return rows


def judge_reach(reached: Mapping[Pair, Facts]) -> list[Row]:
    """Ports are chosen when a run starts, so one chosen just now stands for all of them."""
    rows = []
    blocked = {pair: answer for pair, answer in reached.items() if "error" in answer}
    for target in dict.fromkeys(target for _, target in blocked):
        sources = [source for source, to in blocked if to == target]
        everyone = len(sources) == sum(to == target for _, to in reached)
        where = (
            f"{'all others' if everyone and len(sources) > 1 else ', '.join(sources)} -> {target}"
        )
        answer = blocked[sources[0], target]
        shown = f"TCP port {answer['port']} cannot be reached: {answer['error']}"
        remedy = (
            f"let {target}'s firewall accept TCP ports from 1024 up from the other hosts alone "
            "(in a cloud: a rule that admits the security group to itself)"
        )
        rows.append(Row(where, "port", "fail", shown, remedy))
    trips = {p: a["round_trip_seconds"] for p, a in reached.items() if p not in blocked}
    if not trips:
        return rows
    fastest, slowest = min(trips.values()), max(trips.values())
    shown = f"ports reachable both ways, round trip {_span(fastest, slowest)}"
    if slowest > max(_SLOW_TRIP_SECONDS, 10 * fastest):
        source, target = max(trips, key=lambda pair: trips[pair])
        remedy = "hosts far apart train slowly: use one zone, or a placement group"
        rows.append(Row(f"{source} -> {target}", "round trip", "warn", shown, remedy))
    elif not blocked:
        rows.append(Row(f"all {len(reached)} ways", "port", "ok", shown))
    return rows


def _span(least: float, most: float) -> str:
    shown = [f"{1e3 * seconds:.2f} ms" for seconds in (least, most)]
    return shown[0] if shown[0] == shown[1] else f"{shown[0]} to {shown[1]}"


def judge_speed(speeds: Mapping[Pair, Facts]) -> list[Row]:
    """A host with no fast way has a slow link; a slow way between fast hosts stands for itself."""
    measured = {p: a["bits_per_second"] for p, a in speeds.items() if "error" not in a}
    rows = [
        Row(
            f"{source} -> {target}",
            "speed",
            "fail",
            f"sending failed: {answer['error']}",
            "the port opens but traffic stops: look for a firewall or an MTU that is too large",
        )
        for (source, target), answer in speeds.items()
        if "error" in answer
    ]
    if not measured:
        return rows
    slow_links = _slow_links(measured)
    rows += [_slow_link(host, direction, measured) for host, direction in slow_links.items()]
    between_others = {p: s for p, s in measured.items() if not slow_links.keys() & set(p)}
    slow_ways = slower_ways(between_others or measured)
    rows += [_slow_way(way, measured) for way in sorted(slow_ways, key=lambda w: measured[w])]
    usual = sorted(measured.values())[len(measured) // 2]
    if usual < _SLOW_BITS_PER_SECOND:
        remedy = "slower than any gigabit network: check cables, switch and instance types"
        rows.append(Row(_all_ways(measured), "speed", "warn", gbit(usual), remedy))
    least, most = gbit(min(measured.values())), gbit(max(measured.values()))
    shown = least if least == most else f"{least} to {most}"
    return rows or [Row(_all_ways(measured), "speed", "ok", shown)]


def slower_ways(measured: Mapping[Pair, float]) -> list[Pair]:
    """Those with less than half of what the best one carries."""
    best = max(measured.values(), default=0.0)
    return [way for way, speed in measured.items() if speed < _SLOW_SHARE * best]


def _slow_links(measured: Mapping[Pair, float]) -> dict[str, str]:
    """Hosts that are slow towards all others, from all others, or both; of two nobody knows."""
    hosts = dict.fromkeys(host for way in measured for host in way)
    best = max(measured.values())
    found: dict[str, str] = {}
    for host in hosts if len(hosts) > 2 else ():
        ends = {"out": 0, "in": 1}
        slow = [
            name
            for name, end in ends.items()
            if max((s for w, s in measured.items() if w[end] == host), default=best)
            < _SLOW_SHARE * best
        ]
        if slow:
            found[host] = "" if len(slow) == 2 else f" {slow[0]}wards"
    return found


def _slow_link(host: str, direction: str, measured: Mapping[Pair, float]) -> Row:
    least = min(speed for way, speed in measured.items() if host in way)
    shown = f"its link carries {gbit(least)}{direction}, the others' {gbit(max(measured.values()))}"
    remedy = "check its cable, port and instance type: every step waits for the slowest link"
    return Row(host, "speed", "warn", shown, remedy)


def _slow_way(way: Pair, measured: Mapping[Pair, float]) -> Row:
    most = gbit(max(measured.values()))
    remedy = f"other ways carry {most}: look for a loaded or broken link between them"
    return Row(f"{way[0]} -> {way[1]}", "speed", "warn", gbit(measured[way]), remedy)


def _all_ways(measured: Mapping[Pair, float]) -> str:
    return f"all {len(measured)} ways"


def gbit(bits_per_second: float) -> str:
    if bits_per_second < 1e8:
        return f"{bits_per_second / 1e6:.0f} Mbit/s"
    return f"{bits_per_second / 1e9:.2f} Gbit/s"


def all_reduce_seconds(num_hosts: int, num_bytes: float, bits_per_second: float) -> float:
    """A ring sends and receives 2(N-1)/N of the gradient over every host's link."""
    return 2 * (num_hosts - 1) / num_hosts * num_bytes * 8 / bits_per_second


def slowest_way(speeds: Mapping[Pair, Facts]) -> float | None:
    """Bits of payload a second."""
    return min((a["bits_per_second"] for a in speeds.values() if "error" not in a), default=None)


def longest_trip(reached: Mapping[Pair, Facts]) -> float | None:
    known = [a["round_trip_seconds"] for a in reached.values() if "error" not in a]
    return max(known, default=None)


def sentence(
    num_hosts: int,
    gradient_bytes: float | None,
    speeds: Mapping[Pair, Facts],
    reduce: ReduceSettings | None = None,
) -> str:
    """What the network means for the recipe, and when one host alone would be faster."""
    slowest = slowest_way(speeds)
    if num_hosts < 2 or slowest is None:
        return ""
    start = f"{num_hosts} hosts at {gbit(slowest)}"
    if gradient_bytes is None:
        return f"{start}: name a recipe to see what that means for each step"
    settings = reduce or ReduceSettings()
    sent = settings.wire_share * gradient_bytes
    seconds = all_reduce_seconds(num_hosts, sent, slowest)
    text = f"{start}: {_exchange(settings, sent)} will take {format_seconds(seconds)} of each step"
    return f"{text}{_slower_than_one(num_hosts, seconds, settings)}"


def _exchange(settings: ReduceSettings, num_bytes: float) -> str:
    if settings.wire_share == 1.0:
        return f"all-reduce of {_whole(num_bytes)}"
    return f"reduce={settings.kind}, {_whole(num_bytes)} on average,"


def _slower_than_one(num_hosts: int, seconds: float, settings: ReduceSettings) -> str:
    """Each of N hosts computes for C seconds and then waits for W: together they are slower than
    one that computes all by itself where W > (N-1) C. What overlaps with computing helps a bit."""
    least = seconds / (num_hosts - 1)
    if least < _FELT_SECONDS:
        return ""
    help_ = "reduce=auto reduce.may_change_result=true sends far less"
    if settings.kind == "auto":
        help_ = "reduce=auto looks for a way out before the first step"
    elif settings.every:
        help_ = "a larger reduce.every, or a larger batch, makes exchanges rarer"
    return (
        f"; where a host computes less than {format_seconds(least)} a step, these hosts are slower "
        f"than one alone ({help_}: docs/reduce.md)"
    )


def _whole(num_bytes: float) -> str:
    return f"{num_bytes / 1e6:.0f} MB" if 1e7 <= num_bytes < 1e9 else format_bytes(num_bytes)
