"""Payment cards and IBANs, with their check digits."""

from __future__ import annotations

import re
from collections.abc import Iterator

_CARD = re.compile(r"(?<![\w.])\d(?:[ -]?\d){11,40}(?!\w)", re.ASCII)
_GROUP = re.compile(r"\d+", re.ASCII)
#: First digits and lengths of the large schemes (ISO/IEC 7812; issuers' published ranges).
_SCHEMES = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})"  # Visa
    r"|(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}"  # Mastercard
    r"|3[47]\d{13}"  # American Express
    r"|3(?:0[0-5]|[689]\d)\d{11,16}"  # Diners Club
    r"|(?:6011|64[4-9]\d|65\d\d)\d{12,15}"  # Discover
    r"|35(?:2[89]|[3-8]\d)\d{12,15}|(?:2131|1800)\d{11}"  # JCB
    r"|62\d{14,17}"  # UnionPay
    r"|(?:50|5[6-9]|6\d)\d{10,17}",  # Maestro
    re.ASCII,
)

_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}", re.ASCII)
#: Countries by the length of their IBANs (SWIFT IBAN registry).
_COUNTRIES = {
    15: "NO",
    16: "BE",
    18: "DK FI FK FO GL NL SD",
    19: "MK SI",
    20: "AT BA EE KZ LT LU MN XK",
    21: "CH CR HR LI LV",
    22: "BG BH DE GB GE IE ME RS VA",
    23: "AE GI IL IQ OM SO TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG",
    25: "LY PT ST",
    26: "IS TR",
    27: "BI DJ FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HN HU LB NI PL SV",
    29: "BR EG PS QA UA",
    30: "JO KW MU",
    31: "MT SC",
    32: "LC",
    33: "RU",
}
_LENGTHS = {code: length for length, codes in _COUNTRIES.items() for code in codes.split()}


def cards(text: str) -> Iterator[tuple[int, int]]:
    """Numbers of a known scheme's shape whose check digit is right (Luhn), in one or in groups by spaces or dashes."""
    for match in _CARD.finditer(text):
        groups = [group.span() for group in _GROUP.finditer(text, *match.span())]
        first = 0
        while first < len(groups):
            # The longest that fits; other numbers may stand beside it.
            for last in range(min(len(groups), first + 19) - 1, first - 1, -1):
                start, end = groups[first][0], groups[last][1]
                digits = text[start:end].replace(" ", "").replace("-", "")
                if 12 <= len(digits) <= 19 and _SCHEMES.fullmatch(digits) and luhn(digits):
                    yield start, end
                    first = last
                    break
            first += 1


def luhn(digits: str) -> bool:
    """Whether the last digit is the check digit of the others (ISO/IEC 7812-1, annex B)."""
    odd = sum(map(int, digits[-1::-2]))
    return (odd + sum(sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])) % 10 == 0


def ibans(text: str) -> Iterator[tuple[int, int]]:
    """IBANs of their country's length whose check digits are right (ISO 13616), in one or in groups."""
    at = 0
    while match := _IBAN.search(text, at):
        end = _end(text, match.start(), _LENGTHS.get(match[0][:2], 0))
        if end and (end == len(text) or not text[end].isalnum()) and mod97(text[match.start() : end]):
            yield match.start(), end
            at = end
        else:
            # Another may begin within.
            at = match.start() + 2


def _end(text: str, start: int, length: int) -> int:
    """Where `length` characters from `start` on end, without spaces; 0 where there are fewer."""
    at = start
    while length and at < len(text):
        length -= text[at] != " "
        at += 1
    return 0 if length or at == start else at


def mod97(iban: str) -> bool:
    """Whether the check digits are right."""
    joined = iban.replace(" ", "")
    return int("".join(str(int(each, 36)) for each in joined[4:] + joined[:4])) % 97 == 1
