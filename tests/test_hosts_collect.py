"""Bringing a run home, through an `ssh` that runs the command here, in another directory.

It stands for a host of its own: what the launcher calls RUN is another directory there. The real
ssh, and a link that is really cut, are in the cluster tests.
"""

import hashlib
import json
import os
from pathlib import Path

import pytest

from paceline.hosts.file import Host
from paceline.launch.remote.collect import collect, join_events
from paceline.record import checkpoints as stored
from paceline.record.schema import RunDirectory

_SSH = """\
#!/bin/sh
for last; do :; done
words=$(printf %s "$last" | sed "s#{here}#{there}#g")
case "$words" in
  tar*) if test -e {cut}; then sh -c "$words" | head -c "$(cat {cut})"; exit 255; fi;;
esac
exec sh -c "$words"
"""

HOST = Host("a", "a", "a")


class Away:
    """A run directory here, and the one that the host has."""

    def __init__(self, folder: Path) -> None:
        self.run = RunDirectory(folder / "here" / "run")
        self.there = RunDirectory(folder / "there" / "run")
        self.run.path.mkdir(parents=True)
        self.there.events.mkdir(parents=True)
        self._cut = folder / "cut"
        ssh = folder / "bin" / "ssh"
        ssh.parent.mkdir()
        names = {"here": self.run.path, "there": self.there.path, "cut": self._cut}
        ssh.write_text(_SSH.format(**names), encoding="utf-8")
        ssh.chmod(0o755)
        self.said: list[str] = []

    def cut_after(self, num_bytes: int) -> None:
        """The line breaks in the middle of every transfer."""
        self._cut.write_text(str(num_bytes), encoding="ascii")

    def mend(self) -> None:
        self._cut.unlink()

    def collect(self) -> str:
        self.said.clear()
        collect(self.run, [HOST], self.said.append)
        return "\n".join(self.said)

    def here(self, step: int) -> Path:
        return self.run.checkpoints / stored.checkpoint_name(step)


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Away:
    found = Away(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return found


def write_checkpoint(run: RunDirectory, step: int, num_bytes: int = 300_000) -> Path:
    folder = run.checkpoints / stored.checkpoint_name(step)
    folder.mkdir(parents=True)
    contents = {
        stored.WEIGHTS: os.urandom(num_bytes),
        stored.OPTIMIZER: os.urandom(num_bytes),
        stored.STATE: b"{}",
    }
    files = {}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        files[name] = {"bytes": len(content), "sha256": digest}
    manifest = {"step": step, "files": files, "weights_sha256": "0"}
    (folder / stored.MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def leftovers(run: RunDirectory) -> list[str]:
    return [path.name for path in run.path.iterdir() if path.name.startswith(".collect-")]


@pytest.mark.parametrize("share", [0.1, 0.4, 0.7, 0.95])
def test_a_checkpoint_whose_transfer_is_cut_is_absent_and_fetched_whole_next_time(
    away: Away, share: float
) -> None:
    folder = write_checkpoint(away.there, 10)
    (away.there.path / "best").symlink_to("checkpoints/step-0000010")
    away.cut_after(int(share * sum(path.stat().st_size for path in folder.iterdir())))
    said = away.collect()
    assert not away.here(10).exists()
    assert not away.run.best.is_symlink()
    assert "step-0000010" in said and f"paceline attach {away.run.path}" in said
    assert leftovers(away.run) == []

    away.mend()
    assert "did not arrive" not in away.collect()
    assert stored.damage(away.here(10)) is None
    assert away.run.best.resolve() == away.here(10).resolve()


def test_what_arrived_whole_before_the_cut_is_kept(away: Away) -> None:
    size = sum(path.stat().st_size for path in write_checkpoint(away.there, 10).iterdir())
    write_checkpoint(away.there, 20)
    away.cut_after(int(1.5 * size))
    said = away.collect()
    assert stored.damage(away.here(10)) is None
    assert not away.here(20).exists()
    assert "step-0000020" in said and "step-0000010" not in said


def test_a_torn_checkpoint_of_an_earlier_collection_is_replaced(away: Away) -> None:
    write_checkpoint(away.there, 10)
    away.here(10).mkdir(parents=True)
    (away.here(10) / stored.WEIGHTS).write_bytes(b"half")
    away.collect()
    assert stored.damage(away.here(10)) is None
    assert leftovers(away.run) == []


def test_a_checkpoint_that_is_damaged_on_the_host_gets_no_name_here(away: Away) -> None:
    folder = write_checkpoint(away.there, 10)
    content = bytearray((folder / stored.WEIGHTS).read_bytes())
    content[1000] ^= 1
    (folder / stored.WEIGHTS).write_bytes(content)
    assert "step-0000010" in away.collect()
    assert not away.here(10).exists()


def test_files_of_a_cut_transfer_replace_nothing(away: Away) -> None:
    (away.there.path / "environment.json").write_text("x" * 400_000, encoding="ascii")
    (away.run.path / "environment.json").write_text("before", encoding="ascii")
    away.cut_after(100_000)
    assert "the files of a did not arrive whole" in away.collect()
    assert (away.run.path / "environment.json").read_text(encoding="ascii") == "before"
    away.mend()
    away.collect()
    assert (away.run.path / "environment.json").stat().st_size == 400_000


def test_what_a_killed_collection_left_behind_is_removed(away: Away) -> None:
    (away.run.path / ".collect-old" / "checkpoints").mkdir(parents=True)
    away.collect()
    assert leftovers(away.run) == []


def test_a_line_that_is_still_being_written_waits_for_the_next_time(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.write_bytes(b'{"time": 1}\n')
    theirs.write_bytes(b'{"time": 1}\n{"time": 2}\n{"ti')
    join_events(ours, theirs)
    assert ours.read_bytes() == b'{"time": 1}\n{"time": 2}\n'
