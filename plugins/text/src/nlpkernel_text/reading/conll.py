"""CoNLL: a word on each line with its columns, and a blank line behind each sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from nlpkernel.errors import DataError, Place, fail
from nlpkernel.hookspecs.reader import Faults, Records, Source
from nlpkernel_text.reading.blocks import lines_of, whole_lines
from nlpkernel_text.reading.columns import BROKEN
from nlpkernel_text.reading.faults import snippet

#: A line that stands for the beginning of a document, in the files of CoNLL-2003.
_DOCUMENT = "-DOCSTART-"


class Conll:
    """A sentence is a record, each of whose columns is a list with an element for each word.

    columns: their names; fields are parted by tabs where a line has one, else by white space. comments: lines that
    begin with "#" and have no tab are left out, as in CoNLL-U; so are its words that others consist of (1-2) or that
    are not written (1.1).
    """

    unit: Literal["line", "record"] = "line"
    text = True

    def __init__(self, columns: Sequence[str], comments: bool) -> None:
        self.columns, self.comments = tuple(columns), comments

    def read(self, source: Source, columns: Sequence[str], faults: Faults) -> Iterator[Records]:
        """See Reader."""
        picked = [self._at(source, name) for name in columns]
        made: list[list[list[str]]] = [[] for _ in columns]
        places: list[int] = []
        words: list[list[str]] = []
        begun, broken = 0, False

        def close() -> None:
            nonlocal words, broken
            if words and not broken:
                places.append(begun)
                for into, at in zip(made, picked, strict=True):
                    into.append([word[at] for word in words])
            words, broken = [], False

        for first, block in whole_lines(source, faults):
            if block is None:
                # What is left of its sentence is none.
                broken, words = True, words or [[""]]
                continue
            for number, line in enumerate(lines_of(block), first):
                if not line or line.isspace():
                    close()
                    continue
                if self._means_nothing(line):
                    continue
                begun = begun if words else number
                fields = line.split("\t") if "\t" in line else line.split()
                if len(fields) != len(self.columns) and not broken:
                    broken = True
                    what = f"the line has {len(fields)} columns and `columns` names {len(self.columns)}"
                    faults.broken(
                        BROKEN, "TXT004", f"{what}: {snippet(line, 0)}", Place(source.shown, number, 1)
                    )
                words.append(fields)
            if places:
                yield Records(dict(zip(columns, made, strict=True)), places)
                made, places = [[] for _ in columns], []
        close()
        if places:
            yield Records(dict(zip(columns, made, strict=True)), places)

    def _means_nothing(self, line: str) -> bool:
        if line.startswith(_DOCUMENT):
            return True
        if not self.comments:
            return False
        if line.startswith("#") and "\t" not in line:
            return True
        number = line.partition("\t")[0]
        return not number.isdigit() and number.replace("-", "").replace(".", "").isdigit()

    def _at(self, source: Source, name: str) -> int:
        if name in self.columns:
            return self.columns.index(name)
        raise fail(
            DataError,
            "TXT006",
            f"there is no column {name!r}; the columns are: {', '.join(self.columns)}",
            place=Place(source.shown),
            hint='name them: format = { use = "conll", columns = ["word", "tag"] }',
        )
