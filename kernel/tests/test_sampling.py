"""Tests of nlpkernel.sampling: permutations, draws, and the windows of a run."""

from __future__ import annotations

import math
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.errors import DataError
from nlpkernel.sampling import LARGEST, Draws, Windows, key, mix, offsets, permute

SIZES = st.integers(1, 3000)
KEYS = st.integers(0, 2**64 - 1)


# -- permute ----------------------------------------


@given(size=SIZES, key=KEYS)
def test_permute_takes_a_range_onto_itself(size: int, key: int) -> None:
    assert np.array_equal(np.sort(permute(np.arange(size), size, key)), np.arange(size))


@given(size=st.integers(2, LARGEST), key=KEYS, data=st.data())
def test_permute_of_any_size_stays_inside_and_keeps_two_rows_apart(
    size: int, key: int, data: st.DataObject
) -> None:
    pair = data.draw(st.lists(st.integers(0, size - 1), min_size=2, max_size=2, unique=True))
    first, second = permute(pair, size, key).tolist()
    assert 0 <= first < size
    assert 0 <= second < size
    assert first != second


@given(size=SIZES, keys=st.lists(KEYS, min_size=1, max_size=4))
def test_permute_with_a_key_for_each_element_is_permute_with_each_key(size: int, keys: list[int]) -> None:
    index = np.tile(np.arange(size), (len(keys), 1))
    together = permute(index, size, np.array(keys, dtype=np.uint64)[:, None])
    for row, each in zip(together, keys, strict=True):
        assert np.array_equal(row, permute(np.arange(size), size, each))


def test_permute_keeps_the_shape_and_does_not_touch_what_it_was_given() -> None:
    index = np.arange(12, dtype=np.int64).reshape(3, 4)
    assert permute(index, 12, 1).shape == (3, 4)
    assert np.array_equal(index, np.arange(12).reshape(3, 4))


@pytest.mark.parametrize(("index", "size"), [([5], 5), ([-1], 5), ([0], 0), ([0], LARGEST + 1)])
def test_permute_refuses_what_is_outside(index: list[int], size: int) -> None:
    with pytest.raises(ValueError, match=r"range|size"):
        permute(index, size, 1)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_all_orders_of_few_rows_come_equally_often(size: int) -> None:
    draws = 20_000
    keys = np.array([key(7, epoch) for epoch in range(draws)], dtype=np.uint64)
    orders = np.stack([permute(np.full(draws, row), size, keys) for row in range(size)], axis=1)
    seen = Counter(map(tuple, orders.tolist()))
    expected = draws / math.factorial(size)
    chi2 = sum((seen[order] - expected) ** 2 / expected for order in permutations(range(size)))
    freedom = math.factorial(size) - 1
    # Six standard deviations: the keys are fixed, so this passes always or never.
    assert (chi2 - freedom) / math.sqrt(2 * freedom) < 6


@pytest.mark.parametrize("size", [12, 30, 100, 1000])
def test_the_images_of_neighbours_are_independent(size: int) -> None:
    draws = 20_000
    keys = np.array([key(3, epoch) for epoch in range(draws)], dtype=np.uint64)
    distance = (permute(np.full(draws, 1), size, keys) - permute(np.full(draws, 0), size, keys)) % size
    seen = np.bincount(distance, minlength=size)[1:]
    expected = draws / (size - 1)
    chi2 = float(((seen - expected) ** 2 / expected).sum())
    assert (chi2 - size + 2) / math.sqrt(2 * (size - 2)) < 6


# -- draws ----------------------------------------


def test_draws_of_a_row_do_not_depend_on_how_the_window_is_cut() -> None:
    whole = offsets(3, 17, 0, 12, 1000)
    cut = np.concatenate([offsets(3, 17, at, 4, 1000) for at in (0, 4, 8)])
    assert np.array_equal(whole, cut)


def test_draws_differ_between_steps_and_between_seeds_and_are_even() -> None:
    assert not np.array_equal(offsets(0, 1, 0, 12, 10**6), offsets(0, 2, 0, 12, 10**6))
    assert not np.array_equal(offsets(0, 1, 0, 12, 10**6), offsets(1, 1, 0, 12, 10**6))
    drawn = np.concatenate([offsets(0, step, 0, 10, 10) for step in range(5000)])
    assert drawn.min() == 0
    assert drawn.max() == 9
    assert np.abs(np.bincount(drawn) - 5000).max() < 6 * math.sqrt(5000)


