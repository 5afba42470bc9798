"""A hot and a cold place: old versions move, nothing is lost on the way, and all are there when asked for."""

from __future__ import annotations

import secrets
import shutil

import pytest
import torch

from nlpkernel.errors import CheckpointError
from nlpkernel.state import Leaf
from nlpkernel_store.component import Cold, Keep
from nlpkernel_store.places.local import Local
from nlpkernel_store.places.tiers import Tiered, cool

from .s3 import s3  # noqa: F401 - a fixture


@pytest.fixture
def cold(tmp_path):
    """The settings of a cold place of its own, in memory."""
    return lambda **settings: Cold(url=f"memory://{tmp_path.name}-{secrets.token_hex(4)}", **settings)


@pytest.fixture
def grown():
    """A snapshot with a part that never changes, and one that each step changes."""
    base = torch.arange(600_000, dtype=torch.int32)

    def make(snapshot, step, loss=None):
        tree = {"base": Leaf(base), "w": Leaf(torch.full((1000,), float(step))), "n": Leaf(step)}
        return snapshot(step=step, seed=step, loss=loss, tree=tree)

    return make


def where(store):
    """The steps of versions, and the place of each."""
    cold = store.catalog.files.only_cold("manifests/")
    return {entry.step: "cold" if entry.file in cold else "hot" for entry in store.catalog.entries()}


def whole(store):
    """Nothing is wrong with any version, and every pack is needed."""
    tiers = store.catalog.files
    assert [store.verify(info.name) for info in store.list()] == [[] for _ in store.list()]
    needed = {name for manifest in store.catalog.readable().values() for name in manifest.packs}
    assert needed == set(tiers.names("packs/"))
    hot = tiers.hot.names("manifests/")
    manifests = store.catalog.readable()
    assert set(tiers.hot.names("packs/")) == {
        name for entry, manifest in manifests.items() if entry.file in hot for name in manifest.packs
    }
    return True


@pytest.mark.parametrize("kind", ["memory", "file", "s3"])
def test_older_versions_move_and_all_are_listed_loaded_and_verified(
    kind, request, tmp_path, open_store, snapshot, put, equal, grown, cold
):
    if kind == "s3":
        server = request.getfixturevalue("s3")
        settings = Cold(url=server.url(), options=server.options, secrets=server.secrets, after=2)
    else:
        settings = Cold(url=f"file://{tmp_path / 'far'}", after=2) if kind == "file" else cold(after=2)
    store = open_store(cold=settings)
    made = [grown(snapshot, step) for step in (1, 2, 3, 4)]
    put(store, *made)
    assert where(store) == {1: "cold", 2: "cold", 3: "hot", 4: "hot"}
    assert [info.step for info in store.list()] == [1, 2, 3, 4]
    assert whole(store)
    reader = open_store(write=False, cold=settings)
    assert where(reader) == where(store)
    for each in made:
        assert equal(reader.load(str(each.step)), each)
    # The part that never changes lies once in each place.
    assert sum(size > 2_000_000 for size in store.catalog.files.hot.names("packs/").values()) == 1
    assert sum(size > 2_000_000 for size in store.catalog.files.cold.names("packs/").values()) == 1


def test_the_hot_place_alone_has_the_newest_versions_whole(open_store, snapshot, put, equal, grown, cold):
    put(open_store(cold=cold(after=2)), *(grown(snapshot, step) for step in (1, 2, 3, 4)))
    alone = open_store(write=False)
    assert [info.step for info in alone.list()] == [3, 4]
    assert equal(alone.load("3"), grown(snapshot, 3))


def test_rotation_and_tags_act_on_both(open_store, snapshot, put, grown, cold):
    settings = cold(after=1)
    store = open_store(cold=settings, keep=Keep(last=2, best=1))
    put(store, grown(snapshot, 1, loss=0.1), grown(snapshot, 2, loss=0.9))
    store.catalog.set_tag("good", store.catalog.entries()[1])
    put(store, *(grown(snapshot, step, loss=0.5 + step) for step in (3, 4, 5)))
    assert where(store) == {1: "cold", 2: "cold", 4: "cold", 5: "hot"}
    assert [info.tags for info in store.list()] == [(), ("good",), (), ()]
    reader = open_store(write=False, cold=settings)
    assert reader.load("good").step == 2
    assert reader.load("best").step == 1
    store.catalog.remove_tag("good")
    put(store, grown(snapshot, 6, loss=0.05))
    assert where(store) == {5: "cold", 6: "hot"}
    assert whole(store)


