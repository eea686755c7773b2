"""One host of a lab: namespaces around a real sshd, with its own keys, name and files."""

import os
import pwd
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

from paceline.errors import UserError
from paceline.lab import network as lab_network
from paceline.lab.state import (
    HOST_MARK,
    MARK,
    SSH_PORT,
    SWITCH,
    Lab,
    holder,
    owner_id,
    processes,
)
from paceline.machine.cores import core_numbers

_GONE_SECONDS = 10
_BORN_SECONDS = 10

# sshd is the host's first process: when it ends, all others of the host do. A new machine has no
# startup file of its user's shell; here one that sets up tools made each login take 2 s.
_FIRST_PROCESS = """\
set -eu
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/sshd
mount -t tmpfs tmpfs /dev/shm
mount --bind {folder}/hosts /etc/hosts
mount --bind {folder}/local {local}
test ! -e /etc/pam.d/sshd || mount --bind {directory}/pam /etc/pam.d/sshd
test ! -e {startup} || mount --bind /dev/null {startup}
hostname {name}
echo ready
read -r go
exec >>{folder}/log 2>&1
exec {sshd} -D -e -f {folder}/sshd_config
"""

_SSHD = """\
ListenAddress {address}
Port {port}
HostKey "{folder}/host_key"
PidFile none
AuthorizedKeysFile "{directory}/keys/authorized_keys"
StrictModes no
UsePAM {pam}
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowUsers {user}
PrintMotd no
PrintLastLog no
UseDNS no
MaxStartups 100
MaxSessions 100
SetEnv "PATH={path}"
Subsystem sftp internal-sftp
"""

# Logins need the key alone, whatever this machine's own rules ask for.
_PAM = """\
auth required pam_deny.so
account required pam_permit.so
session required pam_permit.so
"""


def owner_name() -> str:
    return pwd.getpwuid(owner_id()).pw_name


def sshd_path() -> str | None:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def write_files(lab: Lab, name: str) -> None:
    """Everything that the host has for itself; its key is made by the real ssh-keygen."""
    folder = lab.folder(name)
    (folder / "local").mkdir(parents=True, exist_ok=True)
    os.chown(folder / "local", owner_id(), -1)
    known = "".join(f"{lab.address(other)} {other}\n" for other in lab.names)
    here = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"
    (folder / "hosts").write_text(here + known, encoding="ascii")
    make_key(folder / "host_key", name)
    (lab.directory / "pam").write_text(_PAM, encoding="ascii")
    text = _SSHD.format(
        address=lab.address(name),
        port=SSH_PORT,
        folder=folder,
        directory=lab.directory,
        user=owner_name(),
        path=os.environ.get("PATH", os.defpath),
        pam="yes" if Path("/etc/pam.d/sshd").exists() else "no",
    )
    (folder / "sshd_config").write_text(text, encoding="utf-8")


def make_key(path: Path, comment: str) -> None:
    """An Ed25519 key without a passphrase, readable by its owner alone."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)


def start_switch(lab: Lab) -> int:
    process = _start(lab, SWITCH, ["unshare", "--net", "sleep", "infinity"], subprocess.DEVNULL)
    process.communicate()
    deadline = time.monotonic() + _BORN_SECONDS
    while (pid := holder(lab, SWITCH)) is None:  # it is called sleep once the namespace is there
        if time.monotonic() > deadline:
            raise UserError("unshare --net failed", "the lab needs a kernel with namespaces")
        time.sleep(0.002)
    return pid


def start(lab: Lab, name: str) -> None:
    """Switch the host on; it answers ssh very soon after."""
    folder = lab.folder(name)
    script = _FIRST_PROCESS.format(
        folder=shlex.quote(str(folder)),
        local=shlex.quote(str(lab.local)),
        name=name,
        directory=shlex.quote(str(lab.directory)),
        sshd=sshd_path(),
        startup=shlex.quote(f"{pwd.getpwuid(owner_id()).pw_dir}/.bashrc"),
    )
    spaces = ["--net", "--uts", "--ipc", "--mount", "--pid"]
    options = ["--fork", "--kill-child", "--propagation", "private"]
    first = ["taskset", "--cpu-list", cores_of(lab, name), "unshare", *spaces, *options]
    process = _start(lab, name, [*first, "sh", "-c", script], subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None  # noqa: S101
    with process.stdin, process.stdout:
        process.wait()
        ready = process.stdout.readline() == b"ready\n"
        pid = holder(lab, name)
        if not ready or pid is None:
            raise UserError(
                f"host {name} of the lab did not start: {_last_line(folder / 'log')}",
                "the lab needs a kernel with net, uts, ipc, mount and pid namespaces",
            )
        lab_network.plug_in(lab, name, pid)
        lab_network.shape(lab, name, lab.link_bits_per_second)
        process.stdin.write(b"go\n")


def cores_of(lab: Lab, name: str) -> str:
    """Each host has its share of this machine's cores to itself, as far as there are enough: hosts
    that all took every core would spend their steps waiting for each other."""
    cores = core_numbers()
    index, share = lab.names.index(name), max(1, len(cores) // len(lab.names))
    mine = [cores[(index * share + place) % len(cores)] for place in range(share)]
    return ",".join(map(str, mine))


def _start(lab: Lab, name: str, words: list[str], pipe: int) -> subprocess.Popen[bytes]:
    """In a session of its own and as nobody's child, for it outlives this process."""
    environment = {"PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"}
    environment |= {MARK: str(lab.directory), HOST_MARK: name}
    with (lab.directory / "log" if name == SWITCH else lab.folder(name) / "log").open("ab") as log:
        return subprocess.Popen(
            ["setsid", "--fork", *words],
            env=environment,
            cwd="/",
            stdin=pipe,
            stdout=pipe,
            stderr=log,
        )


def kill(lab: Lab, name: str) -> None:
    """End every process of a host, as a power cut does."""
    pid = holder(lab, name)
    if pid is not None:
        end([pid, *processes(lab.directory, name)])


def end(pids: list[int]) -> None:
    """SIGKILL, and wait until they are gone."""
    for pid in pids:
        _kill(pid)
    deadline = time.monotonic() + _GONE_SECONDS
    while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.005)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _alive(pid: int) -> bool:
    """A zombie is gone; whoever inherited it may never look."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return lines[-1] if lines else "no reason given"
