"""Which versions stay."""

from __future__ import annotations

import math
import secrets
import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.errors import CheckpointError
from nlpkernel.events import Notice
from nlpkernel.state import Leaf
from nlpkernel_store.catalog import Catalog
from nlpkernel_store.component import Keep
from nlpkernel_store.rotation import Candidate, Rule, kept

NAN, INF = float("nan"), float("inf")


def steps(store):
    return [info.step for info in store.list()]


def test_everything_stays_without_keep(open_store, snapshot, put):
    store = open_store()
    put(store, *(snapshot(step=step) for step in (1, 2, 3)))
    assert steps(store) == [1, 2, 3]


def test_last_and_best_stay_nan_is_never_best_and_a_tie_keeps_the_earlier(open_store, snapshot, put):
    store = open_store(keep=Keep(last=2, best=1))
    losses = {1: 3.0, 2: 1.0, 3: 1.0, 4: NAN, 5: None, 6: -INF, 7: 2.0}
    put(store, *(snapshot(step=step, loss=loss) for step, loss in losses.items()))
    assert steps(store) == [2, 6, 7]


def test_best_follows_the_direction_of_the_main_metric(open_store, snapshot, put):
    store = open_store(keep=Keep(last=1, best=1))
    put(store, *(snapshot(step=n, loss=value, mode="max") for n, value in enumerate([1.0, 3.0, 2.0], 1)))
    assert steps(store) == [2, 3]


def test_every_nth_and_tagged_versions_stay(open_store, snapshot, put):
    store = open_store(keep=Keep(last=1, every=4))
    put(store, snapshot(step=2))
    store.catalog.set_tag("good", store.catalog.head())
    put(store, *(snapshot(step=step) for step in (3, 4, 6, 8, 9)))
    assert steps(store) == [2, 4, 8, 9]
    assert store.list()[0].tags == ("good",)
    store.catalog.remove_tag("good")
    put(store, snapshot(step=10))
    assert steps(store) == [4, 8, 10]


def test_a_version_without_the_metric_is_never_best(open_store, snapshot, put):
    store = open_store(keep=Keep(last=1, best=1))
    put(store, snapshot(step=1), snapshot(step=2))
    assert steps(store) == [2]


def test_best_without_a_main_metric_is_refused_before_anything_is_written(open_store, snapshot, run):
    made = snapshot()
    with pytest.raises(CheckpointError, match="main metric"):
        open_store(keep=Keep(best=1)).save(type(made)(step=1, tree={}, artifacts={}, facts={}))
    assert list(run.folder.iterdir()) == []


def test_rotation_counts_versions_of_the_process_before(open_store, snapshot, put):
    put(open_store(keep=Keep(last=2)), snapshot(step=1))
    resumed = open_store(keep=Keep(last=2))
    resumed.load()
    put(resumed, snapshot(step=2), snapshot(step=3))
    assert steps(resumed) == [2, 3]


def test_nothing_is_rotated_before_the_commit(open_store, snapshot, put, monkeypatch):
    store = open_store(keep=Keep(last=1))
    put(store, snapshot(step=1))
    create = store.catalog.files.create
    seen = []

    def watched(name, chunks, **size):
        seen.append(steps(open_store(write=False)))
        return create(name, chunks, **size)

    monkeypatch.setattr(store.catalog.files, "create", watched)
    put(store, snapshot(step=2, seed=1))
    assert seen == [[1], [1]]
    assert steps(store) == [2]


def test_packs_stay_while_a_manifest_cannot_be_read(open_store, snapshot, put, run, files):
    heard = []
    run.bus.on(Notice, heard.append)
    store = open_store(keep=Keep(last=1))
    put(store, snapshot(step=1, tree={"w": Leaf(torch.ones(9))}))
    (manifest,) = (run.folder / "versions/manifests").iterdir()
    whole = manifest.read_bytes()
    manifest.write_bytes(b"?" + whole[1:])
    run.launch = "second"
    store = open_store(keep=Keep(last=1))
    put(store, snapshot(step=2, seed=2), snapshot(step=3, seed=3))
    assert len(files("packs/")) == 3
    assert len(heard) == 2
    assert "is damaged: the manifest has SHA-256" in heard[0].message
    manifest.write_bytes(whole)
    run.launch = "third"
    open_store()
    assert len(files("packs/")) == 2
    reader = open_store(write=False)
    assert [reader.verify(info.name) for info in reader.list()] == [[], []]


def test_a_version_that_cannot_be_removed_does_no_harm_to_the_new_one(
    open_store, snapshot, put, run, monkeypatch
):
    heard = []
    run.bus.on(Notice, heard.append)
    store = open_store(keep=Keep(last=1))
    put(store, snapshot(step=1))

    def refuse(name):
        raise PermissionError(13, "Permission denied", name)

    monkeypatch.setattr(store.catalog.files, "remove", refuse)
    assert [info.step for info in put(store, snapshot(step=2, seed=1))] == [2]
    assert steps(store) == [1, 2]
    assert "older versions stay: [Errno 13] Permission denied" in heard[0].message


