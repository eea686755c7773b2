"""Commands on many real hosts: run, ssh, and sending code with its environment."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.hosts.push import Order, pack, push
from tests.cluster.conftest import PracticeLab, Result

pytestmark = pytest.mark.cluster

# A project that pip can install without any other package, so no host needs the internet here.
_PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "tiny"
version = "1"
"""
_BACKEND = """
import os, zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    info = "tiny-1.dist-info/"
    files = {
        "tiny.pth": os.getcwd() + "\\n",
        info + "METADATA": "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1\\n",
        info + "WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    files[info + "RECORD"] = "".join(f"{name},,\\n" for name in files)
    with zipfile.ZipFile(os.path.join(folder, "tiny-1-py3-none-any.whl"), "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return "tiny-1-py3-none-any.whl"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(_PYPROJECT, encoding="ascii")
    (folder / "backend.py").write_text(_BACKEND, encoding="ascii")
    (folder / "tiny.py").write_text("word = 'first'\n", encoding="ascii")
    (folder / "old.py").write_text("", encoding="ascii")
    return folder


def test_a_command_runs_everywhere_at_once_with_the_hosts_name_before_each_line(
    lab: PracticeLab, command: Callable[..., Result]
) -> None:
    script = "sleep 1; hostname; echo 'a  b' >&2"
    said = command("hosts", "run", "--hosts", str(lab.hosts_file), "--", "sh", "-c", script)
    assert said.returncode == 0
    expected = [line for n in range(4) for line in (f"[node{n}] a  b", f"[node{n}] node{n}")]
    assert sorted(said.stdout.splitlines()) == expected


def test_the_worst_exit_code_is_the_commands(
    lab: PracticeLab, command: Callable[..., Result]
) -> None:
    script = "test $(hostname) != node2 || exit 7"
    said = command("hosts", "run", "--hosts", str(lab.hosts_file), "--", "sh", "-c", script)
    assert said.returncode == 7
    assert said.stdout == "[node2] exit code 7\n"


def test_words_reach_the_host_as_they_were_given(
    lab: PracticeLab, command: Callable[..., Result]
) -> None:
    words = ["$HOME", "a  b", "x;y", "--batch.global", "3", "*"]
    said = command(
        "hosts", "ssh", "--hosts", str(lab.hosts_file), "1", "--", "printf", "%s|", *words
    )
    assert said.stdout == "$HOME|a  b|x;y|--batch.global|3|*|"


def test_ssh_gives_a_shell_on_a_terminal(lab: PracticeLab) -> None:
    words = [sys.executable, "-m", "paceline.cli", "hosts", "ssh", "1"]
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [*words, "--hosts", str(lab.hosts_file)], stdin=theirs, stdout=theirs, stderr=theirs
    ) as shell:
        os.close(theirs)
        os.write(ours, b"tty && hostname; exit 5\n")
        seen = b""
        try:
            while part := os.read(ours, 4096):
                seen += part
        except OSError:  # how a terminal ends on Linux
            pass
        assert shell.wait() == 5
    os.close(ours)
    assert b"/dev/pts/" in seen and b"\nnode1\r" in seen


def test_code_is_sent_without_what_is_not_code(
    lab: PracticeLab, command: Callable[..., Result]
) -> None:
    to = ["--no-env", "--to", f"{lab.local}/sent"]
    said = command("hosts", "push", "--hosts", str(lab.hosts_file), *to)
    assert said.returncode == 0, said.stderr
    for number in range(4):
        code = lab.local_of(f"node{number}") / "sent/code"
        assert (code / "src/paceline/hosts/push.py").is_file()
        assert (code / "pyproject.toml").is_file()
        assert "torch==" in (code / "constraints-of-sender.txt").read_text(encoding="ascii")
        assert not (code / ".git").exists() and not list(code.rglob("__pycache__"))


def test_an_environment_is_made_once_and_new_code_replaces_old(
    lab: PracticeLab, project: Path
) -> None:
    folder = f"{lab.local}/tiny"
    order = Order(folder, python=sys.executable, pip_options="--no-index")
    said: list[str] = []
    assert push(lab.hosts[:2], order, pack(project), said.append) == 0, said
    python = f"{folder}/.venv/bin/python"
    ask = [python, "-c", "import tiny; print(tiny.word)"]
    assert [lab.ssh(name, *ask).stdout for name in ("node0", "node1")] == ["first\n", "first\n"]
    made = (lab.local_of("node0") / "tiny/.venv/pyvenv.cfg").stat().st_mtime_ns
    (project / "tiny.py").write_text("word = 'second'\n", encoding="ascii")
    (project / "old.py").unlink()
    assert push(lab.hosts[:2], order, pack(project), said.append) == 0, said
    assert lab.ssh("node1", *ask).stdout == "second\n"
    assert not (lab.local_of("node1") / "tiny/code/old.py").exists()
    assert (lab.local_of("node0") / "tiny/.venv/pyvenv.cfg").stat().st_mtime_ns == made


def test_hosts_with_one_shared_home_do_not_disturb_each_other(
    lab: PracticeLab, project: Path
) -> None:
    folder = f"{lab.shared}/tiny"
    order = Order(folder, python=sys.executable, pip_options="--no-index")
    said: list[str] = []
    assert push(lab.hosts, order, pack(project), said.append) == 0, said
    ask = [f"{folder}/.venv/bin/python", "-c", "import tiny; print(tiny.word)"]
    assert {lab.ssh(host.name, *ask).stdout for host in lab.hosts} == {"first\n"}


def test_a_host_where_it_fails_is_named_with_the_reason(lab: PracticeLab, project: Path) -> None:
    lab.inside("node1", "touch", f"{lab.local}/taken")
    order = Order(f"{lab.local}/taken/x", with_environment=False)
    said: list[str] = []
    assert push(lab.hosts[:2], order, pack(project), said.append) == 1
    assert any(line.startswith("[node1] failed:") and "taken" in line for line in said)
    assert f"[node0] {lab.local}/taken/x/code" in said
