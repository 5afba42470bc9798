"""A plan as it was written: values with their places, before anybody says what they mean."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from nlpkernel.errors import Place

#: A scalar of a plan. Dates and times (TOML has them) are read, and no setting takes one.
Scalar = Any


@attrs.define(eq=False)
class Node:
    """One value of a plan.

    value: a scalar, a `dict[str, Node]`, or a `list[Node]`.
    place: where the value stands; key_place: where its key stands, if it has one.
    origin: where it came from, as `check` prints it: "plan.toml:3:5", "--set", "default", "preset nano".
    base: the folder that relative paths in this value start from.
    reference: the text with its `${NAME}` still in it, if the value was filled from the environment.
    given: the text that a value from the environment was made of; it is text where the setting is text.
    bare: a word from `--set` without quotes; it is text where the setting is text.
    """

    value: Any
    place: Place
    key_place: Place | None = None
    origin: str = ""
    base: Path | None = None
    reference: str | None = None
    given: str | None = None
    bare: bool = False

    @property
    def is_table(self) -> bool:
        """Whether this is a table (a mapping)."""
        return isinstance(self.value, dict)

    def plain(self) -> Any:
        """The value without places."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def walk(self, path: str = "") -> Iterator[tuple[str, Node]]:
        """Every node below this one with its dotted path, itself first."""
        yield path, self
        if isinstance(self.value, dict):
            for key, node in self.value.items():
                yield from node.walk(f"{path}.{key}" if path else key)
        elif isinstance(self.value, list):
            for index, node in enumerate(self.value):
                yield from node.walk(f"{path}[{index}]")
