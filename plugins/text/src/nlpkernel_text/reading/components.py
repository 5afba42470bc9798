"""The components of the point `reader` in this distribution. Light: readers are imported when they are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nlpkernel import component, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.hookspecs.reader import Reader


@component
class Auto:
    """By the end of each file's name: .jsonl and .ndjson, .json, .csv, .tsv and .tab; all others are plain text."""

    documents: Literal["file", "line", "blank"] = setting(
        default="file",
        help="what a document of plain text is: a file, a line, or what stands between blank lines",
    )

    @hookimpl
    def create_reader(self) -> Reader:
        """Read each so."""
        from nlpkernel_text.reading.by_name import ByName

        return ByName(self.documents)


@component
class Plain:
    """Plain text: only LF and CRLF end a line. Its one column is "text"."""

    documents: Literal["file", "line", "blank"] = setting(
        default="file", help="what a document is: a file, a line, or what stands between blank lines"
    )

    @hookimpl
    def create_reader(self) -> Reader:
        """Read it so."""
        from nlpkernel_text.reading.plain import plain

        return plain(self.documents)


@component
class JsonLines:
    """JSON lines: an object on each line."""

    @hookimpl
    def create_reader(self) -> Reader:
        """Read it so."""
        from nlpkernel_text.reading.jsonl import Jsonl

        return Jsonl()

    @hookimpl
    def write_records(self, path: Path, batches: Iterable[Mapping[str, Sequence[Any]]]) -> int:
        """An object a line; packed where the name ends in .gz, .bz2, .xz or .zst."""
        from nlpkernel_text.reading.writing import write_jsonl

        return write_jsonl(path, batches)


@component
class JsonFile:
    """JSON: one array of objects, or one object whose values are objects, read record by record."""

    path: str = setting(
        default="",
        help='keys, with dots between them, that lead to the array or object where it is not the whole file ("data")',
    )

    @hookimpl
    def create_reader(self) -> Reader:
        """Read it so."""
        from nlpkernel_text.reading.jsonfile import Json

        return Json(self.path)


@component
class Csv:
    """CSV as RFC 4180 has it: fields in quotes may hold separators, line ends and doubled quotes."""

    separator: str = setting(default=",", help="the character between fields")
    columns: tuple[str, ...] | None = setting(
        default=None, help="names of the columns, for files whose first line is no header"
    )
    quoting: bool = setting(
        default=True, help="fields may be in quotes; otherwise a quote is like any character"
    )

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """A separator is one character that means nothing else."""
        yield from _wrong(self.separator, self.columns, self.quoting)

    @hookimpl
    def create_reader(self) -> Reader:
        """Read it so."""
        from nlpkernel_text.reading.delimited import Table

        return Table(self.separator, self.columns, self.quoting)


@component
class Tsv:
    """TSV as IANA has it: a tab separates fields, and nothing is quoted."""

    columns: tuple[str, ...] | None = setting(
        default=None, help="names of the columns, for files whose first line is no header"
    )

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Names are there once."""
        yield from _wrong("\t", self.columns, False)

    @hookimpl
    def create_reader(self) -> Reader:
        """Read it so."""
        from nlpkernel_text.reading.delimited import Table

        return Table("\t", self.columns, False)


@component
class ConllFile:
    """CoNLL: a word on each line with its columns, and a blank line behind each sentence. For tags:
    `fields = { text = "word", tags = "tag" }`."""

    columns: tuple[str, ...] = setting(default=("word", "tag"), help="names of the columns, in order")
    comments: bool = setting(
        default=False, help="as in CoNLL-U: lines that begin with # are none, nor are words like 1-2 and 1.1"
    )

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Names are there once."""
        yield from _wrong("\t", self.columns, False)

    @hookimpl
    def create_reader(self) -> Reader:
        """Read it so."""
        from nlpkernel_text.reading.conll import Conll

        return Conll(self.columns, self.comments)


def _wrong(separator: str, columns: tuple[str, ...] | None, quoting: bool) -> Iterable[tuple[str, str]]:
    if len(separator) != 1 or separator in "\r\n" or (quoting and separator == '"'):
        yield "separator", "the separator is one character, and no quote or line end"
    if columns is not None and (not columns or len(set(columns)) < len(columns)):
        yield "columns", "name each column once"
