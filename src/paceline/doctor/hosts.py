"""Judgements about each host: login, versions, devices, data, clock, names, run directory.

Pure functions from what was found to rows of the table. Nothing is asked or measured here.
"""

from collections.abc import Iterable, Mapping, Sequence

from paceline.doctor.rows import Facts, Row, State, all_of, usual
from paceline.hosts.file import Host
from paceline.project import is_own
from paceline.units import count_of, format_bytes, format_seconds

_OLDEST_PYTHON = (3, 11)
# torchrun's rendezvous compares other hosts' heartbeats with the own clock, seconds matter there.
_CLOCK_FAIL_SECONDS = 1.0
_CLOCK_WARN_SECONDS = 0.1
_LEAST_FREE_BYTES = 1e8
_LEAST_SHARED_BYTES = 2**30
_FEWEST_OPEN_FILES = 4096
_SLOW_IMPORT_SECONDS = 10.0


def judge_logins(found: Mapping[str, Facts], lost: Mapping[str, tuple[str, str]]) -> list[Row]:
    rows = [Row(name, "login", "fail", what, remedy) for name, (what, remedy) in lost.items()]
    if found:
        users = sorted({str(facts["user"]) for facts in found.values()})
        rows.append(Row(all_of(found), "login", "ok", f"as {', '.join(users)}"))
    return rows


def judge_versions(found: Mapping[str, Facts], here: Facts) -> list[Row]:
    return [
        *_python(found, here),
        *_torch(found, here),
        *_torch_import(found),
        *_paceline(found, here),
    ]


def _python(found: Mapping[str, Facts], here: Facts) -> Iterable[Row]:
    versions = {name: str(facts["python"]) for name, facts in found.items()}
    most = usual((_minor(v) for v in versions.values()), _minor(str(here["python"])))
    rows = []
    for name, version in versions.items():
        where = f"Python {version} ({found[name]['executable']})"
        if _number(version) < _OLDEST_PYTHON:
            remedy = (
                "Python 3.11 or newer is needed: correct 'python' in the hosts file, or "
                "paceline hosts setup (step python)"
            )
            rows.append(Row(name, "python", "fail", where, remedy))
        elif _minor(version) != most:
            remedy = f"the others have {most}: correct 'python' in the hosts file"
            rows.append(Row(name, "python", "fail", where, remedy))
    return rows or [_same(versions, "python", "Python")]


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def _torch(found: Mapping[str, Facts], here: Facts) -> Iterable[Row]:
    versions = {name: facts["torch"] for name, facts in found.items()}
    most = usual([v for v in versions.values() if v], here["torch"])
    rows = []
    for name, version in versions.items():
        python = found[name]["executable"]
        tried = found[name].get("torch_import") or {}
        if version is None:
            remedy = "paceline hosts push, or correct 'python' in the hosts file"
            remedy = _of_image(found[name], remedy)
            rows.append(Row(name, "torch", "fail", f"{python} has no torch", remedy))
        elif "error" in tried:
            remedy = f"install torch again there: {python} -m pip install --force-reinstall torch"
            rows.append(Row(name, "torch", "fail", f"does not import: {tried['error']}", remedy))
        elif version != most:
            remedy = _of_image(found[name], f"the others have {most}: paceline hosts push")
            rows.append(Row(name, "torch", "fail", f"torch {version}", remedy))
    return rows or [_same(versions, "torch", "torch")]


def _torch_import(found: Mapping[str, Facts]) -> Iterable[Row]:
    """Every process of a run does this at its start, on all hosts at once, as here."""
    tried = {name: facts.get("torch_import") or {} for name, facts in found.items()}
    timed = {name: answer for name, answer in tried.items() if "seconds" in answer}
    rows = [
        Row(
            name,
            "import",
            "warn",
            f"importing torch takes {format_seconds(answer['seconds'])}, from {answer['path']}",
            "put the Python environment on a local disk there: "
            "paceline hosts push --to DIRECTORY, and 'python' in the hosts file",
        )
        for name, answer in timed.items()
        if answer["seconds"] > _SLOW_IMPORT_SECONDS
    ]
    if rows or not timed:
        return rows
    longest = format_seconds(max(answer["seconds"] for answer in timed.values()))
    return [Row(all_of(timed), "import", "ok", f"importing torch takes at most {longest}")]


def _paceline(found: Mapping[str, Facts], here: Facts) -> Iterable[Row]:
    rows = []
    for name, facts in found.items():
        if facts["code"] is None:
            shown = f"{facts['executable']} has no Paceline"
        elif facts["code"] != here["code"]:
            shown = f"Paceline {facts['paceline']} there is other code than {here['paceline']} here"
        else:
            continue
        remedy = "paceline hosts push, and set 'python' in the hosts file to what it says"
        remedy = _of_image(facts, remedy)
        rows.append(Row(name, "paceline", "fail", shown, remedy))
    same = Row(all_of(found), "paceline", "ok", f"Paceline {here['paceline']}, the same code")
    return rows or [same]


