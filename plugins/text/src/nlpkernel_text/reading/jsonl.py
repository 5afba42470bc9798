"""JSON lines: an object on each line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from nlpkernel.errors import Place
from nlpkernel.hookspecs.reader import Faults, Records, Source
from nlpkernel_text.reading.blocks import lines_of, whole_lines
from nlpkernel_text.reading.columns import BROKEN, ESCAPED, Picker, lacking, without_halves
from nlpkernel_text.reading.faults import snippet

#: What json.loads does for an object that fills its line, without what it does around that.
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


class Jsonl:
    """An object on each line. Blank lines are left out and counted."""

    unit: Literal["line", "record"] = "line"
    text = True

    def read(self, source: Source, columns: Sequence[str], faults: Faults) -> Iterator[Records]:
        """See Reader."""
        picker = Picker(columns)
        only = columns[0] if len(columns) == 1 else None
        for first, block in whole_lines(source, faults):
            if block is None:
                continue
            for number, line in enumerate(lines_of(block), first):
                try:
                    record, end = _scan(line, 0)
                except (StopIteration, ValueError, RecursionError):
                    end = -1
                if end != len(line) or type(record) is not dict:
                    record = _record(source.shown, faults, number, line)
                    if record is None:
                        continue
                if only is not None and only in record:
                    picker.values[0].append(record[only])
                    picker.places.append(number)
                elif (missing := picker.add(record, number)) is not None:
                    lacking(faults, record, missing, Place(source.shown, number, 1))
            records = picker.take()
            # Only an escape can make half a pair of what was UTF-8.
            if records is not None and ESCAPED.search(block) is not None:
                records = without_halves(records, source.shown, faults)
            if records is not None:
                yield records


def _record(shown: str, faults: Faults, number: int, line: str) -> dict[str, Any] | None:
    """The object of a line, or None and a fault."""
    if not line or line.isspace():
        faults.count("blank lines")
        return None
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        place = Place(shown, number, error.colno)
        faults.broken(BROKEN, "TXT004", f"no JSON: {error.msg} at {snippet(line, error.pos)}", place)
        return None
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits, or thousands of brackets.
        faults.broken(BROKEN, "TXT004", f"JSON that cannot be read: {error}", Place(shown, number, 1))
        return None
    if not isinstance(record, dict):
        place = Place(shown, number, 1)
        faults.broken(
            BROKEN, "TXT004", f"no JSON object, which begins with a brace: {snippet(line, 0)}", place
        )
        return None
    return record
