"""Files that the processes of one host share while they train: store, heartbeats, error files.

They lie in the temporary directory, because a run directory on shared storage may be away for a
while and heartbeats must not stop with it. Nothing stays behind: the launcher removes them at its
end, a shell that waits for that end does when the launcher is killed, and where that one was
killed as well (Slurm ends every process of a job), the next start of the run does.
"""

import fcntl
import hashlib
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOCK = ".lock"
_NEW = "paceline-new-"

# Workers die with their launcher, but perhaps a moment after it, and may write meanwhile. torch
# makes a directory for compiled code as soon as it is imported; `compile: true` fills it, and then
# it stays, because it saves the next start minutes.
_REMOVE_AT_THE_END = """
cat > /dev/null
for try in 1 2 3 4 5 6 7 8 9; do rm -rf -- "$0" && break; sleep 0.3; done
rmdir -- "${0%/*}"/torchinductor_*
"""


@contextmanager
def scratch_directory(run: Path) -> Iterator[Path]:
    """A directory of this process's own, for as long as it lives."""
    remove_leftovers(run)
    new = Path(tempfile.mkdtemp(prefix=_NEW))
    with (new / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = new.rename(new.with_name(new.name.replace(_NEW, _prefix(run), 1)))
        remover = subprocess.Popen(
            ["sh", "-c", _REMOVE_AT_THE_END, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            remover.communicate()


def remove_leftovers(run: Path) -> None:
    """Of earlier starts of this run on this host. One that is in use has its name only since it
    is locked, so an unlocked one is a leftover."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_prefix(run)}*"):
        try:
            with (folder / _LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # in use, or somebody else's
            continue


def _prefix(run: Path) -> str:
    """Hosts may share one temporary directory too."""
    name = f"{socket.gethostname()} {run.absolute()}"
    return f"paceline-{hashlib.sha256(name.encode()).hexdigest()[:12]}-"
