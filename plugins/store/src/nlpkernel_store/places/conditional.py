"""Making a file only where there is none: how each kind of file system that can do it is asked to.

What is missing here is refused for writing: fsspec's general answer to mode "create" looks first and writes then, so
two writers could both succeed, and a version of one would be lost without a word.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from nlpkernel_store.places.patience import Patience, code_of

#: Bytes that travel in one request, and how many requests do at a time: together the memory of a transfer.
PART, AT_ONCE = 8 << 20, 4
#: An object up to here is one request where its size is known beforehand. A commit record has to be: S3 decides
#: between two requests that complete uploads in parts as well, but not every server that speaks S3 does.
_ONE_REQUEST = 32 << 20
#: The most parts that S3 takes for one object.
_MOST_PARTS = 10_000
#: Where an object says which call made it.
_TOKEN = "nlpkernel-writer"


class Writer(Protocol):
    """How one file system creates."""

    def create(self, path: str, chunks: Iterable[bytes | memoryview], size: int | None) -> int:
        """See Place.create."""

    def clean(self, path: str) -> None:
        """See Place.clean, below `path`."""


def writer_for(system: Any, patience: Patience, words: Callable[[BaseException], str]) -> Writer | None:
    """How `system` creates conditionally, or None where it is not known to. Only what has been tried against the real
    thing is here."""
    names = {f"{each.__module__}.{each.__qualname__}" for each in type(system).__mro__}
    if "s3fs.core.S3FileSystem" in names:
        return S3Writer(system, patience, words)
    if "fsspec.implementations.memory.MemoryFileSystem" in names:
        return MemoryWriter(system, patience, words)
    return None


def pieces(chunks: Iterable[bytes | memoryview], size: int) -> Iterator[bytes]:
    """The same bytes in pieces of `size`; the last one is shorter, and empty where there is nothing."""
    held = bytearray()
    for chunk in chunks:
        view = memoryview(chunk).cast("B")
        while len(held) + view.nbytes >= size:
            taken = size - len(held)
            held += view[:taken]
            view = view[taken:]
            yield bytes(held)
            held.clear()
        held += view
    yield bytes(held)


class MemoryWriter:
    """fsspec's `memory://`, for tests and notebooks: it forgets everything with the process."""

    #: The file system looks and then writes, in this process only.
    _lock = threading.Lock()

    def __init__(self, system: Any, patience: Patience, words: Callable[[BaseException], str]) -> None:
        self._system, self._patience, self._words = system, patience, words

    def create(self, path: str, chunks: Iterable[bytes | memoryview], size: int | None) -> int:
        """See Writer."""
        data = b"".join(chunks)

        def write() -> None:
            with self._lock:
                self._system.pipe_file(path, data, mode="create")

        self._patience(f"writing {path}", write, self._words)
        return len(data)

    def clean(self, path: str) -> None:
        """See Writer. Nothing is ever half written."""


