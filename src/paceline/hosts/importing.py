"""Hosts from what other tools print: clouds, plain lists, MPI host files, Slurm allocations.

Text in, hosts.yaml out. Nothing is asked of any cloud here, and no host is contacted.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from paceline import config
from paceline.errors import UserError
from paceline.report.prices import find_price

Entry = dict[str, Any]
Say = Callable[[str], None]

_SHOWN = 5
_PLAIN = re.compile(
    r"(?:(?P<user>[^@\s]+)@)?(?:\[(?P<six>[^\]]+)\]|(?P<address>[^:\s]+))(?::(?P<port>\d+))?"
)
_BRACKETS = re.compile(r"([^\[\]]*)\[([^\[\]]+)\]")


def import_hosts(kind: str, text: str, shared: Entry, say: Say) -> str:
    """The text of a hosts.yaml; `shared` holds settings that are the same for all hosts."""
    entries = READERS[kind](text, say)
    if not entries:
        raise UserError("no host is listed there", _WHERE_FROM[kind])
    taken: set[str] = set()
    for entry in entries:
        entry["name"] = _free_name(str(entry.get("name") or entry["address"]), taken)
    ordered = [{"name": entry.pop("name"), **entry} for entry in entries]
    return config.to_yaml({**shared, "hosts": ordered})


def _free_name(wished: str, taken: set[str]) -> str:
    """Names are used for files and prefixes; machines started together often share one."""
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", wished).strip("-.") or "host"
    names = itertools.chain([base], (f"{base}-{n}" for n in itertools.count(2)))
    name = next(name for name in names if name not in taken)
    taken.add(name)
    return name


def from_aws(text: str, say: Say) -> list[Entry]:
    """`aws ec2 describe-instances`"""
    document = _json(text, "aws")
    reservations = document.get("Reservations") if isinstance(document, dict) else None
    if not isinstance(reservations, list):
        raise _not_from("aws", "it has no 'Reservations'")
    instances = [i for r in reservations for i in _dict(r).get("Instances", [])]
    states = [(_aws_name(i), str(_dict(i.get("State")).get("Name"))) for i in instances]
    running = _running(instances, states, "running", "aws")
    return [_aws_entry(instance, say) for instance in running]


def _aws_entry(instance: Entry, say: Say) -> Entry:
    public = instance.get("PublicIpAddress") or instance.get("PublicDnsName")
    entry = _entry(_aws_name(instance), public, instance.get("PrivateIpAddress"), say)
    if instance.get("KeyName"):
        entry["key"] = f"~/.ssh/{instance['KeyName']}.pem"
    spot = " spot" if instance.get("InstanceLifecycle") == "spot" else ""
    if price := find_price(f"aws {instance.get('InstanceType')}{spot}"):
        entry["price_per_hour"] = price.per_hour
    return entry


def _aws_name(instance: Entry) -> str:
    tags = {tag.get("Key"): tag.get("Value") for tag in instance.get("Tags") or []}
    return str(tags.get("Name") or instance.get("InstanceId") or "instance")


def from_gcloud(text: str, say: Say) -> list[Entry]:
    """`gcloud compute instances list --format=json`"""
    instances = _list(_json(text, "gcloud"), "gcloud")
    states = [(str(i.get("name")), str(i.get("status"))) for i in instances]
    entries = []
    for instance in _running(instances, states, "RUNNING", "gcloud"):
        interfaces = [_dict(i) for i in instance.get("networkInterfaces") or []]
        access = [_dict(c) for i in interfaces for c in i.get("accessConfigs") or []]
        public = next((c["natIP"] for c in access if c.get("natIP")), None)
        private = next((i["networkIP"] for i in interfaces if i.get("networkIP")), None)
        entries.append(_entry(str(instance.get("name")), public, private, say))
    return entries


def from_ibmcloud(text: str, say: Say) -> list[Entry]:
    """`ibmcloud sl vs list --output json`"""
    machines = _list(_json(text, "ibmcloud"), "ibmcloud")
    states = [(str(m.get("hostname")), _ibm_state(m)) for m in machines]
    return [
        _entry(
            str(machine.get("hostname")),
            machine.get("primaryIpAddress"),
            machine.get("primaryBackendIpAddress"),
            say,
        )
        for machine in _running(machines, states, "RUNNING", "ibmcloud")
    ]


def _ibm_state(machine: Entry) -> str:
    """A machine can be active in the books and yet be switched off: the power counts."""
    for field, running in (("powerState", "RUNNING"), ("status", "ACTIVE")):
        value = machine.get(field)
        word = value.get("keyName") or value.get("name") if isinstance(value, dict) else value
        if word:
            return "RUNNING" if str(word).upper() == running else str(word)
    return "unknown"


def from_plain(text: str, _say: Say) -> list[Entry]:
    """Lines of `[user@]address[:port] [private address]`"""
    entries = []
    for number, words in _lines(text):
        match = _PLAIN.fullmatch(words[0])
        if match is None or len(words) > 2:
            raise UserError(
                f"line {number} is not a host: {' '.join(words)}",
                "write lines like ubuntu@203.0.113.7:22 10.0.0.7",
            )
        entry: Entry = {"address": match["six"] or match["address"]}
        entry |= {"user": match["user"]} if match["user"] else {}
        entry |= {"port": int(match["port"])} if match["port"] else {}
        entry |= {"private_address": words[1]} if len(words) == 2 else {}
        entries.append(entry)
    return entries


def from_mpi(text: str, _say: Say) -> list[Entry]:
    """An MPI host file: `node1 slots=4` (Open MPI) or `node1:4` (MPICH)"""
    slots: dict[str, int | None] = {}
    for number, words in _lines(text):
        name, _, count = words[0].partition(":")
        options = dict(word.lower().partition("=")[::2] for word in words[1:])
        count = options.get("slots", count)
        if count and (not count.isdecimal() or count == "0"):
            raise UserError(f"line {number} has {count!r} slots", "write a number: node1 slots=4")
        before = slots.get(name)
        slots[name] = int(count) + (before or 0) if count else before
    return [
        {"address": name} | ({"devices": count} if count else {}) for name, count in slots.items()
    ]


def from_slurm(text: str, _say: Say) -> list[Entry]:
    """A Slurm node list like `gpu[01-04,7],login`"""
    return [{"address": name} for word in text.split() for name in expand_nodes(word)]


def expand_nodes(nodelist: str) -> list[str]:
    """'a[1-2,7],b' -> a1 a2 a7 b; leading zeros and several brackets count, as in Slurm."""
    parts = re.split(r",(?![^\[]*\])", nodelist.strip())
    return [name for part in parts if part for name in _expand(part)]


def _expand(part: str) -> Iterator[str]:
    pieces: list[list[str]] = []
    end = 0
    for match in _BRACKETS.finditer(part):
        pieces += [[match[1]], list(_numbers(match[2], part))]
        end = match.end()
    rest = part[end:]
    if "[" in rest or "]" in rest or "," in rest:
        raise _bad_nodes(part)
    yield from ("".join(chosen) for chosen in itertools.product(*pieces, [rest]))


def _numbers(ranges: str, part: str) -> Iterator[str]:
    for one in ranges.split(","):
        first, dash, last = one.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise _bad_nodes(part)
        for number in range(int(first), int(last if dash else first) + 1):
            yield str(number).zfill(len(first))


def _bad_nodes(part: str) -> UserError:
    return UserError(f"'{part}' is not a Slurm node list", "give one like node[1-4,7]")


def _entry(name: str, public: Any, private: Any, say: Say) -> Entry:
    if not public and not private:
        raise UserError(
            f"{name} has no address yet", "wait until it has one, then list the instances again"
        )
    if not public:
        say(f"{name} has no public address; its private one is used, so a jump host may be needed")
    entry = {"name": name, "address": str(public or private)}
    return entry | ({"private_address": str(private)} if private else {})


def _running(
    instances: list[Entry], states: list[tuple[str, str]], running: str, kind: str
) -> list[Entry]:
    chosen = [i for i, (_, state) in zip(instances, states, strict=True) if state == running]
    if not chosen:
        shown = ", ".join(f"{name} ({state})" for name, state in states[:_SHOWN])
        raise UserError(
            f"no instance is running; there are: {shown}" if states else "there is no instance",
            f"start some, then: {_WHERE_FROM[kind]}",
        )
    return chosen


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Words of each line that has any, with the line's number; '#' starts a comment."""
    for number, line in enumerate(text.splitlines(), 1):
        if words := line.partition("#")[0].split():
            yield number, words


