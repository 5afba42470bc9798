"""What tasks need to know of a tokenizer: which ids are ordinary, which one masks, where words begin, and marks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from nlpkernel.errors import DataError, fail
from nlpkernel_tasks.codes import OWNER

if TYPE_CHECKING:
    from nlpkernel.hookspecs.tokenizer import Tokenizer

#: How SentencePiece writes the space before a word.
_SPACE = "\u2581"


@attrs.frozen(eq=False)
class Pieces:
    """mask: the id that masks. ordinary: for each id whether it is text and no mark. begins: for each id whether a word
    begins with it; None where words are not asked for."""

    mask: int
    ordinary: Any
    begins: Any = None

    @classmethod
    def of(cls, tokenizer: Tokenizer, mask: str, words: bool) -> Pieces:
        """Ask a tokenizer. Raise DataError where it has no such mask (TSK004), or does not tell what words are
        (TSK005)."""
        number = _mask(tokenizer, mask)
        # Marks are decoded as nothing, wherever they stand.
        ordinary = np.array([bool(tokenizer.decode([each])) for each in range(tokenizer.vocabulary)])
        marks = (number, tokenizer.end, tokenizer.pad, getattr(tokenizer, "unknown", None))
        ordinary[[each for each in marks if each is not None]] = False
        return cls(number, ordinary, _begins(tokenizer) if words else None)


def end_and_start(tokenizer: Tokenizer, start: str | None) -> tuple[int, int]:
    """The token that ends a text, and the one of this name that a text begins after; without a name, the end. Raise
    DataError (TSK009) where the tokenizer has none."""
    number = tokenizer.end if start is None else _named(tokenizer, start)
    if tokenizer.end is None or number is None:
        missing = "that ends a text" if tokenizer.end is None else repr(start)
        raise fail(DataError, "TSK009", f"the tokenizer has no token {missing}", owner=OWNER)
    return tokenizer.end, number


def _named(tokenizer: Tokenizer, name: str) -> int | None:
    """The token of this name."""
    ids = tokenizer.encode(name)
    if len(ids) == 1 and ids[0] != getattr(tokenizer, "unknown", None):
        return ids[0]
    # A mark of the library's own is never found in a text.
    piece = _piece(tokenizer)
    for number in range(tokenizer.vocabulary) if piece is not None else ():
        if piece is not None and piece(number) == name:
            return number
    return None


def _mask(tokenizer: Tokenizer, name: str) -> int:
    number = _named(tokenizer, name)
    if number is not None:
        return number
    raise fail(
        DataError,
        "TSK004",
        f"the tokenizer has no token {name!r}",
        owner=OWNER,
        hint=f"add it to its vocabulary: special = [{name!r}]".replace("'", '"'),
    )


def _begins(tokenizer: Tokenizer) -> Any:
    piece = _piece(tokenizer)
    pieces = [] if piece is None else [piece(number) for number in range(tokenizer.vocabulary)]
    if getattr(tokenizer, "kind", None) == "WordPiece":
        return np.array([not each.startswith("##") for each in pieces])
    begins = np.array([each[:1].isspace() or each.startswith(_SPACE) for each in pieces])
    # A vocabulary of single bytes or characters has white space, and no piece that goes on behind it.
    if any(len(piece) > 1 for piece, begin in zip(pieces, begins.tolist(), strict=True) if begin):
        return begins
    raise fail(
        DataError,
        "TSK005",
        "the pieces of the tokenizer do not say where words begin",
        owner=OWNER,
        hint="leave `words` out",
    )


def _piece(tokenizer: Tokenizer) -> Callable[[int], str] | None:
    return getattr(tokenizer, "piece", None)
