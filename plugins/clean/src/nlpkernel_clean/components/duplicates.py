"""The stages `duplicates` and `near-duplicates`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from nlpkernel import component, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.hookspecs.stage import Stage


@component
class Duplicates:
    """Texts that stood before, as documents, paragraphs or lines: the first one stays."""

    scope: Literal["documents", "paragraphs", "lines"] = setting(
        default="documents",
        help="what is compared over all documents; paragraphs are what stands between blank lines, and a document that "
        "loses some stays with the rest",
    )
    ignore: tuple[Literal["case", "space", "punctuation", "digits"], ...] = setting(
        default=(), help="what makes no difference; space: any white space is as good as one space"
    )
    least: int = setting(
        default=30,
        ge=0,
        help="paragraphs and lines of fewer characters stay, however often they stand: headings, braces",
    )

    @hookimpl
    def create_stage(self) -> Stage:
        """Make it."""
        from nlpkernel_clean.exact import Exact

        return Exact(self)


@component
class NearDuplicates:
    """Documents that are nearly the same as an earlier one, by MinHash (Broder, 1997): the first one stays.

    Two documents are as similar as their sets of shingles: the Jaccard index, shared shingles over all. Of pairs at
    `threshold` at least the share `recall` is found.
    """

    threshold: float = setting(
        default=0.8, ge=0.3, le=1, help="Jaccard index from which on documents are the same"
    )
    recall: float = setting(
        default=0.97, ge=0.5, le=0.99, help="least share of the pairs at the threshold that is found"
    )
    permutations: int = setting(
        default=256,
        ge=16,
        le=1024,
        help="length of a signature: more estimate better, and each costs time and a byte for each document",
    )
    shingle: Literal["words", "characters"] = setting(
        default="words", help="what shingles are made of; characters for languages without spaces"
    )
    size: int = setting(default=3, ge=1, le=64, help="words or characters of a shingle")

    @hookimpl
    def create_stage(self) -> Stage:
        """Make it."""
        from nlpkernel_clean.near import Near

        return Near(self)
