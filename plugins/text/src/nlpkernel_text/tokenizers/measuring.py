"""How well tokenizers fit a text, and how fast they are beside each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from nlpkernel_text.tokenizers.encoders import Flat

if TYPE_CHECKING:
    from nlpkernel.hookspecs.tokenizer import Tokenizer

#: Characters of a turn, or more.
_LEAST = 200_000
#: Texts of which it is looked whether they come back.
_BACK = 256


@attrs.frozen(kw_only=True)
class Fit:
    """What a tokenizer makes of a text.

    vocabulary: entries. tokens, words, characters, bytes: of the text; a word is what stands between white space
    (`str.split`), bytes are those of UTF-8. unknown: tokens that stand for what is not in the vocabulary; None where
    the tokenizer does not say. used: entries that occur. exact: share of the texts that decoding gives back.
    """

    vocabulary: int
    tokens: int
    words: int
    characters: int
    bytes: int
    unknown: int | None
    used: int
    exact: float

    @property
    def fertility(self) -> float:
        """Tokens of a word."""
        return self.tokens / max(1, self.words)

    def plain(self) -> dict[str, Any]:
        """Everything as plain data, with the ratios."""
        tokens = max(1, self.tokens)
        return {
            **attrs.asdict(self),
            "fertility": self.fertility,
            "characters_per_token": self.characters / tokens,
            "bytes_per_token": self.bytes / tokens,
            "unknown_rate": None if self.unknown is None else self.unknown / tokens,
            "used_share": self.used / max(1, self.vocabulary),
        }


def fit(tokenizer: Tokenizer, texts: Sequence[str]) -> Fit:
    """Measure a tokenizer on texts."""
    ids, sizes = flat(tokenizer, texts)
    counts = np.bincount(ids, minlength=tokenizer.vocabulary)
    unknown: int | None = None
    if hasattr(tokenizer, "unknown"):
        unknown = 0 if tokenizer.unknown is None else int(counts[tokenizer.unknown])
    ends = sizes.cumsum()
    looked = list(zip(texts, sizes.tolist(), ends.tolist(), strict=True))[:_BACK]
    back = sum(tokenizer.decode(ids[end - size : end].tolist()) == text for text, size, end in looked)
    return Fit(
        vocabulary=tokenizer.vocabulary,
        tokens=len(ids),
        words=sum(len(text.split()) for text in texts),
        characters=sum(map(len, texts)),
        bytes=sum(len(text.encode()) for text in texts),
        unknown=unknown,
        used=int(np.count_nonzero(counts)),
        exact=back / max(1, len(looked)),
    )


def speeds(
    tokenizers: Sequence[Tokenizer], texts: Sequence[str], rounds: int, told: Callable[[], object]
) -> list[float]:
    """How many times as fast as the first each tokenizer encodes: the best of some rounds, in each of which all have a
    turn, so that all meet the same machine. Short texts are repeated, so that a turn is long enough to be measured.
    `told` is called after each turn."""
    texts = list(texts) * max(1, _LEAST // max(1, sum(map(len, texts))))
    best = [float("inf")] * len(tokenizers)
    for _ in range(rounds):
        for place, tokenizer in enumerate(tokenizers):
            start = time.perf_counter()
            flat(tokenizer, texts)
            best[place] = min(best[place], time.perf_counter() - start)
            told()
    return [best[0] / max(each, 1e-9) for each in best]


def flat(tokenizer: Tokenizer, texts: Sequence[str]) -> Flat:
    """Ids of all texts one after the other, and how many each has."""
    encode_flat = getattr(tokenizer, "encode_flat", None)
    if encode_flat is not None:
        found: Flat = encode_flat(texts)
        return found
    encoded = list(tokenizer.encode_batch(texts))
    sizes = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    return np.concatenate(encoded) if encoded else np.zeros(0, dtype=np.uint32), sizes
