"""The stage `language`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Literal

from nlpkernel import component, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.hookspecs.stage import Stage


@component
class Language:
    """Documents of some languages only, as py3langid tells them apart.

    The score is the library's probability of the most likely language: over all languages that it knows, or over
    those of `among`.
    """

    libraries: ClassVar[tuple[str, ...]] = ("py3langid",)

    languages: tuple[str, ...] = setting(
        min_length=1, help="what is kept: ISO 639-1 codes (`en`, `de`, `zh`)"
    )
    threshold: float = setting(
        default=0.5,
        ge=0,
        lt=1,
        help="least probability of the most likely language; documents that score less are dropped as uncertain",
    )
    among: tuple[str, ...] = setting(
        default=(),
        help="languages that can occur at all, where that is known; left out: all. Fewer are told apart better",
    )
    short: int = setting(
        default=20,
        ge=0,
        help="texts with fewer letters are too short to tell, and `on_short` says what becomes of them",
    )
    on_short: Literal["keep", "drop"] = setting(
        default="keep", help="what becomes of texts too short to tell"
    )
    read: int = setting(default=2000, ge=100, help="characters that are looked at: the text's beginning")

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Settings that do not go together."""
        missing = [each for each in self.languages if self.among and each not in self.among]
        if missing:
            yield "among", f"{missing[0]!r} is kept, and is not among the languages that can occur"

    @hookimpl
    def create_stage(self) -> Stage:
        """Make it. Raises DataError for a language that the library does not know."""
        from nlpkernel_clean.languages import Languages

        return Languages(self)
