"""Remote places: every kind behaves as a place does, and S3 as promised, on a real server."""

from __future__ import annotations

import errno
import os
import secrets
import signal
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel_store.places import open_place
from nlpkernel_store.places.conditional import PART, pieces
from nlpkernel_store.places.patience import Patience
from nlpkernel_store.places.remote import Remote

from .s3 import S3, bad_line, s3  # noqa: F401 - fixtures

#: Does not wait between attempts.
HASTY = Patience(pause=0.0)


@pytest.fixture(params=["memory", "file", "s3"])
def opened(request, tmp_path):
    """Open one and the same place of each kind, every time with a client and a cache of its own."""
    folder = secrets.token_hex(6)
    if request.param == "s3":
        server: S3 = request.getfixturevalue("s3")
        url, options, hidden = server.url(folder), server.options, server.secrets
    else:
        root = f"file://{tmp_path}" if request.param == "file" else "memory://tests"
        url, options, hidden = f"{root}/{folder}", {}, {}
    caches = (tmp_path / f"cache{number}" for number in range(100))
    lock, made = threading.Lock(), []

    def open_it(beside=""):
        with lock:
            cache = next(caches)
        made.append(open_place(url + beside, options, cache=cache, secrets=hidden))
        return made[-1]

    yield open_it
    for each in made:
        each.close()


@pytest.fixture
def on_s3(s3, tmp_path):  # noqa: F811
    """A place of its own on the server."""
    with_retries = Remote(s3.url(), s3.options, cache=tmp_path / "cache", secrets=s3.secrets, patience=HASTY)
    yield with_retries
    with_retries.close()


def test_files_are_whole_and_stay_as_they_were_created(opened):
    place, other = opened(), opened()
    assert place.names() == {}
    assert place.create("packs/b", [b"one", memoryview(b"two")], size=6) == 6
    assert place.create("packs/empty", [], size=0) == 0
    with pytest.raises(FileExistsError):
        other.create("packs/b", [b"others"], size=6)
    assert other.read("packs/b") == b"onetwo"
    assert b"".join(other.stream("packs/b")) == b"onetwo"
    assert other.local("packs/b").read_bytes() == b"onetwo"
    assert other.local("packs/empty").read_bytes() == b""
    assert other.names() == {"packs/b": 6, "packs/empty": 0}


def test_a_listing_is_of_now_and_of_nothing_beside_it(opened):
    place, other, beside = opened(), opened(), opened("0")
    beside.create("packs/x", [b"1"])
    assert place.names() == {}
    for number in range(3):
        other.create(f"packs/{number}", [b"1"])
        assert len(place.names("packs/")) == number + 1
    place.create("packages", [b"1"])
    other.create("tags/good", [b"1"])
    assert list(place.names("pack")) == ["packages", "packs/0", "packs/1", "packs/2"]
    assert list(place.names("packs/1")) == ["packs/1"]
    assert place.names("none/") == {}
    other.remove("packs/0")
    other.remove("packs/0")
    assert list(place.names("packs/")) == ["packs/1", "packs/2"]


def test_a_place_may_be_closed_twice(opened):
    place = opened()
    place.create("packs/a", [b"1"])
    place.close()
    place.close()
    assert opened().read("packs/a") == b"1"


def test_small_files_are_replaced(opened):
    place, other = opened(), opened()
    for content in (b"1", b"22", b""):
        place.replace("head", content)
        assert other.read("head") == content


def test_what_is_not_there_is_named(opened):
    place = opened()
    for ask in (place.read, place.local, lambda name: list(place.stream(name))):
        with pytest.raises(FileNotFoundError, match=r"packs/none"):
            ask("packs/none")


def test_of_racing_creators_exactly_one_wins(opened):
    # SeaweedFS lets a writer that loses wait a second at times, so the rounds are few.
    writers = [opened() for _ in range(3)]
    for round_ in range(4):
        name, start, won = f"manifests/{round_}", threading.Barrier(len(writers)), []

        def create(number, name=name, start=start, won=won):
            start.wait()
            try:
                writers[number].create(name, [b"%d" % number], size=1)
            except FileExistsError:
                return
            won.append(number)

        threads = [threading.Thread(target=create, args=(number,)) for number in range(len(writers))]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len(won) == 1
        assert writers[0].read(name) == b"%d" % won[0]


