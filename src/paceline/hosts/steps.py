"""Steps that bring a host from how it is to how it should be: looked at first, done where needed.

A step has a shell line that ends with 0 where nothing is to do, and one that does it. So whatever
was begun is continued, nothing is done twice, and what a user has set is not touched.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.errors import Say
from paceline.hosts.file import Host
from paceline.hosts.ssh import Answer, login_failure, on_all, pipe_to, run_on

# A step that needs root says $S: nothing for root, sudo without a question for others.
_ROOT = 'S=""; [ "$(id -u)" = 0 ] || S="sudo -n"; export DEBIAN_FRONTEND=noninteractive\n'
_APPLY_SECONDS = 900.0


@dataclass(frozen=True)
class Step:
    name: str
    what: str
    """What it does, in words, as the user is asked."""
    check: str
    apply: str | None = None
    """None: Paceline does not do this, and says what is missing."""
    missing: str = ""
    """What the user has to do then."""
    sends: tuple[str, ...] = ()
    """A command of this machine, whose output `apply` reads."""


@dataclass(frozen=True)
class Todo:
    host: Host
    step: Step


def find_todos(plans: Mapping[Host, Sequence[Step]]) -> list[Todo]:
    """What is not as it should be; a host that cannot be reached is an error of its own."""

    def look(host: Host) -> Answer:
        checks = (f"( {step.check}\n) >/dev/null 2>&1; echo $?\n" for step in plans[host])
        return run_on(host, ["sh", "-c", _ROOT + "".join(checks)])

    todos = []
    for answer in on_all(list(plans), look):
        if (failure := login_failure(answer)) is not None:
            raise failure
        codes = zip(plans[answer.host], answer.stdout.split(), strict=True)
        todos += [Todo(answer.host, step) for step, code in codes if code != "0"]
    return todos


def describe(todos: Sequence[Todo]) -> str:
    lines = []
    for step in dict.fromkeys(todo.step for todo in todos):
        where = ", ".join(todo.host.name for todo in todos if todo.step == step)
        if step.apply is None:
            lines.append(f"  {where}: {step.name} is missing, and yours to do: {step.missing}")
        else:
            lines.append(f"  {where}: {step.name}: {step.what}")
            here = f"{shlex.join(step.sends)} | (there) " if step.sends else ""
            lines.append(f"      {here}{step.apply}")
    return "\n".join(lines)


def apply_todos(todos: Sequence[Todo], say: Say) -> list[Todo]:
    """Host by host at once, each in the order of its steps; what could not be done."""
    hosts = list(dict.fromkeys(todo.host for todo in todos))
    own = [[todo for todo in todos if todo.host == host] for host in hosts]
    return [failed for part in on_all(own, lambda one: _apply(one, say)) for failed in part]


def _apply(todos: list[Todo], say: Say) -> list[Todo]:
    failed = []
    for todo in todos:
        step, name = todo.step, todo.host.name
        if step.apply is None:
            failed.append(todo)
            continue
        words = ["sh", "-c", f"{_ROOT}set -e\n{step.apply}\n"]
        answer = (
            pipe_to(todo.host, step.sends, words)
            if step.sends
            else run_on(todo.host, words, timeout_seconds=_APPLY_SECONDS)
        )
        if answer.code:
            lines = (answer.stderr or answer.stdout).strip().splitlines()
            say(f"{name}: {step.name} failed: {lines[-1] if lines else f'code {answer.code}'}")
            failed.append(todo)
        else:
            say(f"{name}: {step.name} done")
    return failed


def install(packages: str, also: str | None = None) -> str:
    """With the package manager that the host has."""
    other = also or packages
    return (
        f"if command -v apt-get >/dev/null; then $S apt-get update -q && $S apt-get install -y -q "
        f"{packages}; else $S dnf install -y {other}; fi"
    )


def add_line(line: str, file: str) -> str:
    return f"printf '%s\\n' {shlex.quote(line)} | $S tee -a {shlex.quote(file)} >/dev/null"
