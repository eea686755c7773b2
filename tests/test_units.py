"""Bytes, durations, counts and link speeds as people read and write them."""

import pytest

from paceline.errors import UserError
from paceline.units import (
    count_of,
    format_bytes,
    format_count,
    format_seconds,
    parse_link_speed,
    plural,
)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1_000, "1.0 kB"),
        (1_234_567, "1.2 MB"),
        (5e9, "5.0 GB"),
        (7.25e15, "7250.0 TB"),
    ],
)
def test_bytes_are_printed_in_decimal_units(num_bytes: float, text: str) -> None:
    assert format_bytes(num_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.00003, "30 µs"),
        (0.0000001, "0 s"),
        (0.0031, "3.1 ms"),
        (0.42, "0.42 s"),
        (12.34, "12.3 s"),
        (63, "1 min 03 s"),
        (3599.7, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (48 * 3600, "2 d 00 h"),
        (27 * 3600, "27 h 00 min"),
        (100 * 3600, "4 d 04 h"),
    ],
)
def test_durations_are_printed_in_the_two_units_that_matter(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_rounding_never_prints_sixty_seconds_or_a_thousand_kilobytes() -> None:
    assert format_seconds(59.97) == "1 min 00 s"
    assert format_bytes(999_960) == "1.0 MB"
    assert format_count(999_960) == "1.0 M"
    assert format_bytes(999_940) == "999.9 kB" and format_bytes(999.6) == "1.0 kB"
    assert format_count(9_999.6) == "10.0 k" and format_count(999.96e6) == "1.0 G"
    assert format_seconds(0.09996) == "0.10 s" and format_seconds(9.996) == "10.0 s"
    assert format_seconds(59.94) == "59.9 s" and format_seconds(59.4 + 60) == "1 min 59 s"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_a_question_mark(number: float) -> None:
    assert format_seconds(number) == format_bytes(number) == format_count(number) == "?"


def test_a_negative_duration_has_a_sign() -> None:
    assert format_seconds(-63) == "-1 min 03 s"


@pytest.mark.parametrize(
    ("noun", "many"),
    [
        ("target token", "target tokens"),
        ("image", "images"),
        ("process", "processes"),
        ("batch", "batches"),
        ("entry", "entries"),
        ("day", "days"),
    ],
)
def test_nouns_have_a_plural(noun: str, many: str) -> None:
    assert plural(noun) == many
    assert count_of(1, noun) == f"1 {noun}" and count_of(2_000, noun) == f"2,000 {many}"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (9_999, "9,999"),
        (12_345, "12.3 k"),
        (60_812_345, "60.8 M"),
        (2.5e9, "2.5 G"),
    ],
)
def test_big_counts_are_printed_as_people_say_them(count: float, text: str) -> None:
    assert format_count(count) == text


@pytest.mark.parametrize(
    ("text", "bits_per_second"),
    [
        ("10Gbit", 10e9),
        ("100 Mbit/s", 100e6),
        ("100 mbps", 100e6),
        ("12.5MB/s", 100e6),
        ("1 kbyte", 8e3),
        ("5bit", 5),
        ("  1Gb ", 1e9),
        ("1GB", 8e9),
        (".5Gbit", 5e8),
    ],
)
def test_link_speeds_are_bits_unless_they_say_bytes(text: str, bits_per_second: float) -> None:
    assert parse_link_speed(text) == pytest.approx(bits_per_second)


@pytest.mark.parametrize("text", ["", "fast", "10", "Gbit", "10 Gbit each", "-1Gbit", "1e9bit"])
def test_what_is_no_link_speed_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match="not a link speed") as caught:
        parse_link_speed(text)
    assert "1Gbit" in caught.value.fix


@pytest.mark.parametrize("text", ["1.2.3Gbit", ".bit", "..Mbit", "1.Gbit"])
def test_a_number_with_too_many_dots_is_no_link_speed(text: str) -> None:
    with pytest.raises(UserError):
        parse_link_speed(text)
