"""The extension point `reader`: records from the files of one format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, Protocol

from nlpkernel.hookspecs._spec import Point, hook

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.errors import Place


class Source(Protocol):
    """One file of the data, wherever it lies and however it is packed.

    shown: how messages call it. binary: columns whose values may be bytes that are no text, such as images; values of
    others that are no UTF-8 are broken.
    """

    shown: str
    binary: frozenset[str]

    @property
    def local(self) -> Path | None:
        """Its own bytes on this machine, where they are what `open` gives, so that a library can map them; None for a
        file that is compressed, elsewhere, or in another encoding."""

    def open(self) -> BinaryIO:
        """Its content from the start: decompressed, and of a format that is text as UTF-8. Raise DataError where it
        cannot be read; so does reading on where the file is damaged, after all that comes before. A reader gives the
        records that it has by then, and lets the error pass."""


class Faults(Protocol):
    """What becomes of records that cannot be read. skip: they are left out and counted; otherwise they stop the run."""

    skip: bool

    def count(self, what: str, number: int = 1) -> None:
        """Something was left out that is no fault: blank lines, empty files. `what` is its name in the report."""

    def broken(self, what: str, code: str, message: str, place: Place, hint: str | None = None) -> None:
        """A record is broken. Raise DataError, or count it as `what` where the plan says to skip."""


class Records(NamedTuple):
    """Some records of one file, by column, in the order of the file.

    columns: name to values, all of one length. places: where each record begins: its line or its number, from 1.
    opens, closes: the first record may continue the last one of the `Records` before, and the last one be continued by
    the next; then there is one record, with a piece of its text.
    """

    columns: Mapping[str, Sequence[Any]]
    places: Sequence[int]
    opens: bool = True
    closes: bool = True


class Reader(Protocol):
    """Reads one format. It keeps nothing from one file to the next, so that several may be read at once.

    unit: what `Records.places` count. text: whether the format is text, and has an encoding.
    """

    unit: Literal["line", "record"]
    text: bool

    def read(self, source: Source, columns: Sequence[str], faults: Faults) -> Iterator[Records]:
        """The records of a file with the `columns` that are asked for, in bounded memory. A name with dots goes into
        records inside records: "meta.title". A record that lacks one is broken; a format that says once for a file
        which columns there are raises DataError, naming them."""


@hook("pick")
def create_reader(run: Run) -> Reader:  # type: ignore[empty-body]
    """Make the reader."""


@hook("pick")
def write_records(path: Path, batches: Iterable[Mapping[str, Sequence[Any]]]) -> int:  # type: ignore[empty-body]
    """Write a file of this format: records by column, some at a time; how many there are. It is whole or not there.
    Raise DataError where it cannot be written."""


POINT = Point(
    name="reader",
    must=("create_reader",),
    may=("write_records",),
    help="records from the files of one format",
)
