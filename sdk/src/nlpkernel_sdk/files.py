"""What readers are given: a file, and somebody to tell of broken records."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import attrs

from nlpkernel.errors import DataError, Place, fail


@attrs.frozen
class Opened:
    """A local file, as readers get one: see `nlpkernel.hookspecs.reader.Source`."""

    path: Path
    binary: frozenset[str] = frozenset()

    @property
    def shown(self) -> str:
        """Its path."""
        return str(self.path)

    @property
    def local(self) -> Path | None:
        """Itself."""
        return self.path

    def open(self) -> BinaryIO:
        """Its bytes. Raise DataError where there is no such file."""
        try:
            return self.path.open("rb")
        except OSError as error:
            raise fail(DataError, "SDK020", f"{self.shown!r} cannot be read: {error.strerror}") from error


@attrs.define
class Tally:
    """What becomes of broken records: see `nlpkernel.hookspecs.reader.Faults`. counted: name to number."""

    skip: bool = False
    counted: dict[str, int] = attrs.field(factory=dict)

    def count(self, what: str, number: int = 1) -> None:
        """Add to it."""
        self.counted[what] = self.counted.get(what, 0) + number

    def broken(self, what: str, code: str, message: str, place: Place, hint: str | None = None) -> None:
        """Count it, or raise DataError."""
        if not self.skip:
            raise fail(DataError, code, message, place=place, hint=hint)
        self.count(what)