def test_training_goes_on_from_a_cold_version_and_shares_with_it(
    open_store, snapshot, put, equal, grown, cold
):
    settings = cold(after=1)
    store = open_store(cold=settings)
    first = grown(snapshot, 1)
    put(store, first, snapshot(step=2), snapshot(step=3))
    again = open_store(cold=settings)
    again.load("1")
    again.catalog.set_head(again.catalog.entries()[0])
    put(again, grown(snapshot, 7))
    assert where(again) == {1: "cold", 2: "cold", 3: "cold", 7: "hot"}
    assert equal(again.load(), grown(snapshot, 7))
    # What it shares with the cold version is there only.
    assert max(again.catalog.files.hot.names("packs/").values()) < 10_000
    put(again, grown(snapshot, 8))
    assert where(again) == {1: "cold", 2: "cold", 3: "cold", 7: "cold", 8: "hot"}
    assert equal(open_store(write=False, cold=settings).load("7"), grown(snapshot, 7))


class Killed(BaseException):
    """Stands for the end of the process: no handler of errors sees it."""


class Mortal:
    """A place during whose changes the process ends: before the one of the number `left`, or right after it."""

    def __init__(self, place, life, after):
        self._place, self._life, self._after = place, life, after

    def __getattr__(self, name):
        method = getattr(self._place, name)
        if name not in ("create", "remove", "replace"):
            return method

        def counted(*arguments, **named):
            last = self._life[0] == 0
            self._life[0] -= 1
            if last and not self._after:
                raise Killed
            result = method(*arguments, **named)
            if last:
                raise Killed
            return result

        return counted


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_case_k1_killed_at_every_change_of_a_move_no_version_is_lost_or_listed_twice(
    after, open_store, snapshot, put, equal, grown, run
):
    moves = 0
    for number in range(40):
        for each in ("versions", "far"):
            shutil.rmtree(run.folder / each, ignore_errors=True)
        settings = Cold(url=f"file://{run.folder / 'far'}", after=1)
        # Versions that were written before there was a cold place: all but one have to move.
        put(open_store(), *(grown(snapshot, step) for step in (1, 2, 3)))
        store = open_store(cold=settings)
        tiers, life = store.catalog.files, [number]
        tiers.hot, tiers.cold = Mortal(tiers.hot, life, after), Mortal(tiers.cold, life, after)
        try:
            cool(store.catalog, store.catalog.entries()[-1])
        except Killed:
            moves += 1
        else:
            break
        reader = open_store(write=False, cold=settings)
        assert [info.step for info in reader.list()] == [1, 2, 3]
        for step in (1, 2, 3):
            assert equal(reader.load(str(step)), grown(snapshot, step))
        again = open_store(cold=settings)
        cool(again.catalog, again.catalog.entries()[-1])
        assert where(again) == {1: "cold", 2: "cold", 3: "hot"}
        assert whole(again)
    # A pack and a manifest of each are copied, both manifests are removed, and the pack that version 3 does not need.
    assert moves == 7


def test_a_cold_place_that_fails_keeps_no_version_from_being_saved(
    open_store, snapshot, put, grown, cold, run
):
    from nlpkernel.events import Notice

    told = []
    run.bus.on(Notice, told.append)
    store = open_store(cold=cold(after=1))
    tiers = store.catalog.files
    put(store, grown(snapshot, 1))
    far = tiers.cold
    tiers.cold = Broken(far)
    assert all(put(store, grown(snapshot, 2), grown(snapshot, 3)))
    assert where_hot(tiers) == 3
    assert ["not moved to the cold place yet" in notice.message for notice in told] == [True]
    tiers.cold = far
    put(store, grown(snapshot, 4))
    assert where(store) == {1: "cold", 2: "cold", 3: "cold", 4: "hot"}
    assert whole(store)


def where_hot(tiers):
    return len(tiers.hot.names("manifests/"))


class Broken:
    """A place out of reach."""

    def __init__(self, place):
        self.describe = place.describe

    def __getattr__(self, name):
        def fails(*_, **__):
            raise OSError("no way there")

        return fails


def test_what_arrives_damaged_in_the_cold_place_is_not_taken_for_moved(
    open_store, snapshot, put, grown, cold
):
    store = open_store(cold=cold(after=1))
    tiers = store.catalog.files
    put(store, grown(snapshot, 1))
    create, bad = tiers.cold.create, [True]

    def damaging(name, chunks, *, size=None):
        data = bytearray(b"".join(chunks))
        if bad and name.startswith("packs/"):
            bad.pop()
            data[-1] ^= 1
        return create(name, [bytes(data)], size=size)

    tiers.cold.create = damaging
    put(store, grown(snapshot, 2))
    assert where(store) == {1: "hot", 2: "hot"}
    assert not tiers.cold.names("manifests/")
    put(store, grown(snapshot, 3))
    assert where(store) == {1: "cold", 2: "cold", 3: "hot"}
    assert whole(store)


