"""E-mail and IP addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address, IPv6Address

# All repeats are bounded or begin where nothing of theirs stands before, so that no text takes quadratic time.
_EMAIL = re.compile(r"(?<![\w.%+-])\w[\w.%+'-]{0,63}@(?:[\w-]{1,63}\.){1,8}[^\W\d_][\w-]{1,62}(?![\w-])")
_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\.?\w)")
_IPV6 = re.compile(
    r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}(?:(?:\d{1,3}\.){3}\d{1,3}|[0-9A-Fa-f]{0,4})(?![\w:])"
)


def emails(text: str) -> Iterator[tuple[int, int]]:
    """Addresses with a domain of two labels or more."""
    if "@" in text:
        for match in _EMAIL.finditer(text):
            yield match.span()


def ips(text: str) -> Iterator[tuple[int, int]]:
    """IPv4 in four parts, and IPv6. What has the shape of either but is none (999.1.1.1, 12:30:15) is left out, and so
    are IPv6 addresses without a digit or with fewer than four hexadecimal ones (::1, std::abc), which programs hold."""
    # First the longer ones, some of which end in an IPv4 address.
    if ":" in text:
        for match in _IPV6.finditer(text):
            found = match[0]
            try:
                IPv6Address(found)
            except AddressValueError:
                continue
            digits = found.replace(":", "")
            if len(digits) >= 4 and any(each.isdigit() for each in digits):
                yield match.span()
    if "." in text:
        for match in _IPV4.finditer(text):
            try:
                IPv4Address(match[0])
            except AddressValueError:
                continue
            yield match.span()
