"""The learning rate at the corners of every policy, and its peak against brute force."""

import itertools
import math
from typing import get_args

import pytest
from pydantic import ValidationError

from paceline.schedule import (
    Policy,
    ScheduleSettings,
    batch_scale,
    in_words,
    peak,
    rate_at,
    short_warm_up,
)

POLICIES = get_args(Policy)


def rates(schedule: ScheduleSettings, steps: int) -> list[float]:
    return [rate_at(schedule, step, steps) for step in range(1, steps + 1)]


def settings(**values: object) -> ScheduleSettings:
    return ScheduleSettings.model_validate(values)


def test_fixed_stays_where_it_is() -> None:
    assert rates(settings(policy="fixed", rate=0.3), 5) == [0.3] * 5


def test_warm_up_rises_in_a_straight_line_and_ends_at_the_rate() -> None:
    found = rates(settings(policy="fixed", rate=1.0, warmup_steps=4), 6)
    assert found == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0])


def test_a_run_that_ends_inside_of_its_warm_up_is_warned_of_with_one_that_fits() -> None:
    long = settings(policy="cosine", rate=1.0, warmup_steps=400)
    warning = short_warm_up(long, 150)
    assert warning is not None and "rises for 400 steps" in warning
    assert "schedule.warmup_steps=15" in warning
    assert short_warm_up(long, 401) is None
    assert short_warm_up(settings(policy="fixed"), 1) is None


def test_warm_up_begins_at_the_share_it_is_told() -> None:
    found = rates(settings(policy="fixed", rate=1.0, warmup_steps=4, warmup_from=0.2), 5)
    assert found == pytest.approx([0.4, 0.6, 0.8, 1.0, 1.0])


def test_piecewise_multiplies_after_each_boundary_and_not_at_it() -> None:
    schedule = settings(policy="piecewise", rate=1.0, boundaries=[3, 5], factor=0.1)
    assert rates(schedule, 7) == pytest.approx([1, 1, 1, 0.1, 0.1, 0.01, 0.01])


def test_piecewise_boundaries_count_from_the_start_of_the_run_also_with_warm_up() -> None:
    schedule = settings(policy="piecewise", rate=1.0, boundaries=[3], factor=0.5, warmup_steps=2)
    assert rates(schedule, 4) == pytest.approx([0.5, 1, 1, 0.5])


def test_exponential_falls_by_its_factor_every_decay_steps_after_the_warm_up() -> None:
    schedule = settings(policy="exponential", rate=1.0, factor=0.5, decay_steps=10, warmup_steps=5)
    assert rate_at(schedule, 5, 100) == 1.0
    assert rate_at(schedule, 15, 100) == pytest.approx(0.5)
    assert rate_at(schedule, 25, 100) == pytest.approx(0.25)
    assert rate_at(schedule, 10, 100) == pytest.approx(0.5**0.5)


def test_polynomial_of_power_one_is_a_straight_line_that_would_end_after_the_last_step() -> None:
    assert rates(settings(policy="polynomial", rate=1.0), 4) == pytest.approx([1, 0.75, 0.5, 0.25])


def test_polynomial_bends_with_its_power_and_ends_near_its_final_share() -> None:
    schedule = settings(policy="polynomial", rate=2.0, power=2.0, final=0.5)
    found = rates(schedule, 4)
    assert found == pytest.approx([2 * (0.5 + 0.5 * share**2) for share in (1, 0.75, 0.5, 0.25)])


def test_cosine_is_half_way_down_in_the_middle_and_begins_after_the_warm_up() -> None:
    schedule = settings(policy="cosine", rate=1.0, warmup_steps=10)
    assert rate_at(schedule, 10, 110) == rate_at(schedule, 11, 110) == 1.0
    assert rate_at(schedule, 61, 110) == pytest.approx(0.5)
    assert 0 < rate_at(schedule, 110, 110) < 0.001


def test_cosine_ends_near_its_final_share() -> None:
    last = rate_at(settings(policy="cosine", rate=1.0, final=0.1), 1000, 1000)
    assert 0.1 < last < 0.1001


def test_transformer_follows_the_formula_of_the_paper() -> None:
    schedule = settings(policy="transformer", rate=2.0, warmup_steps=4000, width=512)
    for step in (1, 3999, 4000, 4001, 100_000):
        expected = 2.0 * 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert rate_at(schedule, step, 100_000) == pytest.approx(expected)
    highest, where = peak(schedule, 100_000)
    assert highest == pytest.approx(2.0 * 512**-0.5 * 4000**-0.5) and where == 4000


def test_one_cycle_peaks_where_it_is_told_and_falls_to_its_final_share() -> None:
    found = rates(settings(policy="one-cycle", rate=1.0, peak_at=0.25, final=0.2), 8)
    assert found[:2] == pytest.approx([0.5, 1.0])
    assert found[2:] == pytest.approx([0.2 + 0.8 * share / 7 for share in (6, 5, 4, 3, 2, 1)])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("steps", [1, 2, 3, 10, 1000])
