"""The doctor on four real hosts: silent when all is well, and right about each injected fault."""

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paceline import recipe
from paceline.doctor import examination as doctor
from paceline.doctor.rows import Row
from paceline.hosts.file import HostsFile, load_hosts
from paceline.settings import Recipe
from tests.cluster.conftest import PracticeLab, Result

pytestmark = pytest.mark.cluster


def problems(hosts: Path, run: Path | None = None, *settings: str) -> list[Row]:
    """What the quick part finds wrong."""
    loaded = recipe.load("cifar10-tiny", list(settings)) if settings else None
    return list(examined(load_hosts(hosts), run, loaded).problems)


def examined(hosts: HostsFile, run: Path | None, loaded: Recipe | None = None) -> doctor.Diagnosis:
    return doctor.check(hosts, doctor.Purpose(loaded, run, quick=True), lambda _text: None)


def test_healthy_hosts_pass_and_the_network_is_told_for_the_recipe(
    lab: PracticeLab, command: Callable[..., Result], pictures: Path
) -> None:
    run = lab.shared / "healthy"
    words = ["check", "cifar10-tiny", f"data={pictures}", "--hosts", str(lab.hosts_file)]
    said = command("hosts", *words, "--run", str(run))
    assert said.returncode == 0, said.stdout
    assert "fail" not in said.stdout and "all is well" in said.stdout
    for found in ("as root", "the same code", "12 ways", "over eth0", "shared: written on one"):
        assert found in said.stdout
    last = said.stdout.splitlines()[-1]
    assert 0.4 < float(last.removeprefix("4 hosts at ").split()[0]) < 1.1  # Gbit/s
    assert "all-reduce of 3" in last and "of each step" in last
    assert not run.exists() and not list(lab.shared.glob(".paceline-check*"))


def test_a_slow_link_is_traced_to_its_host_and_the_rest_is_told_at_once(
    lab: PracticeLab, command: Callable[..., Result], tmp_path: Path
) -> None:
    lab.set_link("node1", "100Mbit")
    hosts = lab.write_hosts(tmp_path / "hosts.yaml", 3)
    said = command("hosts", "check", "nmt-base", "--hosts", str(hosts))
    assert said.returncode == 1  # there is no data of that recipe on any host
    lines = said.stdout.splitlines()
    slow = next(line for line in lines if line.startswith("warn  node1"))
    assert "Mbit/s, the others'" in slow
    assert "data nmt --from" in said.stdout
    assert lines[-1].startswith("3 hosts at ") and "all-reduce of 244 MB" in lines[-1]
    assert 20 < float(lines[-1].partition("will take ")[2].split()[0]) < 60


def test_quick_gives_the_interfaces_and_whether_the_run_directory_is_shared(
    lab: PracticeLab,
) -> None:
    found = examined(lab.loaded, lab.shared / "run")
    assert found.problems == ()
    assert found.interfaces == {f"node{number}": "eth0" for number in range(4)}
    assert any("shared: written on one" in row.found for row in found.rows)
    local = examined(lab.loaded, lab.local / "run")
    assert any("not shared: each host has its own" in row.found for row in local.rows)


def test_a_closed_port_is_told_with_the_host_that_nobody_reaches(lab: PracticeLab) -> None:
    rule = ["-p", "tcp", "--syn", "--dport", "1024:65535", "-j", "DROP"]
    assert lab.inside("node2", "iptables", "-A", "INPUT", *rule).returncode == 0
    found = problems(lab.hosts_file)
    assert [(row.where, row.what) for row in found] == [("all others -> node2", "port")]
    assert "timed out" in found[0].found and "firewall" in found[0].remedy


def test_a_host_that_is_off_is_named_and_the_others_are_still_checked(lab: PracticeLab) -> None:
    lab.power_off("node3")
    found = doctor.check(lab.loaded, doctor.Purpose(quick=True), lambda _text: None)
    assert [(row.where, row.what) for row in found.problems] == [("node3", "login")]
    assert "does not answer" in found.problems[0].found
    assert any("all 6 ways" in row.where and row.state == "ok" for row in found.rows)