def _json(text: str, kind: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise _not_from(kind, f"it is not JSON: {error}") from error


def _list(document: Any, kind: str) -> list[Entry]:
    if not isinstance(document, list) or not all(isinstance(i, dict) for i in document):
        raise _not_from(kind, "it is not a list of instances")
    return document


def _dict(value: Any) -> Entry:
    return value if isinstance(value, dict) else {}


def _not_from(kind: str, why: str) -> UserError:
    return UserError(f"this is not what {kind} prints: {why}", f"make it with: {_WHERE_FROM[kind]}")


READERS: dict[str, Callable[[str, Say], list[Entry]]] = {
    "aws": from_aws,
    "gcloud": from_gcloud,
    "ibmcloud": from_ibmcloud,
    "plain": from_plain,
    "mpi": from_mpi,
    "slurm": from_slurm,
}

_WHERE_FROM = {
    "aws": "aws ec2 describe-instances > instances.json",
    "gcloud": "gcloud compute instances list --format=json > instances.json",
    "ibmcloud": "ibmcloud sl vs list --output json > instances.json",
    "plain": "write lines like ubuntu@203.0.113.7 10.0.0.7",
    "mpi": "write lines like node1 slots=4",
    "slurm": "run this inside an allocation (salloc, sbatch), or give a file with a node list",
}
