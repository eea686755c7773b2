"""What is measured while training: arithmetic, hosts, bytes, and the slowest step."""

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from paceline.machine.cores import num_cores
from paceline.machine.interfaces import interface_used, link_bits_per_second
from paceline.machine.probe import (
    HostProbe,
    _core_seconds,
    device_figures,
    host_names,
    this_machine,
)
from paceline.models.conv import Conv3x3
from paceline.models.shapes import named_shape
from paceline.models.transformer import Transformer
from paceline.record.events import Event, read_events
from paceline.record.phases import PhaseClock
from paceline.record.schema import RunDirectory
from paceline.record.writer import EventFile
from paceline.tasks.cifar10.resnet import CifarResNet
from paceline.train.measure.device_clock import DeviceStep, SettlingClock
from paceline.train.measure.flops import count_flops, measure_peak
from paceline.train.measure.probes import ProbeThread, file_name, other_cores
from tests.conftest import CommandLine

CPU = torch.device("cpu")


def of_kind(run: Path, kind: str, rank: int = 0) -> list[Event]:
    events = read_events(RunDirectory(run).rank_events(rank))
    return [event for event in events if event["kind"] == kind]


def probes_of(run: Path) -> list[Event]:
    (path,) = (run / "events").glob("host-*.jsonl")
    return read_events(path)


def test_the_operations_of_resnet_20_are_those_computed_by_hand() -> None:
    network = CifarResNet(20)
    pictures, labels = torch.randn(4, 3, 32, 32), torch.zeros(4, dtype=torch.long)

    def work() -> None:
        torch.autograd.backward(F.cross_entropy(network(pictures), labels))

    first = 3 * 16 * 9 * 32 * 32
    stages = [
        6 * 16 * 16 * 9 * 32 * 32,
        (16 + 5 * 32) * 32 * 9 * 16 * 16,
        (32 + 5 * 64) * 64 * 9 * 8 * 8,
    ]
    products = first + sum(stages) + 64 * 10
    # Backward costs twice the forward pass, but nobody needs the gradient of the pictures.
    assert count_flops(work) == 4 * 2 * (3 * products - first)


def test_a_kernel_with_fewer_operations_counts_as_what_it_computes() -> None:
    layer = Conv3x3(32, 64)
    pictures = torch.randn(25, 32, 16, 16).contiguous(memory_format=torch.channels_last)

    def work() -> None:
        torch.autograd.backward(layer.then_max_pool(pictures).sum())

    assert count_flops(work) == 2 * 2 * 25 * 16 * 16 * 9 * 32 * 64


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_operations_of_a_transformer_are_those_computed_by_hand(dropout: float) -> None:
    vocabulary, sentences, length = 3072, 8, 16
    rates = dict.fromkeys(("attention_dropout", "relu_dropout", "residual_dropout"), dropout)
    network = Transformer(named_shape("tiny", vocabulary, **rates))
    source, before, after = (torch.randint(5, 3000, (sentences, length)) for _ in range(3))

    def work() -> None:
        torch.autograd.backward(network(source, before, after).loss_sum)

    width, inner, layers = 128, 512, 2
    attention = 4 * width * width + 2 * length * width
    per_token = layers * (3 * attention + 2 * 2 * width * inner) + width * vocabulary
    assert count_flops(work) == 6 * sentences * length * per_token


def test_what_cannot_be_counted_is_not_known_rather_than_fatal() -> None:
    def fails() -> None:
        raise RuntimeError("no")

    assert count_flops(fails) is None
    assert count_flops(lambda: None) is None


def test_the_peak_is_at_least_what_a_slower_product_reaches() -> None:
    side = 256
    left = torch.randn(side, side)
    began = time.perf_counter()
    torch.mm(left, left)
    reached = 2 * side**3 / (time.perf_counter() - began)
    peak = measure_peak(CPU, torch.float32)
    assert peak is not None
    assert peak > 0.2 * reached


