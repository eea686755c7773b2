"""Checks of whole trainings: a task trains, evaluates and goes on; many processes are one."""

import math
import subprocess
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from paceline.selftest.bench import (
    Bench,
    call_paceline,
    losses_of,
    report_figures,
    require,
    train,
)
from paceline.task_finder import task_names
from paceline.train.measure.evaluator import evaluate
from paceline.world import settle_this_process

_SAME_LOSS = {"fp32": 1e-3, "fp16": 2e-2, "bf16": 5e-2}
"""How far a resumed run may be from one in one go: devices add in any order, processors do not."""

_WORLDS_AGREE = 1e-4


def trains_and_resumes(bench: Bench, task: str, precision: str) -> str:
    """Six steps in one go and in two goes; the scores of what was stored."""
    every = ["log.every_steps=1", "evaluate.every_steps=6", "checkpoint.every_steps=3"]
    loaded = bench.recipe(task, "steps=6", f"precision={precision}", *every)
    whole, halves = bench.new_run(), bench.new_run()
    at_once = train(loaded, whole, bench.device)
    train(loaded, halves, bench.device, until_step=3)
    in_two = train(loaded, halves, bench.device)
    losses, resumed = losses_of(at_once), losses_of(in_two)
    require(len(resumed) == 6, f"{len(resumed)} losses of 6 steps were recorded")
    require(all(map(math.isfinite, losses)), f"losses are not finite: {losses}")
    _refuse_other_losses(losses, resumed, _tolerance(bench, precision))
    chosen = next(event["precision"] for event in in_two if event["kind"] == "begin")
    require(chosen == precision, f"{precision} was asked for, and {chosen} was taken")
    splits = {event["split"] for event in in_two if event["kind"] == "score"}
    require(splits == {"validation", "train"}, f"scores of {sorted(splits)} only")
    stored = evaluate(halves, "newest", "validation")
    require(stored["step"] == 6, f"the newest checkpoint is of step {stored['step']}")
    return f"loss {losses[0]:.3f} to {losses[-1]:.3f}{_scales(in_two)}"


def _tolerance(bench: Bench, precision: str) -> float:
    return 0.0 if bench.device.type == "cpu" else _SAME_LOSS[precision]


def _refuse_other_losses(one: list[float], other: list[float], tolerance: float) -> None:
    for step, (a, b) in enumerate(zip(one, other, strict=True), start=1):
        require(
            abs(a - b) <= tolerance * abs(a),
            f"step {step}: loss {a:.7g} in one go, {b:.7g} in two (allowed: {tolerance:g})",
        )


def _scales(events: list[dict[str, Any]]) -> str:
    scales = [event["loss_scale"] for event in events if "loss_scale" in event]
    num_halved = sum(later < earlier for earlier, later in pairwise(scales))
    return f", loss scale {scales[-1]:g}, halved {num_halved} times" if scales else ""


def worlds_agree(bench: Bench, task: str) -> str:
    """The launcher's own processes: two, on two devices, against one."""
    settings = ["steps=8", "log.every_steps=1", "precision=fp32", "tf32=false"]
    settings += ["evaluate.every_steps=null", "checkpoint.every_steps=null"]
    losses = []
    for num_procs in (1, 2):
        run = f"world-{task}-{num_procs}"
        words = bench.settings(task, *settings)
        call_paceline(bench, "train", *words, "--run", run, "--procs", str(num_procs))
        losses.append(recorded_losses(bench, run))
    worst = max(abs(a - b) / abs(a) for a, b in zip(*losses, strict=True))
    require(
        worst <= _WORLDS_AGREE, f"losses of 1 and 2 processes differ by {worst:.2g} of the loss"
    )
    return f"losses of 1 and 2 processes differ by {worst:.1g} at most"


def recorded_losses(bench: Bench, run: str) -> list[float]:
    rows = call_paceline(bench, "log", run).splitlines()
    column = rows[0].split(",").index("loss")
    return [float(row.split(",")[column]) for row in rows[1:] if row.split(",")[column]]


def command_line_reports(bench: Bench) -> str:
    """`train`, `evaluate` and `report` as they are typed; with a device, what its driver told."""
    task = task_names()[0]
    settings = ["steps=40", "log.every_steps=5", "log.probe_seconds=0.3", "evaluate.batch=50"]
    settings += ["evaluate.every_steps=20", "checkpoint.every_steps=20"]
    run = Path("command-line")
    words = bench.settings(task, *settings)
    call_paceline(bench, "train", *words, "--run", str(run), "--procs", "1")
    call_paceline(bench, "evaluate", str(run))
    busy = report_figures(bench, run)["busy"]
    of = str(busy.get("utilisation_of", "nothing"))
    if bench.device.type == "cuda":
        require("device" in of.lower() or "gpu" in of.lower(), f"the report has the use of: {of}")
    return f"utilisation of {of}: {100 * busy.get('utilisation', math.nan):.0f} %"


def demonstration_runs(bench: Bench) -> str:
    """What `make demo` runs, from a folder of its own."""
    modules = [f"paceline.tasks.{task}.demo" for task in task_names()]
    found = [module for module in modules if find_spec(module) is not None]
    for module in found:
        _run_module(bench, module)
    return f"{len(found)} of {len(modules)} tasks have one"


def _run_module(bench: Bench, module: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", module],
        cwd=bench.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    told = "\n".join(result.stderr.strip().splitlines()[-8:])
    require(result.returncode == 0, f"exit code {result.returncode}\n{told}")


def repeats_itself(bench: Bench, task: str) -> str:
    """Two runs with `deterministic`; cuBLAS wants CUBLAS_WORKSPACE_CONFIG for it, from the start of
    the process on."""
    settle_this_process(deterministic=True)
    try:
        one, other = (deterministic_trace(bench, task) for _ in range(2))
    finally:
        settle_this_process()
        torch.use_deterministic_algorithms(False)
    require(one == other, f"two runs gave {one} and {other}")
    return f"{len(one[0])} losses and {len(one) - 1} scores, the same bits twice"


def deterministic_trace(bench: Bench, task: str) -> list[Any]:
    """Losses and scores of a short run with `deterministic`, to be compared with another's."""
    every = ["log.every_steps=1", "evaluate.every_steps=2", "deterministic=true"]
    events = train(bench.recipe(task, "steps=4", *every), bench.new_run(), bench.device)
    return [losses_of(events), *(event["scores"] for event in events if event["kind"] == "score")]
