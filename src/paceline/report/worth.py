"""Was it worth it: time and host-hours to the same score, and a yes, a no, or why not. Pure.

More hosts are worth it when they bring at least half of what they would bring with perfect scaling;
with as many hosts, a run is worth it when it is faster by more than two equal runs differ by.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.report.answers.cost import prices
from paceline.report.answers.words import listed, score_value
from paceline.report.differences import learns_otherwise
from paceline.report.facts.busyness import utilisation
from paceline.report.facts.facts import Facts
from paceline.report.facts.learning import best_of, diverged, is_below_one_epoch, series
from paceline.report.facts.trend import Numbers
from paceline.report.loading import loading_sentence
from paceline.report.speed import Speed, ratio_of, too_good
from paceline.units import count_of, format_seconds, percent, plural

YES, NO, UNKNOWN = "yes", "no", "cannot be told"
_LEAST_STEPS = 10
_LEAST_FASTER = 1.05
"""Two equal runs differ by about so much."""
_LEAST_SHARE = 0.5
"""Of perfect scaling, that added hosts must bring."""
_OTHER_LOAD = 0.15
"""Of the cores: a difference in the load of other programs that spoils a comparison."""
_OTHER_START_UP = 0.05
"""Of the time to the goal: if start-ups differ by more, they decide instead of the training."""
_MOST_OTHER_LOAD = 0.3
"""Of the cores: with more than that, what a run took depends on when the others worked."""


@dataclass(frozen=True)
class Goal:
    """The best score that every run reached."""

    name: str
    score: float
    shown: str
    """With its scale."""
    lower_is_better: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.shown}"


@dataclass(frozen=True)
class Spent:
    """What one run took, in all and up to the goal."""

    seconds_to_goal: float | None
    num_hosts: int
    wall_seconds: float
    price_per_hour: float | None
    """Of all hosts together."""
    are_hosts_known: bool = True
    start_up_seconds: float = 0.0

    def host_hours(self, seconds: float) -> float:
        return self.num_hosts * seconds / 3600

    def price(self, seconds: float) -> float | None:
        return None if self.price_per_hour is None else self.price_per_hour * seconds / 3600


@dataclass(frozen=True)
class Worth:
    answer: str
    """yes, no, or cannot be told."""
    because: str
    times_as_fast: float | None = None
    times_the_host_hours: float | None = None


def common_goal(runs: list[Facts]) -> Goal | None:
    """None unless all were scored by the same measure."""
    by = runs[0].learning.best_by
    curves = [series(facts.learning.scores, by) for facts in runs]
    if any(facts.learning.best_by != by for facts in runs) or not all(map(len, curves)):
        return None
    learning = runs[0].learning
    reached = [best_of(curve, learning) for curve in curves]
    worst = max(reached) if learning.lower_is_better else min(reached)
    return Goal(by, worst, score_value(runs[0], by, worst), learning.lower_is_better)


def spent_by(facts: Facts, goal: Goal | None) -> Spent:
    seconds = None
    if goal is not None and facts.is_own:
        curve = series(facts.learning.scores, goal.name)
        sign = -1 if goal.lower_is_better else 1
        step = curve.steps[[int(np.argmax(sign * curve.values >= sign * goal.score))]]
        seconds = float(seconds_to(facts, step)[0])
    return Spent(
        seconds_to_goal=seconds,
        num_hosts=facts.world.num_hosts or 1,
        wall_seconds=facts.wall_seconds,
        price_per_hour=sum(prices(facts)) or None,
        are_hosts_known=facts.is_own or facts.world.num_hosts is not None or facts.world.size == 1,
        start_up_seconds=facts.phases.get("start-up", 0.0) if facts.is_own else 0.0,
    )


def seconds_to(facts: Facts, steps: Numbers) -> Numbers:
    """Since the start of the run, without what was lost and done again."""
    rows = facts.rows
    if rows is None and not facts.is_own and facts.step_times is not None:
        return facts.step_times.mean_seconds * np.maximum(steps - (facts.first_step or 0), 0.0)
    if rows is None or not len(rows):
        return 0.0 * steps
    done = np.cumsum(np.nan_to_num(rows["seconds"]))
    start_up = facts.phases.get("start-up", 0.0)
    return start_up + np.interp(steps, rows["step"], done)


def judge(
    runs: tuple[Facts, Facts],
    speeds: tuple[Speed, Speed],
    spent: tuple[Spent, Spent],
    goal: Goal | None,
    differences: tuple[list[str], list[str]],
) -> Worth:
    """The second against the first; `differences` are those of speed and those of learning."""
    if why := _not_comparable(runs, speeds) or _spoilt(runs, speeds):
        return Worth(UNKNOWN, why)
    by_score = goal is not None and not any(map(is_below_one_epoch, runs))
    others = [*differences[0], *differences[1]]
    if not by_score and (otherwise := learns_otherwise(*runs)):
        early = "one of them saw less than one epoch" if goal else "they have no score in common"
        verb = "changes" if len(otherwise) == 1 else "change"
        return Worth(UNKNOWN, f"{listed(otherwise)} {verb} what a step learns, and {early}")
    if not others and speeds[0].world_size == speeds[1].world_size and _is_same_hosts(spent):
        return Worth(UNKNOWN, "nothing is known to differ between them")
    return _weigh(speeds, spent, goal, by_score)


def _not_comparable(runs: tuple[Facts, Facts], speeds: tuple[Speed, Speed]) -> str:
    base, now = speeds
    few = [speed for speed in speeds if speed.num_steps < _LEAST_STEPS or not speed.step_seconds]
    if few:
        return (
            f"{few[0].run} has {count_of(few[0].num_steps, 'step')}; {_LEAST_STEPS} are the least"
        )
    if base.unit != now.unit:
        return f"{base.run} counts {plural(base.unit)} and {now.run} {plural(now.unit)}"
    lost = [facts for facts in runs if diverged(facts.learning)]
    return f"the loss of {lost[0].run} diverged" if lost else ""


def _spoilt(runs: tuple[Facts, Facts], speeds: tuple[Speed, Speed]) -> str:
    """Something else than what differs on purpose had a hand in it."""
    base, now = speeds
    held_back = too_good(base, now)
    if held_back and loading_sentence(runs, speeds):
        return (
            f"{ratio_of(base, now):.2f} times the speed with {count_of(now.world_size, 'process')} "
            f"instead of {base.world_size:,} is more than perfect scaling: a loader sets the pace "
            "in both, and faster loading made the difference"
        )
    if held_back:
        return (
            f"{ratio_of(base, now):.2f} times the speed with {count_of(now.world_size, 'process')} "
            f"instead of {base.world_size:,} is not believed: something else slowed {held_back} "
            "down"
        )
    if not all(facts.is_own for facts in runs):
        return _not_told(runs, speeds)
    return disturbance(runs)


def disturbance(runs: tuple[Facts, Facts]) -> str:
    """That other programs used so much of the cores that no difference is the runs' own."""
    first, second = (other_load(facts) for facts in runs)
    if first is None or second is None or not _is_disturbed(first, second):
        return ""
    return (
        f"other programs used {percent(first)} of the cores during {runs[0].run} and "
        f"{percent(second)} during {runs[1].run}"
    )


