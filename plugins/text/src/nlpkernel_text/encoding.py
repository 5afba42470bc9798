"""Texts to tokens, many at once; and where a text is that a tokenizer refuses."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import attrs
import numpy as np

from nlpkernel.errors import DataError, Place
from nlpkernel_text.reading.plain import cut
from nlpkernel_text.tokenizers.encoders import Flat, Ids

if TYPE_CHECKING:
    from nlpkernel.hookspecs.tokenizer import Tokenizer


class Encoded(NamedTuple):
    """The tokens of some texts: ids one after the other, and how many each text has. words: how many each word has, of
    texts that are tagged. targets: the same of their second texts. prompts: how many of each text's tokens are of what
    stands before it."""

    tokens: Flat
    words: Ids | None = None
    targets: Flat | None = None
    prompts: Ids | None = None


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> Flat:
    """The tokens of all texts, of which there is one at least; long ones go to the tokenizer in pieces."""
    parts = [cut(text) for text in texts]
    counts = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
    ids, sizes = _flat(tokenizer, [part for each in parts for part in each])
    return ids, np.add.reduceat(sizes, counts.cumsum() - counts)


def encode_behind(tokenizer: Tokenizer, prompts: Sequence[str], texts: Sequence[str]) -> tuple[Flat, Ids]:
    """The tokens of texts, each behind its prompt, and how many the prompt has. Both are encoded for themselves, so
    that no token reaches over the seam."""
    before, counts = encode(tokenizer, prompts)
    behind, sizes = encode(tokenizer, texts)
    both = counts + sizes
    ids = np.empty(len(before) + len(behind), dtype=np.result_type(before, behind))
    ends = both.cumsum()
    is_prompt = np.zeros(len(ids) + 1, dtype=np.int64)
    np.add.at(is_prompt, ends - both, 1)
    np.add.at(is_prompt, ends - sizes, -1)
    where = is_prompt[:-1].cumsum() > 0
    ids[where], ids[~where] = before, behind
    return (ids, both), counts


def encode_words(tokenizer: Tokenizer, texts: Sequence[Sequence[str]]) -> tuple[Flat, Ids]:
    """The tokens of texts that are lists of words, and how many each word has. Each word is encoded for itself, all but
    the first with a space before it."""
    words = [word if number == 0 else f" {word}" for text in texts for number, word in enumerate(text)]
    ids, sizes = encode(tokenizer, words)
    counts = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    return (ids, np.add.reduceat(sizes, counts.cumsum() - counts)), sizes


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
