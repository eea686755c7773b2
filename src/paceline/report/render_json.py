"""The report for programs: every figure under a name with its unit; what is not known is null."""

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np

from paceline.report.answer import Answer
from paceline.report.questions import answers
from paceline.report.scaling import Comparison
from paceline.report.summary import Score, Summary
from paceline.report.trend import in_groups

_MOST_POINTS = 500


def render(summary: Summary) -> str:
    return dump(describe(summary))


def describe(summary: Summary) -> dict[str, Any]:
    return {
        "run": str(summary.run),
        "workload": summary.settings.get("workload"),
        "state": summary.reason,
        "step": summary.step,
        "steps": summary.settings.get("steps"),
        "num_parameters": summary.facts.get("num_parameters"),
        "world_size": summary.world_size,
        "num_hosts": summary.num_hosts,
        "device": summary.facts.get("device"),
        "wall_seconds": summary.story.wall_seconds,
        "cpu_seconds": summary.cpu_seconds,
        "phase_seconds": summary.story.phases,
        "verdict": summary.verdict.word,
        "answers": [asdict(answer) for answer in answers(summary)],
        "scores": [_score(s) for s in [*summary.scores, *summary.train_scores]],
        "evaluations": [_score(score) for score in summary.evaluations],
        "curves": _curves(summary),
        "settings": summary.settings,
        "environment": summary.environment,
        "warnings": summary.warnings,
    }


def render_answers(heading: list[str], found: list[Answer]) -> str:
    return dump({"heading": heading, "answers": [asdict(answer) for answer in found]})


def render_comparison(compared: Comparison) -> str:
    return dump(asdict(compared))


def _score(score: Score) -> dict[str, Any]:
    return {"step": score.step, "split": score.split, **score.values, "signature": score.signature}


def _curves(summary: Summary) -> dict[str, list[float]]:
    steps = summary.curves["step"]
    found = {"step": in_groups(steps, steps, _MOST_POINTS)[1].tolist()}
    for name in ("loss", "rate", "gradient_norm"):
        found[name] = in_groups(steps, summary.curves[name], _MOST_POINTS)[1].tolist()
    return found


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
