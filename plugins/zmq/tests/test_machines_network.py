"""The protocol of `sync`, model-checked: each token is counted once whatever the network and the servers do.

FAULTS_KILLS scales the number of schedules (20 for each; 30), FAULTS_SEED draws them (1).
"""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st

from .parts.network import Setup, Tape, World

SCHEDULES = 20 * int(os.environ.get("FAULTS_KILLS", "30"))
SEED = int(os.environ.get("FAULTS_SEED", "1"))


def limit(setup: Setup) -> tuple[int, int]:
    """Deliveries and waits that suffice once faults have stopped: every round again, with all that is said of it to
    each, and twice that for what is under way."""
    peers = setup.workers * setup.shards
    each = peers * (setup.chunks + 4) + setup.shards * (setup.shards + 4) + 4 * setup.workers
    return 3 * each * (setup.rounds + 4) + 400, 3


@st.composite
def setups(draw: st.DrawFn, rounds: int = 10) -> Setup:
    workers, shards = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    number, every = draw(st.integers(1, rounds)), draw(st.integers(1, 3))
    which = st.integers(0, number - 1)
    return Setup(
        workers=workers,
        shards=shards,
        chunks=draw(st.integers(1, 3)),
        rounds=number,
        every=every,
        keep=every + draw(st.integers(0, 2)),
        meet=draw(st.integers(1, 4)),
        eager=draw(st.booleans()),
        empty=draw(st.frozensets(st.tuples(which, st.integers(0, workers - 1)), max_size=5)),
        overflow=draw(st.frozensets(st.tuples(which, st.integers(0, shards - 1)), max_size=2)),
    )


@seed(SEED)
@settings(
    max_examples=SCHEDULES, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(setups(), st.integers(0, 1_200), st.sampled_from([0, 2, 5, 10, 30]), st.integers(0, 2**32 - 1))
def test_each_token_counts_once_and_all_rounds_end_whatever_is_cut_or_crashes(setup, length, faults, drawn):
    """`length` choices with faults among them, then none any more."""
    world, tape = World(setup), Tape(random.Random(drawn).randbytes(3 * length))
    try:
        while not tape.over:
            world.step(tape, faults)
        world.repair()
        world.settle(*limit(setup))
    finally:
        note("; ".join(world.log))
        note(world.state())


@seed(SEED)
@settings(max_examples=SCHEDULES // 6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(setups(rounds=5), st.binary(max_size=400), st.sampled_from([10, 40, 120]))
def test_short_schedules_that_shrink_to_the_messages_that_matter(setup, data, faults):
    world, tape = World(setup), Tape(data)
    try:
        while not tape.over:
            world.step(tape, faults)
        world.repair()
        world.settle(*limit(setup))
    finally:
        note("; ".join(world.log))
        note(world.state())


@pytest.mark.parametrize(("workers", "shards", "chunks"), [(1, 1, 1), (2, 1, 3), (4, 3, 2)])
def test_without_faults_nothing_is_said_twice(workers, shards, chunks):
    setup = Setup(workers=workers, shards=shards, chunks=chunks, rounds=12, every=3, keep=3, meet=100)
    hello = 2 * workers * (shards + 1) + 4 * shards
    meeting = 2 * workers
    pushes = setup.rounds * workers * shards * (chunks + 1)
    ready, commit, release = (setup.rounds * shards * each for each in (1, 1, workers))
    assert World(setup).settle(10_000, 0) == (hello + meeting + pushes + ready + commit + release, 0)


def test_tables_stay_small_in_a_long_run():
    setup = Setup(workers=2, shards=3, chunks=1, rounds=250, every=3, keep=5)
    world = World(setup)
    world.settle(30_000, 0)
    assert world.lag <= setup.keep
    assert len(world.coordinator.sequencer) <= setup.keep + 1
    assert all(len(shard.told) <= setup.keep + 1 for shard in world.shards)


@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_shard_that_dies_between_its_snapshot_and_the_release_says_the_release_again(every):
    setup = Setup(workers=2, shards=2, rounds=6, every=every, keep=3)
    world = World(setup)
    shard = world.shards[1]
    world.settle(*limit(setup), until=lambda: shard.rounds.next == 3)
    assert not all(worker.released for worker in world.workers)
    world.crash(shard, Tape(b""))
    assert shard.rounds.next == 3 // every * every
    world.settle(*limit(setup))


@pytest.mark.parametrize("after", range(1, 6))
def test_a_coordinator_that_forgot_all_decides_the_same_of_what_it_is_told_again(after):
    setup = Setup(workers=2, shards=3, rounds=7, every=3, keep=4, overflow=frozenset({(2, 0), (4, 2)}))
    world = World(setup)
    world.settle(*limit(setup), until=lambda: world.shards[0].rounds.next == after)
    world.crash(world.coordinator, Tape(b""))
    world.crash(world.shards[0], Tape(b""))
    world.settle(*limit(setup))
    assert [world.decisions[round].finite for round in range(7)] == [
        True,
        True,
        False,
        True,
        False,
        True,
        True,
    ]


def test_a_push_that_is_too_early_counts_once_it_is_its_turn():
    """A shard comes back two rounds behind; while it does the first of them again, a worker that has not heard so
    pushes the round at hand."""
    setup = Setup(workers=2, shards=2, rounds=5, every=3, keep=3, meet=100, eager=True)
    world = World(setup)
    worker, shard = world.workers[0], world.shards[1]
    both = world.workers
    world.settle(*limit(setup), until=lambda: all(each.round == 1 and each.released for each in both))
    world.crash(shard, Tape(b""))
    worker.act()
    assert (worker.round, shard.rounds.next) == (2, 0)
    link = worker.views[1].link
    for each in world.links:
        if each.connection is None:
            world.connect(each)
            each.client.beat(each)
    while shard.rounds.next == 0:
        for row in world.rows():
            if shard.rounds.next == 0:
                world.some(row, 1)
    assert link.connection is not None
    while worker.left:
        worker.act()
    while link.connection.up:
        world.deliver(link.connection, True)
    assert ("nack", "early", 1) in link.connection.down
    assert shard.rounds.of == 0
    world.settle(*limit(setup))


def test_all_servers_at_once_come_back_from_their_snapshots():
    setup = Setup(workers=3, shards=3, rounds=8, every=2, keep=3)
    world = World(setup)
    for moment in (3, 4, 6):
        world.settle(*limit(setup), until=lambda moment=moment: world.shards[2].rounds.next == moment)
        for server in (*world.shards, world.coordinator):
            world.crash(server, Tape(b""))
    world.settle(*limit(setup))


def test_a_disk_that_is_full_stops_nobody():
    setup = Setup(workers=2, shards=2, rounds=12, every=1, keep=1)
    world = World(setup)
    world.shards[0].disk_full = True
    world.settle(*limit(setup), until=lambda: world.workers[0].round == 8)
    assert world.shards[0].durable == 0
    assert len(world.coordinator.sequencer) >= 8, "the other one may still need what was decided"
    world.crash(world.shards[1], Tape(b""))
    world.repair()
    world.settle(*limit(setup))
    assert world.shards[0].durable == 12
