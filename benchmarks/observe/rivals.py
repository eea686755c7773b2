"""Other tools on the same bottlenecks: TraceML and gpuprof, each as its own page says to use it.

What a tool answers is right if it names what was injected, in whatever words, and if it finds
nothing where nothing was. What each said is printed, and kept whole with `--keep`.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.observe.injections import (
    INJECTIONS,
    before_start,
    beside_steps,
    storage_path,
)
from benchmarks.observe.lab_run import FOLDER, MARK, WORKERS, find_worker, practice_lab
from paceline.lab import cluster as practice

ANSWERS = "answers.jsonl"
_SCRIPTS = ("ddp", "hugging_face")
_MOST_SECONDS = 150.0
_LEAST_STEPS = 24
"""TraceML is sure of itself from 20 steps on."""
_PORT = 29511
_LOOP = """        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
_RIGHT = {
    "none": r"(?i)compute.bound|balanced|no.clear|no major|^$",
    "loader": r"(?i)input|data.?load",
    "100Mbit": r"(?i)network|communicat|all.?reduce|bandwidth",
    "1Gbit": r"(?i)network|communicat|all.?reduce|bandwidth",
    "rank": r"(?i)straggler|slow(est)? rank|rank imbalance|skew",
    "disk": r"(?i)checkpoint(?!ing)|disk|storage|\bsav",
    "load": r"(?i)other (program|process)|contention|oversubscri|high.cpu",
}


@dataclass(frozen=True)
class Rival:
    name: str
    change: Callable[[str, str], str]
    """A script's text as the tool wants it, by the script's name."""
    words: Callable[[str, int, str, Path], list[str]]
    """How it is started: with this Python, as this host, meeting at that address, logging there."""
    answer: Callable[[str, Path], str]
    """What it says in the end: with this Python, from its folder."""


def main(given: argparse.Namespace) -> None:
    scripts = given.scripts.split(",") if given.scripts else list(_SCRIPTS)
    kinds = given.injections.split(",") if given.injections else list(INJECTIONS)
    python = given.python or sys.executable
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="paceline-rivals-"))
        hosts = stack.enter_context(practice_lab(Path(name) / "lab"))
        folder = given.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        scores = list(_ask_all(hosts.parent, folder, python, scripts, kinds))
    for rival in RIVALS:
        own = [is_right for tool, is_right in scores if tool == rival.name]
        print(f"{rival.name}: {sum(own)} of {len(own)} right")


def _ask_all(
    lab: Path, folder: Path, python: str, scripts: list[str], kinds: list[str]
) -> Iterator[tuple[str, bool]]:
    for kind in kinds:
        for script in scripts:
            for rival in RIVALS:
                place = folder / f"{rival.name}-{script}-{kind}"
                said = _ask(rival, lab, place, python, (script, kind))
                is_right = re.search(_RIGHT[kind], said) is not None
                told = {"tool": rival.name, "script": script, "injection": kind}
                with (folder / ANSWERS).open("a", encoding="utf-8") as file:
                    file.write(json.dumps({**told, "is_right": is_right, "said": said}) + "\n")
                shown = " ".join(said.split())[:160]
                state = "right" if is_right else "wrong"
                print(f"{script:<13} {kind:<8} {rival.name:<8} {state:<6} {shown}", flush=True)
                yield rival.name, is_right


def _ask(rival: Rival, lab: Path, place: Path, python: str, what: tuple[str, str]) -> str:
    script, name = what
    kind = INJECTIONS[name]
    place.mkdir()
    for path in FOLDER.glob("*.py"):
        (place / path.name).write_text(rival.change(path.stem, path.read_text(encoding="utf-8")))
    arguments = ["--steps", str(max(kind.num_steps, _LEAST_STEPS)), *kind.arguments]
    if kind.saves:
        arguments += ["--save", str(storage_path(lab))]
    with ExitStack() as stack:
        stack.enter_context(before_start(kind, lab))
        started = [
            _start(rival, lab, place, python, (rank, f"{script}.py", arguments))
            for rank in range(len(WORKERS))
        ]
        if kind.slows_rank or kind.num_busy:
            found = [find_worker(str(place), rank, started[rank]) for rank in range(len(WORKERS))]
            stack.enter_context(beside_steps(kind, found))
        for process in started:
            _wait(process)
    return rival.answer(python, place)


