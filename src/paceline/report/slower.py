"""Is a run slower than another by more than is allowed, beyond noise? For CI. Pure judgement.

Steps of one run differ by noise, by outliers and by slow drifts of the machine. The slowest 2 % of
the steps are left out, and a step counts for at most twice the median. The error of the mean comes
from means over 8, 16 and 32 consecutive parts, whichever tells the largest: parts that differ more
than single steps explain are a drift. A run passes if it is slower by less than the limit even at
the upper end of that error, and fails if it is surely slower but not surely within the limit. If
noise hides the limit, nothing is claimed.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.errors import UserError
from paceline.record.schema import CHECKPOINT
from paceline.report.facts.facts import Facts
from paceline.report.facts.world_times import LOOP
from paceline.report.worth import other_load
from paceline.units import count_of, format_seconds, percent, plural

PASSED, FAILED, UNCLEAR = "passed", "failed", "unclear"
EXIT_CODES = {PASSED: 0, FAILED: 1, UNCLEAR: 2}

_LEAST_TIMINGS = 40
_WARM_UP_SHARE, _MOST_WARM_UP = 0.1, 50
_MOST_OF_MEDIAN = 2.0
_PARTS = (8, 16, 32)
_LEFT_OUT = 0.02
_RUN_ERROR = 0.0025
"""By so much runs of the same differ for no reason that shows inside of either."""
_NUM_ERRORS = 3.5
"""Standard errors to either side, chosen by simulation: of 1,000 pairs of 600 steps (noise of 6 %,
a wandering machine, 1 % of steps up to 12 times as long) none of the same failed, and 3 of those
that were slower by exactly the limit passed."""
_ALIKE = 0.3
"""Correlation of the steps of two runs from which on they are compared step by step."""
_OTHER_LOAD = 0.15
_STEP_PHASES = tuple(phase for phase in LOOP if phase != CHECKPOINT)


@dataclass(frozen=True)
class StepMean:
    seconds: float
    error: float
    """One standard error, as a share."""
    num_timings: int


@dataclass(frozen=True)
class SlowerCheck:
    outcome: str
    """passed, failed or unclear."""
    sentence: str
    max_slower: float
    slower: float
    """As a share; below zero it is faster."""
    slower_low: float
    slower_high: float
    step_seconds: tuple[float, float]
    """Of each; those of the second for as many units as the first has in a step."""
    phase: str | None
    """That grew most, if it was slower."""
    phase_seconds: tuple[dict[str, float], dict[str, float]]

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.outcome]

    def figures(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def parse_share(text: str) -> float:
    """'5%' or '0.05'."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", text)
    share = float(match[1]) / (100 if match[2] else 1) if match else math.nan
    if not 0 < share <= 1:
        raise UserError(f"--max-slower {text!r} is no share", "write it like 5% or 0.05")
    return share


def check_slower(base: Facts, now: Facts, limit: float) -> SlowerCheck:
    refuse_incomparable(base, now)
    scale = _units_per_step(base) / _units_per_step(now)
    timings = _timings(base), _timings(now)
    means = step_mean(timings[0]), step_mean(timings[1])
    ratio = scale * means[1].seconds / means[0].seconds
    error = _NUM_ERRORS * (paired_error(*timings) or math.hypot(means[0].error, means[1].error))
    low, high = ratio * (1 - error) - 1, ratio * (1 + error) - 1
    outcome = decide(low, high, limit)
    spoilt = _spoilt(base, now) if outcome == FAILED else ""
    phases = _phase_seconds(base, 1.0), _phase_seconds(now, scale)
    phase = _phase_that_grew(*phases) if ratio > 1 else None
    check = SlowerCheck(
        outcome=UNCLEAR if spoilt else outcome,
        sentence="",
        max_slower=limit,
        slower=ratio - 1,
        slower_low=low,
        slower_high=high,
        step_seconds=(means[0].seconds, scale * means[1].seconds),
        phase=phase,
        phase_seconds=phases,
    )
    return SlowerCheck(**{**check.figures(), "sentence": _sentence(check, base, now, spoilt)})


def decide(low: float, high: float, limit: float) -> str:
    if high < limit:
        return PASSED
    return FAILED if low > 0 else UNCLEAR


def refuse_incomparable(base: Facts, now: Facts) -> None:
    for facts in (base, now):
        if len(_timings(facts)) < _LEAST_TIMINGS:
            raise UserError(
                f"{facts.run} has {count_of(len(_timings(facts)), 'timed step')}: too few to tell "
                "a slowdown from noise",
                f"train {_LEAST_TIMINGS} steps or more, better 200, with every run",
            )
    pairs = {
        "the task": (base.settings.get("workload"), now.settings.get("workload")),
        "the unit": (base.unit, now.unit),
        "the number of processes": (base.world.size, now.world.size),
        "the number of hosts": (base.world.num_hosts, now.world.num_hosts),
        "the device": (base.begin.get("device"), now.begin.get("device")),
        "the tool": (base.tool, now.tool),
    }
    for what, (before, after) in pairs.items():
        if before != after:
            raise UserError(
                f"{base.run} and {now.run} cannot be compared by step: {what} differs ({before} "
                f"and {after})",
                "give two runs that differ in nothing but the code, or compare them without "
                "--max-slower",
            )