@pytest.mark.parametrize("warmup_steps", [0, 1, 2, 10, 5000])
def test_no_step_of_any_policy_is_wasted_at_rate_zero(
    policy: str, steps: int, warmup_steps: int
) -> None:
    found = rates(settings(policy=policy, warmup_steps=warmup_steps, width=64), steps)
    assert all(math.isfinite(rate) and rate > 0 for rate in found)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_rate_is_never_above_the_one_set_unless_a_factor_or_share_asks_for_it(
    policy: str,
) -> None:
    for warmup_steps, steps in itertools.product((0, 1, 7), (1, 8, 50)):
        schedule = settings(policy=policy, rate=0.1, warmup_steps=warmup_steps, width=64)
        assert max(rates(schedule, steps)) <= 0.1 * (1 + 1e-12)


def assert_peak_is_the_maximum(schedule: ScheduleSettings, steps: int) -> None:
    found = rates(schedule, steps)
    highest, where = peak(schedule, steps)
    assert highest == max(found), (schedule, steps)
    assert where == 1 + found.index(highest), (schedule, steps)


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy != "one-cycle"])
def test_peak_is_the_brute_force_maximum_and_the_first_step_that_has_it(policy: str) -> None:
    for steps, warmup_steps, begin, factor, final in itertools.product(
        (1, 2, 37, 100), (0, 1, 20, 99, 100, 400), (0.0, 0.5, 1.0), (0.1, 1.0, 1.5), (0.0, 0.3, 2.0)
    ):
        schedule = settings(
            policy=policy,
            warmup_steps=warmup_steps,
            warmup_from=begin,
            factor=factor,
            final=final,
            boundaries=[5, 30, 31, 90, 100, 200],
            decay_steps=40,
            power=1.7,
            width=64,
        )
        assert_peak_is_the_maximum(schedule, steps)


def test_peak_of_one_cycle_is_the_brute_force_maximum() -> None:
    for steps, peak_at, final in itertools.product(
        (1, 2, 3, 37, 100), (0.01, 0.1, 0.25, 0.5, 0.99), (0.0, 0.3, 1.0, 2.0)
    ):
        for warmup_steps in (0, 1, int(peak_at * steps)):
            schedule = settings(
                policy="one-cycle", peak_at=peak_at, final=final, warmup_steps=warmup_steps
            )
            assert_peak_is_the_maximum(schedule, steps)


def test_peak_of_one_cycle_is_right_when_the_warm_up_outlasts_the_rise() -> None:
    for steps, peak_at, final, warmup_steps, begin in itertools.product(
        (1, 2, 37, 100), (0.01, 0.1, 0.5), (0.0, 0.3, 1.0, 2.0), (3, 20, 80, 400), (0.0, 0.4, 1.0)
    ):
        schedule = settings(
            policy="one-cycle",
            peak_at=peak_at,
            final=final,
            warmup_steps=warmup_steps,
            warmup_from=begin,
        )
        assert_peak_is_the_maximum(schedule, steps)


def test_the_rate_follows_the_batch_as_the_recipe_says() -> None:
    grown = {"reference_batch": 128}
    assert batch_scale(settings(scaling="none", **grown), 512) == 1.0
    assert batch_scale(settings(scaling="linear", **grown), 512) == 4.0
    assert batch_scale(settings(scaling="sqrt", **grown), 512) == 2.0
    assert batch_scale(settings(scaling="linear", **grown), 64) == 0.5


@pytest.mark.parametrize("policy", POLICIES)
def test_words_name_the_policy_and_its_peak_with_the_step(policy: str) -> None:
    schedule = settings(policy=policy, rate=0.4, warmup_steps=10, boundaries=[50], width=64)
    highest, where = peak(schedule, 1000)
    text = in_words(schedule, 1000)
    assert text.startswith(f"{policy}: ")
    assert text.endswith(f"peak {highest:.3g} at step {where:,} of 1,000")
    assert "\n" not in text


def test_words_name_the_peak_that_the_batch_scales() -> None:
    schedule = settings(policy="fixed", rate=0.1, scaling="linear", reference_batch=128)
    text = in_words(schedule, 10, batch_scale(schedule, 512))
    assert text == "fixed: does not change; peak 0.4 (0.1 x 4 for the batch) at step 1 of 10"


def test_words_say_what_piecewise_does() -> None:
    schedule = settings(policy="piecewise", rate=0.1, boundaries=[32000, 48000], warmup_steps=400)
    assert in_words(schedule, 64000) == (
        "piecewise: rises over 400 steps, then is multiplied by 0.1 after steps 32,000, 48,000; "
        "peak 0.1 at step 400 of 64,000"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": 0},
        {"rate": -1},
        {"warmup_steps": -1},
        {"warmup_from": 1.5},
        {"factor": 0},
        {"decay_steps": 0},
        {"peak_at": 0},
        {"peak_at": 1},
        {"policy": "linear"},
        {"scaling": "square"},
    ],
)
def test_values_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        settings(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"width": -4},
        {"width": 0},
        {"reference_batch": -128},
        {"reference_batch": 0},
        {"rate": math.inf},
        {"final": math.nan},
        {"boundaries": [0, 3]},
        {"boundaries": [3, 2]},
        {"policy": "transformer"},
        {"scaling": "sqrt"},
        {"warmup_steps": True},
    ],
)
def test_values_that_would_crash_or_turn_the_rate_around_are_refused(
    wrong: dict[str, object],
) -> None:
    with pytest.raises(ValidationError):
        settings(**wrong)
