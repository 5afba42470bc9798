"""What becomes of records that cannot be read: an error with their place, or a count."""

from __future__ import annotations

from collections import Counter

from nlpkernel.errors import DataError, Place, Problem, fail

#: Characters that a snippet shows on either side of the place.
_AROUND = 20


class Skipped(Exception):
    """A file is left out because a part of it cannot be read."""


class Damaged(DataError):
    """A file cannot be read from some place on: its archive is damaged, its text has another encoding. Where the plan
    says to skip, what comes before is kept. what: its name in the report."""

    what: str = "damaged files"

    @classmethod
    def of(cls, what: str, code: str, message: str, place: Place, hint: str | None = None) -> Damaged:
        """Make the error of its one problem."""
        error = cls(Problem(code=code, message=message, place=place, hint=hint))
        error.what = what
        return error


class Faults:
    """Stops at the first record that cannot be read, or counts what is left out.

    counts: what was left out, by its name in the report. first: the first fault as a message.
    """

    def __init__(self, skip: bool) -> None:
        self.skip = skip
        self.counts: Counter[str] = Counter()
        self.first = ""

    def count(self, what: str, number: int = 1) -> None:
        """Left out without being a fault: blank lines, empty files."""
        if number:
            self.counts[what] += number

    def broken(self, what: str, code: str, message: str, place: Place, hint: str | None = None) -> None:
        """A record is broken. Raises DataError, or counts it as `what` where the plan says to skip."""
        if not self.skip:
            raise fail(DataError, code, message, place=place, hint=hint)
        self.counts[what] += 1
        if not self.first:
            self.first = str(Problem(code=code, message=message, place=place))


def snippet(text: str, at: int) -> str:
    """What stands around the character number `at`, quoted, for a message."""
    start, end = max(0, at - _AROUND), at + _AROUND
    return ("..." if start else "") + repr(text[start:end]) + ("..." if end < len(text) else "")
