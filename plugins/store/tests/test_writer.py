"""Failures of the writer: told once, by policy, and never lost."""

from __future__ import annotations

import errno
import textwrap
import threading

import pytest
import torch

from nlpkernel.errors import CheckpointError
from nlpkernel.state import Leaf


class Failing:
    """A place whose next calls of one kind fail, or wait."""

    def __init__(self, store, monkeypatch, name="create"):
        self.left, self.tries = 0, []
        real = getattr(store.catalog.files, name)

        def call(*arguments, **options):
            self.tries.append(arguments[0])
            if self.left:
                self.left -= 1
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*arguments, **options)

        monkeypatch.setattr(store.catalog.files, name, call)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_failure_that_passes_is_tried_again(open_store, snapshot, put, monkeypatch, equal, asynchronous):
    store = open_store(retries=2, retry_after=0.001, asynchronous=asynchronous)
    failing = Failing(store, monkeypatch)
    failing.left = 2
    put(store, snapshot(step=1))
    assert len(failing.tries) == 4
    assert equal(open_store().load(), snapshot(step=1))


def test_the_pause_doubles(open_store, snapshot, put, monkeypatch):
    pauses = []
    monkeypatch.setattr("nlpkernel_store.commit.time.sleep", pauses.append)
    store = open_store(retries=3, retry_after=1.5)
    Failing(store, monkeypatch).left = 3
    put(store, snapshot(step=1))
    assert pauses == [1.5, 3.0, 6.0]


def test_stop_raises_once_with_bytes_needed_and_free_and_the_rest_is_told_later(
    open_store, snapshot, monkeypatch, files
):
    store = open_store()
    store.save(snapshot(step=1))
    store._writer.wait()
    Failing(store, monkeypatch).left = 1
    store.save(snapshot(step=2))
    with pytest.raises(CheckpointError) as caught:
        store.settle(wait=True)
    assert "STO002 the version of step 2 could not be written: [Errno 28] No space" in str(caught.value)
    assert "bytes, and" in str(caught.value)
    assert [saved.step for saved in store.settle(wait=True)] == [1]
    store.save(snapshot(step=3))
    assert [saved.step for saved in store.settle(wait=True)] == [3]
    assert len(files("packs/")) == 1


def test_continue_tells_the_failure_in_its_place(open_store, snapshot, monkeypatch):
    store = open_store(on_failure="continue")
    failing = Failing(store, monkeypatch)
    for step, left in ((1, 0), (2, 1), (3, 0)):
        store._writer.wait()
        failing.left = left
        store.save(snapshot(step=step, seed=step))
    saved = store.settle(wait=True)
    assert [(each.step, each.version is None) for each in saved] == [(1, False), (2, True), (3, False)]
    assert "No space left on device" in saved[1].error
    # What came after a version that is missing has the one before for its parent.
    first, third = store.catalog.entries()
    assert store.catalog.manifest(third).parent == first.id


def test_a_failure_that_nobody_asked_about_is_raised_at_the_end(open_store, snapshot, monkeypatch):
    store = open_store()
    Failing(store, monkeypatch).left = 1
    store.save(snapshot(step=1))
    with pytest.raises(CheckpointError, match="STO002"):
        store.close()
    store.close()


@pytest.mark.parametrize("policy", ["stop", "continue"])
def test_what_is_no_failure_of_the_disk_is_raised_as_it_is_under_any_policy(
    open_store, snapshot, monkeypatch, policy
):
    store = open_store(on_failure=policy)

    def broken(*_, **__):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(store.catalog.files, "create", broken)
    store.save(snapshot(step=1))
    with pytest.raises(ZeroDivisionError, match="a defect"):
        store.settle(wait=True)


def test_a_commit_whose_answer_was_lost_counts(open_store, snapshot, put, monkeypatch, equal):
    store = open_store(retries=1, retry_after=0.001)
    create, lost = store.catalog.files.create, []

    def answer_lost(name, chunks, **size):
        written = create(name, chunks, **size)
        if name.startswith("manifests/") and not lost:
            lost.append(name)
            raise OSError(errno.ETIMEDOUT, "timed out")
        return written

    monkeypatch.setattr(store.catalog.files, "create", answer_lost)
    put(store, snapshot(step=1))
    assert len(store.catalog.entries()) == 1
    assert equal(open_store().load(), snapshot(step=1))


def test_a_commit_that_came_through_and_never_answers_is_taken_back_whole(
    open_store, snapshot, monkeypatch, files
):
    store = open_store()
    create = store.catalog.files.create

    def answer_lost(name, chunks, **size):
        create(name, chunks, **size)
        if name.startswith("manifests/"):
            raise OSError(errno.ETIMEDOUT, "timed out")

    monkeypatch.setattr(store.catalog.files, "create", answer_lost)
    store.save(snapshot(step=1))
    with pytest.raises(CheckpointError, match="STO002"):
        store.settle(wait=True)
    assert files() == []


def test_packs_stay_where_it_is_not_known_whether_the_commit_came_through(
    open_store, snapshot, monkeypatch, equal
):
    store = open_store()
    create = store.catalog.files.create

    def gone(*_):
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    def answer_lost(name, chunks, **size):
        create(name, chunks, **size)
        if name.startswith("manifests/"):
            monkeypatch.setattr(store.catalog.files, "remove", gone)
            raise OSError(errno.ETIMEDOUT, "timed out")

    monkeypatch.setattr(store.catalog.files, "create", answer_lost)
    store.save(snapshot(step=1))
    with pytest.raises(CheckpointError, match="STO002"):
        store.settle(wait=True)
    assert equal(open_store().load(), snapshot(step=1))


def test_saving_does_not_wait_for_the_disk(open_store, snapshot, monkeypatch, files):
    store, gate = open_store(), threading.Event()
    names = store.catalog.files.names
    monkeypatch.setattr(store.catalog.files, "names", lambda prefix="": (gate.wait(), names(prefix))[1])
    store.save(snapshot(step=1))
    assert store.settle() == []
    assert files("manifests/") == []
    gate.set()
    assert [saved.step for saved in store.settle(wait=True)] == [1]


def test_buffers_are_used_again(open_store, snapshot, put):
    store = open_store()
    places = set()
    for step in (1, 2, 3):
        put(store, snapshot(step=step, tree={"w": Leaf(torch.full((5000,), float(step)))}))
        places.add(store._buffers._memory.data_ptr())
    assert len(places) == 1


def test_a_process_that_ends_without_closing_waits_for_the_version(open_store, run, children):
    code = textwrap.dedent(f"""
        import torch
        from pathlib import Path
        from nlpkernel.context import Run
        from nlpkernel.plan.train import Train
        from nlpkernel.state import Leaf, Snapshot
        from nlpkernel_store.component import Store

        folder = Path({str(run.folder)!r})
        made = Run(name="first", folder=folder, cache=folder, train=Train())
        store = made.ask(Store(), "open_store", folder=folder, write=True)
        tree = {{f"w{{n}}": Leaf(torch.full((1 << 20,), float(n))) for n in range(8)}}
        store.save(Snapshot(step=1, tree=tree, artifacts={{}}, facts={{}}))
        """)
    assert children(code, whole=True) == ("", "")
    assert float(open_store(write=False).load().tree["w7"].value.sum()) == 7 * (1 << 20)