class S3Writer:
    """S3 and what speaks it: `If-None-Match: *` on the request that makes an object visible, which for one in parts is
    the request that completes it. (SeaweedFS 4.48 refuses that one where an object is there, but lets two through that
    come at once. Packs have names of their own, so nothing depends on it.)

    Every object carries the token of the call that made it, so a call whose answer was lost can tell whether it was
    itself that created.
    """

    def __init__(self, system: Any, patience: Patience, words: Callable[[BaseException], str]) -> None:
        self._system, self._patience, self._words = system, patience, words
        self._mine: set[str] = set()

    def create(self, path: str, chunks: Iterable[bytes | memoryview], size: int | None) -> int:
        """See Writer."""
        bucket, key, _ = self._system.split_path(path)
        where = {"Bucket": bucket, "Key": key}
        token = secrets.token_hex(16)
        if size is not None and size <= _ONE_REQUEST:
            return self._in_one(where, token, b"".join(chunks))
        part = max(PART, -(-(size or 0) // _MOST_PARTS))
        parts = pieces(chunks, part)
        first = next(parts)
        if len(first) < part:
            return self._in_one(where, token, first)
        if self._head(where) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        return self._in_parts(where, token, first, parts)

    def _in_one(self, where: dict[str, str], token: str, data: bytes) -> int:
        marked = {**where, "Metadata": {_TOKEN: token}, "IfNoneMatch": "*"}
        self._commit(where, token, lambda: self._call("put_object", Body=data, **marked))
        return len(data)

    def _in_parts(self, where: dict[str, str], token: str, first: bytes, rest: Iterator[bytes]) -> int:
        def start() -> dict[str, Any]:
            return self._call("create_multipart_upload", Metadata={_TOKEN: token}, **where)

        upload = self._patience(f"starting {where['Key']}", start, self._words)["UploadId"]
        self._mine.add(upload)
        try:
            written, done = self._send(where, upload, first, rest)
            self._commit(
                where,
                token,
                lambda: self._call(
                    "complete_multipart_upload",
                    UploadId=upload,
                    MultipartUpload={"Parts": done},
                    IfNoneMatch="*",
                    **where,
                ),
            )
        except BaseException:
            self._abort(where, upload)
            raise
        finally:
            self._mine.discard(upload)
        return written

    def _send(
        self, where: dict[str, str], upload: str, first: bytes, rest: Iterator[bytes]
    ) -> tuple[int, list[dict[str, Any]]]:
        """Upload the parts, a few at a time."""

        def send(number: int, data: bytes) -> dict[str, Any]:
            answer = self._patience(
                f"writing part {number} of {where['Key']}",
                lambda: self._call("upload_part", UploadId=upload, PartNumber=number, Body=data, **where),
                self._words,
            )
            sums = {
                name: value
                for name, value in answer.items()
                if name.startswith("Checksum") and name[8:] != "Type"
            }
            return {"PartNumber": number, "ETag": answer["ETag"], **sums}

        written, number, done = 0, 0, []
        under_way: deque[Future[dict[str, Any]]] = deque()
        pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="store-upload")
        try:
            data: bytes | None = first
            while data:
                number += 1
                written += len(data)
                if len(under_way) == AT_ONCE:
                    done.append(under_way.popleft().result())
                under_way.append(pool.submit(send, number, data))
                data = next(rest, None)
            done.extend(each.result() for each in under_way)
        finally:
            pool.shutdown(cancel_futures=True)
        return written, done

    def _commit(self, where: dict[str, str], token: str, request: Callable[[], object]) -> None:
        """Make the request that decides. Raise FileExistsError where another call was first."""
        try:
            self._patience(f"committing {where['Key']}", request, self._words)
        except Exception as error:
            # Refused, or (in parts) unknown by now: what an attempt whose answer was lost leaves for the next one.
            if not _taken(error) and code_of(error) != "NoSuchUpload":
                raise
            there = self._head(where)
            if there is not None and there.get("Metadata", {}).get(_TOKEN) == token:
                return
            if there is None:
                raise
            name = f"{where['Bucket']}/{where['Key']}"
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from error

    def _head(self, where: dict[str, str]) -> dict[str, Any] | None:
        try:
            return self._patience(
                f"asking for {where['Key']}", lambda: self._call("head_object", **where), self._words
            )
        except FileNotFoundError:
            return None

    def _abort(self, where: dict[str, str], upload: str) -> None:
        try:
            self._call("abort_multipart_upload", UploadId=upload, **where)
        except Exception:  # noqa: BLE001 - on the way out with the error that matters; `clean` takes it away later.
            return

    def clean(self, path: str) -> None:
        """See Writer. Uploads in parts that were begun and never completed are not listed, but are stored, and paid."""
        bucket, key, _ = self._system.split_path(path)
        marks: dict[str, str] = {}
        while True:
            asked = {"Bucket": bucket, "Prefix": f"{key}/", **marks}
            answer = self._patience(
                f"listing uploads below {path}",
                lambda asked=asked: self._call("list_multipart_uploads", **asked),  # type: ignore[misc]
                self._words,
            )
            for each in answer.get("Uploads") or ():
                if each["UploadId"] not in self._mine and each["Key"].startswith(f"{key}/"):
                    self._abort({"Bucket": bucket, "Key": each["Key"]}, each["UploadId"])
            if not answer.get("IsTruncated"):
                return
            marks = {"KeyMarker": answer["NextKeyMarker"], "UploadIdMarker": answer["NextUploadIdMarker"]}

    def _call(self, method: str, **arguments: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self._system.call_s3(method, **arguments)
        return answer


def _taken(error: BaseException) -> bool:
    return isinstance(error, FileExistsError) or code_of(error) in ("PreconditionFailed", "412")
