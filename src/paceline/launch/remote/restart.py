"""Whether a run goes on after a round has ended, and what is said about it.

Pure functions of plain data: who asks, waits and starts again is `campaign.py`.

| the round ended because | what follows |
|---|---|
| it is finished | exit code 0 |
| the user asked for it | 128 + the signal, with the command that goes on |
| of a mistake that only the user can put right | exit code 2, with the mistake |
| a host was told to leave, or has come back | another round |
| of a fault | another round, unless trying again has been in vain: then exit code 1 |
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from paceline.errors import EXIT_USER_ERROR

Kind = Literal["finished", "stopped", "mistake", "fault", "left", "rejoin"]


@dataclass(frozen=True)
class Outcome:
    """How a round ended."""

    kind: Kind
    """`left`: a host was told to go; `rejoin`: one has come back."""
    text: str = ""
    key: Any = None
    """Equal for two faults that are the same one."""
    exit_code: int = 1
    """Of the command, if the run ends with this fault."""


@dataclass(frozen=True)
class History:
    """What has gone wrong since the last checkpoint that was new."""

    faults: tuple[Outcome, ...] = ()
    saved_step: int = -1

    def after(self, fault: Outcome, saved_step: int) -> "History":
        earlier = () if saved_step > self.saved_step else self.faults
        return History((*earlier, fault), saved_step)

    def why_in_vain(self, max_restarts: int) -> str | None:
        """Why another round would only fail as the last one did; None if it is worth trying."""
        *earlier, last = self.faults
        if max_restarts == 0:
            return "no restarts were asked for"
        if last.key is not None and any(last.key == fault.key for fault in earlier):
            return "the same happened before at the same step"
        if len(self.faults) > max_restarts:
            return f"{len(self.faults)} faults in a row without a new checkpoint"
        return None


@dataclass(frozen=True)
class Decision:
    exit_code: int | None
    """None goes on with another round."""
    text: str


def decide(
    outcome: Outcome, history: History, max_restarts: int, stop_signal: int | None
) -> Decision:
    """What follows from a round; a fault is already part of the history."""
    if outcome.kind == "finished":
        return Decision(0, "")
    if stop_signal is not None:
        return Decision(128 + stop_signal, "stopped")
    if outcome.kind == "mistake":
        return Decision(EXIT_USER_ERROR, outcome.text)
    if outcome.kind in ("left", "rejoin"):
        return Decision(None, outcome.text)
    in_vain = history.why_in_vain(max_restarts)
    if in_vain is None:
        return Decision(None, f"fault: {outcome.text}\nstarting again")
    return Decision(outcome.exit_code, f"fault: {outcome.text}\nthe run ends: {in_vain}")


def exit_code_of(outcome: Outcome, stop_signal: int | None) -> int:
    """Of the round alone, as the launcher's events have it."""
    codes = {"finished": 0, "mistake": EXIT_USER_ERROR}
    if stop_signal is not None:
        codes["stopped"] = 128 + stop_signal
    return codes.get(outcome.kind, 1)


@dataclass(frozen=True)
class Missing:
    """A host that is not ready for the next round."""

    name: str
    is_leaving: bool


@dataclass(frozen=True)
class Gathering:
    """The hosts between two rounds."""

    num_ready: int
    missing: Sequence[Missing]
    min_hosts: int
    run_is_there: bool
    """Shared storage may be away for a while."""
    is_too_late: bool
    """The time is over in which a lost host may come back."""

    @property
    def has_too_few(self) -> bool:
        return self.num_ready < self.min_hosts

    @property
    def all_leave(self) -> bool:
        return bool(self.missing) and all(host.is_leaving for host in self.missing)


def why_not_gathered(now: Gathering, run_path: str, return_seconds: float) -> str | None:
    """Why the next round will never start; None as long as waiting makes sense."""
    names = ", ".join(host.name for host in now.missing)
    if not now.run_is_there and now.is_too_late:
        return f"the run directory {run_path} is gone"
    if now.has_too_few and now.is_too_late:
        return (
            f"{names} did not come back within {return_seconds:.0f} s; {now.num_ready} of "
            f"{now.num_ready + len(now.missing)} hosts are left, and hosts.min is {now.min_hosts}"
        )
    if now.has_too_few and now.all_leave:
        return f"{names} was told to leave, and hosts.min is {now.min_hosts}"
    return None
