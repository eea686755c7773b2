"""The hosts file: which machines there are, how they are reached, and what lives where on them.

Values only. How to log in is `ssh.py`; whether the machines are fit for a run is `doctor.py`.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError, field_validator

from paceline import config
from paceline.config import Document, Section, setting
from paceline.errors import UserError
from paceline.files import expand_home
from paceline.hosts.container import Container, ContainerSettings, words_inside
from paceline.strategies.roles import CHIEF, parse_roles

DEFAULT_FILE = Path("hosts.yaml")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# Whatever is not a name or an address could be read as an option by ssh, or as a word by a shell.
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:%-]*|:[0-9a-fA-F:]+")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]*")


@dataclass(frozen=True)
class Host:
    """One machine."""

    name: str
    address: str
    """How it is reached from here."""
    private_address: str
    """How the other hosts reach it."""
    user: str | None = None
    port: int | None = None
    key: Path | None = None
    devices: int | None = None
    """Processes to start there; None is one per GPU, or one on a CPU."""
    python: str = "python3"
    data: str | None = None
    """What PACELINE_DATA is there; None is the default of that machine."""
    price_per_hour: float | None = None
    known_hosts: Path | None = None
    ssh_options: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    """Of its processes, with parameter servers; none leaves it to Paceline."""
    container: Container | None = None
    """Where set, Python is the one inside of it."""

    def python_words(self, arguments: Sequence[str], needed: Sequence[str] = ()) -> list[str]:
        """What starts Python there; `needed` are directories that it must see."""
        words = [self.python, *arguments]
        if self.container is None:
            return words
        data = [self.data] if self.data and self.data.startswith("/") else []
        return words_inside(self.container, words, [*needed, *data])


@dataclass(frozen=True)
class HostsFile:
    hosts: tuple[Host, ...]
    min: int | None
    """With how many hosts a run may go on; None is all of them."""
    path: Path


class LoginSettings(Section):
    """What may stand in every host's entry, or once beside `hosts:` for all that have none."""

    user: str | None = setting(None, "login name; null leaves it to ssh")
    port: int | None = setting(None, "port of sshd; null leaves it to ssh", gt=0, lt=65536)
    key: str | None = setting(None, "private key file; null leaves it to ssh and its agent")
    devices: int | None = setting(None, "processes there; null is one per GPU, or one", gt=0)
    python: str | None = setting(None, "Python that has torch and Paceline; null is python3")
    data: str | None = setting(None, "the data cache there (PACELINE_DATA)")
    price_per_hour: float | None = setting(None, "what the machine costs", ge=0)
    known_hosts: str | None = setting(None, "file of host keys instead of the user's own")
    ssh_options: list[str] | None = setting(None, "more options for ssh: ['ProxyJump=gate']")
    container: ContainerSettings | None = setting(None, "start Python in this image (image, ...)")

    @field_validator("user")
    @classmethod
    def _is_user(cls, user: str | None) -> str | None:
        return _matching(_USER, user, "is not a login name")

    @field_validator("ssh_options")
    @classmethod
    def _host_keys_are_checked(cls, options: list[str] | None) -> list[str] | None:
        for option in options or []:
            name, equals, value = option.replace(" ", "=", 1).partition("=")
            if not equals or not name.isalnum():
                raise ValueError(f"write options of ssh like 'ProxyJump=gate', not '{option}'")
            if name.lower() == "stricthostkeychecking" and value.strip().lower() in ("no", "off"):
                raise ValueError("host keys are always checked; name a known_hosts file instead")
        return options


class HostSettings(LoginSettings):
    """One entry of `hosts:`."""

    name: str | None = setting(None, "what the host is called in tables and logs")
    address: str = setting(..., "name or address to reach it from here")
    private_address: str | None = setting(None, "address the hosts use among themselves")
    roles: str | None = setting(
        None, "with parameter servers, its processes: chief, worker=2, chief+server, ..."
    )

    @field_validator("name")
    @classmethod
    def _is_name(cls, name: str | None) -> str | None:
        return _matching(_NAME, name, "use letters, digits, '.', '_' and '-' only")

    @field_validator("roles")
    @classmethod
    def _are_roles(cls, roles: str | None) -> str | None:
        try:
            found = parse_roles(roles or "")
        except UserError as error:
            raise ValueError(error.what) from error
        if roles is not None and not found:
            raise ValueError("it names no process; leave it out where Paceline may decide")
        return roles

    @field_validator("address", "private_address")
    @classmethod
    def _is_address(cls, address: str | None) -> str | None:
        return _matching(_ADDRESS, address, "is not a host name or an IP address")


class HostsSettings(LoginSettings):
    """The whole file."""

    min: int | None = setting(None, "go on with no fewer hosts than this; null is all", gt=0)
    hosts: list[Any] = setting(..., "the machines")


def _matching(pattern: re.Pattern[str], text: str | None, problem: str) -> str | None:
    if text is not None and not pattern.fullmatch(text):
        raise ValueError(problem)
    return text


def load_hosts(path: Path | None) -> HostsFile:
    """The hosts of a file (`hosts.yaml` here when none is named), or every mistake in it."""
    chosen = path or DEFAULT_FILE
    if not chosen.is_file():
        raise UserError(
            f"there is no hosts file {chosen}",
            "name one with --hosts, write one with `paceline hosts import`, "
            "or get a practice cluster with `paceline lab up`",
        )
    document = config.read_document(chosen)
    found = _Findings(document)
    shared = found.checked(HostsSettings, _texts(document.settings, document, ()), ())
    entries = list(_entries(shared, document, found))
    if not found.mistakes and shared is not None:
        found.mistakes += _mistakes_between(entries, shared.min)
    if found.mistakes or shared is None:
        raise _error(chosen, found.mistakes)
    hosts = tuple(_host(entry, chosen.absolute().parent) for entry in entries)
    return HostsFile(hosts, shared.min, chosen)


