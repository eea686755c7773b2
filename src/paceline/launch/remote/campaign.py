"""Training on many hosts: rounds of one torchrun per host over ssh, repeated until it is done.

The launcher sees every process and decides alone. A round is a complete world; when something in it
fails, all of it ends, and the next round goes on from the newest checkpoint with the hosts that
there are. Nothing of this needs the hosts to reach the launcher, only ssh from here to them.
No torch in this process.
"""

import signal
import time

from paceline.doctor.examination import quick
from paceline.doctor.rows import render
from paceline.errors import EXIT_USER_ERROR, UserError
from paceline.hosts.file import HostsFile
from paceline.launch.jobs import note_end, note_launch
from paceline.launch.local import Job, only_one, settle_recipe
from paceline.launch.remote.collect import collect
from paceline.launch.remote.fleet import Fleet, Say, in_order, names, sees_launcher
from paceline.launch.remote.link import HostLink
from paceline.launch.remote.round import Mission, Outcome, Round, Stop, least_hosts
from paceline.launch.signals import caught_by
from paceline.lifetime import process_started
from paceline.record.checkpoints import all_checkpoints, step_of
from paceline.record.events import read_events
from paceline.record.writer import EventFile, prepare_directory


def train_on_hosts(job: Job, hosts_file: HostsFile, say: Say) -> int:
    """Run the job on exactly the hosts of the file, and return the exit code of the command."""
    started = process_started()
    refuse_too_few(hosts_file, least_hosts(job, hosts_file))
    prepare_directory(job.run.path)
    with only_one(job.run):
        settle_recipe(job, say)
        stop = Stop(job, say)
        interfaces = examine(job, hosts_file)
        fleet = Fleet(hosts_file.hosts, job.run, job.recipe.guard.hang_seconds, say)
        with caught_by(stop.on_signal), fleet:
            fleet.connect_all()
            mission = Mission(job, fleet, stop, hosts_file, interfaces, say)
            code = Campaign(mission).run(started)
            away = [link.host for link in fleet.links if link.looked and not sees_launcher(link)]
        collect(job.run, away, say)
        note_end(job.run, code)
        return code


class Campaign:
    """Rounds until the run is done, given up or stopped."""

    def __init__(self, mission: Mission) -> None:
        self.mission, self.job, self.fleet = mission, mission.job, mission.fleet
        self.stop, self.least, self.say = mission.stop, mission.least, mission.say
        launches = read_events(mission.job.run.launcher_events)
        self.number = sum(event["kind"] == "launch" for event in launches)
        self.faults: list[Outcome] = []
        """Since the last checkpoint that was new."""
        self.last_saved = -1

    def run(self, started: float) -> int:
        while True:
            members = self._gather()
            if isinstance(members, str):
                return self._give_up(members)
            self.number += 1
            outcome = self._round(members, started)
            code = self._judge(outcome)
            if code is not None:
                return code
            started = time.time()

    def _gather(self) -> list[HostLink] | str:
        """The hosts of the next round; a sentence when there are too few of them."""
        until = time.monotonic() + self.job.recipe.guard.return_seconds
        while self.stop.asked is None:
            ready = self.fleet.ready
            is_here = self.job.run.exists()  # shared storage may be away for a while
            if is_here and len(ready) >= self.least and self.fleet.look(ready):
                return in_order(ready)
            if not is_here and time.monotonic() > until:
                return f"the run directory {self.job.run.path} is gone"
            gone = [link for link in self.fleet.links if link not in ready]
            if len(ready) < self.least and time.monotonic() > until:
                return (
                    f"{names(gone)} did not come back within "
                    f"{self.job.recipe.guard.return_seconds:.0f} s; {len(ready)} of "
                    f"{len(self.fleet.links)} hosts are left, and hosts.min is {self.least}"
                )
            if all(link.is_leaving for link in gone) and len(ready) < self.least:
                return f"{names(gone)} was told to leave, and hosts.min is {self.least}"
            self.fleet.call_back_the_lost()
            self.fleet.pump()
            self.stop.look()
        return "stopped"

    def _round(self, members: list[HostLink], started: float) -> Outcome:
        events = EventFile(self.job.run.launcher_events, self.number)
        num_procs = [self._num_procs(link) for link in members]
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
        self.say(f"round {self.number}: {sum(num_procs)} processes on {names(members)}")
        current = Round(self.mission, self.number, members, num_procs)
        try:
            outcome = current.run(started)
        finally:
            self.fleet.end_round(self.number)
        codes = {"finished": 0, "mistake": EXIT_USER_ERROR}
        if self.stop.asked is not None:
            codes["stopped"] = 128 + self.stop.asked
        code = codes.get(outcome.kind, 1)
        events.write("exit", code=code, reason=outcome.kind, text=outcome.text)
        events.close()
        return outcome

    def _num_procs(self, link: HostLink) -> int:
        return self.job.num_procs or link.host.devices or int(link.facts["num_procs"])

    def _judge(self, outcome: Outcome) -> int | None:
        """The exit code, or None to go on with another round."""
        if self.stop.asked is not None and outcome.kind != "finished":
            self.say(f"stopped; {self._kept()}. Go on with:\n  {self.job.command}")
            return 128 + self.stop.asked
        if outcome.kind == "finished":
            return 0
        if outcome.kind == "mistake":
            self.say(outcome.text)
            return EXIT_USER_ERROR
        if outcome.kind in ("left", "rejoin"):
            self.say(f"{outcome.text}; {self._kept()}")
            self._let_leavers_go()
            return None
        return self._after_fault(outcome)

    def _let_leavers_go(self) -> None:
        for link in self.fleet.links:
            if link.is_leaving:
                link.part(seconds=5)

    def _after_fault(self, fault: Outcome) -> int | None:
        saved = self._newest()
        if saved > self.last_saved:
            self.faults = []
        self.last_saved = saved
        again = fault.key is not None and any(fault.key == old.key for old in self.faults)
        self.faults.append(fault)
        self.say(f"fault: {fault.text}")
        most = self.job.recipe.guard.max_restarts
        if again:
            return self._give_up("the same happened before at the same step", say_fault=False)
        if len(self.faults) > most:
            return self._give_up(f"{len(self.faults)} faults in a row without a new checkpoint")
        self.say(f"starting again; {self._kept()}")
        return None

    def _give_up(self, why: str, say_fault: bool = True) -> int:
        if self.stop.asked is not None:
            self.say(f"stopped; {self._kept()}. Go on with:\n  {self.job.command}")
            return 128 + self.stop.asked
        last = f" (last: {self.faults[-1].text})" if self.faults and say_fault else ""
        self.say(f"the run ends: {why}{last}; {self._kept()}. Go on with:\n  {self.job.command}")
        gone = [link for link in self.fleet.links if link not in self.fleet.ready]
        left = bool(gone) and all(link.is_leaving for link in gone)
        return 128 + signal.SIGTERM if left else 1

    def _newest(self) -> int:
        """The newest checkpoint anywhere, the launcher's own directory included."""
        ready = self.fleet.ready
        self.fleet.look(ready)
        told = [link.looked["newest_step"] for link in ready if link.looked]
        here = [step_of(path) for path in all_checkpoints(self.job.run.checkpoints)]
        return max([step for step in [*told, *here] if step is not None], default=-1)

    def _kept(self) -> str:
        newest = self._newest()
        return f"saved at step {newest:,}" if newest >= 0 else "nothing was saved yet"


def examine(job: Job, hosts_file: HostsFile) -> dict[str, str]:
    """The quick part of the doctor, which names the interface between the hosts."""
    found = quick(hosts_file, job.recipe, job.run.path)
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
