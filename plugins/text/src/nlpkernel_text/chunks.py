"""Documents of one file, as they go from reading to tokenizing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

_NONE: Mapping[str, Sequence[Any]] = MappingProxyType({})


class Chunk(NamedTuple):
    """Texts of one file, the place at which each begins (its line, or its number among the file's records), and what
    else is known of each, by name. Each is a document, but for `opens` and `closes`: the first text may continue the
    document of the chunk before, the last may be continued by the next chunk; then there is one."""

    texts: list[str]
    lines: Sequence[int]
    opens: bool = True
    closes: bool = True
    columns: Mapping[str, Sequence[Any]] = _NONE
