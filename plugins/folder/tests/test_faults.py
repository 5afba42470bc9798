"""Case K1 and K2: a writer that is killed, and a disk that is full.

Each test runs one child that imports torch once and forks for every fault.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

COMMON = """
import json, os, random, resource, signal, sys, time
from pathlib import Path
import torch
from nlpkernel.context import Run
from nlpkernel.errors import CheckpointError
from nlpkernel.plan.train import Train
from nlpkernel.state import Leaf, Snapshot
from nlpkernel_folder.component import Folder, Keep

torch.set_num_threads(1)
root = Path(sys.argv[1])
size = int(sys.argv[2])


def open_store(name):
    folder = root / name
    folder.mkdir(exist_ok=True)
    run = Run(name="first", folder=folder, cache=root, train=Train())
    return run.ask(Folder(keep=Keep(last=1)), "open_store", run=run, folder=folder)


def snapshot(step, seed):
    return Snapshot(
        step=step,
        tree={"w": Leaf(torch.full((size,), float(seed))), "n": Leaf(seed)},
        artifacts={"tokenizer.json": str(seed).encode()},
        facts={"seed": seed},
    )


def seed_of(loaded):
    seed = loaded.tree["n"].value
    whole = loaded.facts == {"seed": seed} and loaded.artifacts == {"tokenizer.json": str(seed).encode()}
    assert whole and bool((loaded.tree["w"].value == seed).all())
    return seed


def fork(work):
    pid = os.fork()
    if not pid:
        work()
        os._exit(0)
    return pid


def entries(name):
    return sorted(path.name for path in (root / name / "versions").iterdir())
"""


def child(tmp_path, script, size):
    code = COMMON + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), str(size)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("step", [2, 1], ids=["next step", "same step"])
def test_case_k1_killed_before_every_change_of_the_disk_one_whole_version_loads(tmp_path, step):
    results = child(
        tmp_path,
        f"""
        STEP = {step}


        def killed_at(number):
            left = [number]

            def count(*_):
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1

            def audit(event, args):
                if event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod"):
                    count()
                if event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR):
                    count()

            sync = os.fsync
            os.fsync = lambda descriptor: (count(), sync(descriptor))
            sys.addaudithook(audit)
            store.save(snapshot(STEP, 2))


        results = []
        for number in range(1000):
            name = f"at-{{number}}"
            store = open_store(name)
            store.save(snapshot(1, 1))
            _, status = os.waitpid(fork(lambda: killed_at(number)), 0)
            listed = [info.name for info in open_store(name).list()]
            results.append([os.WIFSIGNALED(status), seed_of(open_store(name).load()), listed, entries(name)])
            if not os.WIFSIGNALED(status):
                break
        print(json.dumps(results))
        """,
        size=100,
    )
    killed = results[:-1]
    assert len(killed) > 15
    assert all(signalled for signalled, *_ in killed)
    assert results[-1] == [False, 2, [f"step-0000000{step}"], [f"step-0000000{step}"]]
    seeds = [seed for _, seed, _, _ in results]
    # Old until the commit and new from then on, never anything else.
    assert seeds == sorted(seeds)
    assert {1, 2} == set(seeds[:-1])
    for _, seed, listed, entries in killed:
        assert listed == entries
        assert f"step-0000000{step if seed == 2 else 1}" in listed


def test_case_k1_killed_at_seeded_moments_of_a_large_save_the_version_before_loads(tmp_path):
    results = child(
        tmp_path,
        """
        store = open_store("run")
        store.save(snapshot(1, 1))
        began = time.perf_counter()
        store.save(snapshot(1, 1))
        whole = time.perf_counter() - began
        draw = random.Random(7)
        results = []
        for step in range(2, 14):
            pid = fork(lambda: store.save(snapshot(step, step)))
            time.sleep(draw.random() * whole)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            seen = open_store("run")
            newest = seed_of(seen.load())
            results.append([newest, [info.step for info in seen.list()], entries("run")])
        print(json.dumps(results))
        """,
        size=1 << 20,
    )
    newest = 1
    for step, (seed, listed, entries) in enumerate(results, 2):
        assert seed in (newest, step)
        newest = seed
        assert listed[-1] == seed
        assert entries == [f"step-{number:08d}" for number in listed]
    assert newest < len(results) + 1, "no save was killed before its commit"


def test_case_k2_a_full_disk_leaves_older_versions_and_nothing_else(tmp_path):
    results = child(
        tmp_path,
        """
        store = open_store("run")
        store.save(snapshot(1, 1))
        results = []
        for limit in (0, 10, 100, 1000, 4096, 39999):
            def save():
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
                try:
                    store.save(snapshot(2, 2))
                except CheckpointError as error:
                    os.write(write, json.dumps([error.problems[0].code, str(error)]).encode())
            read, write = os.pipe()
            os.waitpid(fork(save), 0)
            os.close(write)
            code, message = json.loads(os.read(read, 1 << 16))
            os.close(read)
            results.append([code, message, entries("run"), seed_of(open_store("run").load())])
        store.save(snapshot(2, 2))
        print(json.dumps([results, entries("run"), seed_of(store.load())]))
        """,
        size=10000,
    )
    failures, entries, seed = results
    for code, message, left, loaded in failures:
        assert code == "FLD002"
        assert "File too large" in message
        assert "step-00000002 could not be written" in message
        needed = int(message.split("it needs ")[1].split(" bytes")[0].replace(",", ""))
        free = int(message.split("bytes, and ")[1].split(" are free")[0].replace(",", ""))
        assert 40000 < needed < 41000
        assert free > 0
        assert left == ["step-00000001"]
        assert loaded == 1
    assert (entries, seed) == (["step-00000002"], 2)
