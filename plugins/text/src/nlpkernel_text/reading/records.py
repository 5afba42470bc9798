"""The records of one file, whatever its reader: the one way in for those who want them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nlpkernel.hookspecs.reader import Faults, Reader, Records
from nlpkernel_text.reading.faults import Damaged, Skipped
from nlpkernel_text.reading.files import File


def read(reader: Reader, file: File, columns: Sequence[str], faults: Faults) -> Iterator[Records]:
    """The records of a file, with `columns`. Encodings other than UTF-8 are counted by their names.

    Raise DataError for what stops the run. A file that is damaged from some place on is a fault: where the plan says
    to skip, it is counted, and what came before it stays; Skipped is raised where that is a part of a document.
    """
    if not reader.text:
        file = file.as_bytes()
    closes = True
    try:
        if file.encoding is not None and (found := file.read_as()) != "utf-8":
            faults.count(f"files read as {found}")
        for records in reader.read(file, columns, faults):
            closes = records.closes
            yield records
    except Damaged as error:
        (problem,) = error.problems
        assert problem.place is not None
        faults.broken(error.what, problem.code, problem.message, problem.place, problem.hint)
        if not closes:
            raise Skipped from error
