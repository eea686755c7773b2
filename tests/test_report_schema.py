"""`report --json` is what its JSON Schema says, for own runs, logs and comparisons."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from paceline.report.facts.facts import Options
from paceline.report.render.json import REPORT_VERSION, schema
from paceline.report.report import open_report
from tests import stored_runs
from tests.conftest import CommandLine
from tests.noisy_runs import noisy_run

SCHEMA: dict[str, Any] = json.loads(schema())
CHECK = jsonschema.Draft202012Validator(SCHEMA)
MAKERS: list[Callable[[Path], stored_runs.StoredRun]] = [
    stored_runs.overfitting,
    stored_runs.plateaued,
    stored_runs.diverged,
    stored_runs.restarted,
    stored_runs.three_steps,
]


def told_by(*paths: Path) -> Any:
    return json.loads(open_report(list(paths), Options()).json())


def validate(told: Any, kind: str) -> None:
    """Against the part for its kind, whose message names the field; `oneOf` would not."""
    assert told["kind"] == kind and told["report_version"] == REPORT_VERSION
    part = jsonschema.Draft202012Validator({**SCHEMA, "oneOf": [SCHEMA["$defs"][kind]]})
    problems = [inner.message for error in part.iter_errors(told) for inner in error.context or []]
    assert not problems, problems
    CHECK.validate(told)


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$defs"]["version"]["const"] == REPORT_VERSION


@pytest.mark.parametrize("make", MAKERS)
def test_reports_of_stored_runs_fit(
    make: Callable[[Path], stored_runs.StoredRun], tmp_path: Path
) -> None:
    validate(told_by(make(tmp_path / "a").path), "run")


def test_the_report_of_a_real_run_fits(finished_run: Path, paceline: CommandLine) -> None:
    result = paceline("report", str(finished_run), "--json", "-")
    validate(json.loads(result.stdout), "run")


def test_the_report_of_a_foreign_log_fits(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    lines = [
        f"Epoch: [0][{n:4}/5005]\tTime  0.300 ( 0.310)\tData  0.050 ( 0.060)\t"
        f"Loss {7 - n / 1000:.4e} (6.9000e+00)\tAcc@1   1.00 (  0.90)\tAcc@5   3.00 (  2.90)"
        for n in range(0, 5000, 10)
    ]
    log.write_text("\n".join(lines) + "\n")
    validate(told_by(log), "log")


def test_comparisons_and_checks_fit(tmp_path: Path, paceline: CommandLine) -> None:
    one, two = (noisy_run(tmp_path / name, seed) for name, seed in (("a", 1), ("b", 2)))
    validate(told_by(one, two), "comparison")
    result = paceline("report", str(one), str(two), "--max-slower", "5%", "--json", "-")
    told = json.loads(result.stdout)
    assert told["max_slower"]["outcome"] == "passed"
    validate(told, "comparison")


def test_what_does_not_fit_is_found(tmp_path: Path) -> None:
    told = told_by(stored_runs.three_steps(tmp_path / "a").path)
    for wrong in (
        {**told, "step": "three"},
        {**told, "kind": "log"},
        {**told, "report_version": 2},
    ):
        assert not CHECK.is_valid(wrong)
    del told["answers"]
    assert not CHECK.is_valid(told)


def test_the_schema_is_printed_without_a_run(paceline: CommandLine) -> None:
    result = paceline("report", "--json-schema")
    assert json.loads(result.stdout) == SCHEMA
