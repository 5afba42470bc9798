from __future__ import annotations

import hashlib
import random
import shutil

import pytest

from nlpkernel.errors import CheckpointError
from nlpkernel_folder.manifest import Manifest
from nlpkernel_folder.plain import decode, encode

FILES = ["tensors.safetensors", "state.msgpack", "artifacts/tokenizer.json", "manifest.msgpack"]


@pytest.fixture
def two(open_store, snapshot, run):
    store = open_store()
    store.save(snapshot(step=1, seed=1))
    store.save(snapshot(step=2, seed=2))
    return store, run.folder / "versions" / "step-00000002"


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", FILES[:3])
def test_case_k1_a_flipped_byte_is_found_and_both_digests_are_named(two, equal, snapshot, name):
    store, folder = two
    path = folder / name
    data = bytearray(path.read_bytes())
    before = digest(path)
    for position in random.Random(1).sample(range(len(data)), min(len(data), 10)):
        flipped = bytearray(data)
        flipped[position] ^= 0x10
        path.write_bytes(flipped)
        with pytest.raises(CheckpointError) as caught:
            store.load()
        (problem,) = caught.value.problems
        assert problem.code == "FLD003"
        assert problem.place.file == str(path)
        assert f"{name} has SHA-256 {digest(path)}, and {before} was recorded" in problem.message
        assert problem.hint == "the newest sound version is step-00000001"
        assert store.verify("step-00000002") == [
            f"{path}: {name} has SHA-256 {digest(path)}, and {before} was recorded"
        ]
    assert equal(store.load("step-00000001"), snapshot(step=1, seed=1))


def test_case_k1_every_flipped_byte_of_the_manifest_is_found(two):
    store, folder = two
    path = folder / "manifest.msgpack"
    data = path.read_bytes()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << (position % 8)
        path.write_bytes(flipped)
        with pytest.raises(CheckpointError, match="FLD003 step-00000002 is damaged: manifest") as caught:
            store.load()
        assert "the newest sound version is step-00000001" in str(caught.value)
        assert [info.name for info in store.list()] == ["step-00000001"]
        assert len(store.verify("step-00000002")) == 1
    path.write_bytes(data)
    assert store.verify("step-00000002") == []


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("check_digests", [True, False])
def test_case_k1_a_truncated_or_missing_file_is_found_even_without_hashing(
    open_store, two, name, check_digests
):
    _, folder = two
    store = open_store(verify=check_digests)
    path = folder / name
    data = path.read_bytes()
    for length in {0, 1, len(data) // 2, len(data) - 1}:
        path.write_bytes(data[:length])
        with pytest.raises(CheckpointError, match="FLD003") as caught:
            store.load()
        assert caught.value.problems[0].place.file == str(path)
        assert "step-00000001" in caught.value.problems[0].hint
    path.write_bytes(data + b"\0")
    with pytest.raises(CheckpointError, match="FLD003"):
        store.load()
    path.unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        store.load()


def test_all_damaged_files_are_named_at_once(two):
    store, folder = two
    for name in FILES[:3]:
        (folder / name).write_bytes(b"")
    with pytest.raises(CheckpointError) as caught:
        store.load()
    assert sorted(problem.place.file for problem in caught.value.problems) == sorted(
        str(folder / name) for name in FILES[:3]
    )


def test_the_offer_skips_damaged_versions(open_store, snapshot, run):
    store = open_store()
    for step in (1, 2, 3):
        store.save(snapshot(step=step))
    for step in (2, 3):
        (run.folder / f"versions/step-0000000{step}/state.msgpack").write_bytes(b"")
    with pytest.raises(CheckpointError, match="newest sound version is step-00000001"):
        store.load()
    (run.folder / "versions/step-00000001/manifest.msgpack").unlink()
    with pytest.raises(CheckpointError, match="no other version is sound"):
        store.load()


def test_a_folder_that_only_looks_like_a_version_is_named_not_passed_over(two, run):
    store, _ = two
    (run.folder / "versions/step-00000003").mkdir()
    assert [info.step for info in store.list()] == [1, 2]
    with pytest.raises(CheckpointError, match=r"step-00000003 is damaged: manifest.msgpack is missing"):
        store.load()


def test_a_damaged_version_is_replaced_by_a_save_of_its_step(two, open_store, snapshot, equal):
    store, folder = two
    (folder / "manifest.msgpack").write_bytes(b"x")
    newer = snapshot(step=2, seed=3)
    store.save(newer)
    assert equal(open_store().load(), newer)


def test_without_hashing_a_flip_that_breaks_the_format_is_an_error_with_an_offer(open_store, two):
    _, folder = two
    path = folder / "state.msgpack"
    path.write_bytes(b"\xc1" + path.read_bytes()[1:])
    with pytest.raises(CheckpointError, match="its files cannot be read") as caught:
        open_store(verify=False).load()
    assert "step-00000001" in str(caught.value)


def test_a_newer_format_is_said_to_be_newer_and_is_not_offered(two, open_store):
    store, folder = two
    path = folder / "manifest.msgpack"
    body, _ = decode(path.read_bytes())
    body = encode(decode(body) | {"format": 2}, "x")
    path.write_bytes(encode([body, hashlib.sha256(body).digest()], "x"))
    with pytest.raises(CheckpointError, match="FLD005 step-00000002 has format 2"):
        store.load()
    assert [info.step for info in store.list()] == [1]
    assert store.verify("step-00000002") == ["step-00000002: format 2 is newer than this release reads"]
    (folder.parent / "step-00000001/state.msgpack").unlink()
    with pytest.raises(CheckpointError, match="no other version is sound"):
        store.load("step-00000001")


def test_a_copied_version_still_loads(two, open_store, run, tmp_path, equal, snapshot):
    _, folder = two
    other = tmp_path / "elsewhere" / "versions"
    other.mkdir(parents=True)
    shutil.copytree(folder, other / folder.name)
    run.folder = other.parent
    assert equal(open_store().load(), snapshot(step=2, seed=2))


def test_the_manifest_lists_every_file_with_size_and_digest(two):
    _, folder = two
    manifest = Manifest.load(folder)
    found = {
        path.relative_to(folder).as_posix(): (path.stat().st_size, digest(path))
        for path in folder.rglob("*")
        if path.is_file() and path.name != "manifest.msgpack"
    }
    assert dict(manifest.files) == found
