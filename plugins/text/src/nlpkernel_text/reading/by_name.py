"""Files of several formats, each read by the reader that its name asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from nlpkernel.hookspecs.reader import Faults, Reader, Records, Source
from nlpkernel_text.reading.delimited import Table
from nlpkernel_text.reading.jsonfile import Json
from nlpkernel_text.reading.jsonl import Jsonl
from nlpkernel_text.reading.plain import plain
from nlpkernel_text.reading.suffixes import reader_for, suffix_of


class ByName:
    """Chooses among the readers of this distribution, by the end of each file's name. What they do not know is
    text."""

    unit: Literal["line", "record"] = "line"
    text = True

    def __init__(self, documents: Literal["file", "line", "blank"]) -> None:
        self._readers: Mapping[str, Reader] = {
            "jsonl": Jsonl(),
            "json": Json(),
            "csv": Table(),
            "tsv": Table("\t", quoting=False),
            "text": plain(documents),
        }

    def of(self, source: Source) -> Reader:
        """The reader of one file."""
        return self._readers.get(reader_for(suffix_of(source.shown)) or "text", self._readers["text"])

    def read(self, source: Source, columns: Sequence[str], faults: Faults) -> Iterator[Records]:
        """See Reader."""
        return self.of(source).read(source, columns, faults)
