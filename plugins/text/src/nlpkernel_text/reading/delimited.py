"""Tables as text: CSV, TSV and their kin."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Literal

from nlpkernel.errors import DataError, Place, fail
from nlpkernel.hookspecs.reader import Faults, Records, Source
from nlpkernel_text.reading.columns import BROKEN
from nlpkernel_text.reading.faults import Damaged, snippet
from nlpkernel_text.reading.tables import Line, are_rows, bare_rows, quoted_rows

#: Rows that are given at once.
_ROWS = 1024


class Table:
    """Rows of fields. Blank lines are left out and counted.

    separator: the character between fields. columns: names of the columns of files whose first row is no header; None
    where it is one. quoting: fields may be in quotes, as RFC 4180 has it; otherwise a quote is a character like
    others.
    """

    unit: Literal["line", "record"] = "line"
    text = True

    def __init__(
        self, separator: str = ",", columns: Sequence[str] | None = None, quoting: bool = True
    ) -> None:
        self.separator, self.quoting = separator, quoting
        self.columns = tuple(columns) if columns is not None else None

    def read(self, source: Source, columns: Sequence[str], faults: Faults) -> Iterator[Records]:
        """See Reader."""
        again: deque[Line] = deque()
        rows = (
            quoted_rows(source, faults, self.separator, again)
            if self.quoting
            else bare_rows(source, faults, self.separator)
        )
        names: Sequence[str]
        if self.columns is not None:
            names, header = self.columns, 0
        else:
            first = next(rows, None)
            if first is None:
                faults.count("empty files")
                return
            names, header = first.fields, first.line
        picked = [_at(source, name, names, header) for name in columns]
        only, width = picked[0] if len(picked) == 1 else None, len(names)
        values: list[list[str]] = [[] for _ in picked]
        lines: list[int] = []
        failed: Damaged | None = None
        try:
            for row in rows:
                fields = row.fields
                if len(fields) != width:
                    what = f"the row has {len(fields)} columns and the header has {width}"
                    if self.columns is not None:
                        what = f"the row has {len(fields)} columns and `columns` names {width}"
                    message = f"{what}: {snippet(self.separator.join(fields), 0)}"
                    faults.broken(BROKEN, "TXT004", message, Place(source.shown, row.line, 1))
                    if are_rows(row.rest, self.separator, width):
                        again.extendleft(reversed(row.rest))
                    continue
                if only is not None:
                    values[0].append(fields[only])
                else:
                    for into, at in zip(values, picked, strict=True):
                        into.append(fields[at])
                lines.append(row.line)
                if len(lines) == _ROWS:
                    yield Records(dict(zip(columns, values, strict=True)), lines)
                    values, lines = [[] for _ in picked], []
        except Damaged as error:
            failed = error
        if lines:
            yield Records(dict(zip(columns, values, strict=True)), lines)
        if failed is not None:
            raise failed


def _at(source: Source, name: str, names: Sequence[str], header: int) -> int:
    """The number of a column."""
    if name in names:
        return names.index(name)
    raise fail(
        DataError,
        "TXT006",
        f"there is no column {name!r}; the columns are: {', '.join(names)}",
        place=Place(source.shown, header, 1) if header else Place(source.shown),
        hint='write the column\'s name in `fields`: fields = { text = "..." }',
    )
