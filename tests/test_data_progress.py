"""How far a preparation is: said every few seconds, in the unit that is counted."""

import time

import pytest

from paceline.data.progress import BYTES, Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_what_is_done_at_once_is_not_worth_a_word(clock: list[float]) -> None:
    said: list[str] = []
    with Progress("encoding", "pairs", 10, said.append) as progress:
        for _ in range(10):
            clock[0] += 0.1
            progress.advance(1)
    assert said == []


def test_what_was_there_before_counts_as_done_and_not_as_speed(clock: list[float]) -> None:
    said: list[str] = []
    with Progress("encoding", "pairs", 10_000, said.append) as progress:
        progress.advance(5_000, was_there=True)
        clock[0] += 10
        progress.advance(1_000)
    assert said == ["encoding: 6,000 of 10,000 pairs (60%), 100 pairs/s, 40.0 s left"]


def test_bytes_are_shown_as_bytes_and_a_resumed_download_starts_where_it_is(
    clock: list[float],
) -> None:
    said: list[str] = []
    with Progress("archive.tgz", BYTES, 4_000_000, said.append) as progress:
        clock[0] += 10
        progress.start_at(2_000_000)
        clock[0] += 10
        progress.advance(1_000_000)
    assert said == ["archive.tgz: 3.0 MB of 4.0 MB (75%), 100.0 kB/s, 10.0 s left"]


def test_without_a_total_amount_and_rate_are_said(clock: list[float]) -> None:
    said: list[str] = []
    with Progress("archive.tgz", BYTES, None, said.append) as progress:
        clock[0] += 10
        progress.advance(20_000_000)
    assert said == ["archive.tgz: 20.0 MB, 2.0 MB/s"]
