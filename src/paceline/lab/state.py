"""What a lab is: its directory, its hosts and their addresses, and which processes belong to it.

Processes are found by a mark in their environment, not by files of ids: so a lab whose `up` was
killed half-way is known as well as a whole one. Nothing is started or ended here.
"""

import json
import os
import pwd
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path

from paceline.errors import UserError
from paceline.files import write_whole

STATE_NAME = "lab.json"
MARK = "PACELINE_LAB"
HOST_MARK = "PACELINE_LAB_HOST"
SWITCH = "-"
"""Stands where a host's name would be in the mark of the process that holds the switch."""
SSH_PORT = 22


@dataclass(frozen=True)
class Lab:
    directory: Path
    network: str
    """The first three numbers of every address, like 10.77.0."""
    names: tuple[str, ...]
    link_bits_per_second: float | None = None

    @property
    def uplink(self) -> str:
        """The one interface that the lab adds to this machine (at most 15 letters)."""
        return f"paceline{self.network.rsplit('.', 1)[1]}"

    @property
    def own_address(self) -> str:
        """This machine's, as the hosts see it."""
        return f"{self.network}.254"

    @property
    def local(self) -> Path:
        """The same path on every host, with each host's own files in it."""
        return self.directory / "local"

    @property
    def shared(self) -> Path:
        """The same files on every host."""
        return self.directory / "shared"

    @property
    def hosts_file(self) -> Path:
        return self.directory / "hosts.yaml"

    def address(self, name: str) -> str:
        return f"{self.network}.{1 + self.names.index(name)}"

    def folder(self, name: str) -> Path:
        return self.directory / "hosts" / name


def default_directory() -> Path:
    """In the home of whoever called sudo, so that they find their lab again without it."""
    is_ours = owner_id() == os.getuid()
    owner_home = Path.home() if is_ours else Path(pwd.getpwuid(owner_id()).pw_dir)
    home = owner_home / ".local/state"
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else home) / "paceline" / "lab"


def down_command(directory: Path) -> str:
    where = [] if directory == default_directory() else ["--dir", str(directory)]
    return shlex.join(["paceline", "lab", "down", *where])


def owner_id() -> int:
    """Whose lab it is: root, or the user who became root with sudo."""
    return int(os.environ.get("SUDO_UID", os.getuid()))


def write_lab(lab: Lab) -> None:
    values = {**asdict(lab), "directory": str(lab.directory)}
    write_whole(lab.directory / STATE_NAME, json.dumps(values, indent=2) + "\n")


def read_lab(directory: Path) -> Lab:
    path = directory / STATE_NAME
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return Lab(
            directory.absolute(),
            values["network"],
            tuple(values["names"]),
            values["link_bits_per_second"],
        )
    except FileNotFoundError as error:
        raise UserError(f"there is no lab in {directory}", "start one: paceline lab up") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} cannot be read: {error}", f"sudo {down_command(directory)}"
        ) from error


def processes(directory: Path, host: str | None = None) -> list[int]:
    """The ids of the lab's own processes, or of one host's, oldest first."""
    marks = {f"{MARK}={directory.absolute()}"} | ({f"{HOST_MARK}={host}"} if host else set())
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes().decode(errors="replace")
            except OSError:  # it ended meanwhile, or is not ours to look into
                continue
            if marks <= set(environment.split("\0")):
                found.append(int(entry.name))
    return sorted(found)


def holder(lab: Lab, host: str) -> int | None:
    """The process whose namespaces are the host's; when it dies, so does the host."""
    for pid in processes(lab.directory, host):
        try:
            if Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip() == _holder_name(host):
                return pid
        except OSError:
            continue
    return None


def _holder_name(host: str) -> str:
    return "sleep" if host == SWITCH else "unshare"


def require_holder(lab: Lab, host: str) -> int:
    pid = holder(lab, host)
    if pid is None:
        raise UserError(
            f"{host} of the lab in {lab.directory} is off" if host != SWITCH else "the lab is down",
            f"sudo {down_command(lab.directory)}, then `lab up` again",
        )
    return pid
