"""Lines: what a run went back from stays, and goes on beside it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nlpkernel.errors import CheckpointError
from nlpkernel.state import Leaf
from nlpkernel_store.component import Keep
from nlpkernel_store.references import current, resolve


def line_of(store, reference="newest"):
    return store.catalog.manifest(resolve(store.catalog, reference)).line


def history(store):
    return [entry.step for entry in current(store.catalog)]


@pytest.fixture
def saved(open_store, snapshot, put):
    store = open_store()
    infos = put(store, *(snapshot(step=step, seed=step, loss=float(step)) for step in (10, 20, 30)))
    return store, [info.name for info in infos]


def test_one_run_is_one_line_also_when_it_is_resumed(saved, open_store, snapshot, put):
    line = line_of(saved[0])
    resumed = open_store()
    resumed.load()
    put(resumed, snapshot(step=40))
    assert line_of(resumed) == line
    assert history(resumed) == [10, 20, 30, 40]


def test_training_from_an_older_version_makes_a_line_that_shares_and_leaves_the_other(
    saved, open_store, snapshot, put
):
    store, names = saved
    store.load(names[0])
    put(store, snapshot(step=20, seed=99), snapshot(step=25))
    assert history(store) == [10, 20, 25]
    (first, until), (second, end) = line_of(store)
    assert (until, end) == (10, None)
    assert line_of(store, names[2]) == ((first, None),)
    assert second != first
    assert [info.step for info in store.list()] == [10, 20, 30, 20, 25]
    manifest = store.catalog.manifest(resolve(store.catalog, "20"))
    assert manifest.parent == resolve(store.catalog, names[0]).id
    assert store.load("20").tree["optimizer/count"].value == 99
    assert store.load(names[1]).tree["optimizer/count"].value == 20


def test_a_roll_back_in_the_process_to_the_newest_is_no_new_line(saved, snapshot, put):
    store, _ = saved
    line = line_of(store)
    store.load()
    put(store, snapshot(step=31))
    assert line_of(store) == line


def test_rotation_leaves_what_a_roll_back_left_behind(saved, open_store, snapshot, put):
    store = open_store(keep=Keep(last=1))
    store.load(saved[1][0])
    put(store, snapshot(step=11), snapshot(step=12))
    assert history(store) == [12]
    assert [info.step for info in store.list()] == [20, 30, 12]


def test_history_survives_the_rotation_of_ancestors(saved, open_store, snapshot, put):
    store = open_store(keep=Keep(last=2))
    store.load(saved[1][1])
    put(store, *(snapshot(step=step) for step in (21, 22, 23)))
    assert history(store) == [22, 23]
    assert [until for _, until in line_of(store)] == [20, None]


def test_head_is_where_a_roll_back_put_it_until_the_next_commit(saved, open_store, snapshot, put):
    store, names = saved
    store.catalog.set_head(resolve(store.catalog, names[0]))
    other = open_store()
    assert other.load().step == 10
    assert [info.step for info in other.list()] == [20, 30, 10]
    assert history(other) == [10]
    put(other, snapshot(step=15))
    assert open_store().load().step == 15
    assert history(other) == [10, 15]


@pytest.mark.parametrize("cut", [4, 12, 64])
def test_references_of_every_kind(saved, cut):
    store, names = saved
    store.catalog.set_tag("good-one", resolve(store.catalog, names[1]))
    middle = resolve(store.catalog, names[1])
    for reference in (names[1], middle.id[:cut], f"20-{middle.id[:cut]}", "20", "good-one"):
        assert resolve(store.catalog, reference) == middle
    assert resolve(store.catalog, "best").name == names[0]
    assert resolve(store.catalog, "newest").name == resolve(store.catalog).name == names[2]


def test_a_reference_that_fits_nothing_or_several_lists_what_there_is(saved, snapshot, put):
    store, names = saved
    with pytest.raises(CheckpointError) as caught:
        store.load(names[1][:-2] + "zz")
    assert f"did you mean {names[1]}?" in str(caught.value)
    assert all(name in str(caught.value) for name in names)
    store.load(names[0])
    put(store, snapshot(step=20, seed=5))
    with pytest.raises(
        CheckpointError, match=r"STO004 there is no version '30'.*another line has that step: 30-"
    ):
        store.load("30")
    firsts = {name.split("-")[1][0] for name in names}
    with pytest.raises(CheckpointError, match="STO004"):
        store.verify("../versions")
    assert len(firsts) >= 1


def test_several_versions_that_fit_are_listed(open_store, snapshot, put):
    store = open_store()
    infos = put(store, *(snapshot(step=7, seed=seed) for seed in range(20)))
    digits = [info.name.split("-")[1][0] for info in infos]
    twice = next(digit for digit in digits if digits.count(digit) > 1)
    with pytest.raises(CheckpointError, match=rf"'7-{twice}' fits {digits.count(twice)} versions: 7-{twice}"):
        store.load(f"7-{twice}")
    # The newest of the line stands for its step.
    assert resolve(store.catalog, "7").name == infos[-1].name


@pytest.mark.parametrize("tag", ["newest", "best", "12", "a/b", "", "-x", "ü", "7-abc"])
def test_what_cannot_be_a_tag_is_refused(saved, tag):
    store, names = saved
    with pytest.raises(CheckpointError, match="STO008"):
        store.catalog.set_tag(tag, resolve(store.catalog, names[0]))


def test_best_without_a_value_is_an_error(open_store, snapshot, put):
    store = open_store()
    put(store, snapshot(step=1), snapshot(step=2, loss=float("nan")))
    with pytest.raises(
        CheckpointError, match="no version of the current line has a value of validation/loss"
    ):
        store.load("best")


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=10))
def test_lines_agree_with_a_tree_of_parents(tmp_path_factory, open_store, snapshot, put, run, moves):
    """None trains a step on; a number goes back to the version of that number first."""
    run.folder = tmp_path_factory.mktemp("run")
    store = open_store()
    parents, names, steps, at = {}, [], {}, None
    for move in moves:
        if move is not None and move < len(names):
            at = names[move]
            store.load(at)
        step = steps.get(at, 0) + 1
        (info,) = put(store, snapshot(step=step, seed=len(names), tree={"n": Leaf(torch.tensor(len(names)))}))
        parents[info.name], steps[info.name], at = at, step, info.name
        names.append(info.name)
    wanted = []
    while at is not None:
        wanted.append(at)
        at = parents[at]
    assert [entry.name for entry in current(store.catalog)] == wanted[::-1]
