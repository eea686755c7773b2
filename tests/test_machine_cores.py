"""How many cores a process may use: one notion, from affinity and every level of control groups."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import paceline
from paceline.machine import cores
from paceline.machine.cores import (
    ControlGroups,
    core_numbers,
    cores_of_process,
    memory_of_process,
    num_cores,
    quota_cores,
)


@pytest.fixture
def groups(tmp_path: Path) -> ControlGroups:
    """A tree of control groups made of plain files."""
    (tmp_path / "cgroup").mkdir()
    return ControlGroups(tmp_path / "cgroup", tmp_path / "membership")


def _write(groups: ControlGroups, **contents: str) -> None:
    """`job__step__cpu.max` is a file of a group in a group."""
    for name, text in contents.items():
        path = groups.mount.joinpath(*name.split("__"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


@pytest.fixture
def many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 64 cores."""
    monkeypatch.setattr(cores, "core_numbers", lambda: list(range(64)))


@pytest.mark.usefixtures("many_cores")
def test_a_container_of_two_cores_on_a_large_machine_has_two(groups: ControlGroups) -> None:
    """`docker run --cpus=2`, in a namespace of its own: the mount is the container's group."""
    groups.membership.write_text("0::/\n")
    _write(groups, **{"cpu.max": "200000 100000"})
    assert num_cores(groups) == 2


@pytest.mark.usefixtures("many_cores")
def test_without_a_quota_affinity_decides(groups: ControlGroups) -> None:
    groups.membership.write_text("0::/\n")
    assert num_cores(groups) == 64
    _write(groups, **{"cpu.max": "max 100000"})
    assert quota_cores(groups) is None
    assert num_cores(groups) == 64


@pytest.mark.usefixtures("many_cores")
@pytest.mark.parametrize("level", ["slurm__", "slurm__job__", "slurm__job__step__"])
def test_a_quota_of_any_group_above_counts(groups: ControlGroups, level: str) -> None:
    groups.membership.write_text("0::/slurm/job/step\n")
    unlimited = {
        f"{name}cpu.max": "max 100000" for name in ("slurm__", "slurm__job__", "slurm__job__step__")
    }
    _write(groups, **unlimited)
    assert num_cores(groups) == 64
    _write(groups, **{f"{level}cpu.max": "400000 100000"})
    assert num_cores(groups) == 4


@pytest.mark.usefixtures("many_cores")
def test_the_smallest_quota_counts_and_others_do_not(groups: ControlGroups) -> None:
    groups.membership.write_text("0::/slurm/job\n")
    _write(groups, **{"slurm__cpu.max": "800000 100000", "slurm__job__cpu.max": "300000 100000"})
    _write(groups, **{"slurm__other__cpu.max": "100000 100000"})
    assert num_cores(groups) == 3


@pytest.mark.usefixtures("many_cores")
@pytest.mark.parametrize("folder", ["cpu", "cpu,cpuacct"])
def test_control_groups_of_the_first_version_count_too(groups: ControlGroups, folder: str) -> None:
    groups.membership.write_text("9:memory:/docker/a\n4:cpu,cpuacct:/docker/a\n1:name=systemd:/\n")
    where = f"{folder}__docker__a__"
    _write(groups, **{f"{where}cpu.cfs_quota_us": "-1", f"{where}cpu.cfs_period_us": "100000"})
    assert num_cores(groups) == 64
    above = f"{folder}__docker__"
    _write(groups, **{f"{above}cpu.cfs_quota_us": "250000", f"{above}cpu.cfs_period_us": "100000"})
    assert num_cores(groups) == 2


@pytest.mark.usefixtures("many_cores")
@pytest.mark.parametrize("path", ["/docker/0123", "/../../user.slice"])
def test_a_container_that_sees_its_path_outside_finds_its_own_group(
    groups: ControlGroups, path: str
) -> None:
    groups.membership.write_text(f"0::{path}\n")
    _write(groups, **{"cpu.max": "200000 100000"})
    assert num_cores(groups) == 2


