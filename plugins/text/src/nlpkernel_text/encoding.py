"""Texts to tokens, many at once; and where a text is that a tokenizer refuses."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np

from nlpkernel.errors import DataError, Place
from nlpkernel_text.reading.plain import cut
from nlpkernel_text.tokenizers.encoders import Flat

if TYPE_CHECKING:
    from nlpkernel.hookspecs.tokenizer import Tokenizer


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> Flat:
    """The tokens of all texts, of which there is one at least; long ones go to the tokenizer in pieces."""
    parts = [cut(text) for text in texts]
    counts = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
    ids, sizes = _flat(tokenizer, [part for each in parts for part in each])
    return ids, np.add.reduceat(sizes, counts.cumsum() - counts)


def refused_at(
    tokenizer: Tokenizer, texts: Sequence[str], lines: Sequence[int], shown: str
) -> DataError | None:
    """The error for the first line that the tokenizer refuses, with its place; `lines` are those on which texts
    begin."""
    for text, line in zip(texts, lines, strict=True):
        for number, each in enumerate(text.split("\n"), line):
            found = _refused(tokenizer, each)
            if found is None:
                continue
            # The shortest beginning of the line that is refused ends with what is wrong.
            column = bisect_left(
                range(1, len(each)), True, key=lambda end: bool(_refused(tokenizer, each[:end]))
            )
            place = Place(shown, number, column + 1)
            return DataError([attrs.evolve(problem, place=place) for problem in found.problems])
    return None


def _refused(tokenizer: Tokenizer, text: str) -> DataError | None:
    try:
        tokenizer.encode_batch([text])
    except DataError as error:
        return error
    return None


def _flat(tokenizer: Tokenizer, texts: list[str]) -> Flat:
    """Ids of all texts, and how many each has. Ours give them so; many short arrays cost as much as tokenizing."""
    encode_flat = getattr(tokenizer, "encode_flat", None)
    if encode_flat is not None:
        flat: Flat = encode_flat(texts)
        return flat
    encoded = list(tokenizer.encode_batch(texts))
    return np.concatenate(encoded), np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