def _not_told(runs: tuple[Facts, Facts], speeds: tuple[Speed, Speed]) -> str:
    """What logs do not tell, or what else than machines made the difference."""
    if loading_sentence(runs, speeds):
        return (
            f"{_as_fast(ratio_of(*speeds))} by {plural(speeds[0].unit)}, but a loader sets the "
            "pace in both, and its speed makes the difference"
        )
    unknown = [speed.run for speed in speeds if not speed.are_hosts_known]
    return f"how many hosts trained is not in the log of {listed(unknown)}" if unknown else ""


def _is_disturbed(first: float, second: float) -> bool:
    return abs(first - second) > _OTHER_LOAD or max(first, second) > _MOST_OTHER_LOAD


def other_load(facts: Facts) -> float | None:
    """Share of the cores that other programs used while the run stepped."""
    share, what = utilisation(facts)
    own = facts.world.own_cpu_share
    return max(share - own, 0.0) if what == "cores" and own is not None else None


def _is_same_hosts(spent: tuple[Spent, Spent]) -> bool:
    return spent[0].num_hosts == spent[1].num_hosts


def _weigh(
    speeds: tuple[Speed, Speed], spent: tuple[Spent, Spent], goal: Goal | None, by_score: bool
) -> Worth:
    base, now = spent
    hosts = now.num_hosts / base.num_hosts
    if by_score and goal and base.seconds_to_goal and now.seconds_to_goal:
        faster, because = _by_score(spent, goal, (base.seconds_to_goal, now.seconds_to_goal))
    else:
        faster = ratio_of(*speeds)
        early = "; scores before the end of the first epoch say little" if goal else ""
        because = f"it is {_as_fast(faster)} by {plural(speeds[0].unit)} a second{early}"
    dearer = hosts / faster
    answer = YES if _pays_off(faster, hosts) else NO
    for_what = f"for {dearer:.2f} times the host-hours{_priced(spent, faster)}"
    return Worth(answer, f"{because}, {for_what}{_rule(faster, hosts)}", faster, dearer)


