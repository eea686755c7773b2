"""Sending this code and its environment to hosts. What is sent is what runs here, not a release.

A parcel is a small archive, so it is sent whole with `tar` over ssh each time: nothing that was
deleted here stays behind there. Torch and other libraries are installed there by pip.
"""

import hashlib
import io
import re
import shlex
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import paceline
from paceline.errors import UserError
from paceline.hosts.file import Host
from paceline.hosts.ssh import Answer, login_failure, on_all, run_on, ssh_command
from paceline.machine.torch_builds import Card, version_for_all
from paceline.terminal import printable
from paceline.units import count_of, format_bytes

Say = Callable[[str], None]

# Not "paceline": in a directory that has a folder of that name, Python would find the folder.
DEFAULT_FOLDER = "paceline-host"
_SEND_SECONDS = 600
_INSTALL_SECONDS = 3600
_NOT_FOR_HOSTS = {"dev", "bench"}
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9._-]+)([^;]*)(?:;(.*))?")
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")

# On shared storage every host sees every other's files: one unpacks and installs at a time, and
# finds that the work is done.
_LOCKED = """\
set -eu
mkdir -p {folder}
cd {folder}
if command -v flock >/dev/null; then exec 9>.lock; flock 9; fi
"""
_UNPACK = """\
mkdir -p {place}.new
rm -rf {place}.new {place}.old
mkdir {place}.new
tar -xzf - -C {place}.new
test ! -e {place} || mv {place} {place}.old
mv {place}.new {place}
rm -rf {place}.old
"""
_INSTALL = """\
sed -i.old 's/^torch==.*/torch=={torch}/' code/{constraints}
if test "$(cat .venv/.paceline-stamp 2>/dev/null)" = {stamp}; then exit 0; fi
{find_python} || {{ echo 'Python 3.11 or newer is needed: paceline hosts setup' >&2; exit 1; }}
test -x .venv/bin/python || $python -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check {options} \
  --constraint code/{constraints} --editable {project}
echo {stamp} > .venv/.paceline-stamp
"""
_IS_NEW_ENOUGH = "-c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null"


def _find_python(first: str) -> str:
    """Shell that leaves a Python which is new enough in $python, and fails where there is none."""
    names = f"{first} python3.13 python3.12 python3.11"
    found = f'"$candidate" {_IS_NEW_ENOUGH} && {{ python=$candidate; break; }}'
    return f'{{ python=; for candidate in {names}; do {found}; done; [ -n "$python" ]; }}'


FIND_PYTHON = _find_python("python3")
_CONSTRAINTS = "constraints-of-sender.txt"
PROJECTS = "projects"
"""Beside the environment: where the doctor and workers look for the user's code."""
_OWN_WORKLOAD = re.compile(r"^workload:\s*[\"']?[\w.]+:[\w.]+", re.MULTILINE)
_LARGE_BYTES = 20_000_000
_MOST_FILES = 5000


@dataclass(frozen=True)
class Order:
    """Where to, and what to do there."""

    folder: str = DEFAULT_FOLDER
    with_environment: bool = True
    python: str = "python3"
    """What makes the environment there."""
    pip_options: str = ""


@dataclass(frozen=True)
class Parcel:
    archive: bytes
    num_files: int
    torch: str
    """Its version here."""
    extras: tuple[str, ...]
    stamp: str
    """Changes with whatever would make another environment."""
    project: "ProjectParcel | None" = None
    """The user's own code, where there is some."""


@dataclass(frozen=True)
class ProjectParcel:
    name: str
    archive: bytes
    num_files: int
    left_out: tuple[str, ...]
    """Large files, which go to hosts in another way."""


def send_all(hosts: tuple[Host, ...], order: Order, say: Say, project: Path | None = None) -> int:
    """Paceline as it is here, and the user's own code where there is some; 0 if all worked."""
    own = project or find_own_project(Path.cwd())
    parcel = replace(pack(), project=pack_project(own.absolute()) if own else None)
    return 1 if push(hosts, order, parcel, say) else 0


def push(hosts: tuple[Host, ...], order: Order, parcel: Parcel, say: Say) -> int:
    """To all hosts at once; returns the number of hosts where it did not work."""
    size = format_bytes(len(parcel.archive))
    say(f"sending {parcel.num_files} files ({size}) to {count_of(len(hosts), 'host')}")
    if parcel.project is not None:
        _announce_project("and", parcel.project, say)
    fitting = _with_fitting_torch(hosts, parcel, say) if order.with_environment else parcel
    failures = on_all(hosts, lambda host: _push_to(host, order, fitting))
    made = f"{order.folder}/.venv" if order.with_environment else f"{order.folder}/code"
    for host, failure in zip(hosts, failures, strict=True):
        say(printable(f"[{host.name}] {failure or made}"))
    if order.with_environment and not any(failures):
        say(f"for the hosts file: python: {order.folder}/.venv/bin/python")
    return sum(failure is not None for failure in failures)


