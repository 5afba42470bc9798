"""Books in which the components of a test write what they saw.

A component named in a plan as a local file is loaded as a module of its own; what it writes here can be read from the
test all the same.
"""

from __future__ import annotations

from typing import Any

#: Entries by book, in the order in which they were written. A test clears it before a run.
BOOKS: dict[str, list[Any]] = {}


def note(book: str, *entry: Any) -> None:
    """Write an entry into a book."""
    BOOKS.setdefault(book, []).append(entry)
