"""Training on many hosts: rounds of one torchrun per host over ssh, repeated until it is done.

The launcher sees every process and decides alone. A round is a complete world; when something in it
fails, all of it ends, and the next round goes on from the newest checkpoint with the hosts that
there are. Nothing of this needs the hosts to reach the launcher, only ssh from here to them.
No torch in this process.
"""

import signal
import time
from typing import Any

from paceline.doctor.examination import Purpose, check
from paceline.doctor.rows import render
from paceline.errors import EXIT_USER_ERROR, Say, UserError
from paceline.hosts.file import HostsFile
from paceline.launch.claim import Job, claim_run, next_attempt, note_end, note_launch
from paceline.launch.ending import ending_in_words
from paceline.launch.remote.collect import collect
from paceline.launch.remote.fleet import Fleet, in_order, sees_launcher
from paceline.launch.remote.link import HostLink, names_of
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
from paceline.recipe import refuse_too_many_processes
from paceline.record.checkpoints import all_checkpoints, step_of
from paceline.record.writer import EventFile
from paceline.terminal import printable


def train_on_hosts(job: Job, hosts_file: HostsFile, say: Say) -> int:
    """Run the job on exactly the hosts of the file, and return the exit code of the command."""
    started = process_started()
    refuse_too_few(hosts_file, least_hosts(job, hosts_file))
    refuse_too_many_known(job, hosts_file)
    with claim_run(job, say):
        stop = Stop(job, say)
        fleet = Fleet(job, hosts_file.hosts, say)
        with unmoved_by_closed_terminal():
            code = train_with(fleet, stop, job, hosts_file, started)
            away = [link.host for link in fleet.links if link.sees and not sees_launcher(link)]
            collect(job.run, away, say)
            note_end(job.run, code)
            if code == 0:
                say(printable(ending_in_words(job.run, started)))
        return code


def train_with(fleet: Fleet, stop: Stop, job: Job, hosts_file: HostsFile, started: float) -> int:
    with caught_by(stop.on_signal), fleet:
        fleet.open_all()
        with caught_by(_interrupt):  # there is nothing to save yet
            interfaces = examine(job, hosts_file)
        fleet.connect_all()
        refuse_too_many_processes(job.recipe, sum(num_procs_on(job, x) for x in fleet.links))
        mission = Mission(job, fleet, stop, hosts_file, interfaces, fleet.say)
        return Campaign(mission).run(started)


def _interrupt(_number: int, _frame: Any) -> None:
    raise KeyboardInterrupt


class Campaign:
    """Rounds until the run is done, given up or stopped."""

    def __init__(self, mission: Mission) -> None:
        self.mission, self.job, self.fleet = mission, mission.job, mission.fleet
        self.stop, self.guard = mission.stop, mission.job.recipe.guard
        self.number = next_attempt(mission.job.run) - 1
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
            why_not = why_not_gathered(now, str(self.job.run.path), self.guard.return_seconds)
            if why_not is not None:
                return why_not
            self.fleet.call_back_the_lost()
            self.fleet.pump()
            self.stop.look()
        return "stopped"

    def _gathering(self, is_too_late: bool) -> Gathering:
        ready = self.fleet.ready
        missing = [Missing(m.name, m.is_leaving) for m in self.fleet.links if m not in ready]
        is_there = self.job.run.exists()
        return Gathering(len(ready), missing, self.mission.least, is_there, is_too_late)

    def _round(self, members: list[HostLink], started: float) -> Outcome:
        events = EventFile(self.job.run.launcher_events, self.number)
        num_procs = [num_procs_on(self.job, link) for link in members]
        events.write(
            "launch",
            started=started,
            command=self.job.command,
            num_procs=sum(num_procs),
            num_cores=sum(link.facts["num_cores"] for link in members),
            settings={},
            hosts=[link.name for link in members],
        )
        note_launch(
            self.job.run,
            self.mission.hosts_file.path,
            [m.name for m in members if not sees_launcher(m)],
        )
        self.say(f"round {self.number}: {sum(num_procs)} processes on {names_of(members)}")
        current = Round(self.mission, self.number, members, num_procs)
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
            self.say(f"{decision.text}; {_kept(saved)}")
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
        self.say(f"{text}; {_kept(saved)}. Go on with:\n  {self.job.command}")

    def _newest(self) -> int:
        """The newest checkpoint anywhere, the launcher's own directory included."""
        ready = self.fleet.ready
        self.fleet.look(ready)
        told = [link.looked["newest_step"] for link in ready if link.looked]
        here = [step_of(path) for path in all_checkpoints(self.job.run.checkpoints)]
        return max([step for step in [*told, *here] if step is not None], default=-1)


def _kept(saved_step: int) -> str:
    return f"saved at step {saved_step:,}" if saved_step >= 0 else "nothing was saved yet"


def num_procs_on(job: Job, link: HostLink) -> int:
    """One per device of the host, or what --procs or the hosts file tell, if it has so many."""
    asked, num_devices = job.num_procs or link.host.devices, int(link.facts["num_devices"])
    try:
        every_device = choose_processes(asked, job.recipe.device, num_devices, lambda count: count)
    except UserError as error:
        raise UserError(f"{link.name}: {error.what}", error.fix) from error
    return every_device.count


def refuse_too_many_known(job: Job, hosts_file: HostsFile) -> None:
    """Before any login: as many processes as --procs or the hosts file tell, one on each other."""
    told = [job.num_procs or host.devices for host in hosts_file.hosts]
    refuse_too_many_processes(job.recipe, sum(number or 1 for number in told))


def examine(job: Job, hosts_file: HostsFile) -> dict[str, str]:
    """The quick part of the doctor, which names the interface between the hosts."""
    purpose = Purpose(job.recipe, job.run.path, quick=True)
    found = check(hosts_file, purpose, lambda _text: None)
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