@pytest.mark.parametrize("known", [True, False])
def test_a_large_object_goes_in_parts_and_comes_back(on_s3, known):
    block = os.urandom(PART // 2 + 1)
    chunks, whole = [block] * 7, block * 7
    size = len(whole) if known else None
    assert on_s3.create("packs/large", chunks, size=size) == len(whole)
    with pytest.raises(FileExistsError):
        on_s3.create("packs/large", chunks, size=size)
    assert on_s3.local("packs/large").read_bytes() == whole
    assert b"".join(on_s3.stream("packs/large")) == whole


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_an_upload_and_a_download_take_bounded_memory(s3, on_s3):  # noqa: F811
    script = f"""
from pathlib import Path
from nlpkernel_store.places import conditional, open_place, remote

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) >> 10

conditional.PART = remote.PART = 5 << 20
place = open_place({on_s3.describe()!r}, {s3.options!r}, cache=Path("cache"), secrets={s3.secrets!r})
place.create("small", [b"1"], size=1)
before, block = peak(), bytes(1 << 20)
place.create("large", (block for _ in range(120)))
assert sum(map(len, place.stream("large"))) == 120 << 20
print(peak() - before)
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert int(told) < 90


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(1, 32))
def test_pieces_are_the_same_bytes_of_one_size_and_the_last_one_is_shorter(chunks, size):
    made = list(pieces(chunks, size))
    assert b"".join(made) == b"".join(chunks)
    assert {len(each) for each in made[:-1]} <= {size}
    assert len(made[-1]) < size


def test_case_k1_an_upload_that_was_killed_is_no_file_and_is_cleaned_up(s3, on_s3):  # noqa: F811
    script = f"""
import sys
from pathlib import Path
from nlpkernel_store.places import open_place
place = open_place({on_s3.describe()!r}, {s3.options!r}, cache=Path("cache"), secrets={s3.secrets!r})

def chunks():
    for number in range(6):
        yield bytes({PART})
    print("under way", flush=True)
    sys.stdin.read()

place.create("packs/killed", chunks())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "under way\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert on_s3.names() == {}
    assert len(uploads(on_s3)) == 1
    own_upload = on_s3._system.call_s3(
        "create_multipart_upload", Bucket=s3.bucket, Key=f"{on_s3.describe('packs/other')}".split("/", 3)[3]
    )["UploadId"]
    on_s3._writer._mine.add(own_upload)
    on_s3.clean()
    assert uploads(on_s3) == [own_upload]
    assert on_s3.create("packs/killed", [b"whole"]) == 5


def uploads(place):
    """Uploads in parts that are neither complete nor given up."""
    bucket, key, _ = place._system.split_path(place._root)
    found = place._system.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=f"{key}/")
    return [each["UploadId"] for each in found.get("Uploads") or ()]


def test_a_failed_upload_leaves_nothing(on_s3):
    def chunks():
        yield bytes(2 * PART)
        raise ZeroDivisionError("the reader of the chunks failed")

    with pytest.raises(OSError, match="ZeroDivisionError"):
        on_s3.create("packs/x", chunks())
    assert on_s3.names() == {}
    assert uploads(on_s3) == []


def test_every_third_request_fails_and_everything_comes_out_right(bad_line, s3, on_s3, tmp_path):  # noqa: F811
    options = {**s3.options, "endpoint_url": bad_line.endpoint}
    place = Remote(on_s3.describe(), options, cache=tmp_path / "far", secrets=s3.secrets, patience=HASTY)
    large = os.urandom(2 * PART + 5)
    for number in range(9):
        assert place.create(f"manifests/{number}", [b"%d" % number], size=1) == 1
        with pytest.raises(FileExistsError):
            place.create(f"manifests/{number}", [b"other"], size=5)
        place.replace("head", b"%d" % number)
        assert place.read("head") == b"%d" % number
    assert place.create("packs/large", [large]) == len(large)
    assert place.local("packs/large").read_bytes() == large
    for number in range(0, 9, 2):
        place.remove(f"manifests/{number}")
    place.clean()
    assert list(place.names("manifests/")) == ["manifests/1", "manifests/3", "manifests/5", "manifests/7"]
    assert bad_line.lost > 9
    assert bad_line.refused > 9
    assert {name: on_s3.read(name) for name in on_s3.names("manifests/")} == {
        f"manifests/{number}": b"%d" % number for number in (1, 3, 5, 7)
    }
    assert uploads(on_s3) == []


@pytest.mark.parametrize("size", [5, 2 * PART], ids=["in one", "in parts"])
def test_a_commit_whose_answer_was_lost_is_told_from_one_of_somebody_else(on_s3, monkeypatch, size):
    call, data = on_s3._system.call_s3, bytes(size)
    decides = {"put_object", "complete_multipart_upload"}
    answers = iter([True, False])

    def lossy(method, **arguments):
        if method in decides:
            if next(answers):
                call(method, **arguments)
                raise TimeoutError("no answer came")
            if "theirs" in arguments["Key"]:
                raise FileExistsError
        return call(method, **arguments)

    monkeypatch.setattr(on_s3._system, "call_s3", lossy)
    assert on_s3.create("packs/ours", [data]) == size
    monkeypatch.undo()
    assert on_s3.names() == {"packs/ours": size}

    def late(method, **arguments):
        if method in decides and arguments["Key"].endswith("theirs"):
            call("put_object", Bucket=arguments["Bucket"], Key=arguments["Key"], Body=b"theirs")
        return call(method, **arguments)

    monkeypatch.setattr(on_s3._system, "call_s3", late)
    with pytest.raises(FileExistsError):
        on_s3.create("packs/theirs", [data])
    assert on_s3.read("packs/theirs") == b"theirs"


