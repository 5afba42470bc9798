"""MinHash signatures of many texts at once.

A. Broder, "On the resemblance and containment of documents", 1997. A permutation is replaced by a function
x -> a x + b modulo 2^32 with an odd a, on 32 well mixed bits of a shingle's hash; all of them are fixed by a constant.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import xxhash

from nlpkernel.sampling import key, offsets

Signatures = np.ndarray[Any, np.dtype[np.uint32]]
_Hashes = np.ndarray[Any, np.dtype[np.uint64]]

_WORD = re.compile(r"\w+")
_SPACE = re.compile(r"\s+")
#: Fixed, so that signatures of one run may be compared with those of another.
_SEED = key(0x3A5)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
#: Words whose hashes are remembered.
_REMEMBERED = 1 << 18
#: Shingles that are worked on at once, so that they stay in a core's cache.
_BLOCK = 1 << 15


class Words(dict[str, int]):
    """Hashes of words, made when first asked for."""

    def __missing__(self, word: str) -> int:
        """Hash it."""
        if len(self) >= _REMEMBERED:
            self.clear()
        number = self[word] = xxhash.xxh3_64_intdigest(word.encode("utf-8", "surrogatepass"))
        return number


class Signer:
    """Makes signatures of `permutations` numbers from shingles of `size` words or characters.

    Case makes no difference; nor, among words, what is no letter or digit, and among characters, how much white space
    there is.
    """

    def __init__(self, permutations: int, unit: str, size: int) -> None:
        self.unit, self.size = unit, size
        drawn = offsets(_SEED, 0, 0, 2 * permutations, 1 << 32).astype(np.uint32)
        self._times, self._plus = drawn[:permutations] | np.uint32(1), drawn[permutations:]
        self._words = Words()

    def sign(self, texts: Sequence[str]) -> Signatures:
        """uint32 [texts, permutations]. A text with nothing to compare (no word) is compared as it is."""
        signatures = np.empty((len(texts), len(self._times)), dtype=np.uint32)
        start = 0
        while start < len(texts):
            end, length = start + 1, len(texts[start])
            while end < len(texts) and length < 8 * _BLOCK:
                length += len(texts[end])
                end += 1
            self._block(texts[start:end], signatures[start:end])
            start = end
        return signatures

    def _block(self, texts: Sequence[str], into: Signatures) -> None:
        hashes, lengths = self._units(texts)
        starts = np.cumsum(lengths) - lengths
        shingles, firsts = self._shingles(hashes, lengths, starts)
        product = np.empty_like(shingles)
        for at, (times, plus) in enumerate(zip(self._times, self._plus, strict=True)):
            np.multiply(shingles, times, out=product)
            product += plus
            into[:, at] = np.minimum.reduceat(product, firsts)

    def _units(self, texts: Sequence[str]) -> tuple[_Hashes, Any]:
        """Hashes of the words or characters of all texts, one after the other, and how many each has."""
        if self.unit == "characters":
            folded = [_SPACE.sub(" ", text.casefold()).strip() or text for text in texts]
            encoded = "".join(folded).encode("utf-32-le", "surrogatepass")
            codes = np.frombuffer(encoded, dtype=np.uint32).astype(np.uint64)
            return _mixed(codes), np.array(list(map(len, folded)))
        words = [_WORD.findall(text.casefold()) or [text] for text in texts]
        lengths = np.array(list(map(len, words)))
        numbers = map(self._words.__getitem__, itertools.chain.from_iterable(words))
        hashes = np.fromiter(numbers, np.uint64, int(lengths.sum()))
        return hashes, lengths

    def _shingles(self, hashes: _Hashes, lengths: Any, starts: Any) -> tuple[Signatures, Any]:
        """Hashes of the shingles of all texts, and where each text's begin. A shorter text is one shingle."""
        size = self.size
        padded = np.concatenate([hashes, np.zeros(size - 1, dtype=np.uint64)])
        rolled = np.zeros_like(hashes)
        for shift in range(size):
            rolled = rolled * _FACTOR + padded[shift : shift + len(hashes)]
        counts = np.maximum(1, lengths - size + 1)
        for at in np.flatnonzero(lengths < size).tolist():
            # What stands after this text is not its own.
            value = 0
            for number in hashes[starts[at] : starts[at] + lengths[at]].tolist():
                value = value * int(_FACTOR) + number
            rolled[starts[at]] = value & 0xFFFFFFFFFFFFFFFF
        firsts = np.cumsum(counts) - counts
        # A text's shingles are the first `counts` of its units.
        chosen = np.arange(int(counts.sum())) + np.repeat(starts - firsts, counts)
        return (_mixed(rolled[chosen]) >> np.uint64(32)).astype(np.uint32), firsts


def shortened(signatures: Signatures) -> Any:
    """8 bits of each number, as uint8, that depend on all of its 32: a smallest number of many has few upper ones."""
    return ((signatures ^ (signatures >> np.uint32(15))) * np.uint32(0x2C1B3C6D) >> np.uint32(24)).astype(
        np.uint8
    )


def band_keys(signatures: Signatures, count: int, rows: int) -> _Hashes:
    """uint64 [texts, count]: a key for each band of `rows` numbers; those of other bands differ."""
    keys = np.zeros((len(signatures), count), dtype=np.uint64)
    keys += np.arange(1, count + 1, dtype=np.uint64)[None, :]
    for row in range(rows):
        keys *= _FACTOR
        keys ^= signatures[:, row : count * rows : rows]
        keys ^= keys >> np.uint64(29)
    mixed: _Hashes = _mixed(keys)
    return mixed


def _mixed(values: Any) -> Any:
    """SplitMix64's output function (Steele, Lea and Flood, 2014)."""
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))
