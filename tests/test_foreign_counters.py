"""Counters beside a log: how busy devices were and what was sent, with the period stated."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import UserError
from paceline.report.answers.answer import Answer
from paceline.report.facts.facts import Options
from paceline.report.foreign import read_foreign
from paceline.report.foreign.counters import cloudwatch, nmon, nvidia_smi
from paceline.report.foreign.counters.counters import CPU, DEVICE, POWER, RECEIVED, SENT, Counters
from paceline.report.report import open_report
from tests.log_answers import answers_of

BEGIN = datetime(2024, 3, 1, 12, 0, tzinfo=UTC)


def log_of_ten_minutes(directory: Path) -> None:
    """A step a second, from 12:00:10 to 12:10:00."""
    lines = [
        f"[titan] {BEGIN + timedelta(seconds=10 * n):%Y-%m-%d %H:%M:%S},000 - root - INFO - "
        f"step: {10 * n}  loss: {8 - n / 20:.4f}  grad_norm: 1.2  tps: 5,900  mfu: 34.90%"
        for n in range(1, 61)
    ]
    (directory / "train.log").write_text("\n".join(lines) + "\n")


def answers(directory: Path, link: float | None = None) -> dict[str, Answer]:
    return {one.key: one for one in answers_of(read_foreign(directory), link)}


def mean(counters: Counters, what: str) -> float:
    held = counters.samples[what]
    return sum(value for _, value in held) / len(held)


def gpu_table(directory: Path) -> Path:
    """Two devices at 80 % and 90 % while the log trains, idle before and after."""
    rows = ["timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W]"]
    for n in range(150):
        time = BEGIN + timedelta(seconds=5 * n)
        for index in (0, 1):
            share = 80 + 10 * index if 2 <= n <= 120 else 0
            rows.append(f"{time:%Y/%m/%d %H:%M:%S}.000, {index}, {share} %, 1000 MiB, 250.00 W")
    path = directory / "gpu.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_gpu_utilisation_while_it_trained_answers_how_busy_it_was(tmp_path: Path) -> None:
    log_of_ten_minutes(tmp_path)
    gpu_table(tmp_path)
    busy = answers(tmp_path)["busy"]
    assert busy.figures["utilisation"] == pytest.approx(0.85)
    assert "85 %" in busy.sentence
    assert "every 5.00 s" in busy.how
    assert "while it trained" in busy.how
    assert not busy.missing
    assert "85 %" in open_report([tmp_path], Options()).html()


def test_dmon_and_the_table_in_a_loop_are_read(tmp_path: Path) -> None:
    dmon = tmp_path / "dmon.log"
    dmon.write_text(
        "#Date       Time        gpu   pwr gtemp    sm   mem\n"
        "#YYYYMMDD   HH:MM:SS    Idx     W     C     %     %\n"
        " 20240301   12:00:00      0   200    60    40    10\n"
        " 20240301   12:00:00      1   100    60    60    10\n"
        " 20240301   12:00:01      0   200    60    80    10\n"
        " 20240301   12:00:01      1   100    60   100    10\n".replace("\n ", "\n")
    )
    (found,) = nvidia_smi.read(dmon)
    assert [value for _, value in found.samples[DEVICE]] == pytest.approx([0.5, 0.9])
    assert mean(found, POWER) == 300
    assert found.period == 1.0
    table = tmp_path / "loop.log"
    line = "| N/A   35C    P0    43W / 250W |   1234MiB / 16160MiB |     {}%      Default |\n"
    text = "".join(
        f"Fri Mar  1 12:00:{second:02d} 2024\n| NVIDIA-SMI 470 |\n{line.format(share)}"
        for second, share in ((0, 10), (5, 30))
    )
    table.write_text(text)
    (found,) = nvidia_smi.read(table)
    assert mean(found, DEVICE) == pytest.approx(0.2)
    assert found.period == 5.0


def nmon_file(directory: Path) -> Path:
    """25 % user, 10 % system; 1,024 KB/s received and 2,048 sent on the real interface."""
    lines = [
        "AAA,progname,nmon",
        "AAA,host,node1",
        "AAA,interval,60",
        "CPU_ALL,CPU Total node1,User%,Sys%,Wait%,Idle%,Busy,CPUs",
        "NET,Network I/O node1,lo-read-KB/s,eth0-read-KB/s,docker0-read-KB/s,lo-write-KB/s,"
        "eth0-write-KB/s,docker0-write-KB/s,",
    ]
    for minute in range(11):
        lines += [
            f"ZZZZ,T{minute:04d},12:{minute:02d}:00,01-MAR-2024",
            f"CPU_ALL,T{minute:04d},25.0,10.0,5.0,60.0,,8",
            f"NET,T{minute:04d},9.0,1024.0,5.0,9.0,2048.0,5.0,",
        ]
    path = directory / "node1.nmon"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_moment_of_nmon_with_a_damaged_day_is_left_out(tmp_path: Path) -> None:
    path = nmon_file(tmp_path)
    (whole,) = nmon.read(path)
    text = path.read_text(encoding="utf-8")
    last = text.rindex("-MAR-")
    path.write_text(f"{text[: last - 1]}\ufffd{text[last:]}", encoding="utf-8")
    (found,) = nmon.read(path)
    assert len(found.samples[CPU]) == len(whole.samples[CPU]) - 1


def test_nmon_counts_kibibytes_and_leaves_virtual_interfaces_out(tmp_path: Path) -> None:
    (found,) = nmon.read(nmon_file(tmp_path))
    assert (found.host, found.interface, found.period) == ("node1", "eth0", 60.0)
    assert mean(found, CPU) == pytest.approx(0.35)
    assert mean(found, SENT) == 2048 * 1024
    assert mean(found, RECEIVED) == 1024 * 1024


def test_what_was_sent_answers_network_and_traffic_alike(tmp_path: Path) -> None:
    """2 MiB a step of one second are 16.8 Mbit/s: 16.8 % of 100 Mbit/s."""
    log_of_ten_minutes(tmp_path)
    nmon_file(tmp_path)
    given = answers(tmp_path, link=100e6)
    share = 8 * 2 * 1024 * 1024 / 100e6
    assert given["network"].figures["link_share"] == pytest.approx(share)
    assert given["network"].sentence.startswith("No:")
    assert given["traffic"].figures["measured_bytes_per_step"] == pytest.approx(2 * 1024 * 1024)
    assert "1 min 00 s" in given["traffic"].how
    assert given["busy"].figures["utilisation"] == pytest.approx(0.35)


def metric(statistics: dict[str, Any], minutes: int, unit: str = "Bytes") -> dict[str, Any]:
    points = [
        {"Timestamp": f"2024-03-01T12:{n * minutes:02d}:00Z", "Unit": unit, **statistics}
        for n in (2, 0, 1)  # in no order
    ]
    return {"Label": "NetworkOut", "Datapoints": points}


@pytest.mark.parametrize(
    ("statistics", "minutes", "unit", "bytes_per_second"),
    [
        ({"Sum": 6e9}, 1, "Bytes", 1e8),
        ({"Sum": 6e9}, 5, "Bytes", 2e7),
        ({"Average": 6e9}, 1, "Bytes", 1e8),
        ({"Average": 6e9, "SampleCount": 5.0}, 5, "Bytes", 1e8),
        ({"Average": 6e9, "SampleCount": 1.0}, 5, "Bytes", 2e7),
        ({"Average": 80.0}, 5, "Megabits/Second", 1e7),
        ({"Average": 80.0}, 5, "Megabytes/Second", 8e7),
    ],
)
def test_cloudwatch_periods_and_units_are_told_apart(
    tmp_path: Path, statistics: dict[str, float], minutes: int, unit: str, bytes_per_second: float
) -> None:
    path = tmp_path / "net.json"
    path.write_text(json.dumps(metric(statistics, minutes, unit)))
    (found,) = cloudwatch.read(path)
    assert mean(found, SENT) == pytest.approx(bytes_per_second)
    assert found.period == 60 * minutes


def test_an_average_over_samples_of_unknown_length_is_not_guessed(tmp_path: Path) -> None:
    log_of_ten_minutes(tmp_path)
    (tmp_path / "net.json").write_text(json.dumps(metric({"Average": 6e9}, 5)))
    run = read_foreign(tmp_path)
    assert SENT not in run.counters[0].samples
    assert any("Sum" in note for note in run.counters[0].notes)


def test_counters_of_another_day_are_not_said_to_be_of_the_run(tmp_path: Path) -> None:
    log_of_ten_minutes(tmp_path)
    path = nmon_file(tmp_path)
    path.write_text(path.read_text().replace("01-MAR-2024", "07-APR-2024"))
    assert "no clock that meets theirs" in answers(tmp_path)["busy"].how


def test_counters_may_be_named_beside_the_log(tmp_path: Path) -> None:
    log_of_ten_minutes(tmp_path)
    other = tmp_path / "elsewhere"
    other.mkdir()
    counters = nmon_file(other)
    given = open_report([tmp_path / "train.log", counters], Options())
    assert "The cores were 35 % busy" in given.text()
    with pytest.raises(UserError, match="not what it trained"):
        open_report([counters], Options())
    with pytest.raises(UserError, match="not clear during which run"):
        open_report([tmp_path / "train.log", tmp_path / "train.log", counters], Options())
