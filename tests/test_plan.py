"""Plans: what strangers measured, the catalogue, the verb, mistakes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paceline.errors import UserError
from paceline.pace.exchange import Size, ring_bytes
from paceline.pace.job import Exchange
from paceline.pace.predict import predict
from paceline.pace.remedies import remedies
from paceline.plan.catalogue import find_instance, link_of_type, moved_to
from paceline.plan.plan import Question, plan_from
from paceline.plan.render import as_html, as_json, as_text
from paceline.report.own.run import read_run
from paceline.report.remedies.job import job_of
from tests import stored_runs
from tests.conftest import CommandLine
from tests.paces import GRADIENTS, figure, job, link


def test_four_hosts_send_what_their_owner_measured() -> None:
    sent = float(ring_bytes(Size(4), np.array(GRADIENTS)))
    assert sent == pytest.approx(364.8e6)
    assert sent == pytest.approx(369e6, rel=0.02)


def test_two_hosts_of_two_devices_send_as_much_as_the_ring_leaves_each_host_once() -> None:
    """390 MB were counted, with headers: they are a sixteenth of what a link carries."""
    sent = float(ring_bytes(Size(2, 2), np.array(GRADIENTS)))
    assert sent / 0.94 == pytest.approx(390e6, rel=0.02)


def test_a_link_of_100_mbit_makes_steps_of_half_a_minute() -> None:
    (found,) = predict(job(), link(100e6), [Size(2, 2)])
    assert found.step_seconds.low < 38 and found.step_seconds.high > 33
    assert found.bottleneck == "network"


def test_two_loader_workers_on_each_of_two_hosts_explain_1_70_seconds() -> None:
    """6.50 s a step of 1,024 pictures, 5.93 s of it waiting for one loader process."""
    measured = job(
        unit="image",
        units_per_step=1024,
        measured_processes=1,
        compute=figure(0.57 / 1024, 0.08),
        gradient_bytes=figure(46.8e6),
        input_rate=figure(1024 / 6.50, 0.05),
    )
    (alone,) = predict(measured, link(10e9), [Size(1)])
    assert alone.step_seconds.middle == pytest.approx(6.50, rel=0.02)
    assert alone.phases["input"] == pytest.approx(5.93, rel=0.02)
    twice = replace(measured, input_rate=figure(2 * 1024 / 6.50, 0.05))
    (two,) = predict(twice, link(10e9), [Size(2)])
    assert two.step_seconds.low < 1.70 < two.step_seconds.high
    (gain, *_) = remedies(measured, link(10e9), Size(1))
    assert gain.name == "workers" and gain.gain.middle == pytest.approx(2.0, rel=0.02)


def test_what_was_measured_with_gloo_is_predicted() -> None:
    """10 M and 60 M parameters on two hosts of one thread at 1 Gbit/s: 0.534 s and 2.45 s."""
    for parameters, alone, measured in ((10e6, 0.149, 0.534), (60e6, 0.67, 2.45)):
        known = job(
            units_per_step=2,
            measured_processes=2,
            compute=figure(alone),
            update=figure(0.0),
            gradient_bytes=figure(4 * parameters),
            exchange=Exchange(),
        )
        (found,) = predict(known, link(1e9), [Size(2)])
        assert found.step_seconds.middle == pytest.approx(measured, rel=0.16)


def test_an_interval_is_wider_where_less_is_known() -> None:
    on_t4 = moved_to(job(flops_per_unit=4e8), find_instance("g4dn.2xlarge"), "cpu", "auto")
    (sure,) = predict(job(measured_processes=1), link(1e9), [Size(1)])
    (unsure,) = predict(on_t4, link(1e9), [Size(1)])
    widths = [(one.step_seconds.high / one.step_seconds.low) for one in (sure, unsure)]
    assert widths[0] < 1.2 and widths[1] > 2


def test_the_catalogue_knows_baseline_and_burst() -> None:
    found = link_of_type(find_instance("g4dn.2xlarge"))
    assert found.bits_per_second.value == 10e9 and found.burst_bits_per_second == 25e9


def test_an_unknown_type_gets_the_nearest_names() -> None:
    with pytest.raises(UserError) as error:
        find_instance("g4dn.2xlrge")
    assert "g4dn.2xlarge" in error.value.fix


def test_a_run_is_planned_from_and_its_own_size_is_predicted_as_measured(tmp_path: Path) -> None:
    run = stored_runs.plateaued(tmp_path / "a").path
    facts = read_run(run)
    found = plan_from(run, Question(hosts=(1, facts.world.num_hosts or 1), price_per_hour=2.0))
    same = found.predictions[-1]
    assert same.step_seconds.middle == pytest.approx(facts.verdict.step_seconds, rel=0.03)
    assert found.job.network.source.startswith("measured")
    assert same.cost is not None and same.total_seconds is not None
    for shown in (as_text(found), as_html(found)):
        assert "bottleneck" in shown
    assert json.loads(as_json(found))["predictions"][0]["size"]["hosts"] == 1


def test_a_run_that_is_too_short_is_refused(tmp_path: Path) -> None:
    facts = read_run(stored_runs.three_steps(tmp_path / "a").path)
    with pytest.raises(UserError, match="too few to plan from"):
        job_of(facts)


def test_the_verb_says_what_is_missing(paceline: CommandLine, tmp_path: Path) -> None:
    run = stored_runs.overfitting(tmp_path / "a").path
    refused = paceline("plan", "--from", str(run), "--hosts", "1,2")
    assert refused.returncode == 2 and "--network 1Gbit" in refused.stderr
    shown = paceline("plan", "--from", str(run), "--hosts", "1,2", "--network", "1Gbit").stdout
    assert "speed-up" in shown and "measured in" in shown
    wrong = paceline("plan", "--from", str(run), "--hosts", "two")
    assert wrong.returncode == 2 and "1,2,4,8" in wrong.stderr
