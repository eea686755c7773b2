"""A program on many hosts: rounds of one torchrun per host over ssh, repeated until it is done.

The launcher sees every process and decides alone. A round is a complete world; when something in it
fails, all of it ends, and the next round goes on from the newest checkpoint with the hosts that
there are. Nothing of this needs the hosts to reach the launcher, only ssh from here to them.
No torch in this process.
"""

import signal
import time
from typing import Any

from paceline.doctor.examination import check
from paceline.doctor.rows import render
from paceline.errors import EXIT_USER_ERROR, Say, UserError
from paceline.hosts.file import HostsFile
from paceline.launch.claim import next_attempt, note_end, note_launch
from paceline.launch.remote.collect import collect
from paceline.launch.remote.fleet import Fleet, in_order, sees_launcher
from paceline.launch.remote.link import HostLink, names_of
from paceline.launch.remote.program import Kept, Program
from paceline.launch.remote.restart import (
    Gathering,
    History,
    Missing,
    Outcome,
    decide,
    exit_code_of,
    why_not_gathered,
)
from paceline.launch.remote.round import Mission, Round, Stop, least_hosts
from paceline.lifetime import process_started
from paceline.machine.devices import choose_processes
from paceline.machine.signals import caught_by, unmoved_by_closed_terminal
from paceline.record.checkpoints import all_checkpoints, step_of
from paceline.record.writer import EventFile
from paceline.terminal import printable
from paceline.units import count_of


def run_on_hosts(program: Program, hosts_file: HostsFile, say: Say) -> int:
    """On exactly the hosts of the file; returns the exit code of the command."""
    started = process_started()
    refuse_too_few(hosts_file, least_hosts(program, hosts_file))
    refuse_too_many_known(program, hosts_file)
    with program.claim(say):
        stop = Stop(program, say)
        fleet = Fleet(program, hosts_file.hosts, say)
        with unmoved_by_closed_terminal():
            code = run_with(fleet, stop, program, hosts_file, started)
            away = [link.host for link in fleet.links if link.sees and not sees_launcher(link)]
            collect(program.run, away, say)
            note_end(program.run, code)
            program.conclude(code, started, say)
        return code


def run_with(
    fleet: Fleet, stop: Stop, program: Program, hosts_file: HostsFile, started: float
) -> int:
    with caught_by(stop.on_signal), fleet:
        fleet.open_all()
        with caught_by(_interrupt):  # there is nothing to save yet
            interfaces = examine(program, hosts_file)
        fleet.connect_all()
        program.refuse_processes(sum(num_procs_on(program, link) for link in fleet.links))
        mission = Mission(program, fleet, stop, hosts_file, interfaces, fleet.say)
        return Campaign(mission).run(started)


def _interrupt(_number: int, _frame: Any) -> None:
    raise KeyboardInterrupt