def _announce_project(begin: str, project: ProjectParcel, say: Say) -> None:
    size = format_bytes(len(project.archive))
    say(f"{begin} your project '{project.name}', {project.num_files} files ({size})")
    for text in project.left_out:
        say(f"  left out: {text}; copy it to the hosts yourself")


def push_project(hosts: tuple[Host, ...], project: ProjectParcel, say: Say) -> int:
    """The user's files alone, to all hosts at once; returns on how many it did not work."""
    _announce_project(f"sending to {count_of(len(hosts), 'host')}", project, say)
    failures = on_all(hosts, lambda host: _push_project_to(host, _locked_beside(host), project))
    for host, failure in zip(hosts, failures, strict=True):
        if failure is not None:
            say(printable(f"[{host.name}] {failure}"))
    return sum(failure is not None for failure in failures)


def _locked(folder: str) -> str:
    return _LOCKED.format(folder=shlex.quote(folder))


def _locked_beside(host: Host) -> str:
    """In the folder that an earlier push has made, if the host's Python is the one in there."""
    environment = Path(host.python).parent.parent
    pushed = shlex.quote(str(environment.parent))
    if environment.name != ".venv":
        return _locked(DEFAULT_FOLDER)
    choice = f"if test -d {pushed}/code; then echo {pushed}; else echo {DEFAULT_FOLDER}; fi"
    return _LOCKED.format(folder=f'"$({choice})"')


def _push_project_to(host: Host, locked: str, project: ProjectParcel) -> str | None:
    place = shlex.quote(f"{PROJECTS}/{project.name}")
    return _failure(_send(host, locked + _UNPACK.format(place=place), project.archive))


def _with_fitting_torch(hosts: tuple[Host, ...], parcel: Parcel, say: Say) -> Parcel:
    """All hosts get one torch, whose default build must run on every card and driver of theirs."""
    ask = ["nvidia-smi", "--query-gpu=compute_cap,driver_version", "--format=csv,noheader"]
    answers = on_all(hosts, lambda host: run_on(host, ask))
    lines = [line for a in answers if a.code == 0 for line in a.stdout.splitlines()]
    cards = [card for card in map(Card.parse, lines) if card is not None]
    version = version_for_all(parcel.torch, cards)
    if version == parcel.torch:
        return parcel
    why = next(reason for card in cards if (reason := card.why_not(parcel.torch)))
    say(f"torch {version} instead of {parcel.torch}, which {why}")
    return replace(parcel, torch=version, stamp=f"{parcel.stamp}-torch-{version}")


def _push_to(host: Host, order: Order, parcel: Parcel) -> str | None:
    locked = _locked(order.folder)
    failure = _failure(_send(host, locked + _UNPACK.format(place="code"), parcel.archive))
    if parcel.project is not None and not failure:
        failure = _push_project_to(host, locked, parcel.project)
    if failure or not order.with_environment:
        return failure
    extras = f"[{','.join(parcel.extras)}]" if parcel.extras else ""
    install = _INSTALL.format(
        stamp=parcel.stamp,
        find_python=_find_python(shlex.quote(order.python)),
        constraints=_CONSTRAINTS,
        torch=parcel.torch,
        options=shlex.join(shlex.split(order.pip_options)),
        project=shlex.quote(f"code{extras}"),
    )
    answer = run_on(host, ["sh", "-c", locked + install], timeout_seconds=_INSTALL_SECONDS)
    return _failure(answer)


