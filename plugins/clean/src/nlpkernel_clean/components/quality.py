"""The stage `quality`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, get_args

from nlpkernel import component, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.hookspecs.stage import Stage

#: Names of the rules, in the order in which they are asked.
RuleName = Literal[
    "characters",
    "words",
    "word-length",
    "symbols",
    "bullets",
    "ellipses",
    "alphabetic",
    "stop-words",
    "lines",
    "repetition",
]
RULES: tuple[str, ...] = get_args(RuleName)

#: Rae et al., "Scaling Language Models: Methods, Analysis & Insights from Training Gopher", 2021, appendix A1.1.
GOPHER = {
    "least_words": 50,
    "most_words": 100_000,
    "least_word_length": 3.0,
    "most_word_length": 10.0,
    "most_symbols": 0.1,
    "most_bullets": 0.9,
    "most_ellipses": 0.3,
    "least_alphabetic": 0.8,
    "least_stop_words": 2,
    "most_same_lines": 0.3,
    "most_in_same_lines": 0.2,
    "most_in_top": [0.2, 0.18, 0.16],
    "most_in_repeats": [0.15, 0.14, 0.13, 0.12, 0.11, 0.1],
}


@component(presets={"gopher": GOPHER, "none": {}})
class Quality:
    """Documents that look like prose, by rules that can be counted (Gopher's: Rae et al., 2021).

    Words are what stands between white space. A rule whose limit is left out is not asked.
    """

    preset: str = setting(
        default="gopher", help="gopher: the limits of Rae et al., 2021; none: only those given"
    )
    off: tuple[RuleName, ...] = setting(default=(), help="rules of the preset that are not asked")
    least_characters: int | None = setting(default=None, ge=0, help="characters: the least")
    most_characters: int | None = setting(default=None, ge=1, help="characters: the most")
    least_words: int | None = setting(default=None, ge=0, help="words: the least")
    most_words: int | None = setting(default=None, ge=1, help="words: the most")
    least_word_length: float | None = setting(
        default=None, ge=0, help="word-length: least mean, in characters"
    )
    most_word_length: float | None = setting(
        default=None, gt=0, help="word-length: greatest mean, in characters"
    )
    most_symbols: float | None = setting(
        default=None, ge=0, help="symbols: most # for each word, and most ellipses (... or …) for each word"
    )
    most_bullets: float | None = setting(
        default=None,
        ge=0,
        le=1,
        help="bullets: greatest share of lines that start with a bullet (• - * and kin)",
    )
    most_ellipses: float | None = setting(
        default=None, ge=0, le=1, help="ellipses: greatest share of lines that end with an ellipsis"
    )
    least_alphabetic: float | None = setting(
        default=None, ge=0, le=1, help="alphabetic: least share of words with a letter in them"
    )
    least_stop_words: int | None = setting(
        default=None, ge=0, help="stop-words: fewest different ones of `stop_words` in the text"
    )
    stop_words: tuple[str, ...] = setting(
        default=("the", "be", "to", "of", "and", "that", "have", "with"),
        help="words that prose holds; these are English",
    )
    most_same_lines: float | None = setting(
        default=None, ge=0, le=1, help="lines: greatest share of lines that stood before in the text"
    )
    most_in_same_lines: float | None = setting(
        default=None, ge=0, le=1, help="lines: greatest share of the lines' characters that such lines hold"
    )
    most_in_top: tuple[float, ...] = setting(
        default=(),
        ge=0,
        le=1,
        help="repetition: greatest share of the words' characters in the most frequent run of 2, 3, 4, ... words",
    )
    most_in_repeats: tuple[float, ...] = setting(
        default=(),
        ge=0,
        le=1,
        help="repetition: greatest share of the words' characters in runs of 5, 6, 7, ... words that occur twice",
    )

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Settings that do not go together."""
        for unit in ("characters", "words", "word_length"):
            least, most = getattr(self, f"least_{unit}"), getattr(self, f"most_{unit}")
            if least is not None and most is not None and least > most:
                yield f"most_{unit}", f"no text has at least {least} and at most {most}"
        if self.least_stop_words is not None and self.least_stop_words > len(set(self.stop_words)):
            yield "least_stop_words", f"`stop_words` holds {len(set(self.stop_words))}"

    @hookimpl
    def create_stage(self) -> Stage:
        """Make it."""
        from nlpkernel_clean.rules import Rules

        return Rules(self)
