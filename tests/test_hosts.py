"""The hosts file: what it may say, and how its mistakes are told."""

from pathlib import Path

import pytest

from paceline.errors import UserError
from paceline.hosts.file import Host, find_host, load_hosts
from paceline.hosts.ssh import Answer, login_failure, ssh_command


def write(folder: Path, text: str) -> Path:
    path = folder / "hosts.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def mistakes(folder: Path, text: str) -> str:
    with pytest.raises(UserError) as caught:
        load_hosts(write(folder, text))
    return caught.value.what


def test_settings_beside_the_list_hold_for_hosts_that_have_none(tmp_path: Path) -> None:
    text = """
        min: 1
        user: ubuntu
        key: keys/user
        hosts:
          - {name: a, address: 203.0.113.1, private_address: 10.0.0.1}
          - {name: b, address: 203.0.113.2, user: root, port: 2222, price_per_hour: 1.5}
    """
    file = load_hosts(write(tmp_path, text))
    first, second = file.hosts
    assert file.min == 1
    assert (first.user, first.private_address) == ("ubuntu", "10.0.0.1")
    assert (second.user, second.port, second.price_per_hour) == ("root", 2222, 1.5)
    assert second.private_address == "203.0.113.2"


def test_files_are_found_beside_the_hosts_file(tmp_path: Path) -> None:
    text = "{key: keys/user, known_hosts: ~/known, hosts: [{address: a}]}"
    host = load_hosts(write(tmp_path, text)).hosts[0]
    assert host.key == tmp_path / "keys/user"
    assert host.known_hosts == Path.home() / "known"


def test_a_bare_address_is_a_host(tmp_path: Path) -> None:
    hosts = load_hosts(write(tmp_path, "hosts: [gpu1, 10.0.0.2]")).hosts
    assert [(host.name, host.address) for host in hosts] == [
        ("gpu1", "gpu1"),
        ("10.0.0.2", "10.0.0.2"),
    ]


def test_names_of_digits_stay_as_they_are_written(tmp_path: Path) -> None:
    assert load_hosts(write(tmp_path, "hosts: [{name: 007, address: a}]")).hosts[0].name == "007"


def test_every_mistake_is_listed_at_once_with_its_line(tmp_path: Path) -> None:
    text = "hosts:\n  - name: a\n    adress: x\n  - {address: y, port: 99999}\nusr: me\n"
    said = mistakes(tmp_path, text)
    assert "4 mistakes" in said
    assert "line 5: there is no setting 'usr'; did you mean 'user'?" in said
    assert "line 3: there is no setting 'hosts.0.adress'; did you mean 'address'?" in said
    assert "line 2: 'hosts.0.address' is missing" in said
    assert "line 4: hosts.1.port" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hosts: []", "no hosts are listed"),
        ("hosts: [{name: a, address: x}, {name: a, address: y}]", "2 hosts are called 'a'"),
        (
            "hosts: [{name: a, address: x}, {name: b, address: x}]",
            "2 hosts have the private address 'x'",
        ),
        ("{min: 3, hosts: [a, b]}", "min is 3, but there are only 2 hosts"),
        ("hosts: [{address: '-oProxyCommand=evil'}]", "is not a host name"),
        ("hosts: [{address: 'a b'}]", "is not a host name"),
        ("hosts: [{address: a, user: '-l root'}]", "is not a login name"),
        ("hosts: [{name: a/b, address: a}]", "use letters, digits"),
        ("hosts: [{address: a, address: b}]", "given twice"),
        ("hosts: [{address: a, ssh_options: [StrictHostKeyChecking=no]}]", "always checked"),
        ("hosts: [{address: a, ssh_options: [nonsense]}]", "write options of ssh like"),
        ("hosts: [[a]]", "must be 'name: value' lines"),
        ("hosts: a", "hosts"),
        ("hosts: [{address: a, devices: 0}]", "hosts.0.devices"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, said: str) -> None:
    assert said in mistakes(tmp_path, text)


def test_a_missing_file_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_hosts(tmp_path / "hosts.yaml")
    assert "paceline hosts import" in caught.value.fix


def test_hosts_are_found_by_name_or_number(tmp_path: Path) -> None:
    file = load_hosts(write(tmp_path, "hosts: [a, b, '0']"))
    assert find_host(file, "1").name == "b"
    assert find_host(file, "b").name == "b"
    assert find_host(file, "0").name == "0"
    with pytest.raises(UserError) as caught:
        find_host(file, "3")
    assert "from 0 to 2" in caught.value.fix


def test_remote_words_are_quoted_for_the_shell_there() -> None:
    command = ssh_command(Host("a", "addr", "addr"), ["echo", "a b", "$HOME", "x;y", "it's"])
    assert command[-1] == """echo 'a b' '$HOME' 'x;y' 'it'"'"'s'"""
    assert command[-2] == "addr" and command[-3] == "--"


def test_no_question_is_asked_and_silence_is_noticed() -> None:
    command = ssh_command(Host("a", "addr", "addr", user="me", port=2222), ["true"])
    assert {"BatchMode=yes", "ServerAliveInterval=5"} <= set(command)
    assert command[command.index("-p") + 1] == "2222" and "me@addr" in command


def test_a_file_of_host_keys_is_the_only_one_believed() -> None:
    command = ssh_command(Host("a", "addr", "addr", known_hosts=Path("/k/100%")), ["true"])
    assert 'UserKnownHostsFile="/k/100%%"' in command
    assert "StrictHostKeyChecking=yes" in command and "GlobalKnownHostsFile=/dev/null" in command


@pytest.mark.parametrize(
    ("stderr", "what", "fix"),
    [
        ("root@x: Permission denied (publickey).", "login as you is refused", "authorized_keys"),
        ("Host key verification failed.", "host key is not known", "compare the fingerprint"),
        ("@ REMOTE HOST IDENTIFICATION HAS CHANGED! @", "not the one known", "ssh-keygen -R addr"),
        ("connect to host x port 22: Connection refused", "nothing listens", "start sshd"),
        ("connect to host x port 22: Connection timed out", "does not answer", "firewall"),
        ("Could not resolve hostname x", "is not known here", "IP address"),
        ("Something quite new", "Something quite new", "try by hand: ssh"),
    ],
)
def test_failures_of_ssh_are_told_with_a_remedy(stderr: str, what: str, fix: str) -> None:
    failure = login_failure(Answer(Host("a", "addr", "addr"), 255, "", stderr))
    assert failure is not None
    assert what in failure.what and fix in failure.fix


def test_a_failing_command_is_no_failure_of_ssh() -> None:
    assert login_failure(Answer(Host("a", "addr", "addr"), 1, "", "Permission denied")) is None
