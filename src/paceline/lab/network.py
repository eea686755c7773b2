"""The lab's network: a switch in a namespace of its own, a cable to each host and one to here.

The switch is a bridge that no other firewall on this machine sees. A link's speed is limited at
both ends of its cable, so it holds in both directions.
"""

import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline.errors import UserError
from paceline.lab.state import SWITCH, Lab, require_holder

BRIDGE = "switch"
_PREFIX = "10.77."
_MIN_BURST_BYTES = 131_072  # two of the largest packets that a virtual cable carries
_BURST_SECONDS = 0.005


def port_name(index: int) -> str:
    """The switch's end of a host's cable."""
    return f"port{index}"


@contextmanager
def choosing_a_network() -> Iterator[str]:
    """The first three numbers of a network not in use here; held until its address is set."""
    lock = Path("/run/paceline-lab.lock")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        shown = subprocess.run(
            ["ip", "-json", "address"], capture_output=True, text=True, check=True
        )
        used = {
            address["local"]
            for interface in json.loads(shown.stdout)
            for address in interface.get("addr_info", [])
        }
        free = (f"{_PREFIX}{n}" for n in range(256) if f"{_PREFIX}{n}.254" not in used)
        network = next(free, None)
        if network is None:
            raise UserError("256 labs are up here already", "end some: paceline lab down --dir DIR")
        yield network


def build_switch(lab: Lab, pid: int) -> None:
    """The bridge, and the cable between it and this machine."""
    ip_in(
        pid,
        [
            f"link add {BRIDGE} type bridge mcast_snooping 0",
            f"link set {BRIDGE} up",
            f"link add uplink type veth peer name {lab.uplink} netns {os.getpid()}",
            f"link set uplink master {BRIDGE} up",
        ],
    )
    ip_here([f"address add {lab.own_address}/24 dev {lab.uplink}", f"link set {lab.uplink} up"])


def plug_in(lab: Lab, host: str, host_pid: int) -> None:
    """Give the host its `eth0` with an address, and the switch the other end of the cable."""
    port = port_name(lab.names.index(host))
    switch = require_holder(lab, SWITCH)
    ip_in(switch, [f"link del {port}"], check=False)  # of a host that was switched off just now
    ip_in(
        switch,
        [
            f"link add {port} type veth peer name eth0 address {_mac(lab, host)} netns {host_pid}",
            f"link set {port} master {BRIDGE} up",
        ],
    )
    ip_in(
        host_pid,
        ["link set lo up", f"address add {lab.address(host)}/24 dev eth0", "link set eth0 up"],
    )


def _mac(lab: Lab, host: str) -> str:
    """A machine keeps its hardware address when it is switched off; others remember it."""
    numbers = [0x02, *(int(part) for part in lab.address(host).split(".")), 0]
    return ":".join(f"{number:02x}" for number in numbers)


def shape(lab: Lab, host: str, bits_per_second: float | None) -> None:
    """Limit a host's link in both directions, or not at all."""
    ends = (
        (require_holder(lab, SWITCH), port_name(lab.names.index(host))),
        (require_holder(lab, host), "eth0"),
    )
    for pid, interface in ends:
        tc = ["nsenter", "--target", str(pid), "--net", "tc", "qdisc"]
        if bits_per_second is None:
            run([*tc, "del", "dev", interface, "root"], check=False)
            continue
        burst = max(_MIN_BURST_BYTES, int(bits_per_second / 8 * _BURST_SECONDS))
        limit = ["rate", f"{int(bits_per_second)}bit", "burst", str(burst), "latency", "50ms"]
        run([*tc, "replace", "dev", interface, "root", "tbf", *limit])


def set_cable(lab: Lab, host: str, plugged: bool) -> None:
    """Take the cable out of the switch: nothing arrives any more, and nothing says so."""
    port = port_name(lab.names.index(host))
    where = f"master {BRIDGE}" if plugged else "nomaster"
    ip_in(require_holder(lab, SWITCH), [f"link set {port} {where}"])


def remove_uplink(lab: Lab) -> None:
    """At once; with its namespace alone it would vanish only some time later."""
    ip_here([f"link del {lab.uplink}"], check=False)


def ip_in(pid: int, commands: list[str], check: bool = True) -> None:
    enter = ["nsenter", "--target", str(pid), "--net", "ip", "-batch", "-"]
    run(enter, "\n".join(commands) + "\n", check)


def ip_here(commands: list[str], check: bool = True) -> None:
    run(["ip", "-batch", "-"], "\n".join(commands) + "\n", check)


def run(command: list[str], stdin: str = "", check: bool = True) -> None:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise UserError(
            f"the lab's network could not be built: {done.stderr.strip()}",
            "this kernel may lack veth, bridge or tbf; see docs/hosts.md",
        )
