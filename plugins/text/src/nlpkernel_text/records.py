"""Records as documents: JSON lines, CSV and TSV."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from nlpkernel.errors import DataError, Place, fail
from nlpkernel_text.blocks import lines_of, whole_lines
from nlpkernel_text.faults import Faults, snippet
from nlpkernel_text.files import File
from nlpkernel_text.plain import Chunk
from nlpkernel_text.tables import BROKEN, csv_rows, tsv_rows

_EMPTY = "records with an empty text"
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_jsonl(file: File, field: str, faults: Faults) -> Iterator[Chunk]:
    """The text under the key `field` of each line's object. Blank lines and empty texts are left out and counted."""
    for first, block in whole_lines(file, faults):
        if block is None:
            continue
        texts: list[str] = []
        lines: list[int] = []
        for number, line in enumerate(lines_of(block), first):
            if not line or line.isspace():
                faults.count("blank lines")
                continue
            text = _json_text(file, field, faults, number, line)
            if text:
                texts.append(text)
                lines.append(number)
            elif text is not None:
                faults.count(_EMPTY)
        if texts:
            yield Chunk(texts, lines)


def _json_text(file: File, field: str, faults: Faults, number: int, line: str) -> str | None:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        place = Place(file.shown, number, error.colno)
        faults.broken(BROKEN, "TXT004", f"no JSON: {error.msg} at {snippet(line, error.pos)}", place)
        return None
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits, or thousands of brackets.
        faults.broken(BROKEN, "TXT004", f"JSON that cannot be read: {error}", Place(file.shown, number, 1))
        return None
    place = Place(file.shown, number, 1)
    if not isinstance(record, dict):
        faults.broken(
            BROKEN, "TXT004", f"no JSON object, which begins with a brace: {snippet(line, 0)}", place
        )
        return None
    text = record.get(field)
    if field not in record:
        keys = ", ".join(map(str, record)) or "none"
        faults.broken(BROKEN, "TXT005", f"the record has no key {field!r}; it has: {keys}", place)
    elif not isinstance(text, str):
        faults.broken(
            BROKEN, "TXT005", f"the value of {field!r} is no text but {json.dumps(text)[:40]}", place
        )
    elif (broken := _SURROGATE.search(text)) is not None:
        what = f"the value of {field!r} has half a surrogate pair, which is no character"
        faults.broken(BROKEN, "TXT005", f"{what}: {snippet(text, broken.start())}", place)
    else:
        return text
    return None


def read_table(file: File, field: str, faults: Faults) -> Iterator[Chunk]:
    """The text of the column `field` of each row of a CSV file (RFC 4180) or a TSV file (no quoting), whose
    first row names the columns. Blank lines and empty texts are left out and counted."""
    rows = csv_rows(file, faults) if file.format == "csv" else tsv_rows(file, faults)
    header = next(rows, None)
    if header is None:
        faults.count("empty files")
        return
    if field not in header.fields:
        raise fail(
            DataError,
            "TXT006",
            f"there is no column {field!r}; the columns are: {', '.join(header.fields)}",
            place=Place(file.shown, header.line, 1),
            hint="write the column's name for `field`",
        )
    column, width = header.fields.index(field), len(header.fields)
    texts: list[str] = []
    lines: list[int] = []
    for row in rows:
        if len(row.fields) != width:
            what = f"the row has {len(row.fields)} columns and the header has {width}"
            faults.broken(
                BROKEN,
                "TXT004",
                f"{what}: {snippet(','.join(row.fields), 0)}",
                Place(file.shown, row.line, 1),
            )
            continue
        if not row.fields[column]:
            faults.count(_EMPTY)
            continue
        texts.append(row.fields[column])
        lines.append(row.line)
        if len(texts) == 1024:
            yield Chunk(texts, lines)
            texts, lines = [], []
    if texts:
        yield Chunk(texts, lines)
