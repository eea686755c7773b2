"""The practice cluster: it comes up fast, behaves like machines, and leaves nothing behind."""

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.hosts.file import load_hosts
from paceline.hosts.ssh import login_failure, run_on
from paceline.lab import cluster as practice
from paceline.lab import state as lab_state
from tests.cluster.conftest import PracticeLab, Result

pytestmark = pytest.mark.cluster


def test_every_host_has_its_own_name_address_and_processes(lab: PracticeLab) -> None:
    for number, host in enumerate(lab.hosts):
        seen = lab.ssh(host.name, "sh", "-c", "hostname; ip -4 -brief address show eth0; ls /proc")
        lines = seen.stdout.splitlines()
        assert lines[0] == f"node{number}"
        assert f"{host.address}/24" in lines[1]
        processes = [int(word) for word in lines[2:] if word.isdecimal()]
        assert min(processes) == 1 and len(processes) < 20


def test_hosts_find_each_other_by_name_and_keep_this_machines_names_alone(
    lab: PracticeLab,
) -> None:
    found = lab.ssh("node1", "getent", "hosts", "node3")
    assert found.stdout.split()[0] == lab.hosts[3].address
    assert "node3" not in Path("/etc/hosts").read_text(encoding="utf-8")


def test_hosts_share_files_except_for_one_directory_of_their_own(lab: PracticeLab) -> None:
    lab.ssh("node0", "sh", "-c", f"echo all > {lab.shared}/note; echo mine > {lab.local}/note")
    assert lab.ssh("node1", "cat", f"{lab.shared}/note").stdout == "all\n"
    assert lab.ssh("node1", "test", "-e", f"{lab.local}/note").code == 1
    assert (lab.local_of("node0") / "note").read_text(encoding="ascii") == "mine\n"


def test_a_host_with_another_key_than_the_known_one_is_refused(
    lab: PracticeLab, tmp_path: Path
) -> None:
    swapped = tmp_path / "known_hosts"
    first, second = lab.hosts[0].address, lab.hosts[1].address
    text = (lab.directory / "known_hosts").read_text(encoding="ascii")
    swapped.write_text(text.replace(f"{first},", "x,").replace(f"{second},", f"{first},"))
    hosts = load_hosts(
        lab.write_hosts(tmp_path / "hosts.yaml", 1, node0={"known_hosts": str(swapped)})
    )
    failure = login_failure(run_on(hosts.hosts[0], ["true"]))
    assert failure is not None and "host key" in failure.what


def test_keys_are_readable_by_their_owner_alone(lab: PracticeLab) -> None:
    private = [lab.directory / "keys/user", *lab.directory.glob("hosts/*/host_key")]
    assert len(private) == 5
    for key in private:
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(lab.directory.stat().st_mode) == 0o700


def test_sshd_listens_inside_the_lab_only(lab: PracticeLab) -> None:
    listening = subprocess.run(["ss", "-tln"], capture_output=True, text=True, check=True).stdout
    assert "10.77." not in listening
    inside = lab.inside("node0", "ss", "-tlnH").stdout.split()
    assert f"{lab.hosts[0].address}:22" in inside and "0.0.0.0:22" not in inside


def test_a_host_that_is_switched_off_comes_back_with_its_files(lab: PracticeLab) -> None:
    lab.ssh("node2", "sh", "-c", f"echo kept > {lab.local}/kept")
    lab.power_off("node2")
    assert lab_state.holder(practice.read_lab(lab.directory), "node2") is None
    lab.power_on("node2")
    assert lab.ssh("node2", "cat", f"{lab.local}/kept").stdout == "kept\n"


def test_a_cut_link_is_silent_until_it_is_mended(lab: PracticeLab) -> None:
    lab.cut("node3")
    host = lab.hosts[3]
    assert run_on(host, ["true"], timeout_seconds=2).code == 255
    lab.mend("node3")
    assert run_on(host, ["hostname"]).stdout == "node3\n"


def test_up_twice_says_so_and_leaves_the_lab_alone(
    lab: PracticeLab, command: Callable[..., Result]
) -> None:
    again = command("lab", "up", "--dir", str(lab.directory))
    assert again.returncode == 2
    assert "is up already" in again.stderr and "lab down" in again.stderr
    assert lab.ssh("node0", "true").code == 0


def test_a_directory_that_is_no_lab_is_never_emptied(
    command: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "thesis.txt").write_text("mine", encoding="ascii")
    refused = command("lab", "up", "--dir", str(tmp_path))
    assert refused.returncode == 2 and "is no lab" in refused.stderr
    assert command("lab", "down", "--dir", str(tmp_path)).returncode == 0
    assert (tmp_path / "thesis.txt").exists()


