"""URLs of files: what they are, and what of them and of a driver's options is secret."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

#: Names of options that hold secrets.
_SECRET = re.compile(r"(^|_)(key|secret|token|password|passwd|passphrase|credentials?)($|_)", re.IGNORECASE)


def is_url(path: str) -> bool:
    """Whether a path is a URL of a file system: a protocol of two letters or more, `://`."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path) is not None


def public(url: str) -> str:
    """A URL without what may be secret in it: user, password, query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{url.partition('://')[0]}://..."
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


def hidden(url: str, options: Mapping[str, Any]) -> Iterator[str]:
    """What no message may show: users and queries of a URL, and options under names that only secrets have."""
    if "://" in url:
        rest = url.partition("://")[2]
        if "@" in (host := re.split(r"[/?#]", rest, maxsplit=1)[0]):
            yield from filter(None, host.rpartition("@")[0].split(":", 1))
        if (query := rest.partition("?")[2]) and not is_pattern(url):
            yield query
            # A driver may repeat a part of it.
            yield from (value for _, value in parse_qsl(query) if len(value) > 3)
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from hidden("", value)
        elif isinstance(value, str) and value and _SECRET.search(name):
            yield value


def is_pattern(url: str) -> bool:
    """Whether a URL is a pattern. In HTTP a question mark begins a query, so that it stands for nothing else."""
    web = url.partition("://")[0].lower() in ("http", "https")
    return re.search(r"[*\[]" if web else r"[*?\[]", url.partition("?")[0] if web else url) is not None
