"""Class names and their numbers: one map for training and validation, kept with the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nlpkernel.errors import DataError, Place, fail

Ids = np.ndarray[Any, np.dtype[Any]]


class Labels:
    """Gives each label a number as it comes; in the end numbers follow the labels' order, that of whole numbers where
    all are whole numbers, else that of text. known: the labels that there are, in their order, where a model has been
    trained on them already."""

    def __init__(self, known: Sequence[str] | None = None) -> None:
        self._known = known
        self._numbers: dict[str, int] = {name: number for number, name in enumerate(known or ())}
        #: Whether documents have a column, and one file of which that is so.
        self._has: dict[str, tuple[bool, str]] = {}
        #: Labels of the training split.
        self._trained: set[str] = set()
        #: Where each label that only validation has had so far comes from.
        self._only: dict[str, Place] = {}

    def expect(self, column: str, has: bool, place: int, shown: str) -> None:
        """Documents from here on have a column or do not have it. Raise DataError (TXT036) where others differ."""
        there, other = self._has.setdefault(column, (has, shown))
        if there != has:
            without, having = (other, shown) if has else (shown, other)
            raise fail(
                DataError,
                "TXT036",
                f"documents of {without} have no {column}, and those of {having} have one",
                place=Place(shown, place, 1),
                hint=f"give all of them a {column} (`fields`), or none",
            )

    def number(self, values: Sequence[Any], train: bool, places: Sequence[int], shown: str) -> Ids:
        """The numbers for now of some documents' labels, which come from these places of a file."""
        names = [name_of(value) for value in values]
        if self._known is not None:
            self._refuse_others(names, places, shown)
        elif train:
            self._trained.update(names)
        else:
            for name, place in zip(names, places, strict=True):
                if name not in self._only:
                    self._only[name] = Place(shown, place, 1)
        for name in names:
            self._numbers.setdefault(name, len(self._numbers))
        return np.fromiter((self._numbers[name] for name in names), dtype=np.int32, count=len(names))

    def _refuse_others(self, names: Sequence[str], places: Sequence[int], shown: str) -> None:
        assert self._known is not None
        for name, place in zip(names, places, strict=True):
            if name not in self._numbers:
                raise fail(
                    DataError,
                    "TXT033",
                    f"the label {name!r} is none that the model was trained on",
                    place=Place(shown, place, 1),
                    hint=f"it was trained on: {_listed(self._known)}",
                )

    def order(self) -> tuple[tuple[str, ...], Ids]:
        """The names in their order, and for each number for now the one that it gets. Raise DataError (TXT033) for a
        label of the validation split that is never trained."""
        if self._known is not None:
            return tuple(self._known), np.arange(len(self._known), dtype=np.int32)
        for name, place in self._only.items():
            if name not in self._trained:
                raise fail(
                    DataError,
                    "TXT033",
                    f"the label {name!r} is in the validation split and never in the training split",
                    place=place,
                    hint=f"the labels of the training split are: {_listed(sorted(self._trained, key=_order))}",
                )
        whole = all(map(_whole, self._numbers))
        names = tuple(sorted(self._numbers, key=int if whole else str))
        final = np.zeros(len(names), dtype=np.int32)
        for number, name in enumerate(names):
            final[self._numbers[name]] = number
        return names, final


def name_of(value: Any) -> str:
    """A label as text: the same for 5 and "5"."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _listed(names: Sequence[str], most: int = 20) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _whole(name: str) -> bool:
    digits = name.removeprefix("-")
    return digits.isascii() and digits.isdigit() and (digits == "0" or not digits.startswith("0"))


def _order(name: str) -> tuple[int, str]:
    return (int(name), "") if _whole(name) else (0, name)
