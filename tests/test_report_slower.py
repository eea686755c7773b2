"""`report a b --max-slower 5%`: a check for CI that knows noise."""

import json
from pathlib import Path

import numpy as np
import pytest

from paceline.errors import UserError
from paceline.report.own.run import read_run
from paceline.report.slower import FAILED, PASSED, SlowerCheck, check_slower, parse_share, step_mean
from tests.conftest import CommandLine
from tests.noisy_runs import USUAL, noisy_run
from tests.stored_runs import StoredRun

STEP = sum(USUAL.values())
PHASES = list(USUAL)


def check(base: Path, now: Path, limit: float = 0.05) -> SlowerCheck:
    return check_slower(read_run(base), read_run(now), limit)


@pytest.mark.parametrize("part", range(4))
def test_twenty_pairs_of_the_same_pass_and_twenty_slower_by_the_limit_fail(
    part: int, tmp_path: Path
) -> None:
    for seed in range(part, 20, 4):
        base = noisy_run(tmp_path / f"base-{seed}", 100 + seed)
        same = noisy_run(tmp_path / f"same-{seed}", 200 + seed)
        phase = PHASES[seed % len(PHASES)]
        slow = noisy_run(tmp_path / f"slow-{seed}", 300 + seed, {phase: 0.05 * STEP})
        assert check(base, same).outcome == PASSED
        found = check(base, slow)
        assert found.outcome == FAILED
        assert found.phase == phase
        assert found.slower == pytest.approx(0.05, abs=0.02)


def test_exit_codes_and_one_line(tmp_path: Path, paceline: CommandLine) -> None:
    base = str(noisy_run(tmp_path / "base", 1))
    same = str(noisy_run(tmp_path / "same", 2))
    slow = str(noisy_run(tmp_path / "slow", 3, {"input": 0.1 * STEP}))
    passed = paceline("report", base, same, "--max-slower", "5%")
    assert passed.returncode == 0, passed.stderr
    assert passed.stdout.startswith("passed: ") and len(passed.stdout.splitlines()) == 1
    failed = paceline("report", base, slow, "--max-slower", "5%", "--json", "-")
    assert failed.returncode == 1
    told = json.loads(failed.stdout)["max_slower"]
    assert told["outcome"] == "failed" and told["phase"] == "input"
    assert told["slower"] == pytest.approx(0.1, abs=0.02)
    assert "input grew most, from" in failed.stderr
    faster = paceline("report", slow, base, "--max-slower", "0.05")
    assert faster.returncode == 0


def test_what_cannot_be_compared_is_refused(tmp_path: Path, paceline: CommandLine) -> None:
    base = noisy_run(tmp_path / "base", 1)
    short = noisy_run(tmp_path / "short", 1, num_steps=20)
    refused = paceline("report", str(base), str(short), "--max-slower", "5%")
    assert refused.returncode == 2 and "too few" in refused.stderr
    two = StoredRun(tmp_path / "two", [dict(USUAL), dict(USUAL)])
    two.launch()
    two.begin()
    two.train(200)
    with pytest.raises(UserError, match="number of processes differs"):
        check(base, two.path)
    alone = paceline("report", str(base), "--max-slower", "5%")
    assert alone.returncode == 2 and "two runs" in alone.stderr


def test_noise_that_hides_the_limit_is_said_and_not_guessed(tmp_path: Path) -> None:
    base = noisy_run(tmp_path / "base", 1, num_steps=60)
    now = noisy_run(tmp_path / "now", 2, num_steps=60)
    found = check(base, now, limit=0.002)
    assert found.exit_code == 2
    assert "noise hides 0.2 %" in found.sentence


def test_an_outlier_of_a_minute_changes_nothing_and_slow_steps_that_are_many_count() -> None:
    steps = np.full(200, 0.1)
    steps[150] = 60.0
    assert step_mean(steps).seconds == pytest.approx(0.1)
    steps[::5] = 0.15
    assert step_mean(steps).seconds == pytest.approx(0.11, rel=0.01)


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("5 %", 0.05), ("0.05", 0.05)])
def test_shares_are_read_as_people_write_them(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["-5%", "5", "five", "0", "nan", ""])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="no share"):
        parse_share(text)
