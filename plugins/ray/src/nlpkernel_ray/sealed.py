"""The environment of a cluster of our own: on the loopback interface, with a token that nobody else has, without
reports of usage. Light."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PREFIX = "RAY_"


@contextmanager
def sealed() -> Iterator[None]:
    """While entered, Ray starts such a cluster. It reads these variables when it is imported; where that has happened
    before, it listens on all interfaces, and the token is the one that it keeps in the user's home."""
    before = {name: value for name, value in os.environ.items() if name.startswith(_PREFIX)}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if "ray" not in sys.modules:
        os.environ.pop("RAY_AUTH_TOKEN_PATH", None)
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
        # Ray's only way to the loopback interface; the name is that of the systems where it is the default.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith(_PREFIX) and name not in before]:
            del os.environ[name]
        os.environ.update(before)