def test_up_and_down_from_the_command_line_leave_nothing(
    command: Callable[..., Result], tmp_path: Path
) -> None:
    directory = tmp_path / "lab"
    links_before = _interfaces()
    made = command("lab", "up", "--hosts", "2", "--link", "100Mbit", "--dir", str(directory))
    assert made.returncode == 0, made.stderr
    hosts = Path(made.stdout.strip())
    said = command("hosts", "run", "--hosts", str(hosts), "--", "hostname")
    assert sorted(said.stdout.splitlines()) == ["[node0] node0", "[node1] node1"]
    assert command("lab", "down", "--dir", str(directory)).returncode == 0
    _assert_nothing_left(directory, links_before)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("after_seconds", [0.15, 0.3])
def test_an_interrupted_up_is_cleaned_up(
    command: Callable[..., Result], tmp_path: Path, how: signal.Signals, after_seconds: float
) -> None:
    directory = tmp_path / "lab"
    links_before = _interfaces()
    words = [sys.executable, "-m", "paceline.cli", "lab", "up", "--hosts", "4"]
    with subprocess.Popen([*words, "--dir", str(directory)], stderr=subprocess.DEVNULL) as up:
        while up.poll() is None and not (directory / lab_state.STATE_NAME).exists():
            time.sleep(0.005)
        time.sleep(after_seconds)
        os.kill(up.pid, how)
    assert command("lab", "down", "--dir", str(directory)).returncode == 0
    _assert_nothing_left(directory, links_before)


def test_up_after_a_lab_that_died_starts_afresh(
    command: Callable[..., Result], tmp_path: Path
) -> None:
    directory = tmp_path / "lab"
    assert command("lab", "up", "--hosts", "1", "--dir", str(directory)).returncode == 0
    for pid in lab_state.processes(directory):
        os.kill(pid, signal.SIGKILL)
    while lab_state.processes(directory):
        time.sleep(0.01)
    again = command("lab", "up", "--hosts", "1", "--dir", str(directory))
    assert again.returncode == 0, again.stderr
    assert command("lab", "down", "--dir", str(directory)).returncode == 0


def test_missing_programs_are_named_with_their_packages(
    command: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from paceline.errors import UserError

    monkeypatch.setitem(practice._PACKAGES, "no-such-program", "some-package")
    with pytest.raises(UserError) as caught:
        practice.up(1, None, tmp_path / "lab", lambda _text: None)
    assert "no-such-program" in caught.value.what
    assert "apt install some-package" in caught.value.fix


def test_the_lab_goes_when_the_tests_are_killed(tmp_path: Path) -> None:
    test = tmp_path / "test_waits.py"
    test.write_text(
        "import time\nfrom tests.cluster.conftest import *\n"
        "def test_waits(lab):\n    print(lab.directory, flush=True)\n    time.sleep(60)\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", str(test)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
    ) as tests:
        assert tests.stdout is not None
        directory = Path(next(line for line in tests.stdout if "paceline-test-lab" in line).strip())
        assert lab_state.processes(directory)
        tests.kill()
    deadline = time.monotonic() + 20
    while directory.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not directory.exists() and not lab_state.processes(directory)


def _interfaces() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir()}


def _assert_nothing_left(directory: Path, links_before: set[str]) -> None:
    assert not directory.exists()
    assert not lab_state.processes(directory)
    assert str(directory) not in Path("/proc/mounts").read_text(encoding="utf-8")
    # Another lab may start or end beside this test, so only what is new and ours counts.
    assert not {name for name in _interfaces() - links_before if name.startswith("paceline")}


def test_down_keeps_runs_unless_told_and_says_what_it_does(
    command: Callable[..., Result], tmp_path: Path
) -> None:
    directory = tmp_path / "lab"
    links_before = _interfaces()
    words = ["--dir", str(directory)]
    assert command("lab", "up", "--hosts", "1", *words).returncode == 0
    recipes = [directory / "shared" / "a", directory / "hosts" / "node0" / "local" / "b"]
    for run in recipes:
        run.mkdir()
        (run / "recipe.yaml").write_text("steps: 1\n", encoding="ascii")
    ended = command("lab", "down", *words)
    assert ended.returncode == 0, ended.stderr
    assert f"{directory}/shared (1 run)" in ended.stderr
    assert f"{directory}/hosts/node0/local (1 run)" in ended.stderr
    assert f"paceline lab down --dir {directory} --delete-runs" in ended.stderr
    assert not (directory / "keys").exists()

    again = command("lab", "up", "--hosts", "1", *words)
    assert again.returncode == 0, again.stderr
    seen = command(
        "hosts", "run", "--hosts", again.stdout.strip(), "--", "ls", f"{directory}/local"
    )
    assert seen.stdout == "[node0] b\n"
    gone = command("lab", "down", *words, "--delete-runs")
    assert "and all runs in its directories" in gone.stderr
    _assert_nothing_left(directory, links_before)