def _error(path: Path, mistakes: list[str]) -> UserError:
    count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    lines = "".join(f"\n  {line}" for line in mistakes)
    return UserError(f"{path} has {count}{lines}", "correct what is listed; see docs/hosts.md")


class _Findings:
    """Mistakes of a file, collected so that all of them are said at once."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.mistakes = [
            f"line {line}: '{'.'.join(place)}' is given twice" for place, line in document.repeated
        ]

    def checked(
        self, kind: type[config.SectionType], values: Any, place: config.Place
    ) -> config.SectionType | None:
        if not isinstance(values, dict):
            where = self.document.where(place)
            self.mistakes.append(f"{where}: {'.'.join(place)} must be 'name: value' lines")
            return None
        try:
            return kind.model_validate(values)
        except ValidationError as error:
            self.mistakes += [self._describe(m, kind, place) for m in error.errors()]
            return None

    def _describe(self, mistake: Any, kind: type[Section], place: config.Place) -> str:
        inner = (*place, *(str(part) for part in mistake["loc"]))
        name, where = ".".join(inner), self.document.where(inner)
        if mistake["type"] == "missing":
            above = inner[:-1]
            lines = [n for at, n in self.document.lines.items() if at[: len(above)] == above]
            return f"line {min(lines, default=1)}: '{name}' is missing"
        if mistake["type"] == "extra_forbidden":
            known = ContainerSettings if "container" in inner[:-1] else kind
            close = difflib.get_close_matches(inner[-1], known.model_fields, n=1)
            hint = f"; did you mean '{close[0]}'?" if close else ""
            return f"{where}: there is no setting '{name}'{hint}"
        problem = mistake["msg"].removeprefix("Value error, ")
        return f"{where}: {name}: {problem[:1].lower()}{problem[1:]} (given: {mistake['input']!r})"


def _entries(
    shared: HostsSettings | None, document: Document, found: _Findings
) -> Iterator[HostSettings]:
    """Each host with what is set for all of them filled in; a bare text is an address."""
    for_all = shared.model_dump(exclude={"hosts", "min"}, exclude_none=True) if shared else {}
    listed = document.settings.get("hosts")
    for index, entry in enumerate(listed if isinstance(listed, list) else []):
        place = ("hosts", str(index))
        values = {"address": str(entry)} if isinstance(entry, str | int | float) else entry
        if isinstance(values, dict):
            values = {**for_all, **_texts(values, document, place)}
        checked = found.checked(HostSettings, values, place)
        if checked is not None:
            yield checked


def _texts(values: Any, document: Document, place: config.Place) -> Any:
    """A name or address of digits only is text, whatever YAML takes it for."""
    names = ("name", "address", "private_address", "user", "python", "data", "key")
    typed = dict(values)
    for name in names:
        if isinstance(typed.get(name), int | float):
            typed[name] = document.texts.get((*place, name), str(typed[name]))
    return typed


def _mistakes_between(entries: list[HostSettings], least: int | None) -> Iterator[str]:
    if not entries:
        yield "no hosts are listed under 'hosts:'"
    elif least is not None and least > len(entries):
        yield f"min is {least}, but there are only {len(entries)} hosts"
    chiefs = [_name(e) for e in entries if any(CHIEF in m for m in parse_roles(e.roles or ""))]
    if len(chiefs) > 1:
        yield f"a run has 1 chief, and {' and '.join(chiefs)} are to be it"
    for what, values in (
        ("are called", [_name(entry) for entry in entries]),
        ("have the private address", [entry.private_address or entry.address for entry in entries]),
    ):
        for twice in sorted({value for value in values if values.count(value) > 1}):
            yield f"{values.count(twice)} hosts {what} '{twice}'"


def _name(entry: HostSettings) -> str:
    return entry.name or re.sub(r"[^A-Za-z0-9._-]", "-", entry.address)


def _host(entry: HostSettings, folder: Path) -> Host:
    """Files are named as seen from the hosts file, so that the two can move together."""
    return Host(
        name=_name(entry),
        address=entry.address,
        private_address=entry.private_address or entry.address,
        user=entry.user,
        port=entry.port,
        key=folder / expand_home(entry.key) if entry.key else None,
        devices=entry.devices,
        # ssh starts in the home directory, and quoted words have no tilde.
        python=(entry.python or "python3").removeprefix("~/"),
        data=entry.data,
        price_per_hour=entry.price_per_hour,
        known_hosts=folder / expand_home(entry.known_hosts) if entry.known_hosts else None,
        ssh_options=tuple(entry.ssh_options or ()),
        roles=parse_roles(entry.roles or ""),
        container=Container.of(entry.container) if entry.container else None,
    )


def find_host(hosts_file: HostsFile, name_or_number: str) -> Host:
    """By name, or by its number in the file from 0 on."""
    for host in hosts_file.hosts:
        if host.name == name_or_number:
            return host
    count = len(hosts_file.hosts)
    if name_or_number.isdecimal() and int(name_or_number) < count:
        return hosts_file.hosts[int(name_or_number)]
    names = ", ".join(host.name for host in hosts_file.hosts)
    raise UserError(
        f"{hosts_file.path} has no host '{name_or_number}'",
        f"give a number from 0 to {count - 1}, or one of: {names}",
    )