def _wait(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(_MOST_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _start(
    rival: Rival, lab: Path, place: Path, python: str, what: tuple[int, str, list[str]]
) -> "subprocess.Popen[bytes]":
    rank, script, arguments = what
    address = practice.read_lab(lab).address(WORKERS[0])
    words = rival.words(python, rank, address, place)
    separator = ["--args"] if rival.name == "TraceML" else []
    variables = [f"{MARK}={place}", "GLOO_SOCKET_IFNAME=eth0"]
    inside = ["env", "-C", str(place), *variables, *words, script, *separator, *arguments]
    with (place / f"said-{rank}.txt").open("wb") as file:
        command = practice.enter(lab, WORKERS[rank], inside)
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)


def _with_traceml(script: str, text: str) -> str:
    """Its page: three lines for a plain loop, none for Hugging Face's Trainer."""
    if script != "ddp":
        return text
    text = text.replace("import torch\n", "import torch\nimport traceml_ai as traceml\n", 1)
    text = text.replace('("gloo")\n', '("gloo")\n    traceml.init(mode="auto")\n')
    inner = "".join(f"    {line}\n" for line in _LOOP.splitlines())
    assert _LOOP in text
    return text.replace(_LOOP, f"        with traceml.trace_step(model.module):\n{inner}")


def _start_traceml(python: str, rank: int, address: str, place: Path) -> list[str]:
    tool = str(Path(python).with_name("traceml"))
    meeting = [f"--nnodes={len(WORKERS)}", f"--node-rank={rank}", f"--master-addr={address}"]
    answers = ["--aggregator-bind-host", address, "--finalize-timeout-sec", "60"]
    kept = ["--run-name", "run", "--logs-dir", str(place / "logs")]
    return [tool, "run", *meeting, f"--master-port={_PORT}", *answers, *kept]


def _answer_of_traceml(python: str, place: Path) -> str:
    found = sorted(place.glob("logs/**/final_summary.json"))
    if not found:
        return f"(no answer) {_said(place)[-200:]}"
    told = json.loads(found[0].read_text(encoding="utf-8"))["primary_diagnosis"]
    return f"{told.get('kind')}: {told.get('summary') or told.get('reason') or ''}"


def _said(place: Path) -> str:
    """By the first host."""
    return (place / "said-0.txt").read_text(encoding="utf-8", errors="replace")


def _with_gpuprof(script: str, text: str) -> str:
    """Its page: two lines around everything."""
    if '__name__ == "__main__"' not in text:
        return text
    text = text.replace("import torch\n", "import gpuprof\nimport torch\n", 1)
    return text.replace("\n    main()\n", '\n    with gpuprof.profile("run"):\n        main()\n')


def _start_gpuprof(python: str, rank: int, address: str, place: Path) -> list[str]:
    meeting = [f"--nnodes={len(WORKERS)}", f"--node-rank={rank}", f"--master-addr={address}"]
    start = [python, "-m", "torch.distributed.run", "--nproc-per-node=1"]
    return [*start, *meeting, f"--master-port={_PORT}"]


def _answer_of_gpuprof(python: str, place: Path) -> str:
    """What it is sure of, of one rank as it prints it and of the ranks side by side."""
    tool = [str(Path(python).with_name("gpuprof")), "insights", "gpuprof.db", "--group", "none"]
    asked = subprocess.run(tool, cwd=place, capture_output=True, text=True, check=False)
    (place / "group.txt").write_text(asked.stdout + asked.stderr, encoding="utf-8")
    said = _said(place)
    if "gpuprof · " not in said:
        return f"(no answer) {said[-200:]}"
    insights = (said + asked.stdout).splitlines()
    return " ".join(line.strip() for line in insights if re.search(r"\[(HIGH|MED)", line))


RIVALS = (
    Rival("TraceML", _with_traceml, _start_traceml, _answer_of_traceml),
    Rival("gpuprof", _with_gpuprof, _start_gpuprof, _answer_of_gpuprof),
)
