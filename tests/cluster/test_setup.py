"""Hosts of the lab are set up and get shared storage; /etc is their own meanwhile."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import PracticeLab, Result

pytestmark = pytest.mark.cluster

HOSTS = ("node0", "node1")


@pytest.fixture
def bare(lab: PracticeLab, tmp_path: Path) -> Iterator[PracticeLab]:
    """Two hosts whose fstab, limits and /dev/shm can be changed without changing this machine's."""
    for name in HOSTS:
        table = tmp_path / f"fstab-{name}"
        table.write_text("# mine\n", encoding="utf-8")
        assert lab.inside(name, "mount", "--bind", str(table), "/etc/fstab").returncode == 0
        limits = "/etc/security/limits.d"
        assert lab.inside(name, "mount", "-t", "tmpfs", "tmpfs", limits).returncode == 0
    yield lab
    for name in HOSTS:
        lab.power_off(name)
        lab.power_on(name)


def fstab_of(folder: Path, name: str) -> list[str]:
    return (folder / f"fstab-{name}").read_text(encoding="utf-8").splitlines()


def test_storage_is_mounted_on_all_hosts_once_and_found_to_be_shared(
    bare: PracticeLab, tmp_path: Path, command: Callable[..., Result]
) -> None:
    hosts = bare.write_hosts(tmp_path / "hosts.yaml", 2)
    storage, place = bare.shared / "storage", f"{bare.local}/data"
    storage.mkdir(exist_ok=True)
    words = ("hosts", "mount", f"dir://{storage}", place, "--hosts", str(hosts))

    asked = command(*words)
    assert asked.returncode == 2 and "add --yes" in asked.stderr
    assert f"mount {storage}" in asked.stderr, "it is shown before it is asked"
    assert fstab_of(tmp_path, "node0") == ["# mine"], "nothing is done before it is agreed"

    done = command(*words, "--yes")
    assert done.returncode == 0, done.stderr
    assert "all 2 hosts see the same files" in done.stderr
    expected = ["# mine", f"{storage} {place} none bind 0 0"]
    assert [fstab_of(tmp_path, name) for name in HOSTS] == [expected, expected]

    again = command(*words, "--yes")
    assert again.returncode == 0 and "nothing to do on 2 hosts" in again.stderr
    assert fstab_of(tmp_path, "node1") == expected

    assert bare.inside("node1", "umount", place).returncode == 0
    rest = command(*words, "--yes")
    assert rest.returncode == 0, "a half-finished setup is continued"
    assert "node1: mount done" in rest.stderr and "node0" not in rest.stderr
    assert fstab_of(tmp_path, "node1") == expected


def test_a_mount_that_fails_is_told_and_leaves_nothing_in_fstab(
    bare: PracticeLab, tmp_path: Path, command: Callable[..., Result]
) -> None:
    hosts = bare.write_hosts(tmp_path / "hosts.yaml", 2)
    words = ("hosts", "mount", "dir:///no/such/storage", f"{bare.local}/data")
    done = command(*words, "--hosts", str(hosts), "--yes")
    assert done.returncode == 1
    assert "node0: mount failed" in done.stderr
    assert fstab_of(tmp_path, "node0") == ["# mine"]


def test_files_that_a_mount_would_hide_are_left_alone(
    bare: PracticeLab, tmp_path: Path, command: Callable[..., Result]
) -> None:
    hosts = bare.write_hosts(tmp_path / "hosts.yaml", 2)
    place = bare.local_of("node1") / "data"
    place.mkdir()
    (place / "precious").write_text("", encoding="utf-8")
    words = ("hosts", "mount", f"dir://{bare.shared}", f"{bare.local}/data")
    done = command(*words, "--hosts", str(hosts), "--yes")
    assert done.returncode == 1
    assert "node1: mount failed" in done.stderr and "which a mount would hide" in done.stderr
    assert (place / "precious").exists()


def test_too_little_shared_memory_is_mended_once(
    bare: PracticeLab, tmp_path: Path, command: Callable[..., Result]
) -> None:
    hosts = bare.write_hosts(tmp_path / "hosts.yaml", 2)
    shrink = ("mount", "-o", "remount,size=64m", "/dev/shm")  # noqa: S108
    assert bare.inside("node1", *shrink).returncode == 0
    words = ("hosts", "setup", "--no-env", "--hosts", str(hosts), "--yes")
    done = command(*words)
    assert "node1: shm done" in done.stderr and "node0: shm" not in done.stderr
    assert fstab_of(tmp_path, "node1")[-1].startswith("tmpfs /dev/shm")
    again = command(*words)
    assert "shm done" not in again.stderr
    assert len(fstab_of(tmp_path, "node1")) == 2
