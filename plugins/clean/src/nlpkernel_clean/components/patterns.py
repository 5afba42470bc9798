"""The stages `replace` and `filter`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Literal

from nlpkernel import component, hookimpl, setting, settings

if TYPE_CHECKING:
    from nlpkernel.hookspecs.stage import Stage


@settings
class Rule:
    """One replacement."""

    pattern: str = setting(min_length=1, help="regular expression, as the library `regex` reads it")
    text: str = setting(default="", help="what stands there instead; \\1 is the first group")
    ignore_case: bool = setting(default=False, help="whether A and a are the same")


@component
class Replace:
    """Regular expressions replaced by text, one rule after the other."""

    libraries: ClassVar[tuple[str, ...]] = ("regex",)

    rules: tuple[Rule, ...] = setting(
        min_length=1, help="replacements, in order: { pattern, text, ignore_case }"
    )
    timeout: float = setting(
        default=5.0, gt=0, unit="seconds", help="longest time for one rule on one text; then the run stops"
    )

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Patterns and texts that cannot be read."""
        for at, rule in enumerate(self.rules):
            if said := _wrong(rule.pattern) or _wrong_text(rule):
                yield "rules", f"rule {at + 1}: {said}"

    @hookimpl
    def create_stage(self) -> Stage:
        """Make it."""
        from nlpkernel_clean.matching import Replacer

        return Replacer(self)


@component
class Filter:
    """Documents kept or dropped by what matches in their text, or by the value of a column."""

    libraries: ClassVar[tuple[str, ...]] = ("regex",)

    pattern: str | None = setting(
        default=None,
        help="regular expression that is looked for in the text, or in `column` where that is given",
    )
    column: str | None = setting(default=None, help="column that is looked at instead of the text")
    values: tuple[str, ...] = setting(
        default=(),
        help="values of the column, compared as text; left out with no pattern: any value but none",
    )
    action: Literal["keep", "drop"] = setting(
        default="keep", help="what becomes of the documents that match; the others fare the other way"
    )
    ignore_case: bool = setting(default=False, help="whether A and a are the same to the pattern")
    timeout: float = setting(
        default=5.0, gt=0, unit="seconds", help="longest time for the pattern on one text; then the run stops"
    )

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Settings that do not go together."""
        if self.pattern is None and self.column is None:
            yield "pattern", "nothing is looked for: give `pattern` or `column`"
        if self.values and self.column is None:
            yield "values", "`values` are of a `column`, and none is named"
        if self.values and self.pattern is not None:
            yield "values", "`values` and `pattern` both say what is looked for; give one of them"
        if self.pattern is not None and (said := _wrong(self.pattern)):
            yield "pattern", said

    @hookimpl
    def create_stage(self) -> Stage:
        """Make it."""
        from nlpkernel_clean.matching import Chooser

        return Chooser(self)


def _wrong(pattern: str) -> str:
    """What is wrong with a pattern, or nothing."""
    # Small and quick to import, but only plans that hold patterns need it.
    import regex  # type: ignore[import-untyped]

    try:
        regex.compile(pattern)
    except regex.error as error:
        return f"{pattern!r} is no regular expression: {error}"
    return ""


def _wrong_text(rule: Rule) -> str:
    """What is wrong with a replacement, or nothing."""
    import regex

    try:
        # Matches at once, with every group empty, so that the text is read.
        regex.sub(f"(?=)|(?:{rule.pattern}\n)", rule.text, "", count=1)
    except (regex.error, IndexError) as error:
        return f"{rule.text!r} cannot stand for {rule.pattern!r}: {error}"
    return ""
