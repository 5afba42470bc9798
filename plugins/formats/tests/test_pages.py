"""HTML and WARC."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel.errors import DataError
from nlpkernel_formats.html import HtmlReader, decoded, page_of
from nlpkernel_formats.warc import WarcReader

Read = Callable[..., list[tuple[Any, ...]]]

PAGE = """<!DOCTYPE html><html><head><title>Gr\u00fc\u00dfe</title>{meta}<style>p {{ color: red }}</style>
<script>var secret = "no text";</script></head>
<body><nav><a href="/">Home</a> <a href="/a">About</a></nav>
<article><h1>A heading</h1><p>The first paragraph, with <b>bold</b> words and &amp; signs, long enough to be one.</p>
<p>The second: \u00fcber sieben Br\u00fccken mu\u00dft du gehn, sieben dunkle Jahre \u00fcberstehn.</p></article>
<footer>Imprint</footer></body></html>"""


def page(meta: str = "") -> str:
    return PAGE.format(meta=meta)


def test_paragraphs_stay_and_scripts_and_styles_go(tmp_path: Path, read: Read) -> None:
    path = tmp_path / "a.html"
    path.write_text(page(), encoding="utf-8")
    for content in ("main", "all"):
        ((number, text, title),) = read(HtmlReader(content), path, "text", "title")
        assert (number, title) == (1, "Gr\u00fc\u00dfe")
        paragraphs = [line.strip() for line in text.split("\n") if line.strip()]
        first = "The first paragraph, with bold words and & signs, long enough to be one."
        assert first in paragraphs
        assert (
            "The second: \u00fcber sieben Br\u00fccken mu\u00dft du gehn, sieben dunkle Jahre \u00fcberstehn."
            in paragraphs
        )
        assert "secret" not in text
        assert "color" not in text
        assert ("Imprint" in text) == (content == "all")


@pytest.mark.parametrize(
    ("encoding", "meta"),
    [
        ("utf-8", '<meta charset="utf-8">'),
        ("cp1252", '<meta http-equiv="Content-Type" content="text/html; charset=windows-1252">'),
        ("iso-8859-2", '<meta charset="iso-8859-2">'),
        ("utf-16", ""),
        ("utf-8-sig", ""),
    ],
)
def test_the_encoding_is_the_pages_own(tmp_path: Path, read: Read, encoding: str, meta: str) -> None:
    path = tmp_path / "a.html"
    path.write_bytes(page(meta).encode(encoding))
    ((_, text, title),) = read(HtmlReader(), path, "text", "title")
    assert title == "Gr\u00fc\u00dfe"
    assert "\u00fcber sieben Br\u00fccken" in text


def test_what_http_says_goes_before_what_the_page_says() -> None:
    data = page('<meta charset="utf-8">').encode("cp1252")
    assert "Br\u00fccken" in decoded(data, "windows-1252")
    assert "\ufffd" in decoded(data)
    assert page_of(data, "all").replaced > 0
    assert "Br\u00fccken" in decoded(page().encode(), "no such encoding")


def test_a_page_with_characters_that_cannot_be_decoded_is_counted(
    tmp_path: Path, read: Read, make_faults: Any
) -> None:
    path = tmp_path / "a.html"
    path.write_bytes(b"<meta charset=utf-8><p>one \xff two</p>")
    faults = make_faults()
    assert "two" in read(HtmlReader("all"), path, "text", faults=faults)[0][1]
    assert faults.counts == {"pages with characters that could not be decoded": 1}


@settings(max_examples=50, deadline=None)
@given(
    st.binary(max_size=200)
    | st.text(max_size=100).map(lambda text: f"<p>{text}</p>".encode("utf-8", "replace"))
)
def test_any_bytes_are_a_page(data: bytes) -> None:
    for content in ("main", "all"):
        page_of(data, content).text.encode()  # type: ignore[arg-type]


def test_an_unknown_column_of_a_page_is_an_error(tmp_path: Path, read: Read) -> None:
    (tmp_path / "a").write_text("x")
    for reader, names in ((HtmlReader(), "text, title"), (WarcReader(), "text, title, url, date")):
        with pytest.raises(DataError, match=f"FMT002 there is no column 'body'; the columns are: {names}"):
            read(reader, tmp_path / "a", "body")


# -- WARC ----------------------------------------


def warc(*records: bytes) -> bytes:
    return b"".join(records)


def record(kind: str, content: bytes, sort: str, url: str = "http://example.org/a") -> bytes:
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2026-01-02T03:04:05Z\r\n"
        f"WARC-Record-ID: <urn:uuid:00000000-0000-0000-0000-000000000001>\r\nContent-Type: {sort}\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content + b"\r\n\r\n"


def response(body: bytes, sort: str, status: str = "200 OK", extra: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {sort}\r\n{extra}Content-Length: {len(body)}\r\n\r\n"
    return record("response", head.encode() + body, "application/http; msgtype=response")


def test_pages_of_a_crawl_are_read_and_the_rest_is_counted(
    tmp_path: Path, read: Read, make_faults: Any
) -> None:
    path = tmp_path / "a.warc"
    path.write_bytes(
        warc(
            record("warcinfo", b"software: x\r\n", "application/warc-fields"),
            record("request", b"GET / HTTP/1.1\r\n\r\n", "application/http; msgtype=request"),
            response(page().encode("cp1252"), "text/html; charset=windows-1252"),
            response(b"\x89PNG", "image/png"),
            response(b"gone", "text/html", "404 Not Found"),
            response(
                gzip.compress(page().encode()), "text/html; charset=utf-8", extra="Content-Encoding: gzip\r\n"
            ),
            response("plain \u2028 text".encode(), "text/plain; charset=utf-8"),
            record("conversion", "text of a page \u00fc".encode(), "text/plain"),
        )
    )
    faults = make_faults()
    found = read(WarcReader(), path, "text", "title", "url", "date", faults=faults)
    assert [row[0] for row in found] == [3, 6, 7, 8]
    assert all("\u00fcber sieben Br\u00fccken" in text for _, text, *_ in found[:2])
    assert [text for _, text, *_ in found[2:]] == ["plain \u2028 text", "text of a page \u00fc"]
    assert [title for _, _, title, *_ in found] == ["Gr\u00fc\u00dfe", "Gr\u00fc\u00dfe", "", ""]
    assert {row[3:] for row in found} == {("http://example.org/a", "2026-01-02T03:04:05Z")}
    assert faults.counts == {"responses that are no text": 1, "responses without success": 1}


def test_a_text_that_cannot_be_decoded_is_a_broken_record(
    tmp_path: Path, read: Read, make_faults: Any
) -> None:
    path = tmp_path / "a.warc"
    path.write_bytes(
        warc(record("conversion", b"\xff", "text/plain"), record("conversion", b"good", "text/plain"))
    )
    with pytest.raises(DataError, match=r"a.warc:1:1: FMT003 the text of record 1 cannot be decoded"):
        read(WarcReader(), path, "text")
    faults = make_faults(True)
    assert read(WarcReader(), path, "text", faults=faults) == [(2, "good")]
    assert faults.counts == {"broken records": 1}


@pytest.mark.parametrize("cut", [-8, -400])
def test_a_file_that_ends_early_keeps_the_records_before(
    tmp_path: Path, read: Read, make_faults: Any, cut: int
) -> None:
    path = tmp_path / "a.warc"
    good = record("conversion", b"good", "text/plain")
    path.write_bytes(warc(good, record("conversion", b"x" * 300, "text/plain"))[:cut])
    with pytest.raises(DataError, match=r"a.warc: FMT001 the file cannot be read as WARC after record"):
        read(WarcReader(), path, "text")
    faults = make_faults(True)
    assert read(WarcReader(), path, "text", faults=faults) == [(1, "good")]
    assert faults.counts == {"damaged files": 1}


def test_what_is_no_warc_is_an_error(tmp_path: Path, read: Read) -> None:
    path = tmp_path / "a.warc"
    path.write_bytes(b"<html>no such file</html>\r\n" * 20)
    with pytest.raises(DataError, match=r"a.warc: FMT001"):
        read(WarcReader(), path, "text")


def test_what_warcio_writes_is_read(tmp_path: Path, read: Read) -> None:
    writing = pytest.importorskip("warcio.warcwriter")
    headers = pytest.importorskip("warcio.statusandheaders")
    path = tmp_path / "a.warc"
    with path.open("wb") as stream:
        writer = writing.WARCWriter(stream, gzip=False)
        http = headers.StatusAndHeaders(
            "200 OK", [("Content-Type", "text/html; charset=utf-8")], protocol="HTTP/1.1"
        )
        for number in range(3):
            body = io.BytesIO(page().replace("A heading", f"Heading {number}").encode())
            made = writer.create_warc_record(
                f"http://example.org/{number}", "response", payload=body, http_headers=http
            )
            writer.write_record(made)
    found = read(WarcReader("all"), path, "text", "url")
    assert [url for _, _, url in found] == [f"http://example.org/{number}" for number in range(3)]
    assert all(f"Heading {number}" in text for number, (_, text, _) in enumerate(found))
