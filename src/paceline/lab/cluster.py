"""A practice cluster on one Linux machine: hosts that are namespaces, each with a real sshd.

They share this machine's files, except for one directory that each has for itself. Links can be
slowed down and cut, and hosts switched off and on, to see what a run makes of it.
"""

import os
import shutil
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from paceline import config
from paceline.data.places import data_home
from paceline.errors import UserError
from paceline.hosts.ssh import on_all
from paceline.lab import host as lab_host
from paceline.lab import network as lab_network
from paceline.lab.kept import is_kept, kept_in_words, remove_files
from paceline.lab.state import (
    SSH_PORT,
    STATE_NAME,
    Lab,
    default_directory,
    down_command,
    holder,
    owner_id,
    processes,
    read_lab,
    require_holder,
    write_lab,
)
from paceline.units import count_of, format_seconds, parse_link_speed

__all__ = [
    "Lab",
    "cut_link",
    "default_directory",
    "down",
    "enter",
    "mend_link",
    "power_off",
    "power_on",
    "read_lab",
    "set_link",
    "up",
]

Say = Callable[[str], None]

MAX_HOSTS = 64
_ANSWER_SECONDS = 20

_PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setsid": "util-linux",
    "mount": "mount",
    "hostname": "hostname",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
}


def up(num_hosts: int, link: str | None, directory: Path, say: Say) -> Path:
    """Start a lab and return its hosts file, which works at once."""
    started = time.monotonic()
    bits_per_second = parse_link_speed(link) if link else None
    _require_linux_and_root()
    if not 1 <= num_hosts <= MAX_HOSTS:
        raise UserError(f"a lab cannot have {num_hosts} hosts", f"ask for 1 to {MAX_HOSTS}")
    directory = directory.absolute()
    _require_free(directory)
    names = tuple(f"node{number}" for number in range(num_hosts))
    try:
        with lab_network.choosing_a_network() as network:
            lab = Lab(directory, network, names, bits_per_second)
            _make_directory(lab)
            lab_network.build_switch(lab, lab_host.start_switch(lab))
        _start_hosts(lab)
    except BaseException:
        _remove(directory)
        raise
    say(
        f"{count_of(num_hosts, 'host')} up in {format_seconds(time.monotonic() - started)}: "
        f"{names[0]} ({lab.address(names[0])}) to {names[-1]} ({lab.address(names[-1])})"
    )
    return lab.hosts_file


def down(directory: Path, say: Say, keeps_runs: bool = True) -> None:
    """End everything that belongs to the lab, also what an interrupted `up` left behind."""
    directory = directory.absolute()
    is_up = (directory / STATE_NAME).is_file() or bool(processes(directory))
    if not is_up and (keeps_runs or not is_kept(directory)):
        say(f"there is no lab in {directory}")
        return
    command = down_command(directory)
    if os.geteuid() != 0:
        raise UserError("only root can end a lab", f"sudo {command}")
    kept = _remove(directory, keeps_runs)
    if not kept:
        deleted = "" if keeps_runs else ", and all runs in its directories"
        say(f"the lab in {directory} is gone, with its hosts, keys and logs{deleted}")
        return
    say(f"the lab in {directory} is gone, with its hosts, keys and logs; kept:")
    say(kept_in_words(kept))
    say(f"`{command} --delete-runs` deletes that too; the next `lab up` finds it in its place")


def cut_link(directory: Path, name: str) -> None:
    """Nothing reaches the host or comes from it any more, without a word to either side."""
    lab_network.set_cable(_lab_with(directory, name), name, plugged=False)


def mend_link(directory: Path, name: str) -> None:
    lab_network.set_cable(_lab_with(directory, name), name, plugged=True)


def set_link(directory: Path, name: str, link: str | None) -> None:
    """Another speed for one host, like '100Mbit'; None takes the limit away."""
    lab = _lab_with(directory, name)
    lab_network.shape(lab, name, parse_link_speed(link) if link else None)


def power_off(directory: Path, name: str) -> None:
    """The cable goes first: a machine without power cannot say goodbye to its connections."""
    lab = _lab_with(directory, name)
    if holder(lab, name) is not None:
        lab_network.set_cable(lab, name, plugged=False)
        lab_host.kill(lab, name)


def power_on(directory: Path, name: str) -> None:
    """The host again, with the files it had; returns when it answers."""
    lab = _lab_with(directory, name)
    if holder(lab, name) is None:
        lab_host.start(lab, name)
        _wait_for_sshd(lab, name)


def enter(directory: Path, name: str, words: list[str]) -> list[str]:
    """The command that runs these words inside the host without ssh, as root."""
    lab = _lab_with(directory, name)
    pid = require_holder(lab, name)
    inside = f"--pid=/proc/{pid}/ns/pid_for_children"
    spaces = ["--net", "--uts", "--ipc", "--mount", inside]
    return ["nsenter", "--target", str(pid), *spaces, "--", *words]


