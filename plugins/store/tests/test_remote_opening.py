"""Places opened: drivers, conditions, owners, and what must not be told."""

from __future__ import annotations

import errno
import os
import sys
from typing import ClassVar

import fsspec
import pytest
from fsspec.spec import AbstractFileSystem

from nlpkernel.errors import CheckpointError, PlanError
from nlpkernel.plan import Plan
from nlpkernel_sdk import tiny_values
from nlpkernel_store.component import Cold, Store
from nlpkernel_store.places import open_place
from nlpkernel_store.places.hidden import public, suspicious
from nlpkernel_store.places.owning import own
from nlpkernel_store.places.patience import Patience
from nlpkernel_store.places.remote import Remote

from .s3 import s3  # noqa: F401 - a fixture


class Careless(AbstractFileSystem):
    """Has fsspec's own way to create: it looks, and then it writes."""

    protocol = "careless"
    store: ClassVar[dict[str, bytes]] = {}

    def pipe_file(self, path, value, mode="overwrite", **_):
        self.store[path] = value

    def cat_file(self, path, start=None, end=None, **_):
        return self.store[path][start:end]

    def find(self, path, detail=False, **_):
        return {name: {"name": name, "size": len(data), "type": "file"} for name, data in self.store.items()}


@pytest.fixture
def careless(monkeypatch, tmp_path):
    fsspec.register_implementation("careless", Careless, clobber=True)
    monkeypatch.setattr(Careless, "store", {"x/head": b"1"})
    return open_place("careless://x", {}, cache=tmp_path / "cache")


def test_a_file_system_that_is_not_known_to_create_conditionally_is_only_read(careless, tmp_path):
    assert careless.read("head") == b"1"
    assert careless.names() == {"head": 1}
    for change in (lambda: careless.create("a", [b"1"]), lambda: careless.replace("head", b"2")):
        with pytest.raises(OSError, match="Careless is not known to create files conditionally"):
            change()
    with pytest.raises(CheckpointError, match=r"careless://x: STO052 .*Careless.*; use a service"):
        own(careless, tmp_path, "first")
    assert Careless.store == {"x/head": b"1"}


def test_a_server_that_ignores_the_condition_is_found_out(s3, tmp_path, monkeypatch):  # noqa: F811
    place = open_place(s3.url(), s3.options, cache=tmp_path / "cache", secrets=s3.secrets)
    call = place._system.call_s3

    def ignoring(method, **arguments):
        arguments.pop("IfNoneMatch", None)
        return call(method, **arguments)

    monkeypatch.setattr(place._system, "call_s3", ignoring)
    with pytest.raises(CheckpointError, match=r"STO052 .*against the condition"):
        own(place, tmp_path, "first")


