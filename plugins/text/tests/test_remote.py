"""Files at URLs."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import pickle
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from nlpkernel.errors import DataError
from nlpkernel_text.reading import remote as remotes
from nlpkernel_text.reading.faults import Faults
from nlpkernel_text.reading.files import File
from nlpkernel_text.reading.finding import find_files
from nlpkernel_text.reading.jsonl import Jsonl
from nlpkernel_text.reading.records import read
from nlpkernel_text.reading.urls import public

fsspec = pytest.importorskip("fsspec")

Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Callable[[str, bytes], str]]:
    """Files in memory under a folder of the test's own."""
    system = fsspec.filesystem("memory")
    root = f"/{tmp_path.name}"

    def put(name: str, content: bytes) -> str:
        system.pipe_file(f"{root}/{name}", content)
        return f"memory://{root}/{name}"

    yield put
    if system.exists(root):
        system.rm(root, recursive=True)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remotes, "WAIT", 0.001)


def lines(*texts: str) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


def texts(file: File, faults: Faults | None = None) -> list[str]:
    found = read(Jsonl(), file, ["text"], faults or Faults(False))
    return [text for records in found for text in records.columns["text"]]


def test_urls_folders_and_patterns_are_found_by_name(memory: Callable[[str, bytes], str]) -> None:
    for name in ("b/z.jsonl", "b/a.jsonl.gz", "a.txt", ".hidden.txt", "b/.git/x.txt"):
        url = memory(name, b"x")
    base = url.removesuffix("/b/.git/x.txt")
    found = find_files([base], "auto")
    assert [file.where.removeprefix(base) for file in found] == ["/a.txt", "/b/a.jsonl.gz", "/b/z.jsonl"]
    assert [(file.format, file.packing) for file in found] == [
        ("text", None),
        ("jsonl", "gzip"),
        ("jsonl", None),
    ]
    assert [file.where for file in find_files([f"{base}/*/*.jsonl", f"{base}/a.txt"], "text")] == [
        f"{base}/b/z.jsonl",
        f"{base}/a.txt",
    ]
    for path, what in ((f"{base}/none.txt", "is not there"), (f"{base}/*.md", "holds no files")):
        with pytest.raises(DataError, match=f"TXT001 .* of `paths` {what}"):
            find_files([path], "auto")
    with pytest.raises(DataError, match=r"TXT007 .*a\.parquet .*write `format = \"parquet\"`"):
        find_files([memory("a.parquet", b"x")], "auto")


def test_remote_files_are_unpacked_decoded_and_stamped(memory: Callable[[str, bytes], str]) -> None:
    url = memory(
        "a.jsonl.gz", gzip.compress(lines("Gr\u00fc\u00dfe", "\u65e5\u672c").decode().encode("utf-16"))
    )
    file = pickle.loads(pickle.dumps(File.at(url, "jsonl")))
    assert texts(file) == ["Gr\u00fc\u00dfe", "\u65e5\u672c"]
    assert file.local is None
    with pytest.raises(ValueError, match="is not on this machine"):
        _ = file.path
    before = file.stamp(), file.digest()
    assert (file.stamp(), file.digest()) == before
    memory("a.jsonl.gz", gzip.compress(b"other"))
    assert file.stamp() != before[0]
    assert file.digest() != before[1]


def test_a_file_url_is_a_file_of_this_machine(write: Write) -> None:
    path = write("a b.txt", "x")
    (file,) = find_files([f"file://{path}".replace(" ", "%20")], "auto")
    assert file.local == path


def test_what_is_secret_is_in_no_message(tmp_path: Path) -> None:
    assert public("s3://key:secret@bucket/a?token=x") == "s3://bucket/a"
    options = {"key": "AKIA-SECRET", "client_kwargs": {"password": "hunter2"}, "no_such": 1}
    with pytest.raises(DataError, match=r"TXT025") as caught:
        find_files(
            ["ftp://me:pass@localhost:1/a.txt?sig=abc"], "auto", storage={**options, "port": "hunter2"}
        )
    for secret in ("AKIA-SECRET", "hunter2", "me:pass", "sig=abc"):
        assert secret not in str(caught.value)
    with pytest.raises(
        DataError, match=r"TXT025 nosuch://a cannot be opened|TXT025 nosuch://a needs a driver"
    ):
        find_files(["nosuch://a"], "auto")
    with pytest.raises(DataError, match=r"TXT025 .* chained URLs are not taken"):
        find_files(["memory://a::file://b"], "auto")


