"""Regular expressions on texts, with a limit of time: some patterns take longer than any life on some texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import regex  # type: ignore[import-untyped]

from nlpkernel.errors import DataError, NlpkernelError, fail
from nlpkernel.hookspecs.stage import Documents, Outcome
from nlpkernel_clean.columns import column_of
from nlpkernel_clean.outcome import Work

if TYPE_CHECKING:
    from nlpkernel_clean.components.patterns import Filter, Replace


class Replacer:
    """The stage `replace`."""

    ordered = False

    def __init__(self, settings: Replace) -> None:
        self.settings = settings
        self._rules = [
            (regex.compile(rule.pattern, regex.IGNORECASE if rule.ignore_case else 0), rule.text)
            for rule in settings.rules
        ]

    def apply(self, documents: Documents) -> Outcome:
        """Replace. Raises DataError where a rule takes too long."""
        work, timeout = Work(documents), self.settings.timeout
        for index, text in enumerate(documents.texts):
            total = 0
            for pattern, new in self._rules:
                try:
                    text, count = pattern.subn(new, text, timeout=timeout)
                except TimeoutError as error:
                    raise too_slow("replace", pattern.pattern, documents.names[index], timeout) from error
                total += count
            if total:
                work.change(index, text)
                work.counts["places replaced"] += total
                work.notes[index] = f"{total} places replaced"
        return work.outcome()

    def finish(self, folder: Path) -> Sequence[str]:
        """Nothing more to say."""
        return ()


class Chooser:
    """The stage `filter`."""

    ordered = False

    def __init__(self, settings: Filter) -> None:
        self.settings = settings
        self._values = frozenset(settings.values)
        self._pattern = None
        if settings.pattern is not None:
            flags = regex.IGNORECASE if settings.ignore_case else 0
            self._pattern = regex.compile(settings.pattern, flags)

    def apply(self, documents: Documents) -> Outcome:
        """Choose. Raises DataError where there is no such column, or the pattern takes too long."""
        settings, work = self.settings, Work(documents)
        column = settings.column
        looked: Sequence[object] = documents.texts
        if column is not None:
            looked = column_of(documents, column, "filter")
        matching = settings.action == "drop"
        reason = self._reason()
        for index, value in enumerate(looked):
            if self._matches(value, documents.names[index]) == matching:
                work.drop(index, reason, "" if column is None else f"{column} is {str(value)[:80]!r}")
        return work.outcome()

    def finish(self, folder: Path) -> Sequence[str]:
        """Nothing more to say."""
        return ()

    def _matches(self, value: object, name: str) -> bool:
        if value is None:
            return False
        if self._pattern is None:
            return str(value) in self._values if self._values else value != ""
        try:
            return self._pattern.search(str(value), timeout=self.settings.timeout) is not None
        except TimeoutError as error:
            raise too_slow("filter", self._pattern.pattern, name, self.settings.timeout) from error

    def _reason(self) -> str:
        settings = self.settings
        what = settings.column or "text"
        dropped = settings.action == "drop"
        if self._pattern is not None:
            return f"{what} {'matches' if dropped else 'does not match'} {settings.pattern!r}"
        if self._values:
            return f"{what} is {'' if dropped else 'not '}one of the values"
        return f"{what} has {'a' if dropped else 'no'} value"


def too_slow(stage: str, pattern: str, name: str, timeout: float) -> NlpkernelError:
    """The error for a pattern that ran out of time."""
    return fail(
        DataError,
        "CLN002",
        f"{name}: the pattern {pattern!r} did not end within {timeout:g} s on this text",
        owner=f"{stage} of nlpkernel-plugin-clean",
        hint="nested repeats like (a+)+ are the usual cause; possessive ones (a++) do not go back",
    )