def test_case_r4_a_resumed_run_draws_what_the_unbroken_one_draws() -> None:
    unbroken = [offsets(1337, step, 0, 4, 10**6).tolist() for step in range(20)]
    resumed = [offsets(1337, step, 0, 4, 10**6).tolist() for step in range(10, 15)]
    resumed += [offsets(1337, step, 0, 4, 10**6).tolist() for step in range(15, 20)]
    assert resumed == unbroken[10:]
    assert not set(map(tuple, resumed)) & set(map(tuple, unbroken[:10]))


def test_draws_of_many_windows_at_once_are_those_of_each() -> None:
    draws = Draws(1337, 12, 1000)
    for step in (0, 1, 2, 500, 3, 1000, 999, 84, 85, 86):
        assert np.array_equal(draws.window(step), offsets(1337, step, 0, 12, 1000))
    assert np.array_equal(Draws(1, 5000, 10).window(7), offsets(1, 7, 0, 5000, 10))


def test_nothing_is_drawn_from_an_empty_range() -> None:
    with pytest.raises(ValueError, match="range"):
        offsets(0, 0, 0, 1, 0)


# -- windows ----------------------------------------


def rows_of(windows: Windows, first: int, last: int) -> list[int]:
    return [row for step in range(first, last) for part in windows.window(step) for row in part.rows.tolist()]


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, int, int]:
    samples = draw(st.integers(1, 200))
    batch = draw(st.integers(1, 50))
    return samples, batch, draw(st.integers(1, batch))


@given(shape=shapes(), seed=st.integers(0, 2**63 - 1), shuffle=st.booleans())
def test_under_step_every_epoch_holds_each_row_once(
    shape: tuple[int, int, int], seed: int, shuffle: bool
) -> None:
    samples, batch, micro = shape
    windows = Windows(samples, batch, micro, "step", seed, shuffle)
    each = windows.steps(1)
    for epoch in range(3):
        assert windows.epoch(epoch * each) == epoch
        rows = rows_of(windows, epoch * each, (epoch + 1) * each)
        assert sorted(rows) == list(range(samples))
        assert shuffle or rows == sorted(rows)
        assert {part.epoch for step in range(each) for part in windows.window(epoch * each + step)} == {epoch}


@given(shape=shapes(), seed=st.integers(0, 2**63 - 1))
def test_under_carry_every_pass_over_the_sequence_holds_each_row_once(
    shape: tuple[int, int, int], seed: int
) -> None:
    samples, batch, micro = shape
    windows = Windows(samples, batch, micro, "carry", seed)
    steps = windows.steps(3)
    rows = rows_of(windows, 0, steps)
    assert len(rows) == steps * batch
    assert 3 * samples <= len(rows) < 3 * samples + batch
    for epoch in range(3):
        assert sorted(rows[epoch * samples : (epoch + 1) * samples]) == list(range(samples))


@given(shape=shapes(), seed=st.integers(0, 2**63 - 1))
def test_under_drop_all_windows_are_full_and_what_is_dropped_is_counted(
    shape: tuple[int, int, int], seed: int
) -> None:
    samples, batch, micro = shape
    if samples < batch:
        with pytest.raises(DataError, match="no step can ever happen"):
            Windows(samples, batch, micro, "drop", seed)
        return
    windows = Windows(samples, batch, micro, "drop", seed)
    each = windows.steps(1)
    for epoch in range(2):
        rows = rows_of(windows, epoch * each, (epoch + 1) * each)
        assert len(rows) == len(set(rows)) == each * batch
        assert windows.dropped == samples - len(rows)


@given(
    shape=shapes(),
    policy=st.sampled_from(["step", "carry"]),
    steps=st.lists(st.integers(0, 5000), max_size=8),
)
def test_a_window_does_not_depend_on_which_were_asked_before(
    shape: tuple[int, int, int], policy: str, steps: list[int]
) -> None:
    windows = Windows(*shape, policy, 5)  # type: ignore[arg-type]
    for step in steps:
        alone = Windows(*shape, policy, 5).window(step)  # type: ignore[arg-type]
        asked = windows.window(step)
        assert [part.epoch for part in asked] == [part.epoch for part in alone]
        assert all(np.array_equal(a.rows, b.rows) for a, b in zip(asked, alone, strict=True))


