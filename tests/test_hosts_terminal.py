"""What hosts and ssh print cannot drive the terminal of whoever reads it."""

import queue
from pathlib import Path

import pytest

from paceline.doctor.rows import Row, render
from paceline.hosts.file import Host
from paceline.hosts.ssh import Answer, login_failure
from paceline.launch.claim import Job
from paceline.launch.remote.fleet import Fleet
from paceline.launch.remote.link import HostLink
from paceline.launch.remote.program import Training
from paceline.recipe import load
from paceline.record.schema import RunDirectory
from paceline.terminal import printable

HOST = Host("a", "a", "a")
EVIL = "\x1b]0;owned\x07\x1b[2Jrm -rf\r\x9b31m"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain: 10 %, ü, 中\n\ttab", "plain: 10 %, ü, 中\n\ttab"),
        ("\x1b[31mred", "\\u001b[31mred"),
        ("a\rb\x00\x7f", "a\\u000db\\u0000\\u007f"),
        ("\x9b31m", "\\u009b31m"),
        ("right\u202eleft", "right\\u202eleft"),
    ],
)
def test_control_characters_become_visible(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_banner_of_ssh_and_an_answer_of_a_host_are_made_visible() -> None:
    failure = login_failure(Answer(HOST, 255, "", EVIL))
    assert failure is not None and "\x1b" not in str(failure)
    assert "\x1b" not in render([Row("a", "torch", "fail", EVIL, EVIL)])
    link = HostLink(HOST, {}, {}, queue.Queue())
    link.complaints = [EVIL]
    assert "\x1b" not in "".join(link.why_not())


def test_output_of_workers_reaches_neither_terminal_nor_log_as_it_is(tmp_path: Path) -> None:
    said: list[str] = []
    job = Job(load("cifar10-tiny", []), RunDirectory(tmp_path), 1, "paceline train cifar10-tiny")
    fleet = Fleet(Training(job), [HOST], said.append)
    fleet.note(fleet.links[0], EVIL)
    assert said[0].startswith("[a] \\u001b]0;owned\\u0007")
    assert "\x1b" not in (tmp_path / "logs" / "a.log").read_text(encoding="utf-8")
