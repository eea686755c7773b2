"""`hosts mount` with a real NFS server on a host of the lab, and a run on it; and over ssh.

Kernels without an NFS client get one that libnfs and FUSE make (nfs_client.c): the server and what
goes over the wire are real either way.
"""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import PracticeLab, Result
from tests.cluster.remote_run import SETTINGS, RemoteRun, weights

pytestmark = pytest.mark.cluster

HOSTS = ("node0", "node1")
SERVER = "node2"
_CONFIGURATION = """
NFS_CORE_PARAM {{ NFS_Protocols = 3,4; MNT_Port = 20048; Bind_addr = {address};
                 Enable_NLM = false; Enable_RQUOTA = false; }}
NFSv4 {{ Graceless = true; }}
EXPORT {{ Export_Id = 1; Path = {folder}; Pseudo = /export; Protocols = 3,4; Access_Type = RW;
         Squash = No_Root_Squash; SecType = sys; FSAL {{ Name = VFS; }} }}
"""
_HELPER = """#!/bin/sh
# What mount(8) calls for `mount -t nfs4 SOURCE DIRECTORY -o OPTIONS`.
ports="version=3&nfsport=2049&mountport=20048"
exec {client} "nfs://${{1%%:*}}{folder}?$ports" "$2" -s -o "allow_other,fsname=$1,subtype=nfs4"
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("nfs") / "nfs_client"
    source = Path(__file__).parent / "nfs_client.c"
    found = subprocess.check_output(["pkg-config", "--cflags", "--libs", "fuse3", "libnfs"])
    words = ["gcc", "-O1", "-o", str(program), str(source), *found.decode().split()]
    subprocess.run(words, check=True)
    return program


@pytest.fixture
def bare(lab: PracticeLab, tmp_path: Path) -> Iterator[PracticeLab]:
    for name in HOSTS:
        table = tmp_path / f"fstab-{name}"
        table.touch()
        assert lab.inside(name, "mount", "--bind", str(table), "/etc/fstab").returncode == 0
    yield lab
    for name in (*HOSTS, SERVER):
        lab.power_off(name)
        lab.power_on(name)


@pytest.fixture
def nfs(bare: PracticeLab, client: Path, tmp_path: Path) -> str:
    """The address of storage that the third host exports."""
    address = next(host.private_address for host in bare.hosts if host.name == SERVER)
    folder, settings = tmp_path / "export", tmp_path / "ganesha.conf"
    folder.mkdir()
    settings.write_text(_CONFIGURATION.format(address=address, folder=folder), encoding="utf-8")
    log, pid = tmp_path / "ganesha.log", tmp_path / "ganesha.pid"
    assert bare.inside(SERVER, "rpcbind").returncode == 0
    words = ["ganesha.nfsd", "-f", str(settings), "-L", str(log), "-p", str(pid)]
    assert bare.inside(SERVER, *words).returncode == 0
    until = time.monotonic() + 60
    while not log.exists() or "SERVER INITIALIZED" not in log.read_text(encoding="utf-8"):
        assert time.monotonic() < until, log.read_text(encoding="utf-8")
        time.sleep(0.2)
    helper = tmp_path / "mount.nfs4"
    helper.write_text(_HELPER.format(client=client, folder=folder), encoding="utf-8")
    helper.chmod(0o755)
    real = Path(shutil.which("mount.nfs4", path="/sbin:/usr/sbin") or "").resolve()
    if not has_nfs_client():
        for name in HOSTS:
            assert bare.inside(name, "mount", "--bind", str(helper), str(real)).returncode == 0
    return f"nfs://{address}/export"


def has_nfs_client() -> bool:
    return "nfs4" in Path("/proc/filesystems").read_text(encoding="utf-8")


def fstab_of(folder: Path, name: str) -> list[str]:
    return (folder / f"fstab-{name}").read_text(encoding="utf-8").splitlines()


def test_an_nfs_server_is_mounted_on_all_hosts_and_a_run_on_it_is_exact(
    bare: PracticeLab,
    nfs: str,
    pictures: Path,
    tmp_path: Path,
    command: Callable[..., Result],
    undisturbed: Callable[..., str],
) -> None:
    hosts = bare.write_hosts(tmp_path / "hosts.yaml", 2)
    words = ("hosts", "mount", nfs, f"{bare.local}/data", "--hosts", str(hosts), "--yes")
    done = command(*words)
    assert done.returncode == 0, done.stderr
    assert "all 2 hosts see the same files" in done.stderr
    source = f"{nfs.removeprefix('nfs://').partition('/')[0]}:/export"
    for name in HOSTS:
        (line,) = fstab_of(tmp_path, name)
        assert line.startswith(f"{source} {bare.local}/data nfs4 nfsvers=4.1,") and "hard" in line
    again = command(*words)
    assert again.returncode == 0 and "nothing to do on 2 hosts" in again.stderr

    run = bare.local / "data" / "run"
    settings = [f"data={pictures}", *SETTINGS, "--run", str(run)]
    checked = command("hosts", "check", "cifar10-tiny", *settings, "--hosts", str(hosts))
    assert checked.returncode == 0, checked.stdout
    assert "shared: written on one, seen on all" in checked.stdout
    if not has_nfs_client():
        assert f"nfs4 {source}" in checked.stdout
        assert "small files a second" in checked.stdout

    training = RemoteRun.start(hosts, pictures, run, "steps=12", practice="")
    assert training.finish(180) == 0, training.said
    assert weights(tmp_path / "export" / "run") == undisturbed(2, 12)


@pytest.mark.skipif(has_nfs_client(), reason="this kernel has one")
def test_a_kernel_without_an_nfs_client_is_said_to_have_none(
    bare: PracticeLab, tmp_path: Path, command: Callable[..., Result]
) -> None:
    hosts = bare.write_hosts(tmp_path / "hosts.yaml", 2)
    place = f"{bare.local}/data"
    words = ("hosts", "mount", "nfs://127.0.0.1/export", place, "--hosts", str(hosts), "--yes")
    done = command(*words)
    assert done.returncode == 1
    assert "node0: mount failed: the kernel there has no nfs4 client" in done.stderr
    assert fstab_of(tmp_path, "node0") == []


def test_two_machines_without_anything_share_over_ssh(
    bare: PracticeLab, tmp_path: Path, command: Callable[..., Result]
) -> None:
    hosts = bare.write_hosts(tmp_path / "hosts.yaml", 2)
    keys = tmp_path / "keys"
    shutil.copytree(bare.directory / "keys", keys)
    shutil.copy(bare.directory / "known_hosts", keys / "known_hosts")
    first, shared = bare.hosts[0].private_address, tmp_path / "shared"
    shared.mkdir()
    words = ("hosts", "mount", f"sshfs://root@{first}{shared}", f"{bare.local}/data")
    options = ("--credentials", str(keys / "user"), "--hosts", str(hosts), "--yes")
    done = command(*words, *options)
    assert done.returncode == 0, done.stderr
    assert "all 2 hosts see the same files" in done.stderr
    kinds = [fstab_of(tmp_path, name)[0].split()[2] for name in HOSTS]
    assert kinds == ["none", "fuse.sshfs"], "the first has it already"
    checked = command("hosts", "check", "--hosts", str(hosts), "--run", f"{bare.local}/data/run")
    assert "shared: written on one, seen on all" in checked.stdout
