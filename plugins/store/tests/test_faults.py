"""Cases K1 and K2: a writer that is killed, and a disk that is full. K3: several workers that save at once.

Each test runs one child that forks for every fault.
"""

from __future__ import annotations

import json
import textwrap

import pytest

COMMON = """
import builtins, io, json, os, random, resource, signal, sys, time
from pathlib import Path
import torch
from nlpkernel.context import Run
from nlpkernel.errors import CheckpointError
from nlpkernel.plan.train import Train
from nlpkernel.state import Leaf, PerWorker, Replicated, Sharded, Snapshot, local
from nlpkernel_store.component import Keep, Store
from nlpkernel_store.places.local import LOCK

torch.set_num_threads(1)
root = Path(sys.argv[1])
size = int(sys.argv[2])


def open_store(name, write=True, rank=0, world=1, launch=None, group=None, **settings):
    folder = root / name
    folder.mkdir(exist_ok=True)
    run = Run(name="first", folder=folder, cache=root, train=Train(), rank=rank, world=world)
    run.launch, run.group = launch or run.launch, group
    settings = {"keep": Keep(last=1), "retries": 0, **settings}
    return run.ask(Store(**settings), "open_store", run=run, folder=folder, write=write)


def snapshot(step, seed):
    return Snapshot(
        step=step,
        tree={"w": Leaf(torch.full((size,), float(seed))), "base": Leaf(torch.arange(size // 2)), "n": Leaf(seed)},
        artifacts={"tokenizer.json": str(seed).encode()},
        facts={"seed": seed},
    )


def save(store, step, seed):
    store.save(snapshot(step, seed))
    return store.settle(wait=True)


def seed_of(loaded):
    seed = loaded.tree["n"].value
    whole = loaded.facts == {"seed": seed} and loaded.artifacts == {"tokenizer.json": str(seed).encode()}
    assert whole and bool((loaded.tree["w"].value == seed).all())
    assert torch.equal(loaded.tree["base"].value, torch.arange(size // 2))
    return seed


def fork(work):
    pid = os.fork()
    if not pid:
        work()
        os._exit(0)
    return pid


def steps(store):
    return [info.step for info in store.list()]


def strays(name):
    "Files that no version needs, once the store was opened; the one that is locked stays."
    store = open_store(name)
    needed = {LOCK}
    for entry, manifest in store.catalog.readable().items():
        needed |= {entry.file, *manifest.packs}
    folder = root / name / "versions"
    return sorted({p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()} - needed)


def die():
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def child(children, tmp_path):
    """Run a script of this module, and return what it has printed."""
    return lambda script, size: json.loads(children(COMMON + textwrap.dedent(script), tmp_path, size)[0])


def test_case_k1_killed_before_every_change_of_the_disk_one_whole_version_loads(child):
    results = child(
        """
        def killed_at(store, number):
            left = [number]

            def count(*_):
                if left[0] == 0:
                    die()
                left[0] -= 1

            def audit(event, args):
                if event in ("os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir"):
                    count()
                if event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR):
                    count()

            sync = os.fsync
            os.fsync = lambda descriptor: (count(), sync(descriptor))
            sys.addaudithook(audit)
            save(store, 2, 2)

        results = []
        for number in range(1000):
            name = f"at-{number}"
            store = open_store(name)
            save(store, 1, 1)
            _, status = os.waitpid(fork(lambda: killed_at(store, number)), 0)
            reader = open_store(name, write=False)
            seen, listed = seed_of(reader.load()), steps(reader)
            again = open_store(name)
            left = strays(name)
            results.append([os.WIFSIGNALED(status), seen, seed_of(again.load()), listed, left])
            if not os.WIFSIGNALED(status):
                break
            save(again, 3, 3)
            assert seed_of(open_store(name).load()) == 3 and steps(again) == [3]
        print(json.dumps(results))
        """,
        size=400,
    )
    killed = results[:-1]
    assert len(killed) > 10
    assert all(signalled for signalled, *_ in killed)
    assert results[-1] == [False, 2, 2, [2], []]
    seeds = [seed for _, seed, *_ in results]
    # Old until the commit and new from then on, never anything else.
    assert seeds == sorted(seeds)
    assert set(seeds[:-1]) == {1, 2}
    for _, seed, cleaned, listed, left in killed:
        assert cleaned == seed
        assert listed[-1] == seed
        assert left == []


def test_case_k1_killed_at_seeded_bytes_and_moments_of_a_save_one_whole_version_loads(child):
    results = child(
        """
        from nlpkernel_store.places import local

        class Dying(io.FileIO):
            left = 0

            def write(self, data):
                if len(data) >= Dying.left:
                    super().write(data[: Dying.left])
                    die()
                Dying.left -= len(data)
                return super().write(data)

        def opened(path, mode, buffering=0):
            return Dying(path, mode) if "x" in mode else builtins.open(path, mode)

        store = open_store("run")
        save(store, 1, 0)
        save(store, 1, 1)
        folder = root / "run/versions"
        total = store.catalog.manifest(store.catalog.head()).new
        draw = random.Random(7)
        results = []
        for step in range(2, 22):
            Dying.left = draw.randrange(1, total)

            def work():
                local.open = opened
                save(store, step, step)

            os.waitpid(fork(work), 0)
            aside = sum(path.stat().st_size for path in folder.glob(".aside/*"))
            seen = open_store("run")
            results.append([seed_of(seen.load()), steps(seen), aside, strays("run")])
        moments = []
        began = time.perf_counter()
        save(store, 22, 1)
        whole = time.perf_counter() - began
        for step in range(23, 31):
            pid = fork(lambda: save(store, step, step))
            time.sleep(draw.random() * whole)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            seen = open_store("run")
            moments.append([step, seed_of(seen.load()), steps(seen)[-1], strays("run")])
        print(json.dumps([total, results, moments]))
        """,
        size=20_000,
    )
    total, killed, moments = results
    assert total > 80_000
    assert [[seed, listed, left] for seed, listed, _, left in killed] == [[1, [1], []]] * 20
    assert len({aside for *_, aside, _ in killed}) > 15
    newest = [22, 1]
    for step, seed, listed, left in moments:
        assert [listed, seed] in (newest, [step, step])
        newest = [listed, seed]
        assert left == []


def test_case_k2_a_full_disk_leaves_older_versions_and_nothing_else(child):
    results = child(
        """
        stores = {
            policy: open_store("run", on_failure=policy, retries=1, retry_after=0.001)
            for policy in ("stop", "continue")
        }
        save(stores["stop"], 1, 1)
        stores["continue"].load()
        results = []
        for limit, policy in zip((0, 10, 100, 1000, 4096, 39999) * 2, ["stop"] * 6 + ["continue"] * 6):
            store = stores[policy]

            def work():
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
                try:
                    (saved,) = save(store, 2, 2)
                    told = ["continue", saved.version, saved.error]
                except CheckpointError as error:
                    told = ["stop", error.problems[0].code, error.problems[0].message]
                os.write(write, json.dumps(told).encode())
            read, write = os.pipe()
            os.waitpid(fork(work), 0)
            os.close(write)
            told = json.loads(os.read(read, 1 << 16))
            os.close(read)
            folder = root / "run/versions"
            left = [path for path in folder.rglob("*") if path.is_file() and path != folder / LOCK]
            reader = open_store("run", write=False)
            results.append([policy, *told, len(left), steps(reader), seed_of(reader.load())])
        save(store, 2, 2)
        print(json.dumps([results, steps(store), seed_of(store.load()), strays("run")]))
        """,
        size=10_000,
    )
    failures, listed, seed, left = results
    for policy, how, code, message, files, old, loaded in failures:
        assert how == policy
        assert code == ("STO002" if policy == "stop" else None)
        assert "File too large" in message
        assert "the version of step 2 could not be written" in message
        needed = int(message.split("it needs ")[1].split(" bytes")[0].replace(",", ""))
        free = int(message.split("bytes, and ")[1].split(" are free")[0].replace(",", ""))
        assert 80_000 < needed < 81_000
        assert free > 0
        assert (files, old, loaded) == (2, [1], 1)
    assert (listed, seed, left) == ([2], 2, [])


RANKS = """
def tree(rank, step, world=3):
    return {
        "w": Leaf(torch.full((50,), float(step))),
        "shard": Leaf(torch.full((5,), float(100 * step + rank)), Sharded.box((5 * world,), (5 * rank,), (5,))),
        "random": Leaf([rank, step], PerWorker(rank)),
        "frozen": Leaf(torch.full((3000,), float(rank)), PerWorker(rank)),
    }


