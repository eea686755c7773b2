"""A script on hosts: what it is made of, what it prints, what went wrong, what was lost."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.doctor import files as doctor_files
from paceline.doctor import probe
from paceline.errors import UserError
from paceline.launch.failures import Failure, final_words, is_second_hand
from paceline.launch.hang import RankState
from paceline.launch.script.remote.naming import name_failure
from paceline.launch.script.remote.output import split_lines, split_rank, with_rank
from paceline.launch.script.remote.progress import Progress, loss_in_words, newest, read_progress
from paceline.launch.script.remote.project import find_project

ECHO = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "train.py", line 23, in <module>
[rank0]:     socket.fetch(loss.backward())
[rank0]: RuntimeError: [pair.cc:553] Connection closed by peer [10.0.0.2]:48853"""
OWN = """\
Traceback (most recent call last):
  File "/x/torch/distributed/rendezvous.py", line 23, in socket
    raise ValueError
ValueError: a label is out of range"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "src" / "parts").mkdir(parents=True)
    files = {
        "src/train.py": "import json\nimport torch\nimport missing_one\nfrom parts import net\n"
        "try:\n    import missing_two\nexcept ImportError:\n    pass\nimport config\n",
        "src/config.py": "import missing_three\n",
        "src/parts/__init__.py": "",
        "src/parts/net.py": "from . import layers\n",
        "src/parts/layers.py": "",
        "src/unused.py": "import never_looked_at\n",
        "small.yaml": "lr: 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_script_is_its_own_modules_and_the_files_that_its_arguments_name(project: Path) -> None:
    found = find_project(["src/train.py", "--config=small.yaml", "--lr", "1"], project)
    assert found.root == project and found.words[0] == "src/train.py"
    question = found.question()
    assert sorted(question["files"]) == [
        "small.yaml",
        "src/config.py",
        "src/parts/__init__.py",
        "src/parts/layers.py",
        "src/parts/net.py",
        "src/train.py",
    ]
    assert question["modules"] == ["json", "missing_one", "missing_three", "torch"]


def test_a_module_that_a_host_lacks_and_a_file_that_differs_are_told(project: Path) -> None:
    question = find_project(["src/train.py"], project).question()
    missing = probe.missing_modules(question["modules"], question)
    assert missing == ["missing_one", "missing_three"]
    assert probe.project_facts(question) == {"path": str(project), "different": []}
    (project / "src" / "config.py").write_text("changed = 1\n", encoding="utf-8")
    facts = {"executable": "python3", "project": probe.project_facts(question)}
    row = doctor_files.judge_script({"a": facts})[0]
    assert row.state == "fail" and "src/config.py" in row.found and "--push" in row.remedy
    row = doctor_files.judge_modules({"a": {**facts, "missing_modules": missing}})[0]
    assert row.remedy == "install it there: python3 -m pip install missing_one missing_three"


def test_a_script_elsewhere_or_a_module_is_found_too(project: Path, tmp_path: Path) -> None:
    elsewhere = find_project([str(project / "src/train.py")], tmp_path / "src" / "parts")
    assert elsewhere.root == project / "src" and elsewhere.words == ("train.py",)
    module = find_project(["-m", "parts.net", "--lr", "1"], project / "src")
    assert module.script == "parts/net.py" and module.arguments == ("--lr", "1")
    assert "parts/layers.py" in module.question()["files"]


def test_a_script_that_is_not_python_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x = 1\nif x\n", encoding="utf-8")
    with pytest.raises(UserError, match="line 2"):
        find_project(["train.py"], tmp_path).question()
    with pytest.raises(UserError, match="there is no script"):
        find_project(["other.py"], tmp_path)


def test_libraries_are_compared_by_their_files(tmp_path: Path) -> None:
    here = probe.library_facts(thorough=False)
    assert here["libtorch_cpu.so"]["bytes"] > 1e6
    other = {**here, "libtorch_cpu.so": {**here["libtorch_cpu.so"], "hash": "another"}}
    assert doctor_files.judge_libraries({"a": {"libraries": here}})[0].state == "ok"
    hosts = {"a": {"libraries": here}, "b": {"libraries": here}, "c": {"libraries": other}}
    [row] = doctor_files.judge_libraries(hosts)
    assert row.where == "c" and row.state == "fail" and "libtorch_cpu.so" in row.found


@pytest.mark.parametrize("change", [lambda old: b"x" + old[1:], lambda old: old + b"x"])
def test_a_library_with_one_byte_changed_has_another_hash(
    tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "libnccl.so.2"
    path.write_bytes(bytes(10_000_000))
    before = probe._hash_of_parts(path, thorough=True)
    path.write_bytes(change(path.read_bytes()))
    assert probe._hash_of_parts(path, thorough=True) != before


def test_lines_carry_their_rank_and_bars_are_told_apart() -> None:
    assert split_rank(with_rank(3, b"a \x01 b").decode()) == (3, "a \x01 b")
    assert split_rank("of the agent") == (None, "of the agent")
    chunks = iter([b"one\ntw", b"o\n 10%|#\r 20%|##\r 30", b"%|###\rdone\nend"])
    assert list(split_lines(chunks)) == [
        (b"one", False),
        (b"two", False),
        (b" 20%|##", True),
        (b"done", False),
        (b"end", False),
    ]


def test_only_the_error_itself_tells_whether_another_process_was_gone() -> None:
    assert is_second_hand(ECHO) and not is_second_hand(OWN)
    assert final_words(OWN) == "ValueError: a label is out of range"


def test_who_left_early_is_named_and_not_who_noticed() -> None:
    left = RankState("b", 1, 5, "unexplained", None, 0.0, 0.0, ended="exit code 0")
    stays = RankState("a", 0, 5, "compute", None, 0.0, 0.0)
    cause = Failure("a", 0, 1, ECHO, state=stays)
    text = name_failure(cause, [stays, left], [])
    assert text.startswith("rank 1 on b after step 5: left early, with exit code 0")
    assert "rank 0 on a then failed: RuntimeError" in text
    assert name_failure(cause, [stays], []).startswith("rank 0 on a failed in compute at step 5")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried", "is out of memory in input"),
        ("OSError: [Errno 28] No space left on device", "because the disk is full in input"),
        ("ModuleNotFoundError: No module named 'x'", "needs a module that is not installed"),
    ],
)
def test_common_errors_are_named_with_what_to_do(message: str, said: str) -> None:
    state = RankState("a", 0, 5, "input", None, 0.0, 0.0)
    text = name_failure(Failure("a", 0, 1, message, state=state), [state], ["/data"])
    assert said in text and "\n  fix: " in text and message in text
    assert ("full there: /data" in text) == ("disk" in said)


def test_what_is_lost_counts_from_the_scripts_own_last_save(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    lines = [
        {"kind": "steps", "time": 1.0, "attempt": 1, "step": 120},
        {"kind": "checkpoint", "time": 2.0, "attempt": 1, "step": 120, "path": "/x/last.pt"},
        {"kind": "steps", "time": 3.0, "attempt": 1, "step": 140},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "events" / "rank-00000.jsonl").write_text(text, encoding="utf-8")
    known = newest([read_progress(tmp_path), Progress()])
    assert loss_in_words(known, 143) == (
        "the script last saved at step 120 (/x/last.pt): if it resumes from there, 23 of 143 steps "
        "are lost, else all of them"
    )
    assert "all 5 steps are lost" in loss_in_words(Progress(), 5)
    assert "no step is lost" in loss_in_words(Progress(), 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--hosts", "none.yaml", "t.py"], "there is no hosts file none.yaml"),
        (["--hosts", "h.yaml", "none.py"], "there is no script "),
        (
            ["--hosts", "h.yaml", "--", "torchrun", "t.py"],
            "starts the processes of a script itself",
        ),
        (["--hosts", "h.yaml", "--python", "x", "t.py"], "the hosts file says which Python"),
        (["--restarts", "2", "t.py"], "--restarts is for hosts"),
        (["--hosts", "h.yaml", "--restarts", "-1", "t.py"], "not a number from 0 on"),
    ],
)
def test_mistakes_are_told_in_one_message_before_any_login(
    tmp_path: Path, words: list[str], said: str
) -> None:
    (tmp_path / "h.yaml").write_text("hosts: [10.255.255.1]\n", encoding="utf-8")
    (tmp_path / "t.py").write_text("import torch\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "paceline.cli", "run", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert not (tmp_path / "runs").exists()