def test_a_connection_that_breaks_goes_on_where_it_broke(
    memory: Callable[[str, bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = memory("a.jsonl", lines(*(f"text {number} " * 50 for number in range(5000))))
    file = File.at(url, "jsonl")
    opened = file.remote.open_once  # type: ignore[union-attr]
    left = [3]

    class Breaking:
        """Breaks at every second read, three times."""

        def __init__(self, stream: Any) -> None:
            self._stream, self._reads = stream, 0

        def read(self, size: int) -> Any:
            self._reads += 1
            if self._reads == 2 and left[0]:
                left[0] -= 1
                raise ConnectionResetError("reset by peer")
            return self._stream.read(min(size, 300_000))

        def __getattr__(self, name: str) -> Any:
            return getattr(self._stream, name)

    monkeypatch.setattr(file.remote, "open_once", lambda url: Breaking(opened(url)))
    assert texts(file) == [f"text {number} " * 50 for number in range(5000)]
    assert left == [0]
    left[0] = 10**6

    def always(url: str) -> Any:
        raise ConnectionResetError("reset by peer")

    monkeypatch.setattr(file.remote, "open_once", always)
    with pytest.raises(
        DataError, match=r"TXT020 memory://.* is not opened: ConnectionResetError: reset by peer"
    ):
        texts(file)


# -- HTTP ----------------------------------------


class Server(ThreadingHTTPServer):
    """Serves what is in `files`; breaks the first answers to GET that `breaks` counts, after half of what it said."""

    files: dict[str, bytes]
    breaks: int = 0
    ranges: bool = True
    status: int = 0


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_HEAD(self) -> None:
        self.answer(False)

    def do_GET(self) -> None:
        self.answer(True)

    def answer(self, body: bool) -> None:
        data = self.server.files.get(self.path.partition("?")[0])
        if data is None or self.server.status:
            self.send_error(self.server.status or 404)
            return
        asked = self.headers.get("Range") if self.server.ranges else None
        self.send_response(206 if asked else 200)
        if self.server.ranges:
            self.send_header("Accept-Ranges", "bytes")
        if asked:
            start, _, end = asked.removeprefix("bytes=").partition("-")
            stop = min(len(data), int(end) + 1 if end else len(data))
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
            data = data[int(start) : stop]
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", '"1"')
        self.end_headers()
        if body:
            if self.server.breaks:
                self.server.breaks -= 1
                data = data[: len(data) // 2]
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[tuple[Server, str]]:
    pytest.importorskip("aiohttp")
    made = Server(("127.0.0.1", 0), Handler)
    made.files = {}
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made, f"http://127.0.0.1:{made.server_address[1]}"
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.mark.parametrize("ranges", [True, False])
def test_files_are_read_over_http_also_when_it_breaks(server: tuple[Server, str], ranges: bool) -> None:
    made, base = server
    made.ranges = ranges
    expected = [f"text {number} " * 20 for number in range(3000)]
    made.files["/a.jsonl"] = lines(*expected)
    made.files["/b.jsonl.gz"] = gzip.compress(lines(*expected))
    for name in ("a.jsonl", "b.jsonl.gz"):
        (file,) = find_files([f"{base}/{name}?signature=secret"], "auto")
        assert (file.shown, file.format) == (f"{base}/{name}", "jsonl")
        assert "ETag" in str(file.stamp())
        made.breaks = 2
        assert texts(file) == expected
        assert not made.breaks


def test_a_forked_process_reads_too(server: tuple[Server, str]) -> None:
    made, base = server
    made.files["/a.jsonl"] = lines("one", "two")
    (file,) = find_files([f"{base}/a.jsonl"], "auto")
    assert texts(file) == ["one", "two"]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(texts, [file]).get(timeout=20) == ["one", "two"]


def test_what_a_server_refuses_is_an_error_without_the_query(server: tuple[Server, str]) -> None:
    made, base = server
    with pytest.raises(DataError, match=r"TXT001 .*/none.jsonl of `paths` is not there"):
        find_files([f"{base}/none.jsonl"], "auto")
    made.files["/a.jsonl"] = lines("x")
    (file,) = find_files([f"{base}/a.jsonl?signature=secret"], "auto")
    made.status = 403
    with pytest.raises(
        DataError, match=r"TXT020 http.*/a.jsonl is not opened: .*403, message='Forbidden'"
    ) as caught:
        texts(file)
    assert "secret" not in str(caught.value)
