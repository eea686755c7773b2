"""One world on many hosts, from its start until it ends or must be ended."""

import signal
import time
from dataclasses import dataclass
from typing import Any

from paceline.errors import Say
from paceline.hosts.file import HostsFile
from paceline.launch.failures import Failure, root_cause
from paceline.launch.hang import HangNews, RankState, StepPace, without_replaceable
from paceline.launch.remote.fleet import Fleet, passed_on, savers_among, states_of
from paceline.launch.remote.joining import HostStage, LateNews, find_end_of_patience
from paceline.launch.remote.link import HostLink, names_of
from paceline.launch.remote.program import End, Program
from paceline.launch.remote.restart import Outcome
from paceline.order import HostPrice, WorkerOrder
from paceline.strategies.placement import Placement

_ECHO_SECONDS = 1.5
"""The neighbours of a process that failed fail too; who was first is known a little later."""
_STACK_SECONDS = 2.0
_SETTLED_SECONDS = 3.0
_HEAR_SECONDS = 10.0


class Stop:
    """What the user asked for, by signal or with `paceline stop`."""

    def __init__(self, program: Program, say: Say) -> None:
        self._file, self._say, self._words = program.run.stop_request, say, program.stopping
        self.asked: int | None = None
        self.at_once = False
        self._file.unlink(missing_ok=True)

    def on_signal(self, number: int, _frame: Any) -> None:
        if self.asked is not None:
            if number != signal.SIGHUP:  # a closed terminal sends it more than once
                self.at_once = True
                self._say("ending at once")
            return
        self.asked = number
        self._say(self._words)

    def look(self) -> None:
        if self.asked is None and self._file.exists():
            self._file.unlink(missing_ok=True)
            self.on_signal(signal.SIGTERM, None)


@dataclass(frozen=True)
class Mission:
    """What stays the same from round to round."""

    program: Program
    fleet: Fleet
    stop: Stop
    hosts_file: HostsFile
    interfaces: dict[str, str]
    """As the doctor found them, by host."""
    say: Say

    @property
    def least(self) -> int:
        return least_hosts(self.program, self.hosts_file)


def least_hosts(program: Program, hosts_file: HostsFile) -> int:
    """With how many hosts the run may go on."""
    return program.min_hosts or hosts_file.min or len(hosts_file.hosts)


