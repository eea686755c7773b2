"""The program that the doctor sends to hosts, run here as it runs there."""

import ast
import hashlib
import json
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.doctor import probe as doctor_probe
from paceline.doctor.session import _BOOTSTRAP


class Probe:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", _BOOTSTRAP],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        program = Path(doctor_probe.__file__).read_text(encoding="utf-8")
        assert self.process.stdin is not None
        self.process.stdin.write(f"{len(program.encode())}\n{program}")

    def ask(self, do: str, **question: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, **question}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line.startswith(doctor_probe.MARK)
        return json.loads(line[len(doctor_probe.MARK) :])


@pytest.fixture
def probe() -> Iterator[Probe]:
    probe = Probe()
    with probe.process:
        yield probe


def test_it_needs_nothing_but_the_standard_library() -> None:
    program = Path(doctor_probe.__file__).read_text(encoding="utf-8")
    code = (
        f"import sys\nsys.path[:] = [p for p in sys.path if 'site-packages' not in p]\n{_BOOTSTRAP}"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        input=f"{len(program.encode())}\n{program}" + '{"do": "clock"}\n',
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert '"time"' in done.stdout


def test_an_old_python_can_read_it() -> None:
    program = Path(doctor_probe.__file__).read_text(encoding="utf-8")
    ast.parse(program, feature_version=(3, 7))


def test_facts_say_what_this_machine_is(probe: Probe) -> None:
    facts = probe.ask("facts", data=None, data_home=None, torch_trial=None)
    here = ".".join(str(part) for part in sys.version_info[:3])
    assert facts["python"] == here and facts["torch"] and facts["paceline"]
    assert facts["code"] == doctor_probe.code_fingerprint("paceline")
    assert facts["addresses"]["127.0.0.1"] == "lo"


@pytest.fixture
def copied_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package as a host has it, under another name."""
    source, copy = Path(doctor_probe.__file__).parents[1], tmp_path / "copied_paceline"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.syspath_prepend(str(tmp_path))
    return copy


def test_hosts_differ_in_code_if_they_differ_in_any_file_that_is_executed(
    copied_code: Path,
) -> None:
    files = [path for path in copied_code.rglob("*") if path.is_file()]
    kinds = {path.suffix: path for path in files}
    assert {".py", ".yaml", ".c", ".h", ".js", ".css", ".html"} <= set(kinds)
    before = doctor_probe.code_fingerprint(copied_code.name)
    for path in kinds.values():
        text = path.read_bytes()
        path.write_bytes(text + b"\n")
        assert doctor_probe.code_fingerprint(copied_code.name) != before, path.name
        path.write_bytes(text)
    assert doctor_probe.code_fingerprint(copied_code.name) == before
    (copied_code / "kernels" / "common.h").rename(copied_code / "kernels" / "other.h")
    assert doctor_probe.code_fingerprint(copied_code.name) != before


def test_what_python_and_editors_leave_behind_is_no_difference(copied_code: Path) -> None:
    before = doctor_probe.code_fingerprint(copied_code.name)
    assert before == doctor_probe.code_fingerprint("paceline")
    (copied_code / "__pycache__").mkdir()
    (copied_code / "__pycache__" / "files.cpython-311.pyc").write_bytes(b"compiled")
    (copied_code / ".files.py.swp").write_bytes(b"open in an editor")
    assert doctor_probe.code_fingerprint(copied_code.name) == before


def test_facts_of_data_come_from_its_card(probe: Probe, pictures: Path) -> None:
    question = {"data_home": str(pictures.parent), "torch_trial": None}
    found = probe.ask("facts", data=pictures.name, **question)["data"]
    assert found["path"] == str(pictures) and found["workload"] == "cifar10"
    assert found["bytes"] > 1e6
    assert probe.ask("facts", data="none", **question)["data"]["error"] == "not there"


def test_names_are_resolved_or_empty(probe: Probe) -> None:
    names = probe.ask("resolve", names=["localhost", "no-such-host.invalid"])["names"]
    assert set(names["localhost"]) <= {"127.0.0.1", "::1"} and names["localhost"]
    assert names["no-such-host.invalid"] == []


def test_marks_are_seen_by_others_and_removed(probe: Probe, tmp_path: Path) -> None:
    run = str(tmp_path / "not" / "yet")
    wrote = probe.ask("write", run=run, mark="t", name="a")
    assert wrote["path"] == str(tmp_path) and wrote["free_bytes"] > 0
    assert probe.ask("look", mark="t", names=["a", "b"], seconds=0.0) == {"seen": ["a"]}
    probe.ask("clean")
    assert list(tmp_path.iterdir()) == []


def test_marks_are_removed_when_the_doctor_is_gone(tmp_path: Path) -> None:
    probe = Probe()
    with probe.process:
        probe.ask("write", run=str(tmp_path), mark="t", name="a")
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_way_is_tried_and_measured(probe: Probe) -> None:
    token = secrets.token_hex(doctor_probe.TOKEN_BYTES)
    door = probe.ask("listen", address="127.0.0.1", token=token)
    where = {"address": "127.0.0.1", "port": door["port"], "token": token}
    reached = probe.ask("connect", **where)
    assert reached["interface"] == "lo" and 0 < reached["round_trip_seconds"] < 1
    assert probe.ask("send", seconds=0.1, **where)["bits_per_second"] > 1e7


def test_who_does_not_know_the_token_is_not_served(probe: Probe) -> None:
    token = secrets.token_hex(doctor_probe.TOKEN_BYTES)
    door = probe.ask("listen", address="127.0.0.1", token=token)
    other = secrets.token_hex(doctor_probe.TOKEN_BYTES)
    refused = probe.ask("connect", address="127.0.0.1", port=door["port"], token=other)
    assert "error" in refused


def test_a_foreign_address_cannot_be_listened_on(probe: Probe) -> None:
    token = secrets.token_hex(doctor_probe.TOKEN_BYTES)
    assert "error" in probe.ask("listen", address="203.0.113.1", token=token)


def test_a_failing_question_is_answered_and_the_next_works(probe: Probe) -> None:
    assert "KeyError" in probe.ask("connect")["failed"]
    assert "time" in probe.ask("clock")


def test_the_users_code_is_found_where_it_is_the_same(probe: Probe, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text("x = 1\n", encoding="ascii")
    known = hashlib.sha256(b"x = 1\n").hexdigest()[:16]
    project = {"root": str(tmp_path), "name": "mine", "files": {"task.py": known}}
    question = {"data": None, "data_home": None, "torch_trial": None}
    found = probe.ask("facts", **question, project=project)
    assert found["project"] == {"path": str(tmp_path), "different": []}
    (tmp_path / "task.py").write_text("x = 2\n", encoding="ascii")
    found = probe.ask("facts", **question, project=project)
    assert found["project"]["different"] == ["task.py"]
    nowhere = {**project, "root": str(tmp_path / "nowhere")}
    assert probe.ask("facts", **question, project=nowhere)["project"]["path"] is None
    data = {**question, "data": str(tmp_path / "task.py")}
    assert probe.ask("facts", **data, project=project)["data"]["bytes"] == 6
