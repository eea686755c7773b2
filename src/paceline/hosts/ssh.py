"""The system's OpenSSH: its command lines, and its failures in words.

The user's ssh configuration, agent and jump hosts hold. Host keys are checked, and nothing secret
is ever part of a command line.
"""

import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from paceline.errors import UserError
from paceline.hosts.file import Host
from paceline.terminal import printable

EXIT_SSH_FAILED = 255
CONNECT_SECONDS = 10

Item = TypeVar("Item")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Answer:
    """What a remote command came to."""

    host: Host
    code: int
    stdout: str
    stderr: str


def ssh_command(host: Host, remote_words: Sequence[str], tty: bool = False) -> list[str]:
    """The words of a local command that runs these words on the host, quoted for its shell."""
    command = ["ssh", *ssh_options(host, tty)]
    if host.port is not None:
        command += ["-p", str(host.port)]
    command += ["--", destination(host)]
    return [*command, shlex.join(remote_words)] if remote_words else command


def ssh_options(host: Host, tty: bool = False) -> list[str]:
    """Options that ssh and scp share: all but the port, which they spell differently."""
    options = [
        f"ConnectTimeout={CONNECT_SECONDS}",
        "ServerAliveInterval=5",
        "ServerAliveCountMax=3",
    ]
    if not tty:
        options.append("BatchMode=yes")  # a question nobody sees is a hang
    if host.known_hosts is not None:
        known_hosts = str(host.known_hosts).replace("%", "%%")
        options += [f'UserKnownHostsFile="{known_hosts}"', "GlobalKnownHostsFile=/dev/null"]
        options.append("StrictHostKeyChecking=yes")
    if host.key is not None:
        options.append("IdentitiesOnly=yes")
    words = [word for option in (*options, *host.ssh_options) for word in ("-o", option)]
    if host.key is not None:
        words += ["-i", str(host.key)]
    return [*words, "-t"] if tty else [*words, "-T"]


def destination(host: Host) -> str:
    return f"{host.user}@{host.address}" if host.user else host.address


def run_on(
    host: Host, words: Sequence[str], stdin: str = "", timeout_seconds: float = 60
) -> Answer:
    """Run to the end and return what came of it; a host that does not answer has code 255."""
    try:
        done = subprocess.run(
            ssh_command(host, words),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        text = f"no answer within {timeout_seconds:.0f} s"
        return Answer(host, EXIT_SSH_FAILED, "", text)
    except FileNotFoundError as error:
        raise UserError("there is no ssh here", "install it: apt install openssh-client") from error
    return Answer(host, done.returncode, done.stdout, done.stderr)


def pipe_to(host: Host, source: Sequence[str], words: Sequence[str]) -> Answer:
    """Run words there that read what a command here writes, however much that is."""
    with subprocess.Popen(source, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as sending:
        done = subprocess.run(
            ssh_command(host, words),
            stdin=sending.stdout,
            capture_output=True,
            text=True,
            check=False,
            errors="replace",
        )
        assert sending.stdout is not None and sending.stderr is not None  # noqa: S101
        sending.stdout.close()  # or a sender that nobody reads any more waits for ever
        said = sending.stderr.read().decode(errors="replace")
    if sending.returncode and not done.returncode:
        return Answer(host, sending.returncode, "", said)
    return Answer(host, done.returncode, done.stdout, done.stderr)


def follow(host: Host, words: Sequence[str], show: Callable[[str], None]) -> int:
    """Run to the end, showing each line of output as it comes; the exit code, 255 if ssh failed."""
    process = subprocess.Popen(
        ssh_command(host, words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None  # noqa: S101
    try:
        with process.stdout:
            for line in process.stdout:
                show(line.rstrip("\n"))
        return process.wait()
    finally:
        process.kill()
        process.wait()


def on_all(items: Sequence[Item], work: Callable[[Item], Value]) -> list[Value]:
    """The work for every host at once; results in the order of the hosts."""
    with ThreadPoolExecutor(max_workers=max(1, len(items))) as pool:
        return list(pool.map(work, items))


def login_failure(answer: Answer) -> UserError | None:
    """Why ssh itself could not run anything there, and what to do; None if it could."""
    if answer.code != EXIT_SSH_FAILED:
        return None
    host, said = answer.host, printable(answer.stderr.strip())
    known = ((what, fix) for pattern, what, fix in _FAILURES if re.search(pattern, said, re.I))
    what, fix = next(known, ("{said}", "try by hand: {ssh}"))
    filled = {
        "said": said or "ssh failed",
        "address": host.address,
        "port": host.port or 22,
        "user": host.user or "you",
        "key": host.key or "your key",
        "known_hosts": host.known_hosts or "~/.ssh/known_hosts",
        "ssh": by_hand(host),
    }
    return UserError(f"{host.name}: {what.format(**filled)}", fix.format(**filled))


def by_hand(host: Host) -> str:
    """What a user would type to log in."""
    port = ["-p", str(host.port)] if host.port is not None else []
    key = ["-i", str(host.key)] if host.key is not None else []
    return shlex.join(["ssh", *port, *key, destination(host)])


_FAILURES = (
    (
        "identification has changed",
        "its host key is not the one known for {address}",
        "if the machine was replaced: ssh-keygen -R {address} -f {known_hosts}; if not, ask why",
    ),
    (
        "host key verification failed",
        "its host key is not known here",
        "log in once and compare the fingerprint: {ssh}",
    ),
    (
        "unprotected private key",
        "others may read the key file {key}, so ssh does not use it",
        "chmod 600 {key}",
    ),
    (
        "identity file .* not accessible",
        "there is no key file {key}",
        "correct 'key' in the hosts file",
    ),
    (
        "permission denied",
        "login as {user} is refused",
        "put the public key of {key} into ~/.ssh/authorized_keys there; check 'user' and 'key'",
    ),
    (
        "too many authentication failures",
        "login is refused after too many keys",
        "name the right one with 'key' in the hosts file",
    ),
    (
        "connection refused",
        "nothing listens on {address} port {port}",
        "start sshd there, or correct 'port' in the hosts file",
    ),
    (
        "could not resolve hostname|name or service not known",
        "the name {address} is not known here",
        "correct 'address' in the hosts file, or use an IP address",
    ),
    (
        "timed out|no route to host|network is unreachable|no answer within|host is down",
        "{address} does not answer on port {port}",
        "is it running? Its firewall must let port {port} in from here; try: {ssh}",
    ),
)