def _of_image(facts: Facts, otherwise: str) -> str:
    """What is wrong inside of a container is mended by another image."""
    if "container" not in facts:
        return otherwise
    return f"build {facts['container']} from this code (docs/containers.md), and send it to all"


def _same(versions: Mapping[str, object], what: str, shown: str) -> Row:
    different = sorted({str(version) for version in versions.values()})
    return Row(all_of(versions), what, "ok", f"{shown} {', '.join(different)}")


def judge_devices(found: Mapping[str, Facts], hosts: Sequence[Host]) -> list[Row]:
    """More processes than GPUs cannot work; unequal hosts work, at the pace of the slowest."""
    rows = []
    usable = {host.name: found[host.name] for host in hosts if host.name in found}
    asked = {host.name: host.devices for host in hosts}
    for name, facts in usable.items():
        num_gpus = len(facts["gpus"])
        if num_gpus and (asked[name] or 0) > num_gpus:
            shown = f"{asked[name]} devices are asked for, {num_gpus} are there"
            remedy = "correct 'devices' in the hosts file"
            rows.append(Row(name, "devices", "fail", shown, remedy))
    equipment = {name: _equipment(facts) for name, facts in usable.items()}
    most = usual(equipment.values())
    for name, shown in equipment.items():
        if shown != most:
            remedy = f"the others have {most}; all wait for the slowest host at every step"
            rows.append(Row(name, "devices", "warn", shown, remedy))
    return rows or ([Row(all_of(usable), "devices", "ok", str(most))] if usable else [])


def _equipment(facts: Facts) -> str:
    gpus = list(facts["gpus"])
    kinds = [f"{gpus.count(kind)} x {kind}" for kind in sorted(set(gpus))]
    cores = count_of(facts["num_cores"], "core")
    return ", ".join([*kinds, cores] if kinds else ["no GPU", cores])


def judge_data(found: Mapping[str, Facts], workload: str) -> list[Row]:
    data = {name: facts["data"] for name, facts in found.items() if facts["data"]}
    prints = [facts["fingerprint"] for facts in data.values() if "fingerprint" in facts]
    most = usual(prints)
    having = [n for n, facts in data.items() if most and facts.get("fingerprint") == most]
    source = (having[0], str(data[having[0]]["path"])) if having else None
    rows = []
    for name, facts in data.items():
        problem, remedy = _data_problem(facts, workload, most, source)
        if problem:
            rows.append(Row(name, "data", "fail", f"{facts['path']}: {problem}", remedy))
    if rows or not data:
        return rows
    some = next(iter(data.values()))
    shown = f"{some['path']}, {format_bytes(some['bytes'])}, fingerprint {most}"
    return [Row(all_of(data), "data", "ok", shown)]


def _data_problem(
    facts: Facts, workload: str, most: str | None, source: tuple[str, str] | None
) -> tuple[str, str]:
    prepare = f"run there: paceline data {workload} --from ... --to {facts['path']}"
    if is_own(workload):
        prepare = "copy it there (small files of your project: paceline hosts push)"
    if source is not None:
        host, path = source
        prepare = f"copy it, on {host}: rsync -a {path}/ HOST:{facts['path']}/ ; or {prepare}"
    if "error" in facts:
        return str(facts["error"]), prepare
    if facts.get("workload", workload) != workload:
        return f"is data of the workload '{facts['workload']}'", prepare
    if facts["fingerprint"] != most:
        shown = f"other data (fingerprint {facts['fingerprint']}, the others have {most})"
        return shown, prepare
    return "", ""


def judge_limits(found: Mapping[str, Facts]) -> list[Row]:
    """What a bare image often has too little of; nothing is said where there is enough."""
    rows = []
    for name, facts in found.items():
        shared, files = facts.get("shared_memory_bytes"), facts.get("most_open_files")
        if shared is not None and shared < _LEAST_SHARED_BYTES:
            shown = f"shared memory of {format_bytes(shared)}: NCCL and loaders need more"
            rows.append(Row(name, "shm", "warn", shown, "paceline hosts setup (step shm)"))
        if files is not None and files < _FEWEST_OPEN_FILES:
            shown = f"a process may have {files:,} files open at most"
            rows.append(Row(name, "limits", "warn", shown, "paceline hosts setup (step limits)"))
    return rows


