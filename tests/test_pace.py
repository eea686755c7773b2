"""The model of a step against arithmetic by hand, and what it says of sizes and remedies."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.pace.exchange import (
    Size,
    Wire,
    all_reduce_seconds,
    buckets_of,
    even_parts,
    exchanged,
    ring_bytes,
    sent_bytes,
)
from paceline.pace.job import RING, TREE, Exchange, Part, Schedule
from paceline.pace.model import slowest_of, units_of
from paceline.pace.predict import most_useful_hosts, predict
from paceline.pace.remedies import (
    Situation,
    faster_link,
    gain_in_words,
    gain_of,
    in_order_of_need,
    larger_batch,
    more_workers,
    rarer_exchange,
    rarer_saves,
    remedies,
)
from tests.paces import figure, job, link

MB = 1e6


def wire(bits_per_second: float, latency_seconds: float = 0.0) -> Wire:
    return Wire(np.array(bits_per_second), np.array(latency_seconds), np.array(0.0), np.array(0.0))


def test_a_ring_sends_nearly_twice_the_gradients_and_waits_for_every_neighbour() -> None:
    assert float(ring_bytes(Size(4), np.array(100 * MB))) == pytest.approx(150 * MB)
    seconds = all_reduce_seconds(Size(4), np.array(94.5e6), Exchange(), wire(1e9, 0.001))
    assert float(seconds) == pytest.approx(8 * 1.5 * 94.5e6 / 0.945e9 + 6 * 0.001)


def test_a_tree_is_taken_where_a_ring_would_wait_too_often() -> None:
    """4,096 hosts and a message of 80 us: a ring waits 0.66 s for every bucket."""
    many, slow = Size(4096), wire(100e9, 80e-6)
    ring = all_reduce_seconds(many, np.array(25 * MB), Exchange(algorithms=(RING,)), slow)
    both = all_reduce_seconds(many, np.array(25 * MB), Exchange(algorithms=(RING, TREE)), slow)
    assert float(ring) > 0.6 and float(both) < 0.02
    few = [
        float(all_reduce_seconds(Size(2), np.array(25 * MB), Exchange(algorithms=kinds), slow))
        for kinds in ((RING,), (RING, TREE))
    ]
    assert few[0] == few[1]


def test_buckets_are_filled_as_ddp_fills_them() -> None:
    parts = [Part(0.6 * MB, 0.4), Part(0.6 * MB, 0.5), Part(20 * MB, 0.8), Part(80 * MB, 1.0)]
    assert buckets_of(parts, 25 * 1024**2) == [Part(1.2 * MB, 0.5), Part(100 * MB, 1.0)]
    assert len(buckets_of(even_parts(250 * MB), 25 * 1024**2)) == pytest.approx(9, abs=1)


def test_what_is_ready_last_cannot_hide_behind_backward() -> None:
    """100 MB at 0.945 Gbit/s of payload take 0.8 s; the pass takes 10 s."""
    early = Exchange(parts=(Part(50 * MB, 0.4), Part(50 * MB, 0.9)))
    late = Exchange(parts=(Part(50 * MB, 0.4), Part(50 * MB, 1.0)))
    total, seconds, fast = np.array(100 * MB), np.array(10.0), wire(1e9)
    assert float(exchanged(Size(2), total, seconds, early, fast).exposed) == 0
    shown = exchanged(Size(2), total, seconds, late, fast)
    assert float(shown.exposed) == pytest.approx(8 * 50e6 / 0.945e9)
    assert float(shown.wire) == pytest.approx(8 * 100e6 / 0.945e9)


def test_copying_beside_the_pass_makes_it_longer() -> None:
    busy = Wire(np.array(1e9), np.array(0.0), np.array(1e-9), np.array(0.0))
    early = Exchange(parts=(Part(100 * MB, 0.1),), processors=2.0)
    found = exchanged(Size(2), np.array(100 * MB), np.array(10.0), early, busy)
    assert float(found.beside) == pytest.approx(0.1 / 2)


def test_half_of_the_bytes_are_sent_in_16_bits_and_fewer_where_steps_are_local() -> None:
    half = Exchange(sent_share=0.5)
    assert float(sent_bytes(Size(2), np.array(100 * MB), half)) == pytest.approx(50 * MB)
    assert float(
        sent_bytes(Size(2), np.array(100 * MB), replace(half, every_steps=10))
    ) == pytest.approx(5 * MB)


def test_phases_add_up_and_one_process_sends_nothing() -> None:
    for found in predict(job(), link(1e9), [Size(1), Size(2), Size(16, 8)]):
        assert sum(found.phases.values()) == pytest.approx(found.step_seconds.middle)
    (alone,) = predict(job(), link(1e9), [Size(1)])
    assert alone.phases["network"] == 0 and alone.sent_bytes_per_step == 0


def test_a_batch_that_grows_keeps_each_process_busy_and_needs_fewer_steps() -> None:
    growing = job(grows_with_world=True, measured_processes=1, schedule=Schedule(steps=1000))
    assert units_of(growing, Size(4)) == (4 * 4096, 4096)
    one, four = predict(growing, link(100e9), [Size(1), Size(4)])
    assert one.total_seconds and four.total_seconds
    assert four.total_seconds.middle < 0.35 * one.total_seconds.middle


def test_a_larger_batch_may_need_more_samples_for_the_same_quality() -> None:
    growing = job(
        grows_with_world=True,
        measured_processes=1,
        schedule=Schedule(steps=1000),
        samples_growth=1.1,
        jitter=figure(0.0),
        gradient_bytes=figure(1.0),
    )
    one, four = predict(growing, link(100e9), [Size(1), Size(4)])
    assert one.total_seconds and four.total_seconds
    ratio = one.total_seconds.middle / four.total_seconds.middle
    assert ratio == pytest.approx(4 / 1.21, rel=0.02)


def test_micro_batches_that_do_not_divide_leave_somebody_idle() -> None:
    assert units_of(job(micro_batches=4), Size(3)) == (4096, 2048)


def test_the_slowest_of_many_is_slower_the_more_there_are() -> None:
    assert slowest_of(1) == 0
    assert slowest_of(2) == pytest.approx(0.564, abs=0.03)
    assert slowest_of(4) == pytest.approx(1.029, abs=0.03)
    assert slowest_of(1000) == pytest.approx(3.24, abs=0.03)


def test_waste_is_named_sooner_on_a_slow_link() -> None:
    slow, fast = (most_useful_hosts(job(), link(bits), 1) for bits in (1e9, 100e9))
    assert slow < fast
    assert most_useful_hosts(job(), link(100e6), 1) == 1


def test_more_processes_than_micro_batches_is_said_to_be_impossible() -> None:
    found = predict(job(micro_batches=2), link(1e9), [Size(2), Size(4)])
    assert [bool(one.why_not) for one in found] == [False, True]
    assert most_useful_hosts(job(micro_batches=2), link(100e9), 1) <= 2


def test_thousands_of_devices_are_planned_on_paper() -> None:
    large = job(units_per_step=4096 * 4096, devices_per_host=8)
    (found,) = predict(large, link(400e9), [Size(512, 8)])
    assert 0 < found.efficiency <= 1 and found.phases["network"] > 0


def test_a_link_that_bursts_is_faster_in_its_first_minutes() -> None:
    bursting = replace(link(10e9), burst_bits_per_second=25e9)
    (found,) = predict(job(), bursting, [Size(4)])
    assert found.burst_step_seconds is not None
    assert found.burst_step_seconds < found.step_seconds.middle


def test_remedies_that_gain_little_are_not_offered() -> None:
    assert remedies(job(), link(1000e9), Size(2)) == []
    offered = remedies(job(), link(1e9), Size(4))
    assert {"link", "diloco", "bf16", "batch"} <= {remedy.name for remedy in offered}
    assert all(remedy.gain.middle >= 1.03 for remedy in offered)
    assert [r.gain.middle for r in offered] == sorted(
        (r.gain.middle for r in offered), reverse=True
    )


def test_hosts_that_are_slower_than_one_are_told_how_not_to_be() -> None:
    assert predict(job(), link(10e6), [Size(2)])[0].speed_up.middle < 1
    offered = {remedy.name for remedy in remedies(job(), link(10e6), Size(2))}
    assert {"one-host", "diloco"} <= offered


def test_what_is_ready_last_and_needed_first_is_waited_for_in_any_order() -> None:
    """Word vectors that are the last layer as well: 100 MB at the very end of backward."""
    tied = Exchange(parts=(*(Part(10 * MB, 0.4 + 0.05 * n) for n in range(10)), Part(100 * MB, 1)))
    even = Exchange(parts=tuple(Part(10 * MB, 0.4 + 0.03 * n) for n in range(20)))
    gains = [
        gain_of(
            Situation(job(exchange=exchange, gradient_bytes=figure(200 * MB)), link(1e9), Size(2)),
            in_order_of_need(4 * MB),
        ).middle
        for exchange in (tied, even)
    ]
    assert gains[0] < gains[1] - 0.05


def test_sending_in_the_order_of_need_is_offered_to_processors_only() -> None:
    on_processors = job(exchange=Exchange())
    assert "overlap" in {remedy.name for remedy in remedies(on_processors, link(1e9), Size(4))}
    assert "overlap" not in {remedy.name for remedy in remedies(job(), link(1e9), Size(4))}


def test_what_a_remedy_gains_is_arithmetic() -> None:
    """A step of 1.21 s of work and 0.5 s of saving, and a loader that needs 4 s for it."""
    slow = job(
        measured_processes=1,
        compute=figure(1.2 / 4096),
        input_rate=figure(4096 / 4),
        schedule=Schedule(steps=100, save_seconds=5, save_every=10),
    )
    now = Situation(slow, link(1e9), Size(1))
    assert gain_of(now, more_workers(2)).middle == pytest.approx(4.5 / 2.5, rel=0.02)
    assert gain_of(now, rarer_saves(10)).middle == pytest.approx(4.5 / 4.05, rel=0.02)
    far = Situation(job(jitter=figure(0.0)), link(10e6, 0.0), Size(2))
    assert gain_of(far, larger_batch(2)).middle == pytest.approx(2, rel=0.02)
    assert gain_of(far, faster_link(2)).middle == pytest.approx(2, rel=0.02)
    assert gain_of(far, rarer_exchange(2)).middle == pytest.approx(2, rel=0.02)


def test_a_gain_is_told_with_its_interval() -> None:
    now = Situation(job(), link(1e9), Size(2))
    words = gain_in_words(gain_of(now, faster_link(10)))
    assert " times as fast, " in words and " to " in words
