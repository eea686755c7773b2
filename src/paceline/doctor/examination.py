"""The doctor: asks every host, at once and over one login each, and has the answers judged.

The questions are here; what is done on a host is in `probe.py`, and what the answers mean is in
`hosts.py` and `network.py`.
"""

import ipaddress
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from paceline.doctor import containers as doctor_containers
from paceline.doctor import devices as doctor_devices
from paceline.doctor import files as doctor_files
from paceline.doctor import hosts as doctor_hosts
from paceline.doctor import network as doctor_network
from paceline.doctor import probe as doctor_probe
from paceline.doctor import rows as doctor_rows
from paceline.doctor import storage as doctor_storage
from paceline.doctor import torch_trial
from paceline.doctor.network import Pair
from paceline.doctor.rows import Facts, Row
from paceline.doctor.session import LostError, Session
from paceline.files import expand_home
from paceline.hosts.file import Host, HostsFile
from paceline.hosts.ssh import login_failure, on_all, run_on
from paceline.project import as_question
from paceline.settings import Recipe
from paceline.tasks.memory import estimate_memory
from paceline.tasks.sizes import sizes_of
from paceline.units import count_of

Say = Callable[[str], None]

_FACTS_SECONDS = 150.0
_SHARED_SECONDS = 1.0
_SEND_SECONDS = 0.5
_MOST_HOSTS_ONE_BY_ONE = 4


@dataclass(frozen=True)
class Purpose:
    """For what the hosts are wanted, and how closely to look."""

    recipe: Recipe | None = None
    run: Path | None = None
    quick: bool = False
    """Leaves out bandwidth and the trial import of torch: two or three seconds."""
    script: Facts | None = None
    """Of a user's script: where it lies, its files, and the modules that it needs."""


@dataclass(frozen=True)
class Diagnosis:
    rows: tuple[Row, ...]
    sentence: str
    interfaces: dict[str, str]
    """For each host, the one its routes to the others take."""
    bits_per_second: float | None = None
    """Of payload, over the slowest way between two hosts; None where it was not measured."""
    round_trip_seconds: float | None = None
    """Of a message there and back, on the slowest way."""
    device_bytes: float | None = None
    """Of the smallest device of all hosts; None where they have none, or nobody looked."""

    @property
    def problems(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.state == "fail")

    @property
    def is_healthy(self) -> bool:
        return not self.problems


def check(hosts_file: HostsFile, purpose: Purpose, say: Say) -> Diagnosis:
    with Examination(hosts_file.hosts, purpose, say) as examination:
        return examination.diagnosis()


def render(diagnosis: Diagnosis) -> str:
    return f"{doctor_rows.render(diagnosis.rows)}\n\n{render_verdict(diagnosis)}"


def render_verdict(diagnosis: Diagnosis) -> str:
    num_failed = len(diagnosis.problems)
    num_warned = sum(row.state == "warn" for row in diagnosis.rows)
    counts = [count_of(num_failed, "failure")] if num_failed else []
    counts += [count_of(num_warned, "warning")] if num_warned else []
    verdict = ", ".join(counts) or "all is well"
    return "\n".join(filter(None, [verdict, diagnosis.sentence]))


@dataclass
class Findings:
    """What has been found so far, by host or by pair of hosts."""

    containers: dict[str, Facts] = field(default_factory=dict)
    facts: dict[str, Facts] = field(default_factory=dict)
    lost: dict[str, tuple[str, str]] = field(default_factory=dict)
    clocks: dict[str, tuple[float, float]] = field(default_factory=dict)
    resolved: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    written: dict[str, Facts] = field(default_factory=dict)
    seen: dict[str, list[str]] = field(default_factory=dict)
    listening: dict[str, Facts] = field(default_factory=dict)
    reached: dict[Pair, Facts] = field(default_factory=dict)
    speeds: dict[Pair, Facts] = field(default_factory=dict)


