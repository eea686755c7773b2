"""Which interface traffic takes and whose address is whose, asked of this machine itself."""

import socket

import psutil
import pytest

from paceline.machine.interfaces import (
    address_of_interface,
    interface_of,
    interface_towards,
    leads_out,
    source_towards,
)

LOOPBACK = next(
    name
    for name, entries in psutil.net_if_addrs().items()
    if any(entry.address == "127.0.0.1" for entry in entries)
)


@pytest.mark.parametrize("name", ["lo", "lo0", "docker0", "br-1f2e", "veth12", "podman1", "lxcbr0"])
def test_an_interface_that_stays_inside_is_not_for_other_hosts(name: str) -> None:
    assert not leads_out(name)


@pytest.mark.parametrize("name", ["eth0", "ens5", "enp3s0", "ib0", "wlan0", "bond0", "br0"])
def test_an_interface_of_the_machine_leads_to_other_hosts(name: str) -> None:
    assert leads_out(name)


def test_the_way_to_this_machine_is_the_loopback() -> None:
    assert source_towards("127.0.0.1", socket.AF_INET) == "127.0.0.1"
    assert interface_towards("127.0.0.1") == LOOPBACK
    assert interface_of("127.0.0.1") == LOOPBACK
    assert address_of_interface(LOOPBACK) == "127.0.0.1"


def test_a_name_that_nobody_knows_has_no_way_and_no_interface() -> None:
    assert source_towards("no-such-host.invalid") is None
    assert interface_towards("no-such-host.invalid") is None
    assert interface_of("no-such-host.invalid") is None
    assert address_of_interface("no-such-interface") is None
