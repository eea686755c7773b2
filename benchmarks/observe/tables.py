"""What was measured, as tables for a page: from the results that the other parts keep."""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.observe.bottlenecks import RESULTS, Result
from benchmarks.observe.injections import INJECTIONS
from benchmarks.observe.rivals import ANSWERS

Answer = dict[str, Any]


def main(given: argparse.Namespace) -> None:
    kept: Path | None = given.keep
    if kept is None:
        raise SystemExit("--keep: the folder that the other parts were given")
    if results := [Result(**line) for line in _lines(kept / RESULTS)]:
        print("\n".join(bottleneck_table(results)))
    if answers := _lines(kept / ANSWERS):
        print("\n" + "\n".join(rival_table(answers, results)))


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def bottleneck_table(results: list[Result]) -> list[str]:
    """A row for each script, a column for each injection: share named, points from the truth."""
    found = {(one.script, one.injection): one for one in results}
    kinds = [kind for kind in INJECTIONS if any(one.injection == kind for one in results)]
    rows = [["script", *kinds], ["---"] * (1 + len(kinds))]
    for script in dict.fromkeys(one.script for one in results):
        cells = [_cell(found.get((script, kind))) for kind in kinds]
        rows.append([f"`{script}.py`", *cells])
    num_right = sum(one.is_right for one in found.values())
    most = max(one.points for one in found.values())
    return [
        *_markdown(rows),
        "",
        f"{num_right} of {len(found)} right; waiting told and seen differ by {most:.1f} points at "
        "most",
    ]


def _cell(result: Result | None) -> str:
    if result is None:
        return "not run"
    word = f"{result.verdict} {100 * result.share:.0f} % ({result.points:.1f})"
    return word if result.is_right else f"**wrong**: {word} {result.note}".strip()


def rival_table(answers: list[Answer], results: list[Result]) -> list[str]:
    """How many of the scripts each tool was right about, by injection."""
    scripts = {one["script"] for one in answers}
    own = [
        {"tool": "Paceline", "injection": one.injection, "is_right": one.is_right}
        for one in results
        if one.script in scripts
    ]
    tools = list(dict.fromkeys(one["tool"] for one in [*own, *answers]))
    rows = [["injected", *tools], ["---"] * (1 + len(tools))]
    for kind in INJECTIONS:
        asked = [one for one in [*own, *answers] if one["injection"] == kind]
        if asked:
            rows.append([kind, *(_score(asked, tool) for tool in tools)])
    rows.append(["in all", *(_score([*own, *answers], tool) for tool in tools)])
    return _markdown(rows)


def _score(answers: list[Answer], tool: str) -> str:
    given = [one["is_right"] for one in answers if one["tool"] == tool]
    return f"{sum(given)} of {len(given)}"


def _markdown(rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in rows]
