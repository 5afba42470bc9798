"""Names of people, by a list of first and family names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from nlpkernel.errors import DataError, Place, fail

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


def name_finder(path: Path) -> Callable[[str], Iterator[tuple[int, int]]]:
    """A finder for words of the file, written as there; several in a row are one name. Raises DataError where it cannot
    be read, or is empty."""
    try:
        names = frozenset(path.read_text(encoding="utf-8-sig").split())
    except (OSError, UnicodeDecodeError) as error:
        names, why = frozenset[str](), str(error)
    else:
        why = "it is empty"
    if not names:
        raise fail(
            DataError,
            "CLN005",
            f"the list of names cannot be used: {why}",
            place=Place(str(path)),
            owner="pii of nlpkernel-plugin-clean",
            hint="it is UTF-8 text with a name a line",
        )

    def find(text: str) -> Iterator[tuple[int, int]]:
        begun: tuple[int, int] | None = None
        for match in _WORD.finditer(text):
            word = match[0]
            if word not in names and word.removesuffix("'s").removesuffix("’s") not in names:
                continue
            start, end = match.span()
            if word not in names:
                end -= 2
            if begun is not None and text[begun[1] : start] == " ":
                begun = begun[0], end
                continue
            if begun is not None:
                yield begun
            begun = start, end
        if begun is not None:
            yield begun

    return find
