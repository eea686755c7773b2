"""A launcher's orders to a worker: one value, in one environment variable, written and read here.

Every launcher (this machine, hosts over ssh, mpirun and Slurm) fills in a `WorkerOrder`; the worker
reads it once at its start and passes on what others need. What only a user sets (PACELINE_DATA,
PACELINE_MIRROR, PACELINE_KERNEL, PACELINE_PRACTICE, PACELINE_LINK) is no order and not here.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from paceline.errors import UserError

VARIABLE = "PACELINE_ORDER"


@dataclass(frozen=True)
class HostPrice:
    name: str
    price_per_hour: float | None


@dataclass(frozen=True)
class WorkerOrder:
    """The defaults are those of a process that was started by hand."""

    attempt: int = 1
    """How often this run has been started; what the first process was told counts for all."""
    launched_at: float | None = None
    """When the launcher began, in seconds since 1970 by this host's clock."""
    recipe: str | None = None
    """A copy of the recipe on this host; None reads the run directory's."""
    store: str | None = None
    """Where the processes meet: a file on one host, on many 'tcp://address:port'."""
    store_listener: int | None = None
    """In the process that serves the store: the open file on which it listens."""
    first_rank: int | None = None
    """Of this host, where the launcher knows the order of hosts: torchrun sorts by address."""
    saves: bool = False
    """Whether this host's run directory is its own, so that its first process saves as well."""
    pulse_directory: str | None = None
    """Where to write heartbeats; None where nobody reads them."""
    host: str | None = None
    """This host's name in the hosts file."""
    hosts: tuple[HostPrice, ...] = ()
    """All hosts of the world, for the run's records."""
    roles: tuple[str, ...] = ()
    """With parameter servers: of every process, by rank."""
    replaceable: tuple[int, ...] = ()
    """Ranks that are started again when they are lost, while the others go on."""
    hang_seconds: float = 0.0
    """How long one of these may give no sign of life."""
    token: str | None = None
    """With parameter servers: what a process of this run says to be let in by another."""
    token_file: str | None = None
    """Where to read it from, when the chief is there: in a world that somebody else has started."""

    def to_environment(self) -> dict[str, str]:
        """What a launcher adds to the environment of a worker that it starts."""
        return {VARIABLE: json.dumps(self.as_document())}

    @classmethod
    def from_environment(cls, variables: Mapping[str, str] = os.environ) -> "WorkerOrder":
        text = variables.get(VARIABLE)
        if text is None:
            return cls()
        try:
            document = json.loads(text)
        except ValueError as error:
            raise _unreadable(f"is not JSON ({error})") from error
        return cls.from_document(document)

    def as_document(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_document(cls, document: Any) -> "WorkerOrder":
        """Every field must be there: a launcher of another version means something else."""
        if not isinstance(document, dict):
            raise _unreadable("is not a JSON object")
        names = {field.name for field in fields(cls)}
        unknown, missing = sorted(document.keys() - names), sorted(names - document.keys())
        if unknown or missing:
            said = [f"unknown: {', '.join(unknown)}"] if unknown else []
            said += [f"missing: {', '.join(missing)}"] if missing else []
            raise _unreadable(f"has other fields than this version knows ({'; '.join(said)})")
        try:
            hosts = tuple(HostPrice(**host) for host in document["hosts"])
        except TypeError as error:
            raise _unreadable(f"names its hosts in another way ({error})") from error
        lists = {name: tuple(document[name]) for name in ("roles", "replaceable")}
        return cls(**{**document, "hosts": hosts, **lists})


def _unreadable(why: str) -> UserError:
    return UserError(
        f"the launcher's order to this worker, {VARIABLE}, {why}",
        "launcher and worker must be one version of Paceline (`paceline hosts push` installs this "
        f"one on the hosts); unset {VARIABLE} to start a worker by hand",
    )