def step_mean(timings: NDArray[np.float64]) -> StepMean:
    capped, usual = _usual_steps(timings)
    mean = float(capped[usual].mean())
    errors = [_error(capped, usual, count) for count in _PARTS]
    return StepMean(mean, math.hypot(max(errors) / mean, _RUN_ERROR), len(capped))


def paired_error(before: NDArray[np.float64], after: NDArray[np.float64]) -> float | None:
    """Of the ratio, where the same step is long in both: batches of text differ in length, which is
    no noise between two runs that train on the same ones. None where steps are not alike."""
    if len(before) != len(after):
        return None
    (first, usual), (second, also_usual) = _usual_steps(before), _usual_steps(after)
    both = usual & also_usual
    if np.std(first[both]) == 0 or np.std(second[both]) == 0:
        return None
    if np.corrcoef(first[both], second[both])[0, 1] < _ALIKE:
        return None
    left = second / second[both].mean() - first / first[both].mean()
    errors = [_error(left, both, count) for count in _PARTS]
    return math.hypot(max(errors), math.sqrt(2) * _RUN_ERROR)


def _usual_steps(
    timings: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """After the warm-up, in which steps compile, fill caches and find the number of loaders."""
    kept = timings[min(int(_WARM_UP_SHARE * len(timings)), _MOST_WARM_UP) :]
    usual: NDArray[np.bool_] = kept <= np.quantile(kept, 1 - _LEFT_OUT)
    return np.minimum(kept, _MOST_OF_MEDIAN * np.median(kept)), usual


def _error(values: NDArray[np.float64], usual: NDArray[np.bool_], num_parts: int) -> float:
    """Of the mean, from the means of consecutive parts."""
    places = np.array_split(np.arange(len(values)), num_parts)
    parts = [values[part][usual[part]].mean() for part in places if usual[part].any()]
    return float(np.std(parts, ddof=1)) / math.sqrt(len(parts))


def _timings(facts: Facts) -> NDArray[np.float64]:
    times = facts.step_times
    if times is None:
        return np.zeros(0)
    timings = np.asarray(times.timings, dtype=np.float64)
    known: NDArray[np.float64] = timings[np.isfinite(timings) & (timings > 0)]
    return known


def _units_per_step(facts: Facts) -> float:
    if facts.num_units and facts.num_steps:
        return facts.num_units / facts.num_steps
    return float(facts.data.global_batch or 1)


def _phase_seconds(facts: Facts, scale: float) -> dict[str, float]:
    """Of a usual step, the mean over the processes."""
    times = facts.world.times
    if times is None or not len(times.num_steps):
        return {}
    return {
        phase: scale * float(np.nanmedian(np.nanmean(times.of(phase), axis=0)))
        for phase in _STEP_PHASES
    }


def _phase_that_grew(before: dict[str, float], after: dict[str, float]) -> str | None:
    grown = {phase: after[phase] - before[phase] for phase in before.keys() & after.keys()}
    if not grown or max(grown.values()) <= 0:
        return None
    return max(grown, key=lambda phase: grown[phase])


def _spoilt(base: Facts, now: Facts) -> str:
    """More of other programs beside the second run: then they may have slowed it down."""
    before, after = other_load(base), other_load(now)
    if before is None or after is None or after - before <= _OTHER_LOAD:
        return ""
    return (
        f"other programs used {percent(after)} of the cores during {now.run} and {percent(before)} "
        f"during {base.run}: train it again on a quiet machine"
    )


def _sentence(check: SlowerCheck, base: Facts, now: Facts, spoilt: str) -> str:
    limit = percent(check.max_slower)
    how_much = (
        f"a step takes {format_seconds(check.step_seconds[1])} against "
        f"{format_seconds(check.step_seconds[0])} ({_signed(check.slower)}, between "
        f"{_signed(check.slower_low)} and {_signed(check.slower_high)} with noise)"
    )
    if check.outcome == PASSED:
        return f"passed: {now.run} is less than {limit} slower than {base.run}: {how_much}"
    grew = _what_grew(check, now)
    if check.outcome == FAILED:
        over = check.slower >= check.max_slower
        what = (
            f"more than {limit} slower" if over else f"slower, and not surely by less than {limit},"
        )
        return f"failed: {now.run} is {what} than {base.run}: {how_much}; {grew}"
    if spoilt:
        return (
            f"unclear: {now.run} was slower than {base.run} ({_signed(check.slower)}), but {spoilt}"
        )
    return (
        f"unclear: noise hides {limit}: {how_much}; train about "
        f"{_more_steps(check):.0f} times as many {plural('step')}, or on a quieter machine"
    )


def _what_grew(check: SlowerCheck, now: Facts) -> str:
    if check.phase is None:
        return "which phase grew is not known"
    before, after = (seconds[check.phase] for seconds in check.phase_seconds)
    late = now.verdict.straggler
    who = f" (rank {late.rank} is late, in {late.phase})" if late is not None else ""
    return (
        f"{check.phase} grew most, from {format_seconds(before)} to {format_seconds(after)} a step"
        f"{who}"
    )


def _more_steps(check: SlowerCheck) -> float:
    """Errors shrink with the root of the number."""
    half_width = (check.slower_high - check.slower_low) / 2
    return max(math.ceil((2 * half_width / check.max_slower) ** 2), 2)


def _signed(share: float) -> str:
    return f"{100 * share:+.1f} %"