def test_a_refused_key_is_told(lab: PracticeLab, tmp_path: Path) -> None:
    key = tmp_path / "key"
    shutil.copy(lab.directory / "hosts/node0/host_key", key)  # a good key, but not the right one
    hosts = lab.write_hosts(tmp_path / "hosts.yaml", 2, node1={"key": str(key)})
    found = problems(hosts)
    assert [(row.where, row.what) for row in found] == [("node1", "login")]
    assert "login as root is refused" in found[0].found and "authorized_keys" in found[0].remedy


def test_wrong_pythons_are_told_each_in_its_way(lab: PracticeLab, tmp_path: Path) -> None:
    import venv

    venv.create(lab.shared / "bare", with_pip=False)
    bare = str(lab.shared / "bare/bin/python")
    old = python_that_says(lab.shared / "old", "sys.version_info = (3, 9, 2, 'final', 0)")
    hosts = lab.write_hosts(
        tmp_path / "hosts.yaml",
        4,
        node1={"python": bare},
        node2={"python": "/nowhere/python"},
        node3={"python": str(old)},
    )
    found = {(row.where, row.what): row for row in problems(hosts)}
    assert set(found) == {
        ("node1", "torch"),
        ("node1", "paceline"),
        ("node2", "login"),
        ("node3", "python"),
    }
    assert f"{bare} has no torch" in found["node1", "torch"].found
    assert "there is no Python /nowhere/python" in found["node2", "login"].found
    assert "3.9.2" in found["node3", "python"].found
    assert "3.11 or newer" in found["node3", "python"].remedy


def test_a_host_whose_torch_is_imported_slowly_is_warned_of(
    lab: PracticeLab, tmp_path: Path
) -> None:
    slow = python_that_says(lab.shared / "slow", slow_import(seconds=12))
    hosts = load_hosts(lab.write_hosts(tmp_path / "hosts.yaml", 2, node1={"python": str(slow)}))
    found = doctor.check(hosts, doctor.Purpose(), lambda _text: None)
    assert found.is_healthy
    row = next(row for row in found.rows if row.what == "import" and "node1" in row.where)
    assert row.state == "warn" and "site-packages/torch" in row.found


def test_a_clock_that_is_ahead_is_told(lab: PracticeLab, tmp_path: Path) -> None:
    # Namespaces share the machine's clock, so this host's Python reads another one.
    late = python_that_says(lab.shared / "late", "_t = time.time; time.time = lambda: _t() + 90")
    found = problems(lab.write_hosts(tmp_path / "hosts.yaml", 3, node1={"python": str(late)}))
    assert [(row.where, row.what) for row in found] == [("node1", "clock")]
    assert "1 min 30 s ahead of the others" in found[0].found


def test_missing_and_different_data_are_told_by_host(lab: PracticeLab, pictures: Path) -> None:
    for name in ("node0", "node1", "node2"):
        shutil.copytree(pictures, lab.local_of(name) / "pictures")
    card = lab.local_of("node2") / "pictures/card.json"
    text = card.read_text(encoding="utf-8").replace('"fingerprint": "', '"fingerprint": "0')
    card.write_text(text, encoding="utf-8")
    found = {row.where: row for row in problems(lab.hosts_file, None, f"data={lab.local}/pictures")}
    assert set(found) == {"node2", "node3"}
    assert "other data" in found["node2"].found
    assert f"{lab.local}/pictures: not there" in found["node3"].found
    assert "copy it, on node0: rsync -a " in found["node3"].remedy