class Examination:
    """Sessions with all hosts. A host that stops answering is left out of what follows."""

    def __init__(self, hosts: tuple[Host, ...], purpose: Purpose, say: Say) -> None:
        self._hosts = {host.name: host for host in hosts}
        self._purpose = purpose
        self._say = say
        self._token = secrets.token_hex(doctor_probe.TOKEN_BYTES)
        self._mark = secrets.token_hex(4)
        self._found = Findings()
        self._sessions: dict[str, Session] = {}
        self._here: Facts = {}

    def __enter__(self) -> "Examination":
        self._ask_containers()
        usable = [host for host in self._hosts.values() if host.name not in self._found.lost]
        run = [str(self._run)] if self._run is not None else []
        sessions = on_all(usable, lambda host: Session(host, run))
        self._sessions = {session.host.name: session for session in sessions}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        on_all(tuple(self._sessions.values()), Session.close)

    def diagnosis(self) -> Diagnosis:
        self._say(f"asking {count_of(len(self._hosts), 'host')}")
        self._ask_facts()
        self._ask_names()
        self._try_run_directory()
        self._try_ways()
        if not self._purpose.quick:
            self._measure_speeds()
        return self._judged()

    def _each(self, work: Callable[[Session], Any]) -> dict[str, Any]:
        """The work on every host that still answers; by name, without those lost over it."""
        alive = [s for name, s in self._sessions.items() if name not in self._found.lost]
        answers = on_all(alive, lambda session: self._guarded(session, work))
        names = [session.host.name for session in alive]
        return {n: a for n, a in zip(names, answers, strict=True) if n not in self._found.lost}

    def _guarded(self, session: Session, work: Callable[[Session], Any]) -> Any:
        try:
            return work(session)
        except LostError as error:
            self._found.lost[session.host.name] = (error.what, error.remedy)
            return None

    @property
    def _run(self) -> Path | None:
        run = self._purpose.run
        return None if run is None else expand_home(run).absolute()

    def _ask_containers(self) -> None:
        """First of all: where there is no image, there is no Python that could be asked."""
        inside = {h: h.container for h in self._hosts.values() if h.container is not None}

        def ask(host: Host) -> None:
            question = doctor_containers.container_question(inside[host])
            answer = run_on(host, ["sh", "-c", question])
            if login_failure(answer) is None:
                facts = doctor_containers.read_answer(inside[host], answer)
                self._found.containers[host.name] = facts
                if (why := doctor_containers.why_unusable(facts)) is not None:
                    self._found.lost[host.name] = why

        on_all(list(inside), ask)

    def _ask_facts(self) -> None:
        recipe = self._purpose.recipe
        data = recipe.data if recipe else None
        script = self._purpose.script
        project = as_question(recipe.workload) if recipe else script
        trial = Path(torch_trial.__file__).read_text(encoding="utf-8")

        def ask(session: Session) -> Facts:
            answer: Facts = session.ask(
                "facts",
                _FACTS_SECONDS,
                data=data,
                data_home=session.host.data,
                torch_trial=None if self._purpose.quick else trial,
                project=project,
                modules=script["modules"] if script else [],
                thorough=not self._purpose.quick,
            )
            return answer

        question = {"data": None, "data_home": None, "torch_trial": None, "project": None}
        self._here = doctor_probe.facts(question)
        images = {name: {"container": c["name"]} for name, c in self._found.containers.items()}
        answers = self._each(ask)
        self._found.facts = {n: {**facts, **images.get(n, {})} for n, facts in answers.items()}
        self._found.clocks = self._each(Session.clock_offset)

    def _ask_names(self) -> None:
        names = [*self._names_needed(), *self._host_names()]
        private = [host.private_address for host in self._hosts.values()]
        wanted = list(dict.fromkeys([*names, *private]))
        answers = self._each(lambda session: session.ask("resolve", names=wanted))
        self._found.resolved = {name: answer["names"] for name, answer in answers.items()}

    def _names_needed(self) -> dict[str, str]:
        """Private addresses that are names, and whose."""
        hosts = self._hosts.values()
        return {h.private_address: h.name for h in hosts if not _is_ip(h.private_address)}

    def _host_names(self) -> dict[str, str]:
        return {str(facts["hostname"]): name for name, facts in self._found.facts.items()}

    def _try_run_directory(self) -> None:
        if self._purpose.run is None:
            return
        run, found = str(self._run), self._found
        found.written = self._each(
            lambda s: s.ask(
                "write",
                run=run,
                mark=self._mark,
                name=s.host.name,
                thorough=not self._purpose.quick,
            )
        )
        names = list(found.written)
        writable = {name for name, facts in found.written.items() if "error" not in facts}
        answers = self._each(
            lambda s: s.ask("look", mark=self._mark, names=names, seconds=_SHARED_SECONDS)
        )
        self._each(lambda session: session.ask("clean"))
        found.seen = {name: a["seen"] for name, a in answers.items() if name in writable}

    def _try_ways(self) -> None:
        if len(self._hosts) > 1:
            self._say("trying every way between them")
        self._found.listening = self._each(
            lambda s: s.ask("listen", address=s.host.private_address, token=self._token)
        )
        for answers in self._each(lambda s: dict(self._reach_from(s))).values():
            self._found.reached.update(answers)

    def _reach_from(self, session: Session) -> Iterator[tuple[Pair, Facts]]:
        for target, listening in self._found.listening.items():
            if target != session.host.name and "error" not in listening:
                where = self._door(target)
                yield (session.host.name, target), {**session.ask("connect", **where), **where}

    def _door(self, target: str) -> dict[str, Any]:
        """By address: whether the others know the name is a check of its own."""
        listening = self._found.listening[target]
        return {k: listening[k] for k in ("address", "port")} | {"token": self._token}

    def _measure_speeds(self) -> None:
        """Slow ways twice, for a moment of other traffic is no slow link."""
        ways = [pair for pair, answer in self._found.reached.items() if "error" not in answer]
        if ways:
            self._say(f"measuring the speed of {len(ways)} ways")
        speeds = self._sent(ways)
        measured = {w: a["bits_per_second"] for w, a in speeds.items() if "error" not in a}
        again = self._sent(doctor_network.slower_ways(measured))
        better = {w: a for w, a in again.items() if a.get("bits_per_second", 0.0) > measured[w]}
        self._found.speeds = {**speeds, **better}

    def _sent(self, ways: list[Pair]) -> dict[Pair, Facts]:
        sent: dict[Pair, Facts] = {}
        for together in rounds(ways, one_by_one=len(self._hosts) <= _MOST_HOSTS_ONE_BY_ONE):
            targets = dict(together)

            def send(session: Session, targets: dict[str, str] = targets) -> Facts | None:
                target = targets.get(session.host.name)
                if target is None:
                    return None
                answer: Facts = session.ask("send", seconds=_SEND_SECONDS, **self._door(target))
                return answer

            answers = self._each(send)
            sent |= {(name, targets[name]): a for name, a in answers.items() if a is not None}
        return sent

    def _rows_of_memory(self) -> list[Row]:
        """Estimated only where there is a device to compare it with: it takes torch."""
        recipe, facts = self._purpose.recipe, self._found.facts
        tried = [(each.get("torch_import") or {}).get("devices") for each in facts.values()]
        if recipe is None or not any(tried):
            return []
        memory = estimate_memory(recipe)
        if memory is None:
            return []
        return doctor_devices.judge_memory(facts, memory, recipe.precision)

    def _judged(self) -> Diagnosis:
        found, purpose = self._found, self._purpose
        sizes = sizes_of(purpose.recipe, not purpose.quick) if purpose.recipe else None
        ways = {pair: answer["interface"] for pair, answer in found.reached.items()}
        rows = [
            *self._rows_of_hosts(),
            *doctor_hosts.judge_run(found.written, found.seen, sizes.kept_bytes if sizes else None),
            *doctor_storage.judge_storage(found.written),
            *doctor_storage.judge_data_files(found.facts),
            *doctor_network.judge_addresses(found.facts, self._private_addresses()),
            *doctor_network.judge_listening(found.listening),
            *doctor_network.judge_interfaces(ways),
            *doctor_network.judge_reach(found.reached),
            *doctor_network.judge_speed(found.speeds),
        ]
        text = doctor_network.sentence(
            len(self._hosts),
            sizes.gradient_bytes if sizes else None,
            found.speeds,
            purpose.recipe.reduce if purpose.recipe else None,
        )
        interfaces = {**self._own_interfaces(), **doctor_network.choose_interfaces(ways)}
        return Diagnosis(
            tuple(doctor_rows.merged(rows)),
            text,
            interfaces,
            bits_per_second=doctor_network.slowest_way(found.speeds),
            round_trip_seconds=doctor_network.longest_trip(found.reached),
            device_bytes=doctor_devices.smallest_device(found.facts),
        )

    def _rows_of_hosts(self) -> list[Row]:
        found = self._found
        rows = doctor_hosts.judge_logins(found.facts, found.lost)
        if not found.facts:
            return rows
        rows += doctor_containers.judge_containers(found.containers, found.facts)
        rows += doctor_hosts.judge_versions(found.facts, self._here)
        rows += doctor_files.judge_libraries(found.facts)
        rows += doctor_hosts.judge_devices(found.facts, tuple(self._hosts.values()))
        rows += doctor_devices.judge_driver(found.facts)
        rows += doctor_hosts.judge_limits(found.facts)
        if self._purpose.recipe is None or self._purpose.recipe.device != "cpu":
            rows += doctor_devices.judge_kernels(found.facts)
            rows += self._rows_of_memory()
        if self._purpose.script is not None:
            rows += doctor_files.judge_script(found.facts)
            rows += doctor_files.judge_modules(found.facts)
        if self._purpose.recipe is not None:
            rows += doctor_files.judge_project(found.facts)
            rows += doctor_hosts.judge_data(found.facts, self._purpose.recipe.workload)
        rows += doctor_hosts.judge_clocks(found.clocks)
        rows += doctor_hosts.judge_host_names(
            {name: str(facts["hostname"]) for name, facts in found.facts.items()}
        )
        needed = self._names_needed()
        names = {**self._host_names(), **needed}
        return [*rows, *doctor_hosts.judge_names(found.resolved, names, set(needed))]

    def _private_addresses(self) -> dict[str, list[str]]:
        """What each host's private address means on that host."""
        return {
            name: known.get(self._hosts[name].private_address, [])
            for name, known in self._found.resolved.items()
            if name in self._found.facts
        }

    def _own_interfaces(self) -> dict[str, str]:
        """Of a host that has nobody to reach: the one that has its private address."""
        return {
            name: self._found.facts[name]["addresses"][address]
            for name, addresses in self._private_addresses().items()
            for address in addresses
            if address in self._found.facts[name]["addresses"]
        }


def rounds(ways: list[Pair], one_by_one: bool) -> Iterator[list[Pair]]:
    """Ways measured at one time have no host in common, so they do not take each other's speed."""
    waiting = list(ways)
    while waiting:
        chosen: list[Pair] = []
        busy: set[str] = set()
        for way in waiting:
            if not busy & set(way) and not (one_by_one and chosen):
                chosen.append(way)
                busy |= set(way)
        waiting = [way for way in waiting if way not in chosen]
        yield chosen


def _is_ip(address: str) -> bool:
    try:
        ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return True
