"""Columns of documents, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nlpkernel.errors import DataError, fail
from nlpkernel.hookspecs.stage import Documents


def column_of(documents: Documents, name: str, stage: str) -> Sequence[Any]:
    """The column of that name. Raises DataError that lists those that are there."""
    if name not in documents.columns:
        there = ", ".join(sorted(documents.columns)) or "none"
        where = f"{documents.names[0]}: " if documents.names else ""
        raise fail(
            DataError,
            "CLN001",
            f"{where}there is no column {name!r}; columns are: {there}",
            owner=f"{stage} of nlpkernel-plugin-clean",
            hint="the fields of the data's sources say which columns are read",
        )
    return documents.columns[name]