class Round:
    """One world, from its start until it ends or must be ended."""

    def __init__(
        self,
        mission: Mission,
        number: int,
        members: list[HostLink],
        num_procs: list[int],
        placement: Placement | None = None,
    ) -> None:
        """`placement`: who is who, where processes have roles."""
        self.mission, self.members, self.num_procs = mission, members, num_procs
        self.placement = placement
        self._orders: list[WorkerOrder] = []
        self._absent: list[HostLink] = []
        """Hosts that are lost or done, without which the round goes on."""
        self.fleet, self.stop, self.program = mission.fleet, mission.stop, mission.program
        self.number = number
        self._told_to_stop = False
        self._stop_asked_at: float | None = None
        self._rejoining = ""
        self._pace = StepPace()
        self._began = time.monotonic()
        self._have_joined = False
        self._late_news = LateNews(self.program.guard.join_seconds)
        self._hangs = self.program.new_hang_watch()

    def run(self, started: float) -> Outcome:
        problem = self._start(started)
        while problem is None:
            self.fleet.pump()
            self.stop.look()
            self._pace.follow(self.members[0].beats)
            problem = self._ended() or self._must_end()
        return problem

    def _start(self, started: float) -> Outcome | None:
        first = self.members[0]
        first.port = None
        first.send(do="listen")
        if not self.fleet.wait([first], lambda link: link.port is not None, 30):
            return Outcome("fault", f"{first.name} does not answer at the start of a round")
        self._orders = self._all_orders()
        for link in self.members:
            self._begin_on(link, started)
        return None

    def _begin_on(self, link: HostLink, started: float) -> None:
        position = self.members.index(link)
        link.exit, link.beats, link.stage, link.heard_stop = None, [], None, False
        link.send(
            do="start",
            round=self.number,
            **self._fields(link),
            num_procs=self.num_procs[position],
            num_hosts=len(self.members),
            host_rank=position,
            has_store=position == 0,
            address=link.host.private_address,
            order=self._orders[position].as_document(),
            interface=self.mission.interfaces.get(link.name),
            seconds_since=time.time() - started,
        )

    def _all_orders(self) -> list[WorkerOrder]:
        savers = savers_among(self.members)
        orders = [self._order(n, link in savers) for n, link in enumerate(self.members)]
        if self.placement is None:
            return orders
        return self.program.orders_in_roles(orders, self.placement.roles)

    def _fields(self, link: HostLink) -> dict[str, Any]:
        fields = self.program.start_fields(link.host)
        environment = passed_on(link.host) | fields.pop("variables")
        return {**fields, "environment": environment}

    def _order(self, position: int, saves: bool) -> WorkerOrder:
        """What the launcher knows of the order to a host's workers; their host adds the rest."""
        first, hosts = self.members[0], [member.host for member in self.members]
        return WorkerOrder(
            attempt=self.number,
            store=f"tcp://{first.host.private_address}:{first.port}",
            first_rank=sum(self.num_procs[:position]),
            saves=saves,
            host=hosts[position].name,
            hosts=tuple(HostPrice(host.name, host.price_per_hour) for host in hosts),
        )

    def _ended(self) -> Outcome | None:
        """By itself: all done, or somebody failed."""
        vital = self._vital_members()
        if any(_has_failed(link) for link in vital):
            return self._failed()
        running = [link for link in vital if link.exit is None]
        lost = [link for link in running if not link.is_ready]
        if lost and not self._is_over():
            return self._lost(lost)
        return self._all_done() if lost or not running else None

    def _vital_members(self) -> list[HostLink]:
        """Without hosts that have nothing but workers, in a round that survives their loss."""
        replaceable = self._orders[0].replaceable if self._orders else ()
        if self.placement is None or not replaceable:
            return self.members
        vital = []
        for link in self.members:
            ranks = set(self.placement.ranks_of(link.name))
            if not ranks <= set(replaceable):
                vital.append(link)
            elif link not in self._absent and (not link.is_ready or link.exit is not None):
                self._note_absent(link, ranks)
        return vital

    def _note_absent(self, link: HostLink, ranks: set[int]) -> None:
        self._absent.append(link)
        if self.placement is None or self._is_over():
            return
        names = ", ".join(self.placement.roles.name_of(rank) for rank in sorted(ranks))
        what = "lost" if not link.is_ready else "no more workers on"
        self.mission.say(
            f"{what} {link.name} ({names}): the others go on, and what it had is handed out again"
        )

    def _take_back(self) -> None:
        """A host that was lost and answers again begins where the others are by now."""
        self.fleet.call_back_the_lost()
        for link in [link for link in self._absent if link.is_ready and not link.is_leaving]:
            is_settled = time.monotonic() - link.since > _SETTLED_SECONDS
            if link.exit is None and is_settled and not self._told_to_stop:
                self._absent.remove(link)
                self.mission.say(f"{link.name} is back and joins")
                self._begin_on(link, time.time())

    def _is_over(self) -> bool:
        """The first process has ended as it should, with everything saved."""
        first = self.members[0].exit
        return first is not None and first["code"] == 0

    def _all_done(self) -> Outcome:
        states = states_of(self.members)
        if self.placement is not None:  # the chief's end is that of all
            states = [state for state in states if state.rank == 0]
        if not any(state.ended == "stopped" for state in states):
            return Outcome("finished")
        leavers = self._leavers(states)
        if self._rejoining and not leavers:
            return Outcome("rejoin", self._rejoining)
        if leavers and self.stop.asked is None:
            for link in leavers:
                link.is_leaving = True
            return Outcome("left", f"{names_of(leavers)} was told to leave (SIGTERM)")
        return Outcome("stopped")

    def _leavers(self, states: list[RankState]) -> list[HostLink]:
        """Hosts whose processes got SIGTERM from somebody else."""
        if self._told_to_stop:
            return [link for link in self.members if link.is_leaving]
        signalled = {state.host for state in states if state.stop_asked}
        return [link for link in self.members if link.is_leaving or link.name in signalled]

    def _failed(self) -> Outcome:
        self.fleet.wait(self.members, lambda link: link.exit is not None, _ECHO_SECONDS)
        failures = [self._failure(link) for link in self.members if _has_failed(link)]
        if self.stop.at_once or (self._told_to_stop and not self.program.stops_by_itself):
            return Outcome("stopped")
        cause = root_cause(failures)
        lost = [link for link in self.members if not link.is_ready]
        if lost and not cause.is_mistake:
            return self._lost(lost)
        full = [d for m in self.members if m.name == cause.host for d in _full_disks(m)]
        return self.program.outcome_of(cause, End(states_of(self.members), full))

    def _failure(self, link: HostLink) -> Failure:
        ended = link.exit or {}
        told = ended.get("failure") or {}
        states = {state.rank: state for state in states_of([link])}
        rank = told.get("rank")
        return Failure(
            host=link.name,
            rank=rank,
            message=told.get("message", "its processes ended silently"),
            exit_code=told["exit_code"] if told else ended.get("code", 1),
            memory_kills=ended.get("memory_kills", 0),
            state=states.get(rank) if rank is not None else None,
            role=self.placement.roles.name_of(rank) if self.placement and rank is not None else "",
        )

    def _lost(self, lost: list[HostLink]) -> Outcome:
        places = "; ".join(state.place for state in states_of(lost))
        return Outcome("fault", f"lost {names_of(lost)}" + (f" ({places})" if places else ""))

    def _must_end(self) -> Outcome | None:
        """Because the user wants it, a process hangs, or a host has come back."""
        if self.stop.at_once:
            return Outcome("stopped")
        self._have_joined |= all(_has_joined(link) for link in self._present())
        if not self._have_joined:
            return self._judge_joining() if self.stop.asked is None else self._stop_joining()
        if self.stop.asked is not None and not self._told_to_stop:
            self._tell_to_stop()
        if self._has_stopped_long_enough():
            return Outcome("stopped")
        hang = self._hangs.look(self._watched_states(), self._pace.slowest_seconds)
        if hang is not None:
            self._tell_hang(hang)
            if hang.ends_round:
                return Outcome("fault", f"hang: {hang.text}")
        if self.placement is not None and self._orders[0].replaceable:
            self._take_back()
        else:
            self._take_in_returned()
        return None

    def _watched_states(self) -> list[RankState]:
        replaceable = self._orders[0].replaceable if self._orders else ()
        return without_replaceable(states_of(self.members), replaceable)

    def _present(self) -> list[HostLink]:
        return [link for link in self.members if link not in self._absent]

    def _judge_joining(self) -> Outcome | None:
        """Nobody trains before all are there, so there is nothing to save or to lose yet."""
        waited, join_seconds = time.monotonic() - self._began, self.program.guard.join_seconds
        starting = [link for link in self._present() if not _has_joined(link)]
        stages = [HostStage.of(link.name, link.stage, waited) for link in starting]
        news = self._late_news.about(stages, waited)
        if news is not None:
            self.mission.say(news)
        end = find_end_of_patience(stages, waited, join_seconds)
        return Outcome("fault", end.text, ("join", end.hosts)) if end else None

    def _stop_joining(self) -> Outcome | None:
        """A worker tells where it is before it meets the others, and nobody trains before all have
        met: so a host without all its workers when it hears of the stop has nothing to save. What
        it told last may be a second old, though, and they may have trained since."""
        self._tell_to_stop()
        self.fleet.wait(
            self.members, lambda link: link.heard_stop or link.exit is not None, _HEAR_SECONDS
        )
        self._have_joined = all(_has_joined(link) for link in self.members)
        return None if self._have_joined else Outcome("stopped")

    def _has_stopped_long_enough(self) -> bool:
        limit, asked_at = self.program.stop_seconds, self._stop_asked_at
        return limit is not None and asked_at is not None and time.monotonic() - asked_at > limit

    def _tell_to_stop(self) -> None:
        self._told_to_stop = True
        self._stop_asked_at = time.monotonic()
        self.fleet.ask(self.members, do="ask_stop")

    def _tell_hang(self, hang: HangNews) -> None:
        self.mission.say(f"hang: {hang.text}; where every process is:")
        for state in states_of(self.members):
            self.mission.say(f"  {state.place}, for {state.quiet_seconds:.0f} s")
        self.fleet.ask(self.members, do="stacks")
        until = time.monotonic() + _STACK_SECONDS
        while time.monotonic() < until:
            self.fleet.pump()
        if hang.stacks:
            self.mission.say(f"  {hang.stacks}")

    def _take_in_returned(self) -> None:
        """A host that has come back joins at a checkpoint, for which all stop."""
        if self._rejoining or self._told_to_stop or not self.program.can_take_in_hosts:
            return
        self.fleet.call_back_the_lost()
        back = [
            link
            for link in self.fleet.ready
            if link not in self.members and time.monotonic() - link.since > _SETTLED_SECONDS
        ]
        if back and self._pace.last_step > 0:
            self._rejoining = f"{names_of(back)} is back and joins"
            self._tell_to_stop()


def _has_joined(link: HostLink) -> bool:
    """All its workers have told where they are."""
    return bool(link.beats) and link.stage is None


def _has_failed(link: HostLink) -> bool:
    return link.exit is not None and link.exit["code"] != 0


def _full_disks(link: HostLink) -> list[str]:
    return list((link.exit or {}).get("full_disks", []))
