"""Network interfaces of this machine: which one traffic takes, whose address is whose, how fast.

The one place that answers these, but for the doctor's probe, which runs on hosts that may have no
Paceline yet and so brings its own eyes along.
"""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress

import psutil

from paceline.errors import UserError
from paceline.units import parse_link_speed

LOOPBACK = "lo"
LINK_VARIABLE = "PACELINE_LINK"
"""The link's real speed where the interface cannot know it, e.g. a shaped or virtual one."""
_INNER = re.compile(r"lo\d*|docker\d*|br-.*|virbr\d*|veth.*|cni\d*|flannel.*|podman\d*|lxcbr\d*")


def leads_out(interface: str) -> bool:
    """Whether traffic on it can reach another host: not the loopback, not a container's bridge."""
    return not _INNER.fullmatch(interface)


def interface_of(address: str) -> str | None:
    """The interface that has this address or name; None when none has."""
    try:
        wanted = {info[4][0] for info in socket.getaddrinfo(address, None)}
    except OSError:
        return None
    owners = [
        name
        for name, entries in psutil.net_if_addrs().items()
        if any(entry.address.partition("%")[0] in wanted for entry in entries)
    ]
    return next((name for name in owners if name != LOOPBACK), next(iter(owners), None))


def source_towards(peer: str, family: socket.AddressFamily = socket.AF_UNSPEC) -> str | None:
    """Which of our addresses a packet to the peer would carry.

    A datagram socket that is only connected sends nothing, but the kernel picks the route.
    """
    try:
        info = socket.getaddrinfo(peer, 9, family, socket.SOCK_DGRAM)[0]
        with socket.socket(info[0], socket.SOCK_DGRAM) as probe:
            probe.connect(info[4])
            return str(probe.getsockname()[0])
    except OSError:
        return None


def interface_towards(peer: str) -> str | None:
    source = source_towards(peer)
    return interface_of(source) if source else None


def address_of_interface(name: str) -> str | None:
    """Its first IPv4 address."""
    for entry in psutil.net_if_addrs().get(name, []):
        if entry.family == socket.AF_INET:
            return str(entry.address)
    return None


def first_address_for_others() -> str | None:
    """An IPv4 address of this host that other hosts may reach, where nothing tells which."""
    outward = [name for name in psutil.net_if_addrs() if leads_out(name)]
    return next(filter(None, map(address_of_interface, outward)), None)


def interface_used(num_hosts: int, environment: Mapping[str, str] = os.environ) -> str:
    """The interface that traffic between processes takes."""
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        named = environment.get(variable, "").split(",")[0].lstrip("=")
        if named and not named.startswith("^"):
            return named
    if num_hosts == 1:
        return LOOPBACK
    return interface_towards(environment.get("MASTER_ADDR", "")) or LOOPBACK


def bytes_on_links() -> int:
    """What this host has sent to others and received from them since it was started."""
    counters = psutil.net_io_counters(pernic=True)
    return sum(c.bytes_sent + c.bytes_recv for name, c in counters.items() if leads_out(name))


def link_bits_per_second(
    interface: str, environment: Mapping[str, str] = os.environ
) -> float | None:
    told = environment.get(LINK_VARIABLE)
    if told:
        with suppress(UserError):
            return parse_link_speed(told)
    stats = psutil.net_if_stats().get(interface)
    own = stats.speed * 1e6 if stats is not None and stats.speed > 0 else None
    known = [speed for speed in (own, _limited_to(interface)) if speed]
    return min(known, default=None)


def _limited_to(interface: str) -> float | None:
    """The rate of a limiter that the kernel has on the interface, as practice clusters do."""
    tc = shutil.which("tc", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if tc is None or interface == LOOPBACK:
        return None
    with suppress(OSError, subprocess.SubprocessError, UserError):
        shown = subprocess.run(
            [tc, "qdisc", "show", "dev", interface],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        ).stdout
        rate = re.search(r"\btbf\b.* rate (\S+bit)\b", shown)
        return parse_link_speed(rate.group(1)) if rate else None
    return None
