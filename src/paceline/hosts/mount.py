"""Shared storage on all hosts: `paceline hosts mount nfs://server/path /data`.

Mounted first, and written into /etc/fstab only once that has worked. A directory that is mounted
from elsewhere, or has files in it, is left alone. Passwords are never written: a file on the hosts,
named by the user, has them.
"""

import re
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.errors import UserError
from paceline.hosts.file import Host
from paceline.hosts.ssh import on_all, run_on
from paceline.hosts.steps import Step, install

_NFS = "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport,_netdev"
"""What Amazon advises for EFS, and what fits any NFS server that a training writes to."""
_SSHFS = "reconnect,ServerAliveInterval=15,ServerAliveCountMax=3,_netdev,allow_other"
"""Mounted by root, and meant for the user who trains."""


@dataclass(frozen=True)
class Storage:
    kind: str
    """As mount(8) names the type."""
    source: str
    options: str
    """For the shell of the host, which fills in who its user is."""
    tool: str = ""
    """The program that mounts it; '' where the kernel alone does."""
    package: str = ""

    def on(self, host: Host) -> "Storage":
        """On the very host that another one mounts over ssh, it is a directory."""
        server, _, path = self.source.rpartition("@")[2].partition(":")
        own = (host.name, host.address, host.private_address)
        return Storage("none", path, "bind") if self.tool == "sshfs" and server in own else self


def read_storage(address: str, credentials: str | None = None) -> Storage:
    scheme, _, rest = address.partition("://")
    host, _, path = rest.partition("/")
    if credentials is not None and not re.fullmatch(r"/[A-Za-z0-9_./-]+", credentials):
        raise UserError(f"{credentials} is no absolute path without blanks", "/etc/smb, say")
    if not re.fullmatch(r"[A-Za-z0-9_./:@%+=~-]*", address):
        raise UserError(f"{address!r} has characters that have no place there", "see docs/hosts.md")
    if scheme == "dir" and rest.startswith("/"):
        return Storage("none", rest, "bind")
    if scheme == "nfs" and host:
        return Storage("nfs4", f"{host}:/{path}", _NFS, "mount.nfs4", "nfs-common")
    if scheme == "smb" and host and path:
        return _smb(f"//{host}/{path}", credentials)
    if scheme == "sshfs" and host:
        return _sshfs(f"{host}:/{path}", credentials)
    raise UserError(
        f"{address} names no storage",
        "nfs://SERVER/PATH (EFS as well), smb://SERVER/SHARE, sshfs://USER@HOST/PATH, or dir:///PATH",
    )


def _smb(source: str, credentials: str | None) -> Storage:
    if credentials is None:
        raise UserError(
            "an SMB share wants a name and a password, which are never written into /etc/fstab",
            "--credentials PATH: a file on every host, mode 600, with `username=` and `password=`",
        )
    # Without an owner all files are root's, who mounts it, and the user could write none of them.
    owner = "uid=$(id -u),gid=$(id -g)"
    options = f"credentials={credentials},vers=3.0,{owner},_netdev"
    return Storage("cifs", source, options, "mount.cifs", "cifs-utils")


def _sshfs(source: str, credentials: str | None) -> Storage:
    """Root mounts it, who has no key of its own and knows no hosts."""
    if credentials is None:
        raise UserError(
            "sshfs wants a private key that the other host lets in, and root mounts it",
            "--credentials PATH: a key on every host (~/.ssh/id_ed25519 by its whole path), with "
            "known_hosts beside it",
        )
    known = f"{credentials.rpartition('/')[0]}/known_hosts"
    options = f"{_SSHFS},IdentityFile={credentials},UserKnownHostsFile={known}"
    return Storage("fuse.sshfs", source, options, "sshfs", "sshfs")


def mount_steps(storage: Storage, directory: str) -> list[Step]:
    if not re.fullmatch(r"/[A-Za-z0-9_./-]+", directory):
        raise UserError(f"{directory} is no absolute path without blanks", "/data, for example")
    where, source = shlex.quote(directory), shlex.quote(storage.source)
    is_there = f"findmnt -n --mountpoint {where}"
    line = f"{storage.source} {directory} {storage.kind} {storage.options} 0 0"
    mount = f"$S mount -t {storage.kind} -o {storage.options} {source} {where}{_why(storage)}"
    empty = f'[ -z "$(ls -A {where})" ]'
    hidden = f"{directory} has files in it, which a mount would hide"
    guard = f"{empty} || {{ echo '{hidden}' >&2; exit 1; }}"
    steps = [
        Step("directory", f"make {directory}", f"[ -d {where} ]", f"$S mkdir -p {where}"),
        Step("mount", f"mount {storage.source}", is_there, f"{guard}; {mount}"),
        Step(
            "fstab",
            "mount it again after a restart",
            f"awk '$2 == \"{directory}\" {{ found = 1 }} END {{ exit !found }}' /etc/fstab",
            f'{is_there} >/dev/null && printf "%s\\n" "{line}" | $S tee -a /etc/fstab >/dev/null',
        ),
    ]
    if not storage.package:
        return steps
    tool = Step(
        storage.package,
        f"install {storage.package}",
        f"PATH=$PATH:/sbin:/usr/sbin; command -v {storage.tool}",
        install(storage.package, {"nfs-common": "nfs-utils"}.get(storage.package)),
    )
    return [tool, *steps]


def _why(storage: Storage) -> str:
    """What mount(8) calls 'no such device' is a kernel that does not know the file system."""
    if storage.kind not in ("nfs4", "cifs"):
        return ""
    lacking = f"the kernel there has no {storage.kind} client (Ubuntu: linux-modules-extra)"
    return (
        f" || {{ grep -qw {storage.kind} /proc/filesystems || echo {shlex.quote(lacking)} >&2; "
        "exit 1; }"
    )


def refuse_other_mounts(hosts: Sequence[Host], storage: Storage, directory: str) -> None:
    """A user's own mount in that place stays, and is not taken for this one."""
    words = ["findmnt", "-n", "-o", "SOURCE", "--mountpoint", directory]
    others = [host for host in hosts if storage.on(host).kind != "none"]
    for answer in on_all(others, lambda host: run_on(host, words)):
        found = answer.stdout.strip()
        if answer.code == 0 and found.rstrip("/") != storage.source.rstrip("/"):
            raise UserError(
                f"{answer.host.name}: {directory} is mounted from {found} already",
                "name another directory, or unmount that one yourself",
            )


def find_not_shared(hosts: Sequence[Host], directory: str) -> list[str]:
    """Hosts that do not see what the first one writes there."""
    name = f"{directory}/.paceline-{secrets.token_hex(6)}"
    made = run_on(hosts[0], ["sh", "-c", f"echo shared > {shlex.quote(name)}"])
    if made.code:
        said = made.stderr.strip().splitlines()
        raise UserError(
            f"{hosts[0].name} cannot write to {directory}: {said[-1] if said else ''}",
            "on the server, let these hosts' users write there",
        )
    try:
        answers = on_all(list(hosts), lambda host: run_on(host, ["test", "-e", name]))
    finally:
        run_on(hosts[0], ["rm", "-f", name])
    return [answer.host.name for answer in answers if answer.code]
