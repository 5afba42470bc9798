"""The stage `normalize`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from nlpkernel import component, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.hookspecs.stage import Stage


@component
class Normalize:
    """One way to write each text: Unicode form, broken encodings, control characters, white space."""

    libraries: ClassVar[tuple[str, ...]] = ("ftfy",)

    form: Literal["nfc", "nfkc", "none"] = setting(
        default="nfc",
        help="Unicode form. nfkc also writes ligatures, wide letters and superscripts as plain ones",
    )
    repair: bool = setting(
        default=True, help="mend text that was decoded with the wrong encoding (`schÃ¶n`), by ftfy"
    )
    controls: bool = setting(
        default=True, help="remove control and invisible formatting characters, and write line ends as LF"
    )
    whitespace: Literal["keep", "ends", "lines", "collapse"] = setting(
        default="lines",
        help="keep: as it is; ends: none at the ends of text and lines, indentation stays (for code); lines: also "
        "one space within a line and one blank line at most; collapse: one space everywhere, newlines too",
    )
    quotes: bool = setting(default=False, help="write curly quotes and guillemets as ' and \"")
    dashes: bool = setting(default=False, help="write dashes and minus signs as - and an ellipsis as ...")
    entities: bool = setting(default=False, help="resolve HTML entities (`&amp;`)")

    @hookimpl
    def create_stage(self) -> Stage:
        """Make it."""
        from nlpkernel_clean.normalizing import Normalizer

        return Normalizer(self)
