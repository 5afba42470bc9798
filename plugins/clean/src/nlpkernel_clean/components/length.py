"""The stage `length`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from nlpkernel import component, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.hookspecs.stage import Stage


@component
class Length:
    """How long a text may be: shorter ones are dropped, longer ones dropped or cut."""

    unit: Literal["characters", "words", "lines"] = setting(
        default="characters", help="what is counted; words are what stands between white space"
    )
    least: int = setting(default=1, ge=1, help="texts of fewer are dropped")
    most: int | None = setting(default=None, ge=1, help="texts of more are too long; left out: no limit")
    long: Literal["drop", "truncate"] = setting(
        default="drop", help="what becomes of a text that is too long; truncate cuts it at the end of a word"
    )

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Settings that do not go together."""
        if self.most is not None and self.most < self.least:
            yield "most", f"no text has at least {self.least} and at most {self.most} {self.unit}"
        if self.most is None and self.long == "truncate":
            yield "long", "nothing is too long without `most`"

    @hookimpl
    def create_stage(self) -> Stage:
        """Make it."""
        from nlpkernel_clean.lengths import Lengths

        return Lengths(self)