@given(shape=shapes(), policy=st.sampled_from(["step", "carry"]))
def test_micro_batches_are_the_batch_in_order(shape: tuple[int, int, int], policy: str) -> None:
    samples, batch, micro = shape
    for step in range(4):
        whole = Windows(samples, batch, None, policy, 1).window(step)  # type: ignore[arg-type]
        cut = Windows(samples, batch, micro, policy, 1).window(step)  # type: ignore[arg-type]
        assert len(whole) == 1
        assert all(len(part.rows) == micro for part in cut[:-1])
        assert np.array_equal(whole[0].rows, np.concatenate([part.rows for part in cut]))


@given(shape=shapes(), policy=st.sampled_from(["step", "carry", "drop"]))
def test_seen_counts_the_rows_of_the_windows_before(shape: tuple[int, int, int], policy: str) -> None:
    samples, batch, micro = shape
    windows = Windows(max(samples, batch), batch, micro, policy, 1)  # type: ignore[arg-type]
    for step in range(6):
        assert windows.seen(step) == len(rows_of(windows, 0, step))


@pytest.mark.parametrize(
    ("policy", "sizes"), [("step", [4, 1, 4, 1]), ("carry", [4, 4, 4]), ("drop", [4, 4])]
)
def test_case_l2_the_last_partial_window_follows_the_named_policy(policy: str, sizes: list[int]) -> None:
    windows = Windows(5, 4, 1, policy, 0)  # type: ignore[arg-type]
    assert windows.steps(2) == len(sizes)
    assert [sum(len(part.rows) for part in windows.window(step)) for step in range(len(sizes))] == sizes
    assert windows.dropped == (1 if policy == "drop" else 0)


def test_case_l2_a_plan_under_which_no_step_can_happen_is_refused() -> None:
    with pytest.raises(DataError, match='5 samples, a batch holds 8, and partial = "drop"'):
        Windows(5, 8, 8, "drop")
    with pytest.raises(DataError, match="no samples"):
        Windows(0, 8)
    assert Windows(5, 8, 8, "step").steps(1) == 1
    assert Windows(5, 8, 8, "carry").steps(1) == 1


def test_case_r2_epochs_differ_and_a_resumed_run_goes_on_where_it_stopped() -> None:
    unbroken = rows_of(Windows(10, 2, seed=1), 0, 15)
    assert rows_of(Windows(10, 2, seed=1), 0, 7) + rows_of(Windows(10, 2, seed=1), 7, 15) == unbroken
    epochs = [unbroken[at : at + 10] for at in (0, 10, 20)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) == 3


def test_steps_of_fractions_of_an_epoch() -> None:
    assert Windows(30, 1).steps(0.1) == 3
    assert Windows(100, 10).steps(0.25) == 3
    assert Windows(100, 10).steps(1.0) == 10
    assert Windows(10, 4, partial="carry").steps(1) == 3
    assert Windows(10**9, 64).steps(1e-12) == 1


def test_rows_that_were_handed_out_cannot_be_changed_by_accident() -> None:
    part = Windows(10, 2).window(0)[0]
    with pytest.raises(ValueError, match="read-only"):
        part.rows[0] = 3


def test_a_virtual_set_of_a_billion_rows_seeks_in_little_time_and_memory() -> None:
    Windows(10**9, 64, 16, seed=1).window(0)
    times = []
    tracemalloc.start()
    try:
        for attempt in range(5):
            windows = Windows(10**9, 64, 16, seed=attempt)
            begin = time.thread_time()
            parts = windows.window(10**6)
            times.append(time.thread_time() - begin)
            assert sum(len(part.rows) for part in parts) == 64
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert min(times) < 0.010
    assert peak < 1_000_000


def test_importing_the_module_does_not_import_numpy() -> None:
    code = "import sys, nlpkernel.sampling; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_mixed_numbers_differ_where_their_sources_do_and_leave_them_alone() -> None:
    values = np.arange(100_000, dtype=np.uint64)
    mixed = mix(values)
    assert values[-1] == 99_999
    assert len(np.unique(mixed)) == len(values)
    # Each bit is set as often as not.
    shares = [float(((mixed >> np.uint64(bit)) & np.uint64(1)).mean()) for bit in range(64)]
    assert max(abs(share - 0.5) for share in shares) < 0.01
