"""The extension point `tokenizer`: text to ids and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from nlpkernel.hookspecs._spec import Point, hook

if TYPE_CHECKING:
    import numpy as np

    from nlpkernel.context import Run


class Tokenizer(Protocol):
    """A ready tokenizer. Ids are from 0 to `vocabulary` - 1."""

    vocabulary: int
    #: Id that ends a document, and id for padding; None where there is none.
    end: int | None
    pad: int | None

    def encode(self, text: str) -> list[int]:
        """Ids of one text, without special ids."""

    def encode_batch(self, texts: Sequence[str]) -> Sequence[np.ndarray[Any, Any]]:
        """Ids of many texts, as fast as the machine can."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`. Bytes that are no text come out as U+FFFD; special ids as nothing."""

    def save(self) -> bytes:
        """The whole tokenizer as one file."""


@hook("pick")
def create_tokenizer(run: Run, texts: Callable[[], Iterable[str]]) -> Tokenizer:  # type: ignore[empty-body]
    """Make the tokenizer, trained on `texts()` (each call starts again) if it is a trained one."""


@hook("pick")
def load_tokenizer(run: Run, saved: bytes) -> Tokenizer:  # type: ignore[empty-body]
    """Take up what `Tokenizer.save` gave."""


POINT = Point(name="tokenizer", must=("create_tokenizer", "load_tokenizer"), help="text to ids and back")
