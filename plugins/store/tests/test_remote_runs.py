"""The store on remote places; and whole runs through the command line, on a real S3 server, over a bad line."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys

import fsspec
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem

import nlpkernel
from nlpkernel.context import Run
from nlpkernel.plan import Plan
from nlpkernel.plan.train import Train
from nlpkernel_sdk import tiny_values
from nlpkernel_store.component import Keep
from nlpkernel_store.places import open_place

from .s3 import bad_line, s3  # noqa: F401 - fixtures


class Flaky(MemoryFileSystem):
    """A file system on which every third call fails."""

    protocol = "flaky"
    store = {}  # noqa: RUF012 - as in the class above
    pseudo_dirs = [""]  # noqa: RUF012
    calls = 0
    failed = 0

    def _call(self, name, *arguments, **named):
        Flaky.calls += 1
        if Flaky.calls % 3 == 0:
            Flaky.failed += 1
            raise OSError(5, "Input/output error")
        return getattr(super(), name)(*arguments, **named)

    def pipe_file(self, path, value, mode="overwrite", **named):
        return self._call("pipe_file", path, value, mode, **named)

    def cat_file(self, path, start=None, end=None, **named):
        return self._call("cat_file", path, start, end, **named)

    def find(self, path, **named):
        return self._call("find", path, **named)

    def rm_file(self, path):
        return self._call("rm_file", path)


@pytest.fixture(params=["memory", "file", "flaky", "s3"])
def far(request, tmp_path, monkeypatch):
    """Settings of the component that keep versions far away."""
    if request.param == "s3":
        server = request.getfixturevalue("s3")
        return {"url": server.url(), "options": server.options, "secrets": server.secrets}
    if request.param == "flaky":
        fsspec.register_implementation("flaky", Flaky, clobber=True)
        monkeypatch.setattr("nlpkernel_store.places.patience.time.sleep", lambda _: None)
    root = f"file://{tmp_path}/far" if request.param == "file" else f"{request.param}://far"
    return {"url": f"{root}/{secrets.token_hex(4)}"}


def test_versions_far_away_are_those_that_were_saved(far, open_store, snapshot, put, equal, run):
    failed = Flaky.failed
    store = open_store(keep=Keep(last=2), **far)
    made = [snapshot(step=step, seed=step) for step in (1, 2, 3)]
    assert [info.step for info in put(store, *made)] == [1, 2, 3]
    reader = open_store(write=False, **far)
    assert [info.step for info in reader.list()] == [2, 3]
    for each in made[1:]:
        assert equal(reader.load(str(each.step)), each)
        assert reader.verify(str(each.step)) == []
    packs = {name for manifest in store.catalog.readable().values() for name in manifest.packs}
    assert set(store.catalog.files.names("packs/")) == packs
    assert [path.name for path in (run.folder / "versions").iterdir()] == ["owner"]
    if far["url"].startswith("flaky"):
        assert Flaky.failed > failed + 5


def test_a_copy_that_was_damaged_here_is_fetched_again_and_damage_there_is_told(
    open_store, snapshot, put, equal, run
):
    store = open_store(url=f"memory://far/{secrets.token_hex(4)}")
    put(store, snapshot(step=1))
    reader = open_store(write=False, url=store.catalog.files.describe().rpartition("/")[0])
    assert equal(reader.load(), snapshot(step=1))
    (copy,) = (run.folder / "fetched/hot").iterdir()
    data = bytearray(copy.read_bytes())
    data[-1] ^= 1
    copy.write_bytes(data)
    assert reader.verify("1") == []
    assert equal(reader.load(), snapshot(step=1))
    (pack,) = store.catalog.files.names("packs/")
    store.catalog.files.replace(pack, bytes(data))
    (damage,) = reader.verify("1")
    assert damage.startswith(store.catalog.files.describe(pack))


#: Kills the process when its first version is complete, while it is about to save the second one, where the
#: environment says so.
DIE = '''
import os
import signal

from nlpkernel import component, hookimpl
from nlpkernel.events import VersionSaved


@component
class Die:
    """Dies."""

    @hookimpl
    def subscribe(self, bus):
        bus.on(VersionSaved, self.look)

    def look(self, event):
        if "DIE" in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)
'''


@pytest.fixture
def start(tmp_path):
    """Run nlpkernel, as a user does."""
    started = []

    def start_it(*arguments, **environment):
        named = {"NLPKERNEL_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "nlpkernel", *arguments],
            cwd=tmp_path,
            env={**os.environ, **named, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield start_it
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def end(process, code=0):
    """What it told."""
    told, _ = process.communicate(timeout=120)
    assert process.returncode == code, told
    return told


def newest(folder):
    """The newest version of a run."""
    run = Run(name=folder.name, folder=folder, cache=folder, train=Train())
    component = Plan.load(folder / "plan.toml").compose().slot("checkpoint").component
    store = run.ask(component, "open_store", run=run, folder=folder, write=False)
    try:
        return store.load()
    finally:
        store.close()


def test_case_k1_a_run_on_s3_over_a_bad_line_that_was_killed_goes_on_bitwise(
    s3,  # noqa: F811
    bad_line,  # noqa: F811
    tmp_path,
    start,
    monkeypatch,
):
    (tmp_path / "die.py").write_text(DIE)
    secret = {"key": "${TEST_KEY}", "secret": "${TEST_SECRET}"}
    bad, good = {"endpoint_url": bad_line.endpoint}, {"endpoint_url": s3.endpoint}
    far = {
        "url": s3.url("runs"),
        "options": bad,
        "secrets": secret,
        "cold": {"url": s3.url("old"), "options": good, "secrets": secret, "after": 1},
    }
    for name, place in {"whole": {}, "far": far}.items():
        values = tiny_values(
            name=name,
            train={"steps": 6},
            model={"dropout": 0.5},
            checkpoint={"use": "store", "every": 3, **place},
            monitor=[{"use": "./die.py:Die"}],
        )
        (tmp_path / f"{name}.json").write_text(json.dumps(values))
    monkeypatch.setenv("TEST_KEY", s3.key)
    monkeypatch.setenv("TEST_SECRET", s3.secret)

    killed = start("run", "far.json", DIE="1")
    nlpkernel.run(Plan.load(tmp_path / "whole.json"), runs_folder=tmp_path / "runs")
    told = end(killed, -signal.SIGKILL)
    told += end(start("resume", "runs/far"))
    assert same_state(newest(tmp_path / "runs/far"), newest(tmp_path / "runs/whole"))
    assert bad_line.lost > 3
    assert bad_line.refused > 3
    told += end(start("versions", "runs/far"))
    assert re.search(r" 3 .* cold\n.* 6 .* hot\n", told)

    places = [
        open_place(s3.url(name), s3.options, cache=tmp_path, secrets=s3.secrets)
        for name in ("runs/far", "old/far")
    ]
    contents = [place.read(name) for place in places for name in place.names()]
    contents += [path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert len(contents) > 12
    for value in (s3.key, s3.secret):
        assert value not in told
        assert not [content for content in contents if value.encode() in content]


def same_state(left, right):
    """Whether two runs of other names ended in the same state, bit for bit."""
    if list(left.tree) != list(right.tree) or left.step != right.step:
        return False
    for path, leaf in left.tree.items():
        other = right.tree[path].value
        if isinstance(leaf.value, torch.Tensor):
            if not torch.equal(leaf.value, other):
                return False
        elif leaf.value != other:
            return False
    return True
