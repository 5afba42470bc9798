from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.plan.units import parse_unit


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("200MB", "bytes", 200 * 10**6),
        ("200MiB", "bytes", 200 * 2**20),
        ("1.5GB", "bytes", 1_500_000_000),
        ("1B", "bytes", 1),
        ("0B", "bytes", 0),
        ("2kB", "bytes", 2000),
        ("2KB", "bytes", 2000),
        ("2KiB", "bytes", 2048),
        ("0.5KiB", "bytes", 512),
        ("3TB", "bytes", 3 * 10**12),
        ("3TiB", "bytes", 3 * 2**40),
        ("1 PB", "bytes", 10**15),
        ("90s", "seconds", 90.0),
        ("5m", "seconds", 300.0),
        ("2h", "seconds", 7200.0),
        ("1d", "seconds", 86400.0),
        ("500ms", "seconds", 0.5),
        ("0.1s", "seconds", 0.1),
        ("100ms", "seconds", 0.1),
        ("1h30m", "seconds", 5400.0),
        ("1d 2h 3m 4s 5ms", "seconds", 93784.005),
        ("1.5h", "seconds", 5400.0),
        ("0s", "seconds", 0.0),
        ("300M", "count", 300_000_000),
        ("1.5B", "count", 1_500_000_000),
        ("10k", "count", 10_000),
        ("10K", "count", 10_000),
        ("2T", "count", 2 * 10**12),
        ("0.001k", "count", 1),
    ],
)
def test_a_text_with_a_unit_is_the_number_that_it_stands_for(text: str, unit: Any, value: float) -> None:
    got = parse_unit(text, unit)
    assert got == value
    assert type(got) is (float if unit == "seconds" else int)


@pytest.mark.parametrize(
    ("text", "unit", "part"),
    [
        ("12", "count", "'12' has no unit"),
        ("12", "bytes", "a plain number stands without quotes"),
        ("1.5", "seconds", "has no unit"),
        ("", "bytes", "'' cannot be read"),
        ("MB", "bytes", "cannot be read"),
        ("-1MB", "bytes", "cannot be read"),
        (" 1MB", "bytes", "cannot be read"),
        ("1MB ", "bytes", "cannot be read"),
        ("1  MB", "bytes", "cannot be read"),
        ("1e3MB", "bytes", "unknown unit e"),
        (".5MB", "bytes", "cannot be read"),
        ("1.MB", "bytes", "cannot be read"),
        ("1,5MB", "bytes", "cannot be read"),
        ("\u0661MB", "bytes", "cannot be read"),
        ("1.5B", "bytes", "'1.5B' is no whole number of bytes"),
        ("0.3KiB", "bytes", "no whole number"),
        ("1.5", "count", "has no unit"),
        ("0.0001k", "count", "no whole number"),
        ("200mb", "bytes", "did you mean MB?"),
        ("200M", "bytes", "did you mean MB?"),
        ("1Gi", "bytes", "did you mean GiB?"),
        ("10min", "seconds", "did you mean m?"),
        ("3 hours", "seconds", "did you mean h?"),
        ("1D", "seconds", "did you mean d?"),
        ("300m", "count", "did you mean M?"),
        ("2G", "count", "did you mean B?"),
        ("2x", "count", "unknown unit x: a count"),
        ("1GB5MB", "bytes", "more than one number"),
        ("1m1h", "seconds", "largest unit comes first"),
        ("1h1h", "seconds", "each stands once"),
        ("9" * 500 + "s", "seconds", "cannot be read"),
        ("9" * 390 + "s", "seconds", "too long"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_sentence(text: str, unit: Any, part: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_unit(text, unit)
    assert part in str(caught.value)


@given(
    st.text(max_size=12) | st.from_regex(r"[0-9.]{1,4} ?[a-zA-Z]{1,3}", fullmatch=True),
    st.sampled_from(["bytes", "seconds", "count"]),
)
def test_every_other_text_is_a_value_error_and_nothing_else(text: str, unit: Any) -> None:
    try:
        value = parse_unit(text, unit)
    except ValueError:
        return
    assert value >= 0


@given(
    st.integers(0, 10**9), st.integers(0, 999), st.sampled_from([("kB", 10**3), ("MB", 10**6), ("GB", 10**9)])
)
def test_a_size_is_its_digits_times_its_unit(whole: int, thousandths: int, unit: tuple[str, int]) -> None:
    name, factor = unit
    expected = whole * factor + thousandths * factor // 1000
    assert parse_unit(f"{whole}.{thousandths:03d}{name}", "bytes") == expected


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59))
def test_the_parts_of_a_duration_add_up(hours: int, minutes: int, seconds: int) -> None:
    assert parse_unit(f"{hours}h{minutes}m{seconds}s", "seconds") == 3600 * hours + 60 * minutes + seconds


@given(st.integers(0, 10**12), st.sampled_from([("k", 10**3), ("M", 10**6), ("B", 10**9), ("T", 10**12)]))
def test_a_count_is_its_digits_times_its_unit(number: int, unit: tuple[str, int]) -> None:
    assert parse_unit(f"{number}{unit[0]}", "count") == number * unit[1]