@pytest.mark.parametrize("prefix", ["packs/", "manifests/"])
def test_what_a_move_that_was_cut_off_left_with_the_right_size_is_compared_before_it_counts(
    open_store, snapshot, put, grown, cold, prefix, equal
):
    settings = cold(after=1)
    store = open_store(cold=settings)
    tiers = store.catalog.files
    put(store, grown(snapshot, 1))
    left = [(name, size) for name, size in tiers.hot.names(prefix).items()]
    for name, size in left:
        tiers.cold.create(name, [bytes(size)])
    again = open_store(cold=settings)
    again.load()
    put(again, snapshot(step=2, seed=2))
    assert where(again) == {1: "cold", 2: "hot"}
    assert whole(again)
    assert equal(open_store(write=False, cold=settings).load("1"), grown(snapshot, 1))


def test_a_pack_that_is_damaged_here_does_not_replace_the_sound_one_far_away(
    open_store, snapshot, put, grown, cold, run, equal
):
    settings = cold(after=1)
    store = open_store(cold=settings)
    infos = put(store, grown(snapshot, 1), grown(snapshot, 2))
    (shared,) = (name for name, size in store.catalog.files.hot.names("packs/").items() if size > 2_000_000)
    path = run.folder / "versions" / shared
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    again = open_store(cold=settings)
    put(again, snapshot(step=3, seed=3), snapshot(step=4, seed=4))
    # The second stays where it was; what it shares with the first is whole far away.
    assert where(again) == {1: "cold", 2: "hot", 3: "cold", 4: "hot"}
    path.unlink()
    for step, info in enumerate(infos, 1):
        assert equal(open_store(write=False, cold=settings).load(info.name), grown(snapshot, step))


def test_a_pack_that_several_versions_share_is_compared_once(open_store, snapshot, put, grown, cold):
    store = open_store(cold=cold(after=1))
    put(store, *(grown(snapshot, step) for step in (1, 2)))
    read = []
    stream = store.catalog.files.cold.stream
    store.catalog.files.cold.stream = lambda name: (read.append(name), stream(name))[1]
    put(store, *(grown(snapshot, step) for step in (3, 4)))
    assert len(read) == len(set(read)) == 4
    assert whole(store)


def test_a_damaged_version_stays_where_it_is_and_the_others_move(open_store, snapshot, put, grown, cold, run):
    store = open_store(cold=cold(after=1))
    put(store, grown(snapshot, 1))
    (entry,) = store.catalog.entries()
    small = min(store.catalog.manifest(entry).packs.items(), key=lambda item: item[1])[0]
    (run.folder / "versions" / small).unlink()
    put(store, grown(snapshot, 2), grown(snapshot, 3))
    assert where(store) == {1: "hot", 2: "cold", 3: "hot"}
    assert len(store.verify("1")) == 1


def test_the_cold_place_of_another_run_is_not_written(open_store, snapshot, put, cold, run):
    settings = cold(after=1)
    put(open_store(cold=settings), snapshot(step=1))
    (run.folder / "versions/owner").unlink()
    with pytest.raises(CheckpointError, match="STO053"):
        open_store(cold=settings)


def test_a_reader_sees_a_version_that_moves_while_it_lists(tmp_path):
    hot, far = Local(tmp_path / "hot", fsync=False), Local(tmp_path / "far", fsync=False)
    hot.create("manifests/a", [b"1"])
    tiers = Tiered(hot, far, after=1, owned=False)
    listed = hot.names

    def moves_then(prefix=""):
        found = listed(prefix)
        far.create("manifests/a", [b"1"])
        hot.remove("manifests/a")
        return found

    hot.names = moves_then
    assert list(tiers.names("manifests/")) == ["manifests/a"]
    hot.names = listed
    assert list(tiers.names()) == ["manifests/a"]
    assert tiers.read("manifests/a") == b"1"
    assert b"".join(tiers.stream("manifests/a")) == b"1"
    assert tiers.describe("manifests/a") == str(tmp_path / "far/manifests/a")
    for ask in (tiers.read, tiers.local):
        with pytest.raises(FileNotFoundError):
            ask("head")
    with pytest.raises(FileExistsError):
        tiers.create("manifests/a", [b"2"])
    tiers.remove("manifests/a")
    assert tiers.names() == {}
