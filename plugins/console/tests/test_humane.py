from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel_console import humane


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0"),
        (950, "950"),
        (999.4, "999"),
        (999.5, "1.0k"),
        (12_345, "12.3k"),
        (999_949, "999.9k"),
        (999_950, "1.0M"),
        (1_234_567, "1.2M"),
        (3.4e9, "3.4B"),
        (5e12, "5.0T"),
        (5e15, "5000.0T"),
    ],
)
def test_counts(amount, text):
    assert humane.count(amount) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0 B"), (950, "950 B"), (1_234_567_890, "1.2 GB"), (2_500, "2.5 kB"), (1e12, "1.0 TB")],
)
def test_sizes(amount, text):
    assert humane.size(amount) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0.0s"),
        (0, "0.0s"),
        (0.34, "0.3s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (59.4, "59s"),
        (59.6, "1m 00s"),
        (200, "3m 20s"),
        (3599.4, "59m 59s"),
        (3599.6, "1h 00m"),
        (7500, "2h 05m"),
        (86_399, "1d 00h"),
        (86_400 * 3 + 4 * 3600, "3d 04h"),
    ],
)
def test_durations(seconds, text):
    assert humane.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (0.0, "0.0000"),
        (2.34512, "2.3451"),
        (-2.34512, "-2.3451"),
        (118.3, "118.30"),
        (12345.678, "12,345.68"),
        (1.2041e-5, "1.204e-05"),
        (1.5e7, "1.500e+07"),
        (1234, "1,234"),
    ],
)
def test_metrics(value, text):
    assert humane.number(value) == text


@given(st.floats(0, 1e14, exclude_min=True))
def test_a_count_is_within_half_of_its_last_digit(amount):
    found = re.fullmatch(r"([\d.]+)([kMBT]?)", humane.count(amount))
    unit = 1000.0 ** " kMBT".index(found[2] or " ")
    assert abs(float(found[1]) * unit - amount) <= unit * (0.5 if unit == 1 else 0.05001)


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_a_longer_time_never_reads_as_a_shorter_one(one, other):
    one, other = sorted((one, other))
    assert _seconds(humane.duration(one)) <= _seconds(humane.duration(other))


def _seconds(text):
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    return sum(float(part[:-1]) * units[part[-1]] for part in text.split())


@given(st.text())
def test_one_line_is_one_line_without_control_characters(text):
    line = humane.one_line(text)
    assert len(line.splitlines()) <= 1
    assert not re.search("[\x00-\x1f\x7f-\x9f]", line)


def test_lines_are_joined_and_control_characters_shown():
    assert humane.one_line("a \n  b\n\nc\x1b[31m ü\u2028") == "a | b | c\\x1b[31m ü\\u2028"