@pytest.mark.usefixtures("many_cores")
@pytest.mark.parametrize("text", ["", "max", "0 0", "-5 100000", "a b", "1 2 3"])
def test_what_is_no_quota_is_passed_over(groups: ControlGroups, text: str) -> None:
    groups.membership.write_text("0::/\nstrange line\n")
    _write(groups, **{"cpu.max": text})
    assert num_cores(groups) == 64


def test_a_part_of_a_core_is_one(groups: ControlGroups) -> None:
    groups.membership.write_text("0::/\n")
    _write(groups, **{"cpu.max": "50000 100000"})
    assert num_cores(groups) == 1


def test_nowhere_but_on_linux_is_there_anything_to_read(groups: ControlGroups) -> None:
    assert not groups.membership.exists()
    assert num_cores(groups) == len(core_numbers())


def test_the_memory_of_every_group_above_counts(
    groups: ControlGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    groups.membership.write_text("0::/slurm/job\n")
    _write(groups, **{"slurm__job__memory.max": "max", "slurm__job__memory.current": "5000"})
    assert memory_of_process(groups) > 10_000
    _write(groups, **{"slurm__memory.max": "9000", "slurm__memory.current": "5000"})
    assert memory_of_process(groups) == 4000
    _write(groups, **{"slurm__memory.stat": "active_file 7\ninactive_file 3000\nfile 9"})
    assert memory_of_process(groups) == 7000


def test_memory_of_the_first_version_counts_too(
    groups: ControlGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    groups.membership.write_text("4:memory:/docker/a\n")
    where = "memory__docker__a__memory"
    _write(groups, **{f"{where}.limit_in_bytes": "9000", f"{where}.usage_in_bytes": "5000"})
    _write(groups, **{f"{where}.stat": "inactive_file 1\ntotal_inactive_file 2000"})
    assert memory_of_process(groups) == 3000


_COUNTS = """
from paceline.data.workers import default_num_workers
from paceline.machine import cores, tuning
omp = tuning.speed_environment(2)["OMP_NUM_THREADS"]
print(cores.num_cores(), cores.cores_of_process(), default_num_workers(), omp)
"""


def _counted_after(*words: str) -> list[str]:
    """Cores, readers of a process, workers of a preparation, threads of each of two processes."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    command = [*words, sys.executable, "-c", _COUNTS]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return result.stdout.split()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has affinity")
def test_affinity_counts_in_a_real_process() -> None:
    assert _counted_after("taskset", "-c", str(core_numbers()[0])) == ["1", "1", "1", "1"]


@pytest.mark.cluster
def test_a_quota_counts_in_a_real_control_group() -> None:
    """Needs root, and a tree of control groups that may be written."""
    mount = Path("/sys/fs/cgroup")
    is_v2 = (mount / "cgroup.controllers").exists()
    group = (mount if is_v2 else mount / "cpu") / f"paceline-test-{os.getpid()}"
    group.mkdir()
    try:
        if is_v2:
            (group / "cpu.max").write_text("100000 100000")
        else:
            (group / "cpu.cfs_quota_us").write_text("100000")
        join = f'echo $$ > {group}/cgroup.procs; exec "$@"'
        assert _counted_after("bash", "-c", join, "bash") == ["1", "1", "1", "1"]
    finally:
        group.rmdir()


def test_processes_of_a_host_share_its_cores(
    groups: ControlGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "core_numbers", lambda: list(range(64)))
    groups.membership.write_text("0::/\n")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert cores_of_process(groups) == 16


def test_nobody_else_asks_the_system_for_its_cores() -> None:
    """The doctor's probe asks only where Paceline, and with it this module, is missing; and so
    does the observer, which stands alone in a stranger's process."""
    root = Path(paceline.__file__).parent
    asks = re.compile(r"cpu_count\(|sched_getaffinity|cpu_affinity\(|process_cpu_count")
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if asks.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"machine/cores.py", "doctor/probe.py", "observe/facts.py"}
    assert "sched_getaffinity" not in (root / "doctor/probe.py").read_text(encoding="utf-8")


def test_a_run_records_its_own_cores_and_the_machines(finished_run: Path) -> None:
    recorded = json.loads((finished_run / "environment.json").read_text())
    assert recorded["num_cores"] == num_cores()
    assert recorded["num_machine_cores"] == os.cpu_count()
