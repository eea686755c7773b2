"""What the doctor runs on a host: answers questions about it, one JSON line each.

It is sent over ssh as text, so it must stand alone: nothing but the standard library, and nothing
that Python 3.7 lacks, or it could not say that a host's Python is too old or has no Paceline. It
judges nothing, and leaves nothing behind.
"""

from __future__ import annotations

import getpass
import hashlib
import hmac
import importlib.util
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

MARK = "@paceline "
"""Before every answer: a login may print other things first."""

TOKEN_BYTES = 16
_CHUNK = bytes(1 << 18)
_WAIT_SECONDS = 5.0
_IDLE_SECONDS = 300
_STORAGE_SECONDS = 1.0
_SMALL_FILE = bytes(1 << 12)
_NUM_PINGS = 20
_TORCH_FILES = ("lib/libtorch*", "lib/libc10*", "lib/libnccl*", "lib/libgloo*")
_NUM_PARTS = 64
_PART_BYTES = 1 << 16
_SIOCGIFADDR = 0x8915  # linux/sockios.h


def facts(question: dict[str, Any]) -> dict[str, Any]:
    """Who and what this host is."""
    return {
        "user": getpass.getuser(),
        "hostname": socket.gethostname(),
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "executable": sys.executable,
        "torch": version_of("torch"),
        "paceline": version_of("paceline"),
        "code": code_fingerprint("paceline"),
        "num_cores": num_cores(),
        "memory_bytes": memory_bytes(),
        "gpus": ask_driver("name"),
        "driver": next(iter(ask_driver("driver_version")), None),
        "num_cards": num_nvidia_cards(),
        "shared_memory_bytes": shared_memory_bytes(),
        "most_open_files": most_open_files(),
        "addresses": interface_addresses(),
        "project": project_facts(question.get("project")),
        "missing_modules": missing_modules(question.get("modules"), question.get("project")),
        "libraries": library_facts(bool(question.get("thorough"))),
        "data": _data_facts(question) if question["data"] else None,
        "torch_import": try_torch(question["torch_trial"]) if question["torch_trial"] else None,
    }


def version_of(name: str) -> str | None:
    try:
        from importlib import metadata  # noqa: PLC0415  (Python 3.7 has none)

        return metadata.version(name)
    except Exception:
        return None


def code_fingerprint(package: str) -> str | None:
    """Two checkouts can have one version number and yet be different code."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:  # a mere folder of that name has no origin
        return None
    root = Path(spec.origin).parent
    # Everything that lies there, for a list of suffixes forgets one day; but for what Python and
    # editors leave behind, which differs between hosts with the same code.
    files = sorted(path for path in root.rglob("*") if path.is_file() and _is_code(path))
    total = hashlib.sha256()
    for path in files:
        total.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return total.hexdigest()[:16]


def _is_code(path: Path) -> bool:
    return not path.name.startswith(".") and not path.name.endswith(("~", ".pyc", ".pyo"))


def num_cores() -> int:
    """What a run here may use; without Paceline all of the machine's, and no run either."""
    try:
        from paceline.machine.cores import num_cores as of_process  # noqa: PLC0415

        return of_process()
    except Exception:
        return os.cpu_count() or 1


def memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def ask_driver(what: str) -> list[str]:
    """Of each NVIDIA device, without torch."""
    try:
        listed = subprocess.run(
            ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return listed.stdout.decode(errors="replace").split("\n")[:-1]


def num_nvidia_cards() -> int:
    """By the bus, whether or not a driver answers; bridges and sound on the cards do not count."""
    devices = Path("/sys/bus/pci/devices")
    found = 0
    for place in devices.iterdir() if devices.is_dir() else []:
        try:
            vendor, kind = ((place / n).read_text(encoding="ascii") for n in ("vendor", "class"))
        except OSError:
            continue
        found += vendor.strip().lower() == "0x10de" and kind.startswith("0x03")
    return found


def shared_memory_bytes() -> int | None:
    try:
        return shutil.disk_usage("/dev/shm").total  # noqa: S108  (asked for, not written to)
    except OSError:
        return None


def most_open_files() -> int | None:
    import resource  # noqa: PLC0415  (Linux and macOS only)

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return None if limit == resource.RLIM_INFINITY else limit


def try_torch(program: str) -> dict[str, Any]:
    """Installed is not the same as working; in a process of its own, for it may crash."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            timeout=120,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": "importing torch took more than 120 s"}
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        return {"error": lines[-1] if lines else f"exit code {done.returncode}"}
    answer: dict[str, Any] = json.loads(done.stdout.decode().splitlines()[-1])
    return answer


def interface_addresses() -> dict[str, str]:
    """Address -> interface."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            address = _address_of(any_socket, name)
            if address is not None:
                found[address] = name
    try:
        lines = Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()
    except OSError:
        lines = []
    for line in lines:
        fields = line.split()
        found[socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[0]))] = fields[5]
    return found