def check(store, rank, step):
    back = store.load(str(step)).tree
    wanted = tree(rank, step)
    assert back.keys() == wanted.keys()
    for path, leaf in wanted.items():
        assert back[path].kind == (Replicated() if isinstance(leaf.kind, Sharded) else leaf.kind)
        if isinstance(leaf.value, torch.Tensor):
            assert torch.equal(local(back[path].value, leaf.kind), leaf.value), (rank, step, path)
        else:
            assert back[path].value == leaf.value


def ranks(world, work):
    "What the work of each rank, in a process of its own, has to say."
    ends = []
    for rank in range(world):
        read, write = os.pipe()

        def own():
            os.write(write, json.dumps(work(rank)).encode())

        ends.append((fork(own), read))
        os.close(write)
    told = []
    for pid, read in ends:
        with open(read, "rb") as end:
            told.append(json.loads(end.read() or b"null"))
        os.waitpid(pid, 0)
    return told


def took(store):
    return [[saved.step, saved.version and saved.version.name, saved.error] for saved in store.settle(wait=True)]
"""


def test_case_k3_three_workers_save_a_hundred_times_with_random_delays(child):
    told, listed, kept, left = child(
        RANKS
        + textwrap.dedent("""
        def work(rank):
            draw = random.Random(rank)
            store = open_store("run", rank=rank, world=3, launch="abc", keep=Keep(last=3), fsync=False)
            done = []
            for step in range(1, 101):
                time.sleep(draw.random() * 0.01)
                store.save(Snapshot(step=step, tree=tree(rank, step), artifacts={}, facts={}))
                done += store.settle()
            done += store.settle(wait=True)
            for step in (98, 99, 100):
                check(store, rank, step)
            store.close()
            return [[saved.step, saved.version.name] for saved in done]

        told = ranks(3, work)
        reader = open_store("run", write=False)
        packs = len(list((root / "run/versions/packs").iterdir()))
        print(json.dumps([told, steps(reader), packs, [reader.verify(info.name) for info in reader.list()]]))
        """),
        size=1,
    )
    assert told[0] == told[1] == told[2]
    assert [step for step, _ in told[0]] == list(range(1, 101))
    assert listed == [98, 99, 100]
    # Three each, and the frozen ones of each worker once.
    assert kept == 12
    assert left == [[], [], []]


def test_a_worker_that_is_missing_or_fails_is_named_by_all_and_the_next_save_is_well(child):
    told, listed, left = child(
        RANKS
        + textwrap.dedent("""
        def work(rank):
            store = open_store(
                "run", rank=rank, world=3, launch="abc", on_failure="continue", fsync=False, rank_timeout=0.5
            )
            done = []
            for step in (1, 2, 3, 4):
                if step == 2 and rank == 2:
                    create = store.catalog.files.create

                    def full(*_, **__):
                        raise OSError(28, "No space left on device")

                    store.catalog.files.create = full
                if step == 3 and rank == 2:
                    store.catalog.files.create = create
                    store._committer._count += 1
                    continue
                store.save(Snapshot(step=step, tree=tree(rank, step), artifacts={}, facts={}))
                done += took(store)
            return done

        told = ranks(3, work)
        print(json.dumps([told, steps(open_store("run", write=False)), strays("run")]))
        """),
        size=1,
    )
    first, second, third = told
    assert [name is not None for _, name, _ in first] == [True, False, False, True]
    assert "worker 2 could not write its part: OSError: [Errno 28] No space left on device" in first[1][2]
    assert "no part came from worker 2 within 0.5 s" in first[2][2]
    assert [step for step, *_ in second] == [1, 2, 3, 4]
    assert "worker 0 could not save" in second[1][2]
    assert "worker 0 could not save" in second[2][2]
    assert [[step, name is not None] for step, name, _ in third] == [[1, True], [2, False], [4, True]]
    assert "No space left on device" in third[1][2]
    assert listed == [4]
    assert left == []


def test_what_a_writer_left_goes_though_nobody_asked_for_its_exit_code(child):
    """In a container the process with number 1 often asks for none, and a process that has ended keeps its number."""
    left, alive = child(
        """
        import subprocess
        from nlpkernel_store.places.local import _HOST

        def names():
            return sorted(path.name for path in aside.iterdir())

        aside = root / "run/versions/.aside"
        aside.mkdir(parents=True)
        ended = fork(lambda: None)
        while os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT) is None:
            pass
        lives = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
        for pid in (ended, lives.pid):
            (aside / f"{pid}-{_HOST}-00000000").touch()
        open_store("run")
        alive = f"{lives.pid}-{_HOST}-00000000"
        left = names()
        lives.communicate()
        os.waitpid(ended, 0)
        print(json.dumps([left, [alive]]))
        """,
        size=1,
    )
    assert left == alive


def test_what_a_worker_wrote_before_the_first_one_had_opened_its_versions_stays(child):
    listed, damage, left = child(
        RANKS
        + textwrap.dedent("""
        second = open_store("run", rank=1, world=2, launch="abc")
        second.save(Snapshot(step=1, tree=tree(1, 1, 2), artifacts={}, facts={}))
        parts = root / "run/versions/parts"
        while not list(parts.glob("*/1.msgpack")):
            time.sleep(0.005)
        first = open_store("run", rank=0, world=2, launch="abc")
        first.save(Snapshot(step=1, tree=tree(0, 1, 2), artifacts={}, facts={}))
        for store in (first, second):
            store.settle(wait=True)
        reader = open_store("run", write=False)
        print(json.dumps([steps(reader), [reader.verify("1")], strays("run")]))
        """),
        size=1,
    )
    assert (listed, damage, left) == ([1], [[]], [])


def test_a_worker_that_goes_during_a_save_is_waited_for_no_longer(child):
    told, listed = child(
        RANKS
        + textwrap.dedent("""
        class Group:
            gone = time.monotonic() + 0.3

            @property
            def present(self):
                return [0, 1, *([2] if time.monotonic() < self.gone else [])]

        def work(rank):
            if rank == 2:
                return None
            store = open_store(
                "run", rank=rank, world=3, launch="abc", group=Group(), fsync=False, rank_timeout=60.0
            )
            store.save(Snapshot(step=1, tree={"w": Leaf(torch.ones(3))}, artifacts={}, facts={}))
            return took(store)

        told = ranks(3, work)
        print(json.dumps([told, steps(open_store("run", write=False))]))
        """),
        size=1,
    )
    assert told[0] == told[1]
    assert [step for step, _, _ in told[0]] == [1]
    assert listed == [1]