def _send(host: Host, script: str, archive: bytes) -> Answer:
    try:
        done = subprocess.run(
            ssh_command(host, ["sh", "-c", script]),
            input=archive,
            capture_output=True,
            timeout=_SEND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(host, 1, "", f"not sent within {_SEND_SECONDS} s")
    return Answer(host, done.returncode, "", done.stderr.decode(errors="replace"))


def _failure(answer: Answer) -> str | None:
    if answer.code == 0:
        return None
    failed = login_failure(answer)
    if failed is not None:
        return str(failed)
    said = (answer.stderr or answer.stdout).strip().splitlines()
    return "failed: " + "\n  ".join(said[-5:] or [f"exit code {answer.code}"])


def pack(project: Path | None = None) -> Parcel:
    """This project as it is on disk, changes not yet committed included."""
    root = project or _project_root()
    versions = installed_versions()
    constraints = "".join(f"{name}=={version}\n" for name, version in versions.items())
    buffer = io.BytesIO()
    num_files = 0
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path in sorted(_files(root)):
            archive.add(root / path, str(path), recursive=False)
            num_files += 1
        _add_text(archive, _CONSTRAINTS, constraints)
    extras = () if project else installed_extras()
    pyproject = (root / "pyproject.toml").read_text(encoding="utf-8")
    described = constraints + ",".join(extras) + pyproject
    stamp = hashlib.sha256(described.encode()).hexdigest()[:16]
    return Parcel(buffer.getvalue(), num_files, versions.get("torch", ""), extras, stamp)


def pack_project(root: Path) -> ProjectParcel:
    """The user's own files: what git would keep, but for runs and large files."""
    left_out, chosen = [], []
    for path in sorted(_files(root)):
        num_bytes = (root / path).stat().st_size
        if _is_in_run(root, path):
            continue
        if num_bytes > _LARGE_BYTES:
            left_out.append(f"{path} ({format_bytes(num_bytes)})")
        else:
            chosen.append(path)
    if len(chosen) > _MOST_FILES:
        raise UserError(
            f"{root} has {len(chosen):,} files, too many for a project's code",
            "keep data and results out of it (.gitignore), or name a folder with --project",
        )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path in chosen:
            archive.add(root / path, str(path), recursive=False)
    return ProjectParcel(root.name, buffer.getvalue(), len(chosen), tuple(left_out))


def _is_in_run(root: Path, path: Path) -> bool:
    folders = [root / folder for folder in path.parents]
    return any((f / "recipe.yaml").is_file() and (f / "events").is_dir() for f in folders)


def find_own_project(directory: Path) -> Path | None:
    """The directory, if a recipe in it names a task of the user's own."""
    for path in sorted([*directory.glob("*.yaml"), *directory.glob("*.yml")]):
        try:
            if _OWN_WORKLOAD.search(path.read_text(encoding="utf-8")):
                return directory
        except (OSError, UnicodeDecodeError):
            continue
    return None


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    data = text.encode()
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def _project_root() -> Path:
    root = Path(paceline.__file__).parents[2]
    if not (root / "pyproject.toml").is_file():
        raise UserError(
            "Paceline is installed here without its source, so there is nothing to send",
            "install it here from a checkout (pip install --editable .), or install this version, "
            f"{paceline.__version__}, on each host in the way that it was installed here",
        )
    return root


def _files(root: Path) -> Iterator[Path]:
    """What git would keep; without git, everything but what Python and the tools make."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        names = {Path(name) for name in listed.stdout.split("\0") if name}
    else:
        names = {path.relative_to(root) for path in root.rglob("*")}
    for name in names:
        hidden = any(part.startswith(".") or part == "__pycache__" for part in name.parts)
        if not hidden and (root / name).is_file():
            yield name


def installed_versions() -> dict[str, str]:
    """Everything Paceline needs, with the versions it has here, by name."""
    found: dict[str, str] = {}
    waiting = ["paceline"]
    while waiting:
        name = waiting.pop()
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        for needed, _ in _requirements(distribution):
            if needed not in found and (version := _version(needed)):
                found[needed] = version
                waiting.append(needed)
    return dict(sorted(found.items()))


def _requirements(distribution: metadata.Distribution) -> Iterator[tuple[str, str | None]]:
    """(name, the extra that wants it or None)"""
    for text in distribution.requires or []:
        match = _REQUIREMENT.match(text)
        if match is not None:
            extra = _EXTRA.search(match[3] or "")
            yield match[1].lower(), extra[1] if extra else None


def _version(name: str) -> str | None:
    """Without the build's own part: torch 2.13.0+cpu here is torch 2.13.0 with CUDA there."""
    try:
        return metadata.version(name).partition("+")[0]
    except metadata.PackageNotFoundError:
        return None


def installed_extras() -> tuple[str, ...]:
    """Those of Paceline's extras that are complete here; none where it was never installed."""
    wanted: dict[str, list[str]] = {}
    try:
        distribution = metadata.distribution("paceline")
    except metadata.PackageNotFoundError:
        return ()
    for name, extra in _requirements(distribution):
        if extra is not None and extra not in _NOT_FOR_HOSTS:
            wanted.setdefault(extra, []).append(name)
    return tuple(
        sorted(extra for extra, names in wanted.items() if all(_version(n) for n in names))
    )
