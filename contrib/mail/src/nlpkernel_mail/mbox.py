"""E-mails out of an mbox file."""

from __future__ import annotations

import email
from collections.abc import Iterator, Sequence
from email import policy
from email.message import EmailMessage
from typing import Literal

from nlpkernel.errors import DataError, Place, fail
from nlpkernel.hookspecs.reader import Faults, Records, Source

COLUMNS = ("text", "subject", "from", "date")
#: Mails that are given together.
_TOGETHER = 100


class MailReader:
    """See `nlpkernel.hookspecs.reader.Reader`. A mail begins at a line "From ..." at the start of the file or behind an
    empty line; a line of its text that is written ">From" is read as "From". Places are the lines of these."""

    unit: Literal["line", "record"] = "line"
    # The encoding is that of each mail.
    text = False

    def __init__(self, html: bool) -> None:
        self._kinds = ("plain", "html") if html else ("plain",)

    def read(self, source: Source, columns: Sequence[str], faults: Faults) -> Iterator[Records]:
        """Some mails at a time."""
        for name in columns:
            if name not in COLUMNS:
                message = f"there is no column {name!r}; the columns are: {', '.join(COLUMNS)}"
                raise fail(DataError, "MAI001", message, place=Place(source.shown))
        found: dict[str, list[str]] = {name: [] for name in columns}
        places: list[int] = []
        for place, content in _mails(source, faults):
            values = self._values(content, Place(source.shown, place, 1), faults)
            if values is None:
                continue
            places.append(place)
            for name in columns:
                found[name].append(values[name])
            if len(places) == _TOGETHER:
                yield Records(found, places)
                found, places = {name: [] for name in columns}, []
        if places:
            yield Records(found, places)

    def _values(self, content: bytes, place: Place, faults: Faults) -> dict[str, str] | None:
        mail = email.message_from_bytes(content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        try:
            body = mail.get_body(self._kinds)
            text = "" if body is None else str(body.get_content())
            head = {name: str(mail.get(name, "")) for name in COLUMNS[1:]}
        # The standard library raises whatever a broken header or encoding leads to.
        except (LookupError, ValueError, AttributeError, TypeError) as error:
            faults.broken("broken mails", "MAI002", f"the mail cannot be read: {error}", place)
            return None
        if body is None:
            faults.count("mails without a text")
            return None
        return {"text": text.replace("\r\n", "\n"), **head}


def _mails(source: Source, faults: Faults) -> Iterator[tuple[int, bytes]]:
    """Each mail with the number of its first line."""
    lines: list[bytes] = []
    first, blank = 0, True
    with source.open() as stream:
        for number, line in enumerate(stream, 1):
            if blank and line.startswith(b"From "):
                if first:
                    yield first, b"".join(lines)
                first, lines = number, []
            elif first:
                lines.append(line[1:] if line.startswith(b">From ") else line)
            elif line.strip():
                message = 'the file does not begin with a line "From ...", as an mbox file does'
                faults.broken("files that are no mbox", "MAI002", message, Place(source.shown, number, 1))
                return
            blank = not line.strip()
    if first:
        yield first, b"".join(lines)