def test_a_name_that_one_host_does_not_know_is_told(lab: PracticeLab, tmp_path: Path) -> None:
    by_name = {f"node{n}": {"private_address": f"node{n}"} for n in range(3)}
    hosts = lab.write_hosts(tmp_path / "hosts.yaml", 3, **by_name)
    assert problems(hosts) == []
    known = lab.directory / "hosts/node2/hosts"
    before = known.read_text(encoding="ascii")
    known.write_text(before.replace("node0", "renamed"), encoding="ascii")
    try:
        found = problems(hosts)
    finally:
        known.write_text(before, encoding="ascii")
    assert [(row.where, row.what) for row in found] == [("node2", "names")]
    assert "node0 is not known there" in found[0].found
    assert f"{lab.hosts[0].address} node0" in found[0].remedy


def test_a_directory_shared_by_some_hosts_only_is_refused(lab: PracticeLab) -> None:
    run = lab.shared / "partly"
    run.mkdir(exist_ok=True)
    with _mounted_over(lab, "node3", run, "rw"):
        found = problems(lab.hosts_file, run)
    assert [(row.where, row.what) for row in found] == [("node3", "run")]
    assert "does not see what node0, node1, node2 wrote" in found[0].found


def test_a_directory_that_one_host_cannot_write_is_told(lab: PracticeLab) -> None:
    run = lab.shared / "frozen"
    run.mkdir(exist_ok=True)
    with _mounted_over(lab, "node1", run, "ro"):
        found = problems(lab.hosts_file, run)
    assert found[0].where == "node1" and "Read-only" in found[0].found


def test_a_full_disk_is_told_before_the_run(lab: PracticeLab) -> None:
    run = lab.local / "runs"
    (lab.local_of("node0") / "runs").mkdir()
    with _mounted_over(lab, "node0", run, "size=1m"):
        found = problems(lab.hosts_file, run)
    assert [(row.where, row.what) for row in found] == [("node0", "run")]
    assert "free" in found[0].found


def test_a_route_over_docker0_is_refused(lab: PracticeLab, tmp_path: Path) -> None:
    hosts = lab.write_hosts(tmp_path / "hosts.yaml", 2)
    target = lab.hosts[1].address
    script = (
        "ip link add docker0 type bridge && ip address add 172.17.0.1/16 dev docker0 && "
        f"ip link set docker0 up && ip route add {target}/32 dev docker0"
    )
    assert lab.inside("node0", "sh", "-c", script).returncode == 0
    try:
        found = {(row.where, row.what): row for row in problems(hosts)}
    finally:
        lab.inside("node0", "ip", "link", "del", "docker0")
    assert "takes docker0" in found["node0 -> node1", "route"].found


def test_a_public_address_that_is_not_the_hosts_own_is_told(
    lab: PracticeLab, tmp_path: Path
) -> None:
    hosts = lab.write_hosts(tmp_path / "hosts.yaml", 2, node1={"private_address": "203.0.113.9"})
    found = {row.what: row for row in problems(hosts) if row.where == "node1"}
    assert "203.0.113.9 is not an address of node1" in found["address"].found
    assert f"it has {lab.hosts[1].address}" in found["address"].remedy


def python_that_says(folder: Path, change: str) -> Path:
    """This Python, with something of it changed before it runs anything."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(f"import sys, time\n{change}\n", encoding="ascii")
    wrapper = folder / "python"
    text = f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n'
    wrapper.write_text(text, encoding="ascii")
    wrapper.chmod(0o755)
    return wrapper


def slow_import(seconds: float, program: str = "") -> str:
    """As if torch lay on slow storage; where a program is named, for nothing else."""
    return f"""
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "torch" and {program!r} in " ".join(sys.orig_argv):
            time.sleep({seconds})

sys.meta_path.insert(0, Slow())
"""


@contextmanager
def _mounted_over(lab: PracticeLab, name: str, path: Path, options: str) -> Iterator[None]:
    mount = lab.inside(name, "mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path))
    assert mount.returncode == 0, mount.stderr
    try:
        yield
    finally:
        lab.inside(name, "umount", str(path))
