"""A security group for the hosts of a run: ssh from one address, everything among themselves. Pure.

Nothing is created here: the commands are AWS's own, for the user to read and run.
"""

import ipaddress
import shlex
from collections.abc import Iterator
from typing import Any

from paceline.cloud.verdicts import Row
from paceline.errors import UserError

_ABOUT = "ssh from one address, and everything among its own hosts"
_WORLD = ("0.0.0.0/0", "::/0")


def check_source(text: str) -> str:
    """An address, or a network that is small enough to be one's own."""
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise UserError(f"'{text}' is no address: {error}", "--from 203.0.113.7") from error
    widest = 24 if network.version == 4 else 56
    if network.prefixlen < widest:
        raise UserError(
            f"{network} is {network.num_addresses:,} addresses, and anybody there could try keys",
            "name your own address: --from 203.0.113.7 (curl https://checkip.amazonaws.com)",
        )
    return str(network)


def commands_for(name: str, source: str, region: str) -> list[str]:
    aws, where = ["aws", "ec2"], ["--region", region]
    admit = [*aws, "authorize-security-group-ingress", *where, "--group-name", name]
    ssh = _permission({"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}, source)
    commands = [
        [*aws, "create-security-group", *where, "--group-name", name, "--description", _ABOUT],
        [*admit, "--ip-permissions", ssh],
        [*admit, "--source-group", name, "--protocol", "all"],
    ]
    return [shlex.join(words) for words in commands]


def judge_group(group: dict[str, Any], region: str) -> list[Row]:
    """Of a group that is there already, as AWS describes it."""
    rows = [*_open_to_the_world(group, region), *_closed_to_itself(group, region)]
    name = group["GroupName"]
    return rows or [Row("ok", f"group '{name}' admits its own hosts, and nothing from everywhere")]


def _open_to_the_world(group: dict[str, Any], region: str) -> Iterator[Row]:
    for rule in group.get("IpPermissions") or []:
        sources = [r["CidrIp"] for r in rule.get("IpRanges") or []]
        sources += [r["CidrIpv6"] for r in rule.get("Ipv6Ranges") or []]
        for source in sources:
            if source in _WORLD:
                words = ["aws", "ec2", "revoke-security-group-ingress", "--region", region]
                words += ["--group-id", group["GroupId"]]
                fix = shlex.join([*words, "--ip-permissions", _permission(rule, source)])
                yield Row("FAIL", f"{_ports(rule)} is open to {source}", fix)


def _closed_to_itself(group: dict[str, Any], region: str) -> Iterator[Row]:
    name, own = group["GroupName"], group["GroupId"]
    admitted = [
        pair.get("GroupId")
        for rule in group.get("IpPermissions") or []
        if rule.get("IpProtocol") == "-1"
        for pair in rule.get("UserIdGroupPairs") or []
    ]
    if own not in admitted:
        fix = commands_for(name, "0.0.0.0/32", region)[-1]
        yield Row("FAIL", f"group '{name}' does not admit its own hosts, which must talk", fix)


def _ports(rule: dict[str, Any]) -> str:
    if rule.get("IpProtocol") == "-1":
        return "everything"
    first, last = rule.get("FromPort"), rule.get("ToPort")
    return f"port {first}" if first == last else f"ports {first} to {last}"


def _permission(rule: dict[str, Any], source: str) -> str:
    """In the short words of AWS's command line."""
    parts = [f"{key}={rule[key]}" for key in ("IpProtocol", "FromPort", "ToPort") if key in rule]
    ranges = "Ipv6Ranges=[{CidrIpv6=%s}]" if ":" in source else "IpRanges=[{CidrIp=%s}]"
    return ",".join([*parts, ranges % source])
