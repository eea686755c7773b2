"""The report for programs: every figure under a name with its unit; what is not known is null."""

import json
import math
from dataclasses import asdict
from importlib import resources
from typing import Any

import numpy as np

from paceline.report.answers import answers
from paceline.report.comparison import Comparison
from paceline.report.facts.facts import Facts, Score
from paceline.report.facts.trend import in_groups
from paceline.report.render.heading import heading

REPORT_VERSION = 1
"""Raised when a field that `report.schema.json` names goes away or changes its meaning."""
_MOST_POINTS = 500


def render(facts: Facts) -> str:
    return dump(describe(facts) if facts.is_own else describe_log(facts))


def describe(facts: Facts) -> dict[str, Any]:
    learning = facts.learning
    return {
        **_head("run"),
        "run": str(facts.run),
        "workload": facts.settings.get("workload"),
        "state": facts.reason,
        "step": facts.step,
        "steps": facts.settings.get("steps"),
        "num_parameters": facts.num_parameters,
        "world_size": facts.world.size,
        "num_hosts": facts.world.num_hosts,
        "device": facts.begin.get("device"),
        "precision": facts.begin.get("precision"),
        "tf32": facts.begin.get("tf32"),
        "wall_seconds": facts.wall_seconds,
        "cpu_seconds": facts.world.cpu_seconds,
        "phase_seconds": facts.phases,
        "verdict": facts.verdict.word,
        "answers": [asdict(answer) for answer in answers(facts)],
        "scores": [_score(s) for s in [*learning.scores, *learning.train_scores]],
        "evaluations": [_score(score) for score in learning.evaluations],
        "curves": _curves(facts),
        "settings": facts.settings,
        "environment": facts.environment,
        "warnings": facts.warnings,
        "findings": [asdict(finding) for finding in facts.findings],
    }


def describe_log(facts: Facts) -> dict[str, Any]:
    """A log's curves stand in the figures of its answers."""
    told = [asdict(answer) for answer in answers(facts)]
    return {**_head("log"), "heading": heading(facts), "answers": told}


def render_comparison(compared: Comparison) -> str:
    return dump({**_head("comparison"), **asdict(compared)})


def render_no_run(code: int, text: str) -> str:
    """Of a script that never trained."""
    return dump({**_head("no-run"), "exit_code": code, "text": text})


def schema() -> str:
    """What the JSON form holds, as a JSON Schema."""
    file = resources.files("paceline.report.render") / "report.schema.json"
    return file.read_text(encoding="utf-8")


def _head(kind: str) -> dict[str, Any]:
    return {"report_version": REPORT_VERSION, "kind": kind}


def _score(score: Score) -> dict[str, Any]:
    return {"step": score.step, "split": score.split, **score.values, "signature": score.signature}


def _curves(facts: Facts) -> dict[str, list[float]]:
    rows = facts.rows
    if rows is None:
        return {}
    names = ("step", "loss", "rate", "gradient_norm")
    steps = rows["step"]
    return {name: in_groups(steps, rows[name], _MOST_POINTS)[1].tolist() for name in names}


def dump(content: Any) -> str:
    return json.dumps(_plain(content), indent=1, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    """JSON has no NaN, no numpy and no paths."""
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)
