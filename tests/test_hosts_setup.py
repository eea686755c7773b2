"""The shell lines of `paceline hosts setup`, run by a real shell on machines that are made up of
stand-ins; and the doctor's rows that name them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.doctor.devices import judge_driver
from paceline.doctor.hosts import judge_limits
from paceline.hosts.container import Container
from paceline.hosts.setup import container_steps, setup_steps
from paceline.hosts.steps import Step

TOOLS = ("sh", "basename", "cat", "df", "awk", "grep", "tr", "id", "printf")


class Machine:
    """A PATH with a few real tools, and programs that say or fail what they are told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()
        for name in TOOLS:
            real = next(p for p in (Path("/bin") / name, Path("/usr/bin") / name) if p.exists())
            (folder / name).symlink_to(real)

    def has(self, name: str, text: str = "exit 0") -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    def run(self, script: str) -> "subprocess.CompletedProcess[str]":
        words = ["sh", "-c", f"S=''\nset -e\n{script}"]
        variables = {"PATH": str(self.folder)}
        return subprocess.run(words, env=variables, capture_output=True, text=True, check=False)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "bin")


def step(name: str, steps: list[Step] | None = None) -> Step:
    return next(step for step in steps or setup_steps() if step.name == name)


def test_a_newer_python_beside_an_old_one_is_enough(machine: Machine) -> None:
    machine.has("python3", "exit 1")  # as Ubuntu 22.04's says of its own version
    assert machine.run(step("python").check).returncode != 0
    machine.has("python3.12", f'exec {sys.executable} "$@"')
    assert machine.run(step("python").check).returncode == 0
    assert machine.run(step("venv").check).returncode == 0


def test_where_the_systems_python_is_too_old_a_newer_package_is_installed(machine: Machine) -> None:
    log = machine.folder.parent / "installed"
    machine.has("python3", "exit 1")
    machine.has("python-new", f'exec {sys.executable} "$@"')
    has_no_312 = f"""
echo "$@" >> {log}
case "$*" in
  *python3.12*) exit 1 ;;
  *python3.11*) {os.path.realpath("/bin/ln")} -sf python-new {machine.folder}/python3.11 ;;
esac
"""
    machine.has("apt-get", has_no_312)
    apply = step("python").apply
    assert apply is not None
    done = machine.run(apply)
    assert done.returncode == 0, done.stderr
    assert "install -y -q python3.11 python3.11-venv" in log.read_text(encoding="utf-8")
    assert machine.run(step("python").check).returncode == 0


def test_a_system_without_any_new_python_says_so(machine: Machine) -> None:
    machine.has("apt-get", "exit 1")
    apply = step("python").apply
    assert apply is not None
    done = machine.run(apply)
    assert done.returncode == 1
    assert "no Python 3.11 or newer" in done.stderr


def test_a_user_of_docker_is_let_in_once(machine: Machine) -> None:
    steps = container_steps(Container("paceline:cuda"))
    machine.has("docker", "exit 1")
    (machine.folder / "id").unlink()
    machine.has("id", '[ "$1" != -u ] && echo "me sudo" || echo 1000')
    assert machine.run(step("user", steps).check).returncode != 0
    machine.has("id", '[ "$1" != -u ] && echo "me sudo docker" || echo 1000')
    assert machine.run(step("user", steps).check).returncode == 0


def test_the_containers_steps_have_no_environment_and_name_the_toolkit(machine: Machine) -> None:
    steps = container_steps(Container("paceline:cuda"))
    names = [step.name for step in steps]
    assert names == ["driver", "docker", "user", "toolkit", "image", "shm", "limits", "clock"]
    assert machine.run(step("toolkit", steps).check).returncode == 0, "no card, no toolkit"
    machine.has("nvidia-smi")
    assert machine.run(step("toolkit", steps).check).returncode != 0
    assert "container toolkit" in step("toolkit", steps).missing


FACTS = {"gpus": [], "num_cards": 0, "shared_memory_bytes": 8 << 30, "most_open_files": 65536}


def test_the_doctor_names_the_step_that_mends() -> None:
    assert judge_limits({"a": FACTS}) == [] and judge_driver({"a": FACTS}) == []
    (shared,) = judge_limits({"a": {**FACTS, "shared_memory_bytes": 64 << 20}})
    assert shared.remedy == "paceline hosts setup (step shm)" and "67.1 MB" in shared.found
    (files,) = judge_limits({"a": {**FACTS, "most_open_files": 1024}})
    assert files.remedy == "paceline hosts setup (step limits)"
    (driver,) = judge_driver({"a": {**FACTS, "num_cards": 2}})
    assert driver.state == "fail" and "step driver" in driver.remedy
    assert judge_driver({"a": {**FACTS, "num_cards": 2, "gpus": ["T4", "T4"]}}) == []
