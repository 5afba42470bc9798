"""Samplers: pure functions of (seed, step), whatever was asked for before, each with the property it is named for."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel.errors import DataError
from nlpkernel.hookspecs.sampler import Group, Sampler, Samples
from nlpkernel_text.samplers import components
from nlpkernel_text.samplers.shares import _below

CLASSES = ("a", "b", "c")


def samples(count: int = 1000, **values: Any) -> Samples:
    draw = np.random.default_rng(5)
    labels = np.arange(count) % 10
    return Samples(
        **{
            "count": count,
            "window": 64,
            "lengths": draw.integers(1, 65, count),
            "starts": 20_000,
            "labels": np.where(labels < 7, 0, np.where(labels < 9, 1, 2)),
            "classes": CLASSES,
            "weights": draw.random(count),
            "batch": 32,
            "micro": 16,
            "partial": "step",
            "seed": 7,
            **values,
        }
    )


def make(name: str, given: Samples, **settings: Any) -> Sampler:
    return getattr(components, name)(**settings).create_sampler(samples=given)


def rows(sampler: Sampler, first: int, last: int) -> list[list[int]]:
    return [part.rows.tolist() for step in range(first, last) for part in sampler.window(step)]


ALL: dict[str, dict[str, Any]] = {
    "Shuffle": {},
    "Order": {},
    "Random": {},
    "LengthGrouped": {"pool": 4},
    "TokenBudget": {"tokens": 256, "pool": 10},
    "Balanced": {},
    "Stratified": {},
    "Weighted": {},
    "Curriculum": {"over": 20},
}
#: Those in whose epochs each sample comes once.
ONCE = ("Shuffle", "Order", "LengthGrouped", "TokenBudget", "Stratified")


@pytest.mark.parametrize("name", ALL)
def test_a_window_depends_on_seed_and_step_alone(name):
    one = make(name, samples(), **ALL[name])
    whole = rows(one, 0, 80)
    assert rows(make(name, samples(), **ALL[name]), 0, 80) == whole
    # Looked up backwards and by itself, as after a resume.
    again = make(name, samples(), **ALL[name])
    for step in (79, 33, 0, 50):
        assert [part.rows.tolist() for part in again.window(step)] == rows(one, step, step + 1)
    if name != "Order":
        assert rows(make(name, samples(seed=8), **ALL[name]), 0, 80) != whole


@pytest.mark.parametrize("name", ONCE)
def test_each_epoch_holds_each_sample_once_in_another_order(name):
    sampler = make(name, samples(), **ALL[name])
    per_epoch = sampler.steps(1.0)
    assert sampler.epoch(per_epoch) == pytest.approx(1.0)
    first = [row for part in rows(sampler, 0, per_epoch) for row in part]
    second = [row for part in rows(sampler, per_epoch, sampler.steps(2.0)) for row in part]
    assert sorted(first) == sorted(second) == list(range(1000))
    assert (first == second) == (name == "Order")


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("TokenBudget", "Random")])
@pytest.mark.parametrize("partial", ["step", "carry", "drop"])
def test_micro_batches_of_another_size_hold_the_same_samples(name, partial):
    def windows(micro: int) -> list[list[int]]:
        sampler = make(name, samples(partial=partial, micro=micro), **ALL[name])
        return [[row for part in sampler.window(step) for row in part.rows] for step in range(70)]

    assert windows(32) == windows(16)


def test_length_grouped_saves_padding():
    def padding(name: str, **settings: Any) -> int:
        data = samples(4000)
        return sum(
            int((data.lengths[part.rows].max() - data.lengths[part.rows]).sum())
            for step in range(125)
            for part in make(name, data, **settings).window(step)
        )

    assert padding("LengthGrouped", pool=50) < 0.1 * padding("Shuffle")


def test_a_token_budget_is_kept_with_padding_counted_and_nearly_used():
    data = samples(4000)
    sampler = make("TokenBudget", data, tokens=512, pool=50)
    parts = [part.rows for step in range(sampler.steps(1)) for part in sampler.window(step)]
    sizes = [len(part) * int(data.lengths[part].max()) for part in parts]
    assert max(sizes) <= 512
    assert sum(sizes) / len(sizes) > 0.9 * 512
    assert sum(data.lengths) / sum(sizes) > 0.95
    assert {len(sampler.window(step)) for step in range(sampler.steps(1) - 1)} == {2}


def test_epochs_of_a_token_budget_may_differ_in_length_and_are_found_again():
    sampler = make("TokenBudget", samples(), tokens=100, pool=3)
    ends = [sampler.steps(float(epoch)) for epoch in range(1, 6)]
    assert [sampler.epoch(end) for end in ends] == [1, 2, 3, 4, 5]
    assert ends[0] < sampler.steps(1.5) < ends[1]
    assert 1 < sampler.epoch(ends[0] + 1) < 2
    assert make("TokenBudget", samples(), tokens=100, pool=3).epoch(ends[3]) == 4


def test_balanced_classes_come_in_turn_and_all_samples_of_each():
    data = samples(1000, batch=30, micro=30)
    sampler = make("Balanced", data)
    taken = [row for part in rows(sampler, 0, 60) for row in part]
    for first in range(0, len(taken) - 2, 3):
        assert sorted(data.labels[taken[first : first + 3]].tolist()) == [0, 1, 2]
    rare = Counter(row for row in taken if data.labels[row] == 2)
    assert len(rare) == 100
    assert max(rare.values()) - min(rare.values()) <= 1


def test_each_stratified_micro_batch_holds_each_class_in_its_share():
    data = samples(10_000, batch=128, micro=64)
    sampler = make("Stratified", data)
    for step in range(sampler.steps(2) - 1):
        for part in sampler.window(step):
            counts = np.bincount(data.labels[part.rows], minlength=3)
            if len(part.rows) == 64:
                assert (np.abs(counts - 64 * np.array([0.7, 0.2, 0.1])) <= 4).all()
                assert counts.min() >= 3


def test_case_d9_micro_batches_too_small_for_a_class_are_refused():
    with pytest.raises(DataError, match=r"a micro-batch of 8 cannot hold 'c', which is 100 of 1000"):
        make("Stratified", samples(micro=8))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0.01, 10), min_size=1, max_size=5),
    st.integers(0, 10_000),
    st.integers(1, 400),
    st.integers(0, 1 << 40),
)
def test_shares_of_a_mixture_are_met_within_bounds_from_anywhere(weights, first, steps, seed):
    edges = np.linspace(0, 1000, len(weights) + 1).astype(int).tolist()
    groups = [
        Group(str(n), a, b, w) for n, (a, b, w) in enumerate(zip(edges[:-1], edges[1:], weights, strict=True))
    ]
    sampler = make("Shuffle", samples(groups=groups, seed=seed, partial="carry"))
    taken = np.concatenate(
        [part.rows for step in range(first, first + steps) for part in sampler.window(step)]
    )
    for group in groups:
        mine = int(((taken >= group.start) & (taken < group.stop)).sum())
        # A few for the sequence, and one block of 64 at either end.
        assert abs(mine - len(taken) * group.weight / sum(weights)) <= 16


@given(st.integers(0, 5000), st.integers(0, 1 << 32))
def test_places_below_an_edge_are_counted_without_a_list(count, edge):
    assert _below(count, edge) == sum((i * 0x9E3779B9) % (1 << 32) < edge for i in range(count))


def test_all_samples_of_a_source_come_before_one_comes_again():
    groups = [Group("small", 0, 50, 3.0), Group("large", 50, 1000, 1.0)]
    sampler = make("Shuffle", samples(groups=groups))
    taken = [row for part in rows(sampler, 0, 10) for row in part if row < 50]
    assert len(taken) > 200
    for first in range(0, len(taken) - 50, 50):
        assert sorted(taken[first : first + 50]) == list(range(50))
    assert taken[:50] != taken[50:100]


def test_weights_by_class_and_by_sample():
    data = samples(batch=100, micro=100)
    taken = [
        row for part in rows(make("Weighted", data, weights={"a": 1.0, "c": 4.0}), 0, 50) for row in part
    ]
    shares = np.bincount(data.labels[taken], minlength=3) / len(taken)
    assert shares == pytest.approx([0.2, 0, 0.8], abs=0.01)
    drawn = Counter(row for part in rows(make("Weighted", data), 0, 400) for row in part)
    heavy = {row for row in range(1000) if data.weights[row] > 0.5}
    expected = sum(data.weights[row] for row in heavy) / data.weights.sum()
    assert sum(drawn[row] for row in heavy) / sum(drawn.values()) == pytest.approx(expected, abs=0.01)


def test_a_curriculum_begins_with_the_easy_and_ends_with_all():
    data = samples(batch=100, micro=100)
    sampler = make("Curriculum", data, over=50, start=0.1)
    easiest = np.sort(data.lengths)[99]
    assert data.lengths[sampler.window(0)[0].rows].max() <= easiest
    longest = [int(data.lengths[sampler.window(step)[0].rows].max()) for step in (0, 10, 25, 49)]
    assert longest == sorted(longest)
    after = [row for part in rows(sampler, 50, 60) for row in part]
    assert sorted(after) == list(range(1000))
    assert sampler.epoch(60) == pytest.approx(50 * 100 / 1000 + 1)
    assert sampler.steps(6.0) == 60


@pytest.mark.parametrize(
    ("name", "settings", "values", "message"),
    [
        ("Balanced", {}, {"labels": None, "classes": ()}, "the data has no labels"),
        ("Balanced", {}, {"classes": ("a", "b", "c", "d")}, "no training sample is of the class 'd'"),
        ("Weighted", {}, {"weights": None}, "needs weights"),
        ("Weighted", {"weights": {"z": 1.0}}, {}, "names 'z', and the classes or sources are: 'a', 'b', 'c'"),
        ("Curriculum", {"over": 5, "by": "weight"}, {"weights": None}, "needs a weight for each sample"),
        ("TokenBudget", {"tokens": 32}, {}, "a sample can have 64 tokens"),
        ("TokenBudget", {"tokens": 320}, {"fixed": True}, "micro-batches of one size"),
        ("Random", {}, {"starts": 0}, "begins rows with documents"),
        ("Order", {}, {"groups": [Group("x", 0, 1000, 2.0)]}, "the sources of the mixture have weights"),
    ],
)
def test_what_a_sampler_needs_and_does_not_get_is_said(name, settings, values, message):
    with pytest.raises(DataError, match=message):
        make(name, samples(**values), **settings)


@pytest.mark.parametrize("name", ALL)
def test_samples_before_a_window_are_counted(name):
    sampler = make(name, samples(), **ALL[name])
    for step in (0, 1, 31, 40, 70):
        assert sampler.seen(step) == sum(len(part) for part in rows(sampler, 0, step))