def test_a_local_copy_is_used_again_while_it_is_whole_and_the_file_is_the_same(on_s3, monkeypatch):
    on_s3.create("packs/a", [b"first"])
    path = on_s3.local("packs/a")
    reads = []
    cat = on_s3._system.cat_file
    monkeypatch.setattr(on_s3._system, "cat_file", lambda *a, **k: (reads.append(a), cat(*a, **k))[1])
    assert on_s3.local("packs/a") == path
    assert reads == []
    path.write_bytes(b"fir")
    assert on_s3.local("packs/a").read_bytes() == b"first"
    on_s3.replace("packs/a", b"other")
    assert on_s3.local("packs/a").read_bytes() == b"other"
    assert len(reads) == 2
    folder = path.parent
    assert len(list(folder.iterdir())) == 1
    on_s3.create("packs/b", [b"second"])
    on_s3.local("packs/b")
    on_s3._system.rm_file(on_s3._path("packs/b"))
    (folder / ".1-abcdef01").write_bytes(b"half")
    os.utime(folder / ".1-abcdef01", (0, 0))
    (folder / ".2-abcdef02").write_bytes(b"half, by a process that is at it")
    on_s3.clean()
    assert sorted(each.read_bytes() for each in folder.iterdir()) == [
        b"half, by a process that is at it",
        b"other",
    ]
    on_s3.remove("packs/a")
    assert [each.name for each in folder.iterdir()] == [".2-abcdef02"]


def test_a_copy_that_breaks_off_is_no_copy(on_s3, monkeypatch):
    on_s3.create("packs/a", [bytes(PART + 1)])
    cat = on_s3._system.cat_file

    def fails(path, start=None, end=None):
        if start:
            raise OSError(errno.EINVAL, "broken off")
        return cat(path, start=start, end=end)

    monkeypatch.setattr(on_s3._system, "cat_file", fails)
    with pytest.raises(OSError, match="broken off"):
        on_s3.local("packs/a")
    assert list(on_s3._fetched._folder.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (TimeoutError("slow"), 3),
        (ConnectionResetError(errno.ECONNRESET, "gone"), 3),
        (OSError(errno.EIO, "broken"), 3),
        (OSError(errno.EBUSY, "SlowDown"), 3),
        (PermissionError("forbidden"), 1),
        (OSError(errno.ENOSPC, "full"), 1),
        (ValueError("nonsense"), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_passes_is_tried_again_and_the_rest_is_not(monkeypatch, tmp_path, caplog, error, attempts):
    place = Remote("memory://x", {}, cache=tmp_path, patience=Patience(attempts=3, pause=0.0))
    calls = []

    def fails(*_, **__):
        calls.append(1)
        raise error

    monkeypatch.setattr(place._system, "cat_file", fails)
    with pytest.raises(OSError, match=str(error).removeprefix("[").partition("]")[0]) as caught:
        place.read("head")
    assert len(calls) == attempts
    assert "memory://x/head" in str(caught.value)
    assert sum("attempt" in record.message for record in caplog.records) == attempts - 1


def test_pauses_double_and_are_bounded(monkeypatch):
    pauses = []
    monkeypatch.setattr("nlpkernel_store.places.patience.time.sleep", pauses.append)

    def fails():
        raise TimeoutError

    with pytest.raises(TimeoutError):
        Patience(attempts=6, pause=1.0, longest=5.0)("reading", fails)
    assert pauses == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_a_server_that_is_not_there_is_named(tmp_path):
    options = {"endpoint_url": "http://127.0.0.1:9", "key": "k" * 8, "secret": "s" * 8}
    place = Remote("s3://bucket/run", options, cache=tmp_path, patience=Patience(attempts=2, pause=0.0))
    with pytest.raises(OSError, match="EndpointConnectionError") as caught:
        place.names()
    assert "s3://bucket/run" in str(caught.value)


def test_a_bucket_that_is_not_there_is_no_empty_place(s3, tmp_path):  # noqa: F811
    place = Remote("s3://no-such-bucket/run", s3.options, cache=tmp_path, secrets=s3.secrets, patience=HASTY)
    for ask in (place.names, lambda: place.create("packs/a", [b"1"])):
        with pytest.raises(OSError, match="bucket") as caught:
            ask()
        assert not isinstance(caught.value, FileExistsError)