def _pays_off(faster: float, hosts: float) -> bool:
    if hosts > 1:
        return faster >= _LEAST_FASTER and (faster - 1) / (hosts - 1) >= _LEAST_SHARE
    if hosts < 1:
        return not _pays_off(1 / faster, 1 / hosts)
    return faster >= _LEAST_FASTER


def _by_score(
    spent: tuple[Spent, Spent], goal: Goal, seconds: tuple[float, float]
) -> tuple[float, str]:
    """How many times as fast, and in words.

    A first start may compile kernels or read cold files: that is no merit of the other run."""
    starts = [each.start_up_seconds for each in spent]
    note = ""
    if abs(starts[0] - starts[1]) > _OTHER_START_UP * min(seconds):
        seconds = (seconds[0] - starts[0], seconds[1] - starts[1])
        shown = " and ".join(format_seconds(start) for start in reversed(starts))
        note = f", start-ups of {shown} not counted"
    faster = seconds[0] / seconds[1]
    before, after = map(format_seconds, seconds)
    return faster, f"to {goal} it took {after} instead of {before}{note} ({_as_fast(faster)})"


def _as_fast(ratio: float) -> str:
    return f"{ratio:.2f} times as fast" if ratio >= 1 else f"{1 / ratio:.2f} times as slow"


def _priced(spent: tuple[Spent, Spent], faster: float) -> str:
    base, now = (each.price_per_hour for each in spent)
    return f" and {now / base / faster:.2f} times the price" if base and now else ""


def _rule(faster: float, hosts: float) -> str:
    """What the answer follows from, so that a reader may judge otherwise."""
    if hosts > 1:
        brought = percent(max((faster - 1) / (hosts - 1), 0.0))
        return (
            f"; the added hosts brought {brought} of what they would with perfect scaling (worth "
            f"it here from {percent(_LEAST_SHARE)})"
        )
    if hosts == 1 and 1 / _LEAST_FASTER < faster < _LEAST_FASTER:
        return "; two equal runs differ by as much"
    return ""


def figures(worth: Worth, spent: tuple[Spent, Spent], goal: Goal | None) -> dict[str, Any]:
    return {
        "worth_it": worth.answer,
        "because": worth.because,
        "times_as_fast": worth.times_as_fast,
        "times_the_host_hours": worth.times_the_host_hours,
        "goal": None if goal is None else {"name": goal.name, "score": goal.score},
        "seconds_to_goal": [each.seconds_to_goal for each in spent],
        "host_hours": [each.host_hours(each.wall_seconds) for each in spent],
        "price": [each.price(each.wall_seconds) for each in spent],
    }