def send_over_loopback(num_bytes: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()

        def send() -> None:
            with sender:
                sender.sendall(bytes(num_bytes))

        writing = threading.Thread(target=send)
        writing.start()
        while receiver.recv(1 << 20):
            pass
        writing.join()
        receiver.close()


def test_a_probe_counts_what_went_over_the_interface() -> None:
    probe = HostProbe("here", "lo")
    send_over_loopback(50_000_000)
    seen = probe.look()
    assert seen["host"] == "here"
    assert seen["sent_bytes"] >= 50_000_000
    assert seen["received_bytes"] >= 50_000_000
    assert seen["sent_packets"] > 0
    assert 0 <= seen["cpu_share"] <= 1
    assert 0 < seen["memory_bytes"] < seen["memory_total_bytes"]


def test_an_interface_that_is_not_there_counts_nothing() -> None:
    seen = HostProbe("here", "nowhere0").look()
    assert (seen["sent_bytes"], seen["link_bits_per_second"]) == (0, None)


@pytest.mark.parametrize(
    ("num_hosts", "variables", "found"),
    [
        (1, {}, "lo"),
        (2, {"GLOO_SOCKET_IFNAME": "eth1"}, "eth1"),
        (2, {"NCCL_SOCKET_IFNAME": "=ib0,ib1"}, "ib0"),
        (2, {"NCCL_SOCKET_IFNAME": "^docker0", "MASTER_ADDR": "127.0.0.1"}, "lo"),
        (2, {"MASTER_ADDR": "no.such.host.invalid"}, "lo"),
    ],
)
def test_the_interface_is_the_named_one_or_the_one_of_the_route(
    num_hosts: int, variables: dict[str, str], found: str
) -> None:
    assert interface_used(num_hosts, variables) == found


def test_a_link_can_be_told_where_the_interface_does_not_know_it() -> None:
    assert link_bits_per_second("lo", {"PACELINE_LINK": "100Mbit"}) == 1e8
    assert link_bits_per_second("lo", {"PACELINE_LINK": "nonsense"}) is None


def test_two_hosts_of_one_name_are_told_apart() -> None:
    names = host_names(["a boot1", "a boot1", "a boot2", "b boot1"])
    assert names == {"a boot1": "a", "a boot2": "a.2", "b boot1": "b"}
    assert file_name("../a b") == ".._a_b"


class Driver:
    """Speaks like NVIDIA's library for one device that does not tell its power."""

    class NVMLError(Exception):
        pass

    def nvmlDeviceGetName(self, _device: int) -> bytes:  # noqa: N802
        return b"Tesla T4"

    def nvmlDeviceGetMemoryInfo(self, _device: int) -> Any:  # noqa: N802
        return SimpleNamespace(used=4_000, total=16_000)

    def nvmlDeviceGetUtilizationRates(self, _device: int) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=37)

    def nvmlDeviceGetPowerUsage(self, _device: int) -> int:  # noqa: N802
        raise self.NVMLError("not supported")


def test_what_a_device_does_not_tell_is_left_open() -> None:
    assert device_figures(Driver(), 0) == {
        "name": "Tesla T4",
        "utilisation": 0.37,
        "memory_bytes": 4_000,
        "memory_total_bytes": 16_000,
        "power_watts": None,
    }


class Broken(HostProbe):
    def look(self) -> dict[str, Any]:
        raise OSError("the counters are gone")


def test_a_probe_that_fails_says_so_once_and_lets_training_be(tmp_path: Path) -> None:
    told: list[str] = []
    events = EventFile(tmp_path / "host.jsonl", 1)
    thread = ProbeThread(Broken("here", "lo"), events, 0.01, lambda: 0, told.append)
    time.sleep(0.2)
    thread.stop()
    assert len(told) == 1
    assert "the counters are gone" in told[0]


def test_stopping_takes_a_last_look_so_that_sums_are_whole(tmp_path: Path) -> None:
    events = EventFile(tmp_path / "host.jsonl", 1)
    thread = ProbeThread(HostProbe("here", "lo"), events, 60, lambda: 7, lambda _text: None)
    thread.stop()
    first, last = read_events(tmp_path / "host.jsonl")
    assert (last["kind"], last["step"]) == ("probe", 7)
    assert first["seconds"] < last["seconds"] + 1


def test_totals_of_a_clock_go_on_over_what_was_taken() -> None:
    clock = PhaseClock()
    with clock.phase("input"):
        time.sleep(0.02)
    taken = clock.take()
    with clock.phase("input"):
        time.sleep(0.02)
    assert clock.totals()["input"] == pytest.approx(taken["input"] + clock.take()["input"])


def test_on_a_device_its_own_stamps_decide_and_the_sum_stays() -> None:
    host = {"input": 3.0, "compute": 0.5, "network": 0.1, "optimizer": 0.1, "unexplained": 6.3}
    device = {"compute": 6.0, "network": 2.0, "optimizer": 1.0}
    settled = SettlingClock().settle({**host, "evaluate": 5.0}, [DeviceStep(10.0, device)])
    assert sum(settled.values()) == pytest.approx(15.0)
    # The device was busy for 9 of 10 seconds: the host read ahead, and only 1 second was waiting.
    expected = {**device, "input": 1.0, "unexplained": 0.0, "evaluate": 5.0}
    assert settled == pytest.approx(expected)
    assert SettlingClock().settle(host, []) == host


