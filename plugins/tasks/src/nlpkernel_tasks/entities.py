"""Entities in the tags of words, by the letters before their types, as the CoNLL shared tasks count them."""

from __future__ import annotations

from collections.abc import Sequence

#: A stretch of words: its type, its first word and the one behind its last.
Entity = tuple[str, int, int]

_PREFIXES = frozenset("BIOESLU")


def has_entities(labels: Sequence[str]) -> bool:
    """Whether tags are those of entities: "O", and types behind a letter and a dash ("B-PER")."""
    return "O" in labels and all(label == "O" or _split(label)[0] for label in labels) and len(labels) > 1


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sequence of tags: IOB1, IOB2, IOBES and BILOU alike.

    An entity begins at "B", "S" or "U", at another type than before, and at any tag that no entity comes before; it
    ends behind "E", "L", "S" or "U", and before whatever begins another. So tags that are no proper sequence mean
    something too, as in the CoNLL-2000 evaluation.
    """
    found: list[Entity] = []
    begun: tuple[str, int] | None = None
    for at, tag in enumerate(tags):
        letter, kind = _split(tag)
        if begun is not None and (not letter or letter in "BSU" or kind != begun[0]):
            found.append((begun[0], begun[1], at))
            begun = None
        if letter:
            if begun is None:
                begun = (kind, at)
            if letter in "ESLU":
                found.append((begun[0], begun[1], at + 1))
                begun = None
    if begun is not None:
        found.append((begun[0], begun[1], len(tags)))
    return found


def kinds(labels: Sequence[str]) -> tuple[str, ...]:
    """The types of entities that tags name, in order."""
    return tuple(sorted({_split(label)[1] for label in labels if _split(label)[0]}))


def _split(tag: str) -> tuple[str, str]:
    """The letter and the type; no letter for what is outside of entities."""
    letter, dash, kind = tag.partition("-")
    return (letter, kind) if dash and letter in _PREFIXES and letter != "O" else ("", "")