class Campaign:
    """Rounds until the run is done, given up or stopped."""

    def __init__(self, mission: Mission) -> None:
        self.mission, self.program, self.fleet = mission, mission.program, mission.fleet
        self.stop, self.guard = mission.stop, mission.program.guard
        self.number = next_attempt(mission.program.run) - 1
        self.history = History()

    def say(self, text: str) -> None:
        self.mission.say(printable(text))

    def run(self, started: float) -> int:
        while True:
            members = self._gather()
            if isinstance(members, str):
                return self._give_up(members)
            self.number += 1
            code = self._judge(self._round(members, started))
            if code is not None:
                return code
            started = time.time()

    def _gather(self) -> list[HostLink] | str:
        """The hosts of the next round; a sentence when there are too few of them."""
        until = time.monotonic() + self.guard.return_seconds
        while self.stop.asked is None:
            ready, now = self.fleet.ready, self._gathering(time.monotonic() > until)
            if now.run_is_there and not now.has_too_few and self.fleet.look(ready):
                return in_order(ready)
            why_not = why_not_gathered(now, str(self.program.run.path), self.guard.return_seconds)
            if why_not is not None:
                return why_not
            self.fleet.call_back_the_lost()
            self.fleet.pump()
            self.stop.look()
        return "stopped"

    def _gathering(self, is_too_late: bool) -> Gathering:
        ready = self.fleet.ready
        missing = [Missing(m.name, m.is_leaving) for m in self.fleet.links if m not in ready]
        is_there = self.program.run.exists()
        return Gathering(len(ready), missing, self.mission.least, is_there, is_too_late)

    def _round(self, members: list[HostLink], started: float) -> Outcome:
        events = EventFile(self.program.run.launcher_events, self.number)
        num_procs = [num_procs_on(self.program, link) for link in members]
        names = {link.name for link in members}
        absent = [h.name for h in self.mission.hosts_file.hosts if h.name not in names]
        placement = self.program.place([link.host for link in members], num_procs, absent)
        if placement is not None:
            named = {link.name: link for link in members}
            members = [named[host] for host in placement.hosts]
            num_procs = list(placement.counts)
        events.write(
            "launch",
            started=started,
            command=self.program.command,
            num_procs=sum(num_procs),
            num_cores=sum(link.facts["num_cores"] for link in members),
            settings={},
            hosts=[link.name for link in members],
            **({"roles": list(placement.roles.by_rank)} if placement else {}),
        )
        note_launch(
            self.program.run,
            self.mission.hosts_file.path,
            [m.name for m in members if not sees_launcher(m)],
        )
        processes = count_of(sum(num_procs), "process")
        self.say(f"round {self.number}: {processes} on {names_of(members)}")
        if placement is not None:
            self.say(f"roles: {placement.in_words()}")
        current = Round(self.mission, self.number, members, num_procs, placement)
        try:
            outcome = current.run(started)
        finally:
            self.fleet.end_round(self.number)
        code = exit_code_of(outcome, self.stop.asked)
        events.write("exit", code=code, reason=outcome.kind, text=outcome.text)
        events.close()
        return outcome

    def _judge(self, outcome: Outcome) -> int | None:
        """The exit code, or None to go on with another round."""
        saved = self._newest() if outcome.kind not in ("finished", "mistake") else -1
        if outcome.kind == "fault":
            self.history = self.history.after(outcome, saved)
        decision = decide(outcome, self.history, self.guard.max_restarts, self.stop.asked)
        if decision.exit_code is None:
            self.say(f"{decision.text}; {self._kept(saved)}")
            self._let_leavers_go()
        elif decision.exit_code == EXIT_USER_ERROR:
            self.say(decision.text)
        elif decision.exit_code != 0:
            self._say_how_to_go_on(decision.text, saved)
        return decision.exit_code

    def _let_leavers_go(self) -> None:
        for link in self.fleet.links:
            if link.is_leaving:
                link.part(seconds=5)

    def _give_up(self, why: str) -> int:
        """No round can start any more."""
        if self.stop.asked is not None:
            self._say_how_to_go_on("stopped", self._newest())
            return 128 + self.stop.asked
        faults = self.history.faults
        last = f" (last: {faults[-1].text})" if faults else ""
        self._say_how_to_go_on(f"the run ends: {why}{last}", self._newest())
        return 128 + signal.SIGTERM if self._gathering(True).all_leave else 1

    def _say_how_to_go_on(self, text: str, saved: int) -> None:
        self.say(f"{text}; {self._kept(saved)}. {self.program.advice()}")

    def _kept(self, saved_step: int) -> str:
        looked = [link.looked for link in self.fleet.links if link.looked]
        steps = [beat["step"] for link in self.fleet.links for beat in link.beats]
        return self.program.saved_in_words(Kept(looked, saved_step, max(steps, default=0)))

    def _newest(self) -> int:
        """The newest checkpoint anywhere, the launcher's own directory included."""
        ready = self.fleet.ready
        self.fleet.look(ready)
        told = [link.looked["newest_step"] for link in ready if link.looked]
        here = [step_of(path) for path in all_checkpoints(self.program.run.checkpoints)]
        return max([step for step in [*told, *here] if step is not None], default=-1)


def num_procs_on(program: Program, link: HostLink) -> int:
    """One per device of the host, or what --procs or the hosts file tell, if it has so many."""
    asked, num_devices = program.num_procs or link.host.devices, int(link.facts["num_devices"])
    try:
        every_device = choose_processes(asked, program.device, num_devices, lambda count: count)
    except UserError as error:
        raise UserError(f"{link.name}: {error.what}", error.fix) from error
    return every_device.count


def refuse_too_many_known(program: Program, hosts_file: HostsFile) -> None:
    """Before any login: as many processes as --procs or the hosts file tell, one on each other."""
    told = [program.num_procs or host.devices for host in hosts_file.hosts]
    program.refuse_processes(sum(number or 1 for number in told))
    program.place(hosts_file.hosts, [number or 1 for number in told])


def examine(program: Program, hosts_file: HostsFile) -> dict[str, str]:
    """The quick part of the doctor, which names the interface between the hosts."""
    found = check(hosts_file, program.purpose, lambda _text: None)
    if found.problems:
        raise UserError(
            f"the run does not start, because of what is wrong with the hosts\n"
            f"{render(found.problems)}",
            "put that right; `paceline hosts check` looks closer",
        )
    return found.interfaces


def refuse_too_few(hosts_file: HostsFile, least: int) -> None:
    if least > len(hosts_file.hosts):
        raise UserError(
            f"hosts.min is {least}, but {hosts_file.path} names {len(hosts_file.hosts)} hosts",
            "lower hosts.min or add hosts",
        )
