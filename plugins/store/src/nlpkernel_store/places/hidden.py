"""What is secret among the options of a driver."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

_SECRET = re.compile(r"(^|_)(key|secret|token|password|passwd|passphrase|credentials?)($|_)", re.IGNORECASE)


def suspicious(options: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Options, at any depth, that hold a text under a name that only secrets have: their paths and their values."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from suspicious(value, f"{path}{name}.")
        elif isinstance(value, str) and value and _SECRET.search(name):
            yield f"{path}{name}", value


def revealing(url: str) -> str | None:
    """What may be secret in a URL, in words: a user, a query."""
    protocol, _, rest = url.rpartition("://")
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]
    # A password with a slash in it ends the host early; what follows a host's colon is a number.
    if "@" in host or re.match(r"[^\[]*:(?!\d*$)", host):
        return "a user"
    # In the name of a folder it stands for nothing else.
    return "a query" if "?" in rest and protocol not in ("file", "local") else None


def public(url: str) -> str:
    """A URL without what may be secret in it: user, password, query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{url.partition('://')[0]}://..."
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}".rstrip("/")
