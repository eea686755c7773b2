"""What a user asks of an engine, before it is written in that engine's words. Pure."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import UserError

MOUNT = "/mnt/paceline"
"""Where the storage that outlives the machines is mounted on every host."""
UNSAVED = "/tmp/paceline"  # noqa: S108  (of a machine that was rented for this job)
"""Where a run is that nobody wants to keep: any user may write there."""
IMAGE_GROUP = 1000
"""Of the user in Paceline's own image (Dockerfile)."""
SAVE_SECONDS = 120
"""How long a host that is taken away may need for a step and a checkpoint."""
RESTARTS = 20
"""How often an engine may begin again; each begins at the newest checkpoint."""
STOPPED = 143
"""The exit code of a run that saved because its host is taken away: 128 + SIGTERM."""
MISTAKE = 2
"""The exit code of a mistake that the message explains: trying again would not help."""


CODE = "paceline-code"
"""Where Paceline's own source is put, below the home directory."""
_SOURCE_FILES = ("src", "pyproject.toml", "README.md", "LICENSE", "constraints.txt")
GIVE_BACK = "PACELINE_GIVE_BACK"
"""The variable with the command that gives the machines back, said at the end of the run."""


@dataclass(frozen=True)
class Machine:
    """One host: a type by the cloud's name, or a number of accelerators of a kind, or both."""

    type: str | None = None
    accelerator: str | None = None
    num_accelerators: int = 0


@dataclass(frozen=True)
class Request:
    name: str
    """Of the job: small letters, digits and dashes."""
    command: tuple[str, ...]
    """The one line that every host runs."""
    run: str
    num_hosts: int = 1
    procs: int | None = None
    """Processes per host; None: one per GPU."""
    machine: Machine = Machine()
    spot: bool = False
    image: str | None = None
    storage: str | None = None
    """A bucket, volume or claim, by the name that the engine knows it by."""
    setup: tuple[str, ...] = ()
    """Shell lines that every host runs first."""
    install: str | None = None
    """What pip installs where there is no image; None: the source below."""
    source: Path | None = None
    """Paceline's own source on this machine, which is sent along where there is no image."""
    extras: tuple[str, ...] = ()
    """Of Paceline, which are installed with it."""
    hours: float | None = None
    """The longest that the job may take."""
    region: str | None = None
    sends_code: bool = False
    """The current directory is sent along: a task or a script of the user's."""
    group: str | None = None
    """A security group of AWS, for SkyPilot."""

    @property
    def command_line(self) -> str:
        return shlex.join(self.command)

    def sent_source(self) -> dict[str, str]:
        """Files of this machine by the name that they get; the same that an image is made of."""
        if self.image or self.install or self.source is None:
            return {}
        return {name: str(self.source / name) for name in _SOURCE_FILES}

    def pip_words(self, code: str) -> str | None:
        """What follows `pip install`; None where the image has all. `code`: where it was sent."""
        if self.image:
            return None
        if self.install:
            return shlex.quote(self.install)
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f'--constraint "{code}/constraints.txt" "{code}{extras}"'

    def variables(self, give_back: str | None) -> dict[str, str] | None:
        """What the run is told on every host."""
        spot = {"PACELINE_SPOT": "1"} if self.spot else {}
        return {**spot, **({GIVE_BACK: give_back} if give_back else {})} or None


_ACCELERATORS = re.compile(r"(?P<kind>[A-Za-z][A-Za-z0-9_-]*):(?P<count>[1-9][0-9]?)")


_ACCELERATOR = re.compile(r"[A-Z]{1,3}[0-9]{1,4}[A-Z]?")
"""No cloud calls a machine so: T4, A10G, H100, MI300X."""


def read_machine(text: str | None) -> Machine:
    """'g4dn.2xlarge', 'A100:8', 'T4', or both: 'n1-standard-8+NVIDIA_TESLA_T4:2'."""
    if text is None:
        return Machine()
    kind, _, more = text.partition("+")
    found = _ACCELERATORS.fullmatch(more or kind)
    if found is None and ("+" in text or ":" in kind or not kind):
        raise UserError(
            f"--type {text} names no machine",
            "a type of the cloud (g4dn.2xlarge), accelerators (A100:8), or both with a plus "
            "(n1-standard-8+NVIDIA_TESLA_T4:2)",
        )
    if found is None and _ACCELERATOR.fullmatch(text):
        return Machine(None, text, 1)
    if found is None:
        return Machine(kind)
    return Machine(kind if more else None, found["kind"], int(found["count"]))


def job_name(text: str) -> str:
    """What every engine takes as a name: small letters, digits and dashes, at most 40."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].rstrip("-") or "run"
    return name if name[0].isalpha() else f"run-{name}"


def require(value: str | None, option: str, why: str) -> str:
    if value is None:
        raise UserError(f"{option} is missing: {why}", f"add {option}")
    return value


def check_request(request: Request) -> None:
    """Mistakes that no engine would find, or only after machines are paid for."""
    for line in (*request.setup, request.run, request.storage or "", request.image or ""):
        if "\n" in line or "\0" in line:
            raise UserError(f"{line!r} has more than one line", "one line for each option")
    if not request.run.startswith("/"):
        raise UserError(
            f"the run directory {request.run} depends on where the job starts",
            "give --run an absolute path on storage that outlives the machines",
        )
    if request.spot and not request.storage and not request.run.startswith("/gcs/"):
        raise UserError(
            "with --spot the machines come and go, and the run directory would go with them",
            "name storage that stays with --storage",
        )