def test_an_attempt_says_where_it_runs_and_what_it_could_do(finished_run: Path) -> None:
    for rank in (0, 1):
        (begin,) = of_kind(finished_run, "begin", rank)
        assert begin["host"] == socket.gethostname()
        assert begin["interface"] == "lo"
        assert begin["num_hosts"] == 1
        assert begin["machine"] == this_machine() != ""
        assert begin["cores"] == sorted(os.sched_getaffinity(0))
        assert begin["steps_wanted"] == 12
        assert begin["flops_per_unit"] == pytest.approx(72_552_192)  # ResNet-8
        assert begin["peak_flops"] > 1e8


def test_bytes_given_to_the_reduction_are_those_of_the_gradients(finished_run: Path) -> None:
    (begin,) = of_kind(finished_run, "begin")
    for rank in (0, 1):
        for event in of_kind(finished_run, "steps", rank):
            assert event["reduced_bytes"] == event["num_steps"] * begin["gradient_bytes"]


def test_every_step_is_recorded_with_its_rate_and_its_loss(finished_run: Path) -> None:
    for event in of_kind(finished_run, "steps"):
        assert len(event["rates"]) == len(event["losses"]) == event["num_steps"]
        assert event["rates"][-1] == pytest.approx(event["rate"])
        assert sum(event["losses"]) / event["num_steps"] == pytest.approx(event["loss"], rel=1e-5)
    assert all("rates" not in event for event in of_kind(finished_run, "steps", rank=1))


def test_a_save_tells_how_long_the_loop_stood_still_and_until_when_it_was_written(
    finished_run: Path,
) -> None:
    saves = of_kind(finished_run, "checkpoint")
    assert saves
    for save in saves:
        assert save["copy_seconds"] > 0 and save["wait_seconds"] >= 0
        assert save["until_step"] > save["step"]


def test_a_probe_looks_at_the_cores_that_the_host_may_use() -> None:
    """Hosts of the practice cluster have cores of their own, and the counters of all."""
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one core is all that there is")
    whole = sum(_core_seconds().values())
    try:
        os.sched_setaffinity(0, {min(allowed)})
        part = sum(_core_seconds().values())
    finally:
        os.sched_setaffinity(0, allowed)
    assert part == pytest.approx(whole / len(allowed), rel=0.2)


def test_the_slowest_step_is_named_with_its_phases(finished_run: Path) -> None:
    for event in of_kind(finished_run, "steps"):
        slowest = event["slowest_step"]
        assert slowest["seconds"] == max(event["step_seconds"])
        assert sum(slowest["phases"].values()) == pytest.approx(slowest["seconds"], abs=0.005)
        assert event["step"] - event["num_steps"] < slowest["step"] <= event["step"]


def test_hosts_are_probed_from_the_first_step_to_the_last(finished_run: Path) -> None:
    probes = probes_of(finished_run)
    (begin,), (end,) = of_kind(finished_run, "begin"), of_kind(finished_run, "end")
    seconds = sum(probe["seconds"] for probe in probes)
    assert seconds == pytest.approx(end["time"] - begin["time"], rel=0.1, abs=0.3)
    assert probes[-1]["step"] == 12


def test_training_data_is_scored_as_validation_is(finished_run: Path) -> None:
    scores = of_kind(finished_run, "score")
    assert [(s["step"], s["split"]) for s in scores] == [
        (6, "validation"),
        (6, "train"),
        (12, "validation"),
        (12, "train"),
    ]
    assert all({"loss", "top1"} <= score["scores"].keys() for score in scores)
    assert "train:100 pictures" in scores[1]["signature"]


def test_scoring_training_data_can_be_left_out(paceline: CommandLine) -> None:
    result = paceline.train("runs/a", "steps=2", "evaluate.train_samples=0", procs=1)
    assert result.returncode == 0, result.stderr
    scores = of_kind(paceline.cwd / "runs" / "a", "score")
    assert [score["split"] for score in scores] == ["validation"]


def test_load_of_other_programs_is_what_the_run_did_not_use() -> None:
    assert other_cores(cpu_share=1.0, seconds=2.0, own_seconds=1.0, num_cores=2) == 1.5
    assert other_cores(cpu_share=0.5, seconds=2.0, own_seconds=2.0, num_cores=2) == 0.0
    assert other_cores(cpu_share=0.4, seconds=2.0, own_seconds=2.0, num_cores=2) == 0.0


@pytest.mark.cluster
def test_a_run_says_in_its_first_seconds_that_other_programs_use_the_cores(
    paceline: CommandLine,
) -> None:
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(num_cores())
    ]
    try:
        result = paceline.train(
            "runs/a", "steps=50", "log.probe_seconds=1", "evaluate.every_steps=null", procs=1
        )
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert result.returncode == 0, result.stderr
    assert "other programs use about" in result.stderr
    assert result.stderr.count("other programs use") == 1
