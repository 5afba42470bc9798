"""Texts as words and what stands between them."""

from __future__ import annotations

import re

_WORD = re.compile(r"([^\W_]+(?:['’\-][^\W_]+)*)")


def cut(text: str) -> list[str]:
    """The parts of a text: words at the odd places, what stands before, between and after them at the even ones."""
    return _WORD.split(text)


def as_written(model: str, word: str) -> str:
    """`word` with the capitals of `model`: all, the first, or its own."""
    if model.isupper() and len(model) > 1:
        return word.upper()
    if model[:1].isupper():
        return word[:1].upper() + word[1:]
    return word


#: English words that carry the grammar, not the meaning. WordNet has senses for some of them ("a", "in", "it") that
#: nobody means.
FUNCTION_WORDS = frozenset(
    """
    a about above after again against all am an and any are as at be because been before being below between
    both but by can could did do does doing down during each few for from further had has have having he her
    here hers herself him himself his how i if in into is it its itself just me might more most must my
    myself no nor not now of off on once only or other our ours ourselves out over own same shall she should
    so some such than that the their theirs them themselves then there these they this those through to too
    under until up upon very was we were what when where which while who whom why will with would you your
    yours yourself yourselves
    """.split()  # noqa: SIM905 - a list of words reads best as text
)
