"""What the tests share: a file as readers get it, and what becomes of faults."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from nlpkernel.errors import DataError, Place, fail
from nlpkernel.hookspecs.reader import Reader


class Local:
    """A file on this machine, or, where `packed`, one that only streams."""

    def __init__(self, path: Path, packed: bool = False) -> None:
        self.path, self.packed = path, packed
        self.shown = path.name
        self.binary: frozenset[str] = frozenset()

    @property
    def local(self) -> Path | None:
        return None if self.packed else self.path

    def open(self) -> BinaryIO:
        data = self.path.read_bytes()
        return Streamed(data) if self.packed else io.BytesIO(data)


class Streamed(io.BytesIO):
    """Bytes that cannot be gone back in."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: Any) -> int:
        raise io.UnsupportedOperation("seek")


class Faults:
    """As the text plugin's."""

    def __init__(self, skip: bool = False) -> None:
        self.skip = skip
        self.counts: Counter[str] = Counter()

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] += number

    def broken(self, what: str, code: str, message: str, place: Place, hint: str | None = None) -> None:
        if not self.skip:
            raise fail(DataError, code, message, place=place, hint=hint)
        self.counts[what] += 1


Read = Callable[..., list[tuple[Any, ...]]]


def rows(
    reader: Reader, path: Path, *columns: str, faults: Faults | None = None, packed: bool = False
) -> list[tuple[Any, ...]]:
    """The records of a file: their places, and their values of the columns."""
    found = []
    for records in reader.read(Local(path, packed), columns, faults or Faults()):
        assert set(records.columns) == set(columns)
        values: list[Sequence[Any]] = [records.columns[name] for name in columns]
        assert {len(each) for each in values} <= {len(records.places)}
        found += list(zip(records.places, *values, strict=True))
    return found


@pytest.fixture(scope="session")
def read() -> Read:
    return rows


@pytest.fixture(scope="session")
def make_faults() -> type[Faults]:
    return Faults


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture(scope="session")
def source() -> type[Local]:
    return Local