def judge_clocks(offsets: Mapping[str, tuple[float, float]]) -> list[Row]:
    """Each clock against the middle one of all; what the measuring may be wrong by is allowed."""
    if not offsets:
        return []
    middle = sorted(offset for offset, _ in offsets.values())[len(offsets) // 2]
    rows = []
    for name, (offset, error) in offsets.items():
        skew = offset - middle
        sure = max(0.0, abs(skew) - error)
        if sure >= _CLOCK_WARN_SECONDS:
            state: State = "fail" if sure >= _CLOCK_FAIL_SECONDS else "warn"
            direction = "ahead of" if skew > 0 else "behind"
            shown = f"{format_seconds(abs(skew))} {direction} the others"
            remedy = "paceline hosts setup (step clock), or there: sudo timedatectl set-ntp true"
            rows.append(Row(name, "clock", state, shown, remedy))
    if rows:
        return rows
    spread = max(abs(offset - middle) for offset, _ in offsets.values())
    error = max(error for _, error in offsets.values())
    shown = f"at most {format_seconds(max(spread, error))} apart"
    return [Row(all_of(offsets), "clock", "ok", shown)]


def judge_host_names(host_names: Mapping[str, str]) -> list[Row]:
    """Copied machines often keep the name of the first."""
    rows = []
    for twice in sorted({n for n in host_names.values() if list(host_names.values()).count(n) > 1}):
        same = ", ".join(host for host, name in host_names.items() if name == twice)
        shown = f"all of these call themselves {twice}"
        remedy = "give each its own: sudo hostnamectl set-hostname NAME"
        rows.append(Row(same, "names", "warn", shown, remedy))
    return rows


def judge_names(
    resolved: Mapping[str, Mapping[str, Sequence[str]]], names: Mapping[str, str], needed: set[str]
) -> list[Row]:
    """`resolved`: what each host takes each name for; `names`: name -> the host it belongs to.

    Only the names in `needed` are private addresses; the rest matter to mpirun and to people.
    """
    rows = []
    for name, owner in names.items():
        others = {host: tuple(known.get(name, ())) for host, known in resolved.items()}
        most = usual(a for host, a in others.items() if a and host != owner)
        for host, addresses in others.items():
            problem = _name_problem(addresses, most, host == owner)
            if problem:
                where = f"{owner}'s name {name} {problem}"
                right = most[0] if most else f"{owner}'s private address"
                remedy = f"put a line into /etc/hosts of {host}: {right} {name}"
                state: State = "fail" if name in needed else "warn"
                rows.append(Row(host, "names", state, where, remedy))
    if rows or not names:
        return rows
    return [Row(all_of(resolved), "names", "ok", f"{len(names)} names mean the same on all")]


def _name_problem(
    addresses: tuple[str, ...], most: tuple[str, ...] | None, is_own: bool
) -> str | None:
    """Debian gives a host's own name a loopback address in its own /etc/hosts: harmless there."""
    if not addresses:
        return "is not known there"
    loopback = all(address.startswith("127.") or address == "::1" for address in addresses)
    if loopback and not is_own:
        return f"means {addresses[0]} there, which is that host itself"
    if not loopback and most and not set(addresses) & set(most):
        return f"means {addresses[0]} there, but {most[0]} on the others"
    return None


def judge_run(
    written: Mapping[str, Facts], seen: Mapping[str, Sequence[str]], needed_bytes: float | None
) -> list[Row]:
    """Writable, large enough, and one directory for all or one for each, but nothing between."""
    rows = []
    for name, facts in written.items():
        if "error" in facts:
            remedy = "choose a directory that you may write to on every host (--run)"
            shown = f"cannot write to {facts['path']}: {facts['error']}"
            rows.append(Row(name, "run", "fail", shown, remedy))
        elif facts["free_bytes"] < (needed_bytes or _LEAST_FREE_BYTES):
            need = f" of {format_bytes(needed_bytes)} for checkpoints" if needed_bytes else ""
            shown = f"{facts['path']}: {format_bytes(facts['free_bytes'])} free{need}"
            remedy = "make room, choose another --run, or lower checkpoint.keep_last"
            rows.append(Row(name, "run", "fail", shown, remedy))
    rows += _sharing(written, seen)
    return rows


def is_shared(seen: Mapping[str, Sequence[str]]) -> bool:
    return all(set(seen) <= set(names) for names in seen.values())


def _sharing(written: Mapping[str, Facts], seen: Mapping[str, Sequence[str]]) -> Iterable[Row]:
    if not seen:
        return []
    path = next(iter(written.values()))["path"]
    free = min(facts["free_bytes"] for facts in written.values())
    where = f"{path}, {format_bytes(free)} free"
    if len(seen) == 1:
        return [Row(all_of(seen), "run", "ok", where)]
    if is_shared(seen):
        return [Row(all_of(seen), "run", "ok", f"{where}, shared: written on one, seen on all")]
    if all(set(names) <= {host} for host, names in seen.items()):
        shown = f"{where}, not shared: each host has its own, collected at the end"
        return [Row(all_of(seen), "run", "ok", shown)]
    rows = []
    most = max(len(names) for names in seen.values())
    for host, names in seen.items():
        if len(names) < most:
            missing = ", ".join(sorted(set(seen) - set(names)))
            shown = f"{path}: does not see what {missing} wrote"
            remedy = (
                f"mount the shared storage at {path} there too (paceline hosts mount), or use a "
                "local path on all"
            )
            rows.append(Row(host, "run", "fail", shown, remedy))
    return rows
