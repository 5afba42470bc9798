"""Phone numbers, by the library phonenumbers. It is asked only about places that hold seven digits close together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from phonenumbers import SUPPORTED_REGIONS, Leniency, PhoneNumberMatcher

from nlpkernel.errors import DataError, fail

_DIGITS = re.compile(r"[+(\[]*\d(?:[^\w\n]{0,3}\d){5,}")
#: Characters on both sides that the library looks at: a longer number, a currency, a letter.
_AROUND = 6
_ANY = "ZZ"


def phone_finder(regions: Sequence[str], leniency: str) -> Callable[[str], Iterator[tuple[int, int]]]:
    """A finder for numbers as these regions write them, or with a country's code. Raises DataError for no region."""
    for region in regions:
        if region not in SUPPORTED_REGIONS and region != _ANY:
            raise fail(
                DataError,
                "CLN004",
                f"phonenumbers knows no region {region!r}",
                owner="pii of nlpkernel-plugin-clean",
                hint="regions are codes of countries in capitals: US, GB, DE; ZZ is none of them",
            )
    level = Leniency.VALID if leniency == "valid" else Leniency.POSSIBLE

    def find(text: str) -> Iterator[tuple[int, int]]:
        for start, end in _windows(text):
            window = text[start:end]
            for region in regions:
                for match in PhoneNumberMatcher(window, region, leniency=level):
                    yield start + match.start, start + match.end

    return find


def _windows(text: str) -> Iterator[tuple[int, int]]:
    """Places that may hold a number; those that touch are one."""
    begun: tuple[int, int] | None = None
    for match in _DIGITS.finditer(text):
        start, end = max(0, match.start() - _AROUND), match.end() + _AROUND
        if begun is None:
            begun = start, end
        elif start <= begun[1]:
            begun = begun[0], end
        else:
            yield begun
            begun = start, end
    if begun is not None:
        yield begun
