"""HTML pages as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5
from resiliparse.parse.html import HTMLTree

from nlpkernel.errors import Place
from nlpkernel.hookspecs.reader import Faults, Records, Source
from nlpkernel_formats.sources import BROKEN, no_column

#: Longest page, in bytes.
LONGEST = 1 << 24

_COLUMNS = ("text", "title")
_MARKS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xfe\xff", "utf-16-be"), (b"\xff\xfe", "utf-16-le"))

Content = Literal["main", "all"]


class Page(NamedTuple):
    """What a page holds. replaced: how many characters could not be decoded, and stand there as U+FFFD."""

    text: str
    title: str
    replaced: int


class HtmlReader:
    """A page a file. Its encoding is that of its byte-order mark or of its own meta element, else it is guessed."""

    unit: Literal["line", "record"] = "record"
    text = False

    def __init__(self, content: Content = "main") -> None:
        self.content = content

    def read(self, source: Source, columns: Sequence[str], faults: Faults) -> Iterator[Records]:
        """See Reader."""
        for name in columns:
            if name not in _COLUMNS:
                raise no_column(source, name, _COLUMNS)
        with source.open() as stream:
            data = stream.read(LONGEST + 1)
        if len(data) > LONGEST:
            what = f"the page has more than {LONGEST >> 20} MB"
            faults.broken(BROKEN, "FMT003", what, Place(source.shown))
            return
        if not data.strip():
            faults.count("empty files")
            return
        page = page_of(data, self.content)
        told(page, faults)
        yield Records({name: [getattr(page, name)] for name in columns}, (1,))


def page_of(data: bytes, content: Content, charset: str | None = None) -> Page:
    """Text and title of a page; `charset` is what its HTTP header says. Scripts and styles are left out; paragraphs
    and other blocks end lines."""
    written = decoded(data, charset)
    tree = HTMLTree.parse(written)
    text = extract_plain_text(
        tree, preserve_formatting=True, main_content=content == "main", alt_texts=False, list_bullets=False
    )
    return Page(
        text.strip(), (tree.title or "").strip(), written.count("\ufffd") - data.count(b"\xef\xbf\xbd")
    )


def told(page: Page, faults: Faults) -> None:
    """Count what could not be decoded."""
    if page.replaced > 0:
        faults.count("pages with characters that could not be decoded")


def decoded(data: bytes, charset: str | None = None) -> str:
    """The text of a page, as browsers decode it: by its byte-order mark, what HTTP says, its meta element, or a
    guess."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace")
    if charset is not None:
        charset = map_encoding_to_html5(charset, False)
    name = charset or detect_encoding(data, from_html_meta=True) or "utf-8"
    try:
        return data.decode(name, "replace")
    except LookupError:
        return data.decode("utf-8", "replace")
