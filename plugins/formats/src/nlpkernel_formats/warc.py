"""WARC files: the pages of a crawl, or the texts made of them."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Literal

from fastwarc.warc import ArchiveIterator, WarcRecordType

from nlpkernel.errors import DataError, Place
from nlpkernel.hookspecs.reader import Faults, Records, Source
from nlpkernel_formats.html import LONGEST, Content, page_of, told
from nlpkernel_formats.sources import BROKEN, damaged, no_column

_COLUMNS = ("text", "title", "url", "date")
_HTML = frozenset({"text/html", "application/xhtml+xml"})
#: What stands after each record.
_END = b"\r\n\r\n"
#: Records and characters that are given at once.
_RECORDS = 256
_CHARACTERS = 1 << 22


class WarcReader:
    """Responses with status 200 that are HTML or plain text, and conversions (WET files), as text. Others are
    counted.

    Columns: "text", "title" (empty where there is none), "url", "date" (ISO 8601). Places count the records of the
    file.
    """

    unit: Literal["line", "record"] = "record"
    text = False

    def __init__(self, content: Content = "main") -> None:
        self.content = content

    def read(self, source: Source, columns: Sequence[str], faults: Faults) -> Iterator[Records]:
        """See Reader."""
        for name in columns:
            if name not in _COLUMNS:
                raise no_column(source, name, _COLUMNS)
        rows: list[dict[str, str]] = []
        places: list[int] = []
        number = size = 0
        failed: Exception | None = None
        with source.open() as stream:
            tail = _Tail(stream)
            records = iter(ArchiveIterator(tail, auto_decode="all", parse_http=True, stream_detect=False))
            while True:
                try:
                    record = next(records, None)
                    if record is None:
                        tail.check()
                        break
                    row = self._row(source, faults, number + 1, record)
                    number += 1
                except (OSError, EOFError, ValueError, DataError) as error:
                    failed = error
                    break
                if row is not None:
                    rows.append(row)
                    places.append(number)
                    size += len(row["text"])
                if len(rows) >= _RECORDS or size >= _CHARACTERS:
                    yield _records(columns, rows, places)
                    rows, places, size = [], [], 0
        if rows:
            yield _records(columns, rows, places)
        if isinstance(failed, DataError):
            raise failed
        if failed is not None:
            damaged(source, faults, "WARC", failed, number)
        elif not number:
            faults.count("empty files")

    def _row(self, source: Source, faults: Faults, number: int, record: Any) -> dict[str, str] | None:
        kind = record.record_type
        if kind not in (WarcRecordType.response, WarcRecordType.conversion):
            return None
        if record.headers.get("Content-Length") is None:
            raise ValueError("a record does not say how long it is")
        http = record.http_headers if kind == WarcRecordType.response else None
        if http is not None and http.status_code != 200:
            faults.count("responses without success")
            return None
        sort = (record.http_content_type if http is not None else "text/plain") or ""
        if sort not in _HTML and sort != "text/plain":
            faults.count("responses that are no text")
            return None
        data = record.reader.read(LONGEST + 1)
        if record.content_length > len(data) <= LONGEST and not _encoded(http):
            raise EOFError("it ends in the middle of a record")
        if len(data) > LONGEST:
            what = f"the page of record {number} has more than {LONGEST >> 20} MB"
            faults.broken(BROKEN, "FMT003", what, Place(source.shown, number, 1))
            return None
        headers = record.headers
        row = {
            "title": "",
            "url": headers.get("WARC-Target-URI") or "",
            "date": headers.get("WARC-Date") or "",
        }
        charset = record.http_charset if http is not None else None
        if sort in _HTML:
            page = page_of(data, self.content, charset)
            told(page, faults)
            return {**row, "text": page.text, "title": page.title}
        try:
            return {**row, "text": data.decode(charset or "utf-8").strip()}
        except (UnicodeDecodeError, LookupError) as error:
            what = f"the text of record {number} cannot be decoded: {error}"
            faults.broken(BROKEN, "FMT003", what, Place(source.shown, number, 1))
            return None


class _Tail:
    """A stream that knows its last bytes: the library takes a file that ends early for one that ends."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._at, self._last = 0, b""

    def read(self, size: int = -1) -> bytes:
        """As the stream's."""
        data = self._stream.read(size)
        self._at += len(data)
        self._last = (self._last + data[-len(_END) :])[-len(_END) :]
        return data

    def tell(self) -> int:
        """Bytes that were read."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """It does not seek."""
        raise io.UnsupportedOperation("seek")

    def close(self) -> None:
        """Whoever opened the stream closes it."""

    def check(self) -> None:
        """Raise EOFError where the last record has no end."""
        if self._last not in (b"", _END):
            raise EOFError("it ends in the middle of a record")


def _encoded(http: Any) -> bool:
    """Whether a response has another length than its record says; such ones tell by themselves that they end early."""
    return http is not None and ("Content-Encoding" in http or "Transfer-Encoding" in http)


def _records(columns: Sequence[str], rows: Sequence[dict[str, str]], places: Sequence[int]) -> Records:
    return Records({name: [row[name] for row in rows] for name in columns}, places)
