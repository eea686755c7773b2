"""What strangers measured, against the model. Where a figure is an assumption, it says so; why each
is as it is stands in docs/model.md."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from paceline.pace.exchange import Size, ring_bytes
from paceline.pace.job import NCCL_COPYING, RING, TREE, Exchange, Figure, Job, Link, Schedule
from paceline.pace.predict import Prediction, predict
from paceline.pace.remedies import Situation, gain_of, more_workers
from paceline.plan.catalogue import find_instance, link_of_type
from paceline.plan.elsewhere import Then, moved_to
from paceline.report.foreign.as_facts import checkpoint_bytes
from tests.paces import GRADIENTS, PARAMETERS, figure, job, link

HEADERS = 1 / 0.94
"""What an interface counts besides payload: Ethernet, IP and TCP."""
MiB = 2**20


def test_four_hosts_send_what_their_owner_measured() -> None:
    """Transformer-base, 60.8 M fp32 gradients, 4 hosts x 1 T4: 369 MB per host and step."""
    sent = float(ring_bytes(Size(4), np.array(GRADIENTS)))
    assert sent == pytest.approx(364.8e6)
    assert sent == pytest.approx(369e6, rel=0.02)


def test_two_hosts_of_two_devices_send_as_much_as_the_ring_leaves_each_host_once() -> None:
    """225.8 MB/s for 1.73 s, counted with headers."""
    sent = float(ring_bytes(Size(2, 2), np.array(GRADIENTS)))
    assert sent * HEADERS == pytest.approx(225.8e6 * 1.73, rel=0.02)


def test_the_step_of_four_t4s_is_predicted_from_the_catalogue_alone() -> None:
    """1.28 s. The tool pads all 128 sentences to 56 pieces and multiplies in fp32."""
    padded = 128 * 56
    blank = job(
        units_per_step=4 * padded,
        measured_processes=4,
        grows_with_world=True,
        compute=figure(0.0),
        update=figure(0.0),
        flops_per_unit=6 * PARAMETERS,
    )
    instance = find_instance("g4dn.2xlarge")
    on_t4 = moved_to(blank, instance, Then(precision="fp32"))
    (found,) = predict(on_t4, link_of_type(instance), [Size(4)])
    step = found.step_seconds
    assert step.low < 1.28 < step.high
    assert step.high / step.low < 5


def test_a_link_of_100_mbit_makes_steps_of_half_a_minute() -> None:
    """4 V100 on 2 hosts: 33 to 38 s."""
    (found,) = predict(job(), link(100e6), [Size(2, 2)])
    assert found.step_seconds.low < 38 and found.step_seconds.high > 33
    assert found.bottleneck == "network"


def resnet18(workers: int) -> Job:
    """6.50 s a step of 1,024 pictures, 5.93 s of it waiting for one loader process."""
    return job(
        unit="image",
        units_per_step=1024,
        measured_processes=1,
        compute=figure(0.57 / 1024, 0.08),
        update=figure(0.0),
        gradient_bytes=figure(46.8e6),
        input_rate=figure(workers * 1024 / 6.50, 0.05),
    )


def test_one_loader_worker_makes_a_step_of_6_5_seconds() -> None:
    (alone,) = predict(resnet18(1), link(10e9), [Size(1)])
    assert alone.step_seconds.middle == pytest.approx(6.50, rel=0.02)
    assert alone.phases["input"] == pytest.approx(5.93, rel=0.02)


def test_two_loader_workers_on_each_of_two_hosts_explain_1_70_seconds() -> None:
    (two,) = predict(resnet18(2), link(10e9), [Size(2)])
    assert two.step_seconds.low < 1.70 < two.step_seconds.high
    now = Situation(resnet18(1), link(10e9), Size(1))
    assert gain_of(now, more_workers(2)).middle == pytest.approx(2.0, rel=0.03)


@pytest.mark.parametrize(("is_mixed", "measured"), [(False, 690 * MiB), (True, 813 * MiB)])
def test_a_checkpoint_is_weights_and_adams_two_averages(is_mixed: bool, measured: float) -> None:
    """In mixed precision a copy of the weights in 16 bits besides."""
    assert checkpoint_bytes(int(PARAMETERS), is_mixed) == pytest.approx(measured, rel=0.01)


def speed_ups(trained: Job, ways: Link, sizes: list[Size]) -> list[Prediction]:
    return predict(trained, ways, sizes)


def test_resnet50_on_two_and_three_nodes_with_loaders_in_the_loop() -> None:
    """1.87 and 2.79 times one node. Assumed: a step of 0.36 s that a loader sets the pace of, its
    spread 8 %, 102 MB of fp32 gradients on links of 10 Gbit/s."""
    loading = job(
        unit="image",
        units_per_step=128,
        measured_processes=1,
        grows_with_world=True,
        compute=figure(0.33 / 128, 0.05),
        update=figure(0.01),
        gradient_bytes=figure(102e6),
        jitter=figure(0.08, 0.5),
        input_rate=figure(128 / 0.36, 0.03),
    )
    _, two, three = predict(loading, link(10e9), [Size(1), Size(2), Size(3)])
    assert two.speed_up.low < 1.87 < two.speed_up.high
    assert three.speed_up.low < 2.79 < three.speed_up.high


@dataclass(frozen=True)
class Submitted:
    """One and two DGX A100 in MLPerf v0.7, from the logs that were handed in: the batch of a step
    and the number of steps are the same on both, so no quality was paid for speed."""

    steps: int
    step_seconds: float
    """On one: the epochs' time by the number of steps."""
    other_seconds: float
    """Evaluations and start."""
    gradient_bytes: float
    efficiency: float


RESNET = Submitted(16_093, 0.1454, 48.0, 51e6, 0.84)
TRANSFORMER = Submitted(3_621, 0.1253, 17.0, 421e6, 0.90)


@pytest.mark.parametrize("submitted", [RESNET, TRANSFORMER])
def test_two_dgx_against_one_in_time_to_quality(submitted: Submitted) -> None:
    """What does not shrink with a process's part of the batch is assumed, as of all devices."""
    ways = Link(Figure(8 * 200e9, 0.05, "eight cards"), Figure(10e-6, 0.5, "InfiniBand"))
    trained = Job(
        unit="sample",
        units_per_step=1.0,
        grows_with_world=False,
        measured_processes=8,
        devices_per_host=8,
        compute=figure(8 * submitted.step_seconds * 0.98, 0.02),
        update=figure(submitted.step_seconds * 0.02),
        gradient_bytes=figure(submitted.gradient_bytes),
        jitter=figure(0.01, 0.5),
        exchange=Exchange(NCCL_COPYING, algorithms=(RING, TREE), inside_bytes_per_second=250e9),
        fixed=Figure(0.1, 0.6, "assumed of devices"),
        schedule=Schedule(submitted.steps, start_up_seconds=submitted.other_seconds),
    )
    one, two = predict(trained, ways, [Size(1, 8), Size(2, 8)])
    assert one.total_seconds and two.total_seconds
    low, high = (
        one.total_seconds.middle / seconds / 2
        for seconds in (two.total_seconds.high, two.total_seconds.low)
    )
    assert low < submitted.efficiency < high
    assert high - low < 0.25


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
        (found,) = predict(replace(known), link(1e9), [Size(2)])
        assert found.step_seconds.middle == pytest.approx(measured, rel=0.16)