def _lab_with(directory: Path, name: str) -> Lab:
    lab = read_lab(directory.absolute())
    if name not in lab.names:
        raise UserError(f"the lab has no host '{name}'", f"it has {', '.join(lab.names)}")
    return lab


def _require_linux_and_root() -> None:
    if sys.platform != "linux":
        raise UserError("the lab needs Linux", "use a Linux machine or a virtual one")
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [name for name in _PACKAGES if shutil.which(name, path=path) is None]
    if missing:
        packages = " ".join(sorted({_PACKAGES[name] for name in missing}))
        raise UserError(
            f"the lab needs {', '.join(missing)}", f"on Debian or Ubuntu: apt install {packages}"
        )
    if os.geteuid() != 0:
        raise UserError(
            "the lab needs root: it makes network namespaces", "sudo paceline lab up ..."
        )


def _require_free(directory: Path) -> None:
    """Up already, somebody else's files, or the remains of a lab, which are cleared away."""
    if processes(directory):
        raise UserError(
            f"the lab in {directory} is up already; its hosts file is {directory / 'hosts.yaml'}",
            f"use it, or end it first: {down_command(directory)}",
        )
    if (directory / STATE_NAME).is_file():
        _remove(directory)
    if directory.exists() and any(directory.iterdir()) and not is_kept(directory):
        raise UserError(
            f"{directory} is not empty and is no lab", "name another directory with --dir"
        )


def _make_directory(lab: Lab) -> None:
    """State first, so that `down` knows from the first moment what it may delete."""
    new = [path for path in (lab.directory, *lab.directory.parents) if not path.exists()]
    lab.directory.mkdir(parents=True, exist_ok=True)
    for path in new:
        os.chown(path, owner_id(), -1)
    write_lab(lab)
    keys = lab.directory / "keys"
    for folder in (keys, lab.local, lab.shared):
        folder.mkdir(exist_ok=True)
    lab_host.make_key(keys / "user", "paceline lab")
    shutil.copy(keys / "user.pub", keys / "authorized_keys")
    keys.chmod(0o700)
    on_all(lab.names, lambda name: lab_host.write_files(lab, name))
    known = [f"{lab.address(name)},{name} {_public_key(lab, name)}" for name in lab.names]
    (lab.directory / "known_hosts").write_text("\n".join(known) + "\n", encoding="ascii")
    _write_hosts_file(lab)
    for path in (lab.directory, keys, keys / "user", lab.shared):
        os.chown(path, owner_id(), -1)
    lab.directory.chmod(0o700)


def _public_key(lab: Lab, name: str) -> str:
    text = (lab.folder(name) / "host_key.pub").read_text(encoding="ascii")
    return " ".join(text.split()[:2])


def _write_hosts_file(lab: Lab) -> None:
    """The hosts have this machine's files, so this very Python and this data cache."""
    settings = {
        "user": lab_host.owner_name(),
        "port": SSH_PORT,
        "key": "keys/user",
        "known_hosts": "known_hosts",
        "python": sys.executable,
        **({"data": str(data_home())} if owner_id() == os.getuid() else {}),
        "devices": 1,
        "hosts": [{"name": name, "address": lab.address(name)} for name in lab.names],
    }
    lab.hosts_file.write_text(config.to_yaml(settings), encoding="utf-8")


def _start_hosts(lab: Lab) -> None:
    on_all(lab.names, lambda name: lab_host.start(lab, name))
    on_all(lab.names, lambda name: _wait_for_sshd(lab, name))


def _wait_for_sshd(lab: Lab, name: str) -> None:
    deadline = time.monotonic() + _ANSWER_SECONDS
    while time.monotonic() < deadline and holder(lab, name) is not None:
        try:
            with socket.create_connection((lab.address(name), SSH_PORT), timeout=1) as connection:
                if connection.recv(4) == b"SSH-":
                    return
        except OSError:
            time.sleep(0.01)
    log = lab.folder(name) / "log"
    text = log.read_text(encoding="utf-8", errors="replace").strip()
    raise UserError(f"sshd of {name} did not start: {text or 'no reason given'}", f"see {log}")


def _remove(directory: Path, keeps_runs: bool = True) -> list[Path]:
    """Processes, the cable to here, then files; again for a process that was just being born."""
    while pids := processes(directory):
        lab_host.end(pids)
    if not (directory / STATE_NAME).is_file() and not is_kept(directory):
        return []
    with suppress(UserError):  # unreadable: then the cable goes with the switch, a little later
        lab_network.remove_uplink(read_lab(directory))
    return remove_files(directory, keeps_runs)