def test_a_shared_folder_without_hard_links_is_refused(tmp_path, monkeypatch):
    def no_links(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    place = open_place(f"file://{tmp_path / 'shared'}", {}, cache=tmp_path)
    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(CheckpointError, match=r"file://.*/shared: STO052 .*no hard links"):
        own(place, tmp_path / "run", "first")
    assert list((tmp_path / "shared").iterdir()) == []


@pytest.mark.parametrize("kind", ["memory", "file", "s3"])
def test_a_place_belongs_to_the_run_that_first_wrote_there(kind, request, tmp_path):
    def opened(number):
        if kind == "s3":
            server = request.getfixturevalue("s3")
            url, options, hidden = server.url("owned"), server.options, server.secrets
        else:
            root = "memory://" if kind == "memory" else f"file://{tmp_path}"
            url, options, hidden = f"{root}/owned-{request.node.name}", {}, {}
        return open_place(url, options, cache=tmp_path / str(number), secrets=hidden)

    mine, theirs = tmp_path / "first/versions", tmp_path / "second/versions"
    for number in range(3):
        own(opened(number), mine, "first")
    with pytest.raises(
        CheckpointError, match=r"STO053 .*belong to the run 'first'.*checkpoint\.url of its own"
    ):
        own(opened(3), theirs, "second")
    opened(4).remove("owner")
    own(opened(5), theirs, "second")
    with pytest.raises(CheckpointError, match=r"STO053 .*'second'"):
        own(opened(6), mine, "first")


def test_the_store_does_not_write_to_the_versions_of_another_run(
    open_store, run, tmp_path, snapshot, put, equal
):
    settings = {"url": f"file://{tmp_path / 'far'}"}
    store = open_store(**settings)
    put(store, snapshot(step=1))
    (run.folder / "versions/owner").unlink()
    with pytest.raises(CheckpointError, match="STO053"):
        open_store(**settings)
    reader = open_store(write=False, **settings)
    assert equal(reader.load(), snapshot(step=1))


def test_a_rehearsal_leaves_nothing_far_away(open_store, run, tmp_path, snapshot, put, equal):
    run.rehearsal = True
    store = open_store(url=f"file://{tmp_path / 'far'}", cold=Cold(url=f"file://{tmp_path / 'cold'}"))
    put(store, snapshot(step=1))
    assert equal(store.load(), snapshot(step=1))
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


@pytest.mark.parametrize(
    ("module", "url", "extra"), [("s3fs", "s3a://b/run", "s3"), ("fsspec.core", "gs://b/run", "remote")]
)
def test_a_driver_that_is_not_installed_is_named_with_the_command(monkeypatch, tmp_path, module, url, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CheckpointError, match=rf'STO050 .*pip install "nlpkernel-plugin-store\[{extra}\]"'):
        open_place(url, {}, cache=tmp_path)


@pytest.mark.parametrize("url", ["nonsense://b/run", "simplecache::memory://x", "s3://b/run"])
def test_what_the_driver_does_not_take_is_named(tmp_path, url):
    with pytest.raises(CheckpointError, match=r"STO051 .*checkpoint\.url"):
        open_place(url, {"username": "a", "key": "b"}, cache=tmp_path)


def test_secrets_are_in_no_error_and_no_representation(s3, tmp_path, caplog):  # noqa: F811
    hidden = {"key": s3.key, "secret": "wrong" + s3.secret}
    place = Remote(s3.url(), s3.options, cache=tmp_path, secrets=hidden, patience=Patience(pause=0.0))
    with pytest.raises(PermissionError) as caught:
        place.names()
    told = [str(caught.value), repr(caught.value), repr(place), place.describe("x"), caplog.text]
    assert not [each for each in told if s3.key in each or s3.secret in each]
    talkative = Remote(
        "memory://x", {"token": "abc-123"}, cache=tmp_path, patience=Patience(attempts=2, pause=0.0)
    )

    def repeat(*_, **__):
        raise TimeoutError("the token abc-123 timed out")

    talkative._system.cat_file = repeat
    with pytest.raises(OSError, match=r"the token \*\*\* timed out"):
        talkative.read("head")
    assert "abc-123" not in caplog.text
    assert "*** timed out" in caplog.text


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("sftp://me:word@host:22/a?x=1", "sftp://host:22/a"),
        ("memory://x", "memory://x"),
        ("file:///a/b", "file:///a/b"),
    ],
)
def test_urls_are_shown_without_what_may_be_secret(url, shown):
    assert public(url) == shown


def test_secrets_are_known_by_their_names_at_any_depth():
    options = {
        "key": "a",
        "endpoint_url": "http://x",
        "client_kwargs": {"aws_secret_access_key": "b", "region_name": "c"},
        "token": None,
        "monkey": "d",
    }
    assert dict(suspicious(options)) == {"key": "a", "client_kwargs.aws_secret_access_key": "b"}
    assert list(suspicious({})) == []
    said = dict(Store(options=options, cold=Cold(url="s3://x", options={"password": "p"})).check_settings())
    assert said.keys() == {"options", "cold"}
    assert "client_kwargs.aws_secret_access_key" in said["options"]


def test_a_secret_in_the_plan_is_refused_and_one_from_the_environment_is_not_written_down(monkeypatch):
    monkeypatch.setenv("A_KEY", "hidden-word")
    checkpoint = {"use": "store", "url": "s3://b/runs", "secrets": {"key": "open-word"}}
    with pytest.raises(PlanError, match=r"NK110 checkpoint\.secrets is a secret"):
        Plan.of(tiny_values(checkpoint=checkpoint)).compose()
    checkpoint["secrets"] = {"key": "${A_KEY}"}
    plan = Plan.of(tiny_values(checkpoint=checkpoint))
    assert plan.compose().slot("checkpoint").component.secrets == {"key": "hidden-word"}
    assert "hidden-word" not in plan.text()
    assert "${A_KEY}" in plan.text()