def _address_of(any_socket: socket.socket, name: str) -> str | None:
    import fcntl  # noqa: PLC0415  (Linux and macOS only)

    try:
        request = struct.pack("256s", name.encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)[20:24])
    except OSError:  # an interface without an address
        return None


def data_facts(name_or_path: str, home: str | None) -> dict[str, Any]:
    """The card of prepared data, if there is one where this host would look."""
    if "/" in name_or_path or name_or_path.startswith((".", "~")):
        directory = Path(name_or_path).expanduser()
    else:
        directory = data_home(home) / name_or_path
    try:
        card = json.loads((directory / "card.json").read_text(encoding="utf-8"))
        sizes = [path.stat().st_size for path in directory.rglob("*") if path.is_file()]
        return {
            "path": str(directory),
            "fingerprint": card["fingerprint"],
            "workload": card["workload"],
            "bytes": sum(sizes),
            "num_files": len(sizes),
            "filesystem": filesystem_of(directory),
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        missing = isinstance(error, FileNotFoundError)
        return {"path": str(directory), "error": "not there" if missing else str(error)}


def data_home(home: str | None) -> Path:
    if home or os.environ.get("PACELINE_DATA"):
        return Path(home or os.environ["PACELINE_DATA"]).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "paceline"


def _data_facts(question: dict[str, Any]) -> dict[str, Any]:
    name, home = question["data"], question["data_home"]
    if not question.get("project"):
        return data_facts(name, home)
    return own_data_facts(name, home, question["project"])


def project_facts(project: dict[str, Any] | None) -> dict[str, Any] | None:
    """Where the user's code is here: sent by `hosts push`, or at the launcher's own path."""
    if not project:
        return None
    found: dict[str, Any] | None = None
    for place in project_places(project):
        if place.is_dir():
            different = [n for n, known in project["files"].items() if _hash_of(place / n) != known]
            found = found or {"path": str(place), "different": different}
            if not different:
                return {"path": str(place), "different": []}
    return found or {"path": None, "different": []}


def project_places(project: dict[str, Any]) -> list[Path]:
    pushed = Path("projects") / project["name"]
    return [
        Path(sys.prefix).parent / pushed,
        Path("~/paceline-host").expanduser() / pushed,
        Path(project["root"]),
    ]


def missing_modules(names: list[str] | None, project: dict[str, Any] | None) -> list[str]:
    """Of those that a script imports first of all; found, but not executed."""
    here = project_facts(project)
    before, sys.path = sys.path, [*([here["path"]] if here and here["path"] else []), *sys.path]
    try:
        return [name for name in names or [] if not _is_importable(name)]
    finally:
        sys.path = before


def _is_importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return name in sys.modules


def library_facts(thorough: bool) -> dict[str, Any]:
    """What every process loads for training: size and hash of each file, by its name."""
    found = {}
    for folder, patterns in (("torch", _TORCH_FILES), ("nvidia", ("nccl/lib/libnccl*",))):
        for place in _places_of(folder):
            for path in sorted(path for pattern in patterns for path in place.glob(pattern)):
                found[path.name] = {
                    "path": str(path),
                    "bytes": path.stat().st_size,
                    "hash": _hash_of_parts(path, thorough),
                }
    return found


def _places_of(package: str) -> list[Path]:
    """Where it lies, without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    return [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []


def _hash_of_parts(path: Path, thorough: bool) -> str:
    """Of all of it; or, because a library may have gigabytes, of parts all over it: another build
    differs in every one of them, and a linker writes a build's number near the beginning."""
    total = hashlib.sha256()
    size = path.stat().st_size
    stride = _PART_BYTES if thorough else max(size // _NUM_PARTS, _PART_BYTES)
    with path.open("rb") as file:
        for begin in range(0, size, stride):
            file.seek(begin)
            total.update(file.read(_PART_BYTES))
    return total.hexdigest()[:16]


def _hash_of(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError:
        return "not there"


def own_data_facts(name: str, home: str | None, project: dict[str, Any]) -> dict[str, Any]:
    """Of data without a card: that it is there, and the names and sizes of its files."""
    place = own_data_path(name, home, project)
    if not place.exists():
        return {"path": str(place), "error": "not there"}
    files = [place] if place.is_file() else sorted(p for p in place.rglob("*") if p.is_file())
    total = hashlib.sha256()
    for path in files:
        named = path.name if path == place else path.relative_to(place)
        total.update(f"{named} {path.stat().st_size}\n".encode())
    return {
        "path": str(place),
        "fingerprint": total.hexdigest()[:16],
        "bytes": sum(path.stat().st_size for path in files),
        "num_files": len(files),
        "filesystem": filesystem_of(place),
    }


def own_data_path(name: str, home: str | None, project: dict[str, Any]) -> Path:
    """What lies inside of the project here lies inside of it there, wherever that is."""
    if "/" not in name and not name.startswith((".", "~")):
        return data_home(home) / name
    path, root = Path(name).expanduser(), Path(project["root"])
    here = project_facts(project)
    if path.exists() or root not in path.parents or not here or not here["path"]:
        return path
    return Path(here["path"]) / path.relative_to(root)


def resolve(question: dict[str, Any]) -> dict[str, Any]:
    """Name -> the addresses this host takes it for; an empty list if it does not know it."""
    found = {}
    for name in question["names"]:
        try:
            known = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            found[name] = sorted({str(entry[4][0]) for entry in known})
        except OSError:
            found[name] = []
    return {"names": found}


def clock(_question: dict[str, Any]) -> dict[str, Any]:
    return {"time": time.time()}


def storage_speed(folder: Path, mark: str) -> dict[str, Any]:
    """How long a flush takes there, and how many small files can be written and read in a second;
    for a second at most each, on the slowest of storage for one file."""
    place = folder / f".paceline-speed-{mark}-{os.getpid()}-{socket.gethostname()}"
    place.mkdir()
    try:
        flushes = _timed(lambda number: _write_flushed(place / "flushed", number), most=5)
        files = _timed(lambda number: _write_and_read(place / str(number)), most=100)
    finally:
        shutil.rmtree(str(place), ignore_errors=True)
    return {
        "filesystem": filesystem_of(folder),
        "flush_seconds": sorted(flushes)[len(flushes) // 2],
        "files_per_second": len(files) / max(sum(files), 1e-6),
    }


def _timed(work: Any, most: int) -> list[float]:
    times: list[float] = []
    while len(times) < most and sum(times) < _STORAGE_SECONDS:
        began = time.perf_counter()
        work(len(times))
        times.append(time.perf_counter() - began)
    return times


def _write_flushed(path: Path, number: int) -> None:
    with path.open("a") as file:
        file.write(f"{number}\n")
        file.flush()
        os.fsync(file.fileno())


def _write_and_read(path: Path) -> None:
    path.write_bytes(_SMALL_FILE)
    path.read_bytes()


def filesystem_of(path: Path) -> str:
    """Its type as Linux names it, and from where: 'nfs4 server:/export'; '' where unknown."""
    try:
        lines = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
        wanted = path.resolve()
    except OSError:
        return ""
    found, depth = "", -1
    for device, point, kind in (line.split(" ")[:3] for line in lines):
        place = Path(point.replace("\\040", " "))
        if (wanted == place or place in wanted.parents) and len(place.parts) >= depth:
            found, depth = f"{kind} {device}", len(place.parts)
    return found


class RunDirectory:
    """Tries what a run would do: write there, and see what other hosts wrote."""

    def __init__(self) -> None:
        self._marks: list[Path] = []

    def write(self, question: dict[str, Any]) -> dict[str, Any]:
        folder = Path(question["run"]).expanduser()
        while not folder.exists():
            folder = folder.parent
        mark = folder / f".paceline-check-{question['mark']}-{question['name']}"
        space = {"path": str(folder), "free_bytes": shutil.disk_usage(str(folder)).free}
        try:
            with mark.open("w") as file:
                self._marks.append(mark)
                file.write(question["name"])
                file.flush()
                os.fsync(file.fileno())
            speed = storage_speed(folder, question["mark"]) if question.get("thorough") else None
        except OSError as error:
            return {**space, "error": error.strerror}
        return {**space, "speed": speed}

    def look(self, question: dict[str, Any]) -> dict[str, Any]:
        """A network file system may show a new file only after a moment."""
        if not self._marks:
            return {"seen": []}
        folder = self._marks[0].parent
        prefix = f".paceline-check-{question['mark']}-"
        deadline = time.monotonic() + question["seconds"]
        while True:
            seen = [name for name in question["names"] if (folder / (prefix + name)).exists()]
            if len(seen) == len(question["names"]) or time.monotonic() > deadline:
                return {"seen": seen}
            time.sleep(0.1)

    def clean(self, _question: dict[str, Any] | None = None) -> dict[str, Any]:
        for mark in self._marks:
            try:
                mark.unlink()
            except OSError:
                continue
        return {}


class Listener:
    """Takes connections of the other hosts on the private address alone, with the right token."""

    def __init__(self) -> None:
        self._token = b""

    def listen(self, question: dict[str, Any]) -> dict[str, Any]:
        self._token = bytes.fromhex(question["token"])
        try:
            address = _first_address(question["address"])
            server = socket.socket(address[0], socket.SOCK_STREAM)
            server.bind((address[1], 0))
            server.listen(64)
        except OSError as error:
            return {"error": error.strerror or str(error)}
        threading.Thread(target=self._accept, args=(server,), daemon=True).start()
        return {"port": server.getsockname()[1], "address": address[1]}

    def _accept(self, server: socket.socket) -> None:
        while True:
            connection, _ = server.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.settimeout(_WAIT_SECONDS)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                greeting = _receive(connection, TOKEN_BYTES + 1)
                if not hmac.compare_digest(greeting[:TOKEN_BYTES], self._token):
                    return
                serve = {b"p": _echo, b"s": _sink}.get(greeting[TOKEN_BYTES:])
                if serve:
                    serve(connection)
            except OSError:
                return


def _first_address(name: str) -> tuple[int, str]:
    entry = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0]
    return entry[0], str(entry[4][0])


def _receive(connection: socket.socket, num_bytes: int) -> bytes:
    received = b""
    while len(received) < num_bytes:
        part = connection.recv(num_bytes - len(received))
        if not part:
            break
        received += part
    return received


def _echo(connection: socket.socket) -> None:
    while True:
        byte = connection.recv(1)
        if not byte:
            return
        connection.sendall(byte)


def _sink(connection: socket.socket) -> None:
    """Count until the sender is done, then tell it; the clock starts with the first bytes."""
    buffer = bytearray(len(_CHUNK))
    connection.recv_into(buffer)
    num_bytes = 0
    started = time.monotonic()
    while True:
        count = connection.recv_into(buffer)
        if not count:
            break
        num_bytes += count
    connection.sendall(struct.pack("!Qd", num_bytes, time.monotonic() - started))


def _open(question: dict[str, Any], purpose: bytes) -> socket.socket:
    where = (question["address"], question["port"])
    connection = socket.create_connection(where, timeout=_WAIT_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(bytes.fromhex(question["token"]) + purpose)
    return connection


def connect(question: dict[str, Any]) -> dict[str, Any]:
    """Reach another host: over which interface, and the best of some round trips."""
    answer: dict[str, Any] = {"interface": interface_towards(question["address"])}
    try:
        with _open(question, b"p") as connection:
            trips = [_ping(connection) for _ in range(_NUM_PINGS)]
        return {**answer, "round_trip_seconds": min(trips)}
    except OSError as error:
        return {**answer, "error": str(error.strerror or error)}


def _ping(connection: socket.socket) -> float:
    started = time.perf_counter()
    connection.sendall(b".")
    if not connection.recv(1):
        raise ConnectionResetError("closed by the other side")
    return time.perf_counter() - started


def interface_towards(address: str) -> str | None:
    """Connecting a UDP socket sends nothing, but makes the kernel choose the way."""
    try:
        family, resolved = _first_address(address)
        with socket.socket(family, socket.SOCK_DGRAM) as chooser:
            chooser.connect((resolved, 9))
            own = str(chooser.getsockname()[0])
    except OSError:
        return None
    return interface_addresses().get(own)


def send(question: dict[str, Any]) -> dict[str, Any]:
    """As much as goes through in the given time, as the other side counted it."""
    try:
        with _open(question, b"s") as connection:
            deadline = time.monotonic() + question["seconds"]
            while time.monotonic() < deadline:
                connection.sendall(_CHUNK)
            connection.shutdown(socket.SHUT_WR)
            num_bytes, seconds = struct.unpack("!Qd", _receive(connection, 16))
        return {"bits_per_second": 8 * num_bytes / max(seconds, 1e-6)}
    except (OSError, struct.error) as error:
        return {"error": str(error)}


def main() -> None:
    """Questions on standard input until it ends."""
    run_directory, listener = RunDirectory(), Listener()
    answers = {
        "facts": facts,
        "resolve": resolve,
        "clock": clock,
        "connect": connect,
        "send": send,
        "write": run_directory.write,
        "look": run_directory.look,
        "clean": run_directory.clean,
        "listen": listener.listen,
    }
    # When the way to the doctor breaks, standard input may stay open for hours.
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(1))
    try:
        while True:
            signal.alarm(_IDLE_SECONDS)
            line = sys.stdin.buffer.readline()
            if not line:
                return
            question = json.loads(line.decode())
            try:
                answer = answers[question["do"]](question)
            except Exception as error:
                answer = {"failed": f"{type(error).__name__}: {error}"}
            sys.stdout.write(MARK + json.dumps(answer) + "\n")
            sys.stdout.flush()
    finally:
        run_directory.clean()


if __name__ == "__main__":
    main()
    os._exit(0)  # threads may still wait for connections