@pytest.fixture
def far(tmp_path):
    """Settings of a place without locks."""
    return {"url": f"memory://{tmp_path.name}-{secrets.token_hex(4)}"}


def test_a_tag_that_comes_while_a_version_is_rotated_is_refused_where_there_are_locks(
    open_store, snapshot, put, monkeypatch
):
    store = open_store(keep=Keep(last=1))
    put(store, snapshot(step=1))
    (first,) = store.catalog.entries()
    store.catalog.set_tag("kept", first)
    put(store, snapshot(step=2, seed=2))
    second = store.catalog.entries()[-1]
    store.catalog.set_tag("good", first)
    told = []

    def tag():
        try:
            Catalog(store.catalog.files).set_tag("good", second)
        except CheckpointError as error:
            told.append(str(error))

    tagger = threading.Thread(target=tag)

    def read_then_tagged(*arguments):
        stay = kept(*arguments)
        tagger.start()
        # Nothing is to happen until the rotation is through.
        tagger.join(0.2)
        return stay

    monkeypatch.setattr("nlpkernel_store.commit.kept", read_then_tagged)
    put(store, snapshot(step=3, seed=3))
    tagger.join()
    assert steps(store) == [1, 3]
    assert ["STO004" in each and "was removed just now" in each for each in told] == [True]
    # The name is where it was.
    assert store.catalog.tags() == {"kept": first.id, "good": first.id}


@pytest.mark.parametrize("moment", ["names", "read", "remove"])
def test_a_tag_that_comes_while_a_version_is_rotated_holds_where_there_are_no_locks(
    open_store, snapshot, put, monkeypatch, far, moment, equal
):
    store = open_store(keep=Keep(last=1), **far)
    put(store, snapshot(step=1))
    (first,) = store.catalog.entries()
    tagging = Catalog(open_store(write=False, **far).catalog.files)
    real, rotating = getattr(store.catalog.files, moment), []

    def tagged_first(name="", **rest):
        wanted = {"names": "tags/", "read": first.file, "remove": first.file}[moment]
        if name == wanted and (moment != "read" or rotating) and not tagging.tags():
            # After the rotation has read the tags, and right before this call.
            if moment != "names":
                tagging.set_tag("good", first)
            found = real(name, **rest)
            if moment == "names":
                tagging.set_tag("good", first)
            return found
        return real(name, **rest)

    def noted(*arguments):
        rotating.append(True)
        return kept(*arguments)

    monkeypatch.setattr("nlpkernel_store.commit.kept", noted)
    monkeypatch.setattr(store.catalog.files, moment, tagged_first)
    put(store, snapshot(step=2, seed=2))
    assert tagging.tags() == {"good": first.id}
    reader = open_store(write=False, **far)
    assert reader.verify("good") == []
    assert equal(reader.load("good"), snapshot(step=1))
    assert steps(store) == [1, 2]


@pytest.mark.parametrize("place", ["here", "far"])
@pytest.mark.parametrize("before", [False, True], ids=["new", "moved"])
def test_a_tag_whose_version_is_gone_by_the_time_it_is_set_is_taken_back(
    open_store, snapshot, put, monkeypatch, far, place, before
):
    store = open_store(**(far if place == "far" else {}))
    put(store, snapshot(step=1), snapshot(step=2, seed=2))
    first, second = store.catalog.entries()
    if before:
        store.catalog.set_tag("good", second)
    replace = store.catalog.files.replace

    def removed_then_set(name, data):
        store.catalog.files.remove(first.file)
        replace(name, data)

    monkeypatch.setattr(store.catalog.files, "replace", removed_then_set)
    with pytest.raises(CheckpointError, match=rf"STO004 {first.name} was removed just now"):
        store.catalog.set_tag("good", first)
    assert store.catalog.tags() == ({"good": second.id} if before else {})


values = st.none() | st.floats() | st.sampled_from([0.0, 1.0, -1.0, NAN, INF])


@given(
    found=st.lists(st.tuples(st.integers(0, 9), values), max_size=12),
    last=st.integers(1, 4),
    best=st.integers(0, 4),
    every=st.none() | st.integers(1, 4),
    mode=st.sampled_from(["min", "max"]),
    protected=st.sets(st.integers(0, 11)),
)
def test_kept_is_what_the_words_say(found, last, best, every, mode, protected):
    versions = [
        Candidate(name=str(n), step=step, metrics={} if value is None else {"m": value})
        for n, (step, value) in enumerate(found)
    ]
    stay = kept(versions, Rule(last=last, best=best, every=every), ["m", mode], {str(n) for n in protected})
    for number, (step, value) in enumerate(found):
        newer = len(found) - 1 - number
        judged = value is not None and math.isfinite(value)
        better = sum(
            other is not None
            and math.isfinite(other)
            and ((other < value if mode == "min" else other > value) or (other == value and index < number))
            for index, (_, other) in enumerate(found)
            if judged
        )
        wanted = (
            newer < last
            or (judged and better < best)
            or (every is not None and step % every == 0)
            or number in protected
        )
        assert (str(number) in stay) == wanted
    assert kept(versions, None, ["m", mode]) == {version.name for version in versions}
