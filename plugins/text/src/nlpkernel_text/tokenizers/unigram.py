"""Making a trained unigram model the same in every training.

The trainer of the `tokenizers` library (0.23) goes through its words in the order of a hash table that is seeded anew
in every process. The pieces that it finds are the same ones; their scores differ by what sums of floats lose in another
order, and the scores of characters that no piece needs are dealt out in the order of a hash table as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Decimals of a score, a natural logarithm of a probability. Two trainings differ by less than 1e-10.
_DECIMALS = 5
#: The trainer's own distance between the scores of characters that no piece needs.
_STEP = 1e-4
#: Below every real score, so that a model never finds the name of the unknown token in a text.
_NEVER = -1e6


def settled(model: Mapping[str, Any], unknown: str | None) -> dict[str, Any]:
    """The model of a tokenizer.json with scores and order that do not depend on the process."""
    # A model of no text at all has no numbers for scores.
    scores = {piece: score or 0.0 for piece, score in model["vocab"] if piece != unknown}
    lowest = min(scores.values(), default=0.0)
    # Scores of unneeded characters are whole steps above the lowest; they are dealt out again by code point.
    dealt = sorted(
        piece for piece, score in scores.items() if len(piece) == 1 and _is_whole((score - lowest) / _STEP)
    )
    ranked = sorted((scores[piece] for piece in dealt), reverse=True)
    scores.update(zip(dealt, ranked, strict=True))
    vocab: list[list[Any]] = [[piece, round(score, _DECIMALS)] for piece, score in scores.items()]
    vocab.sort(key=lambda entry: (-entry[1], entry[0]))
    if unknown is not None:
        vocab.insert(0, [unknown, _NEVER])
    return {**model, "vocab": vocab, "unk_id": None if unknown is None else 0}


def _is_whole(steps: float) -> bool:
    return abs(steps - round(steps)) < 1e-5
