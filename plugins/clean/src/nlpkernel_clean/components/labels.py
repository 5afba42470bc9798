"""The stage `label-noise`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from nlpkernel import component, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.hookspecs.stage import Stage


@component
class LabelNoise:
    """A report of labels that are probably wrong, by confident learning (Northcutt, Jiang and Chuang, 2021).

    A linear model on words and pairs of words predicts each document's label without having seen it. All
    documents pass: what is found is known at the end, in `suspects.jsonl`. `drop` takes such a file, once a person
    has read it.
    """

    libraries: ClassVar[tuple[str, ...]] = ("scikit-learn",)

    column: str = setting(default="label", min_length=1, help="column of the labels")
    folds: int = setting(default=5, ge=2, help="parts; each is predicted by a model of the others")
    features: int = setting(default=1 << 18, ge=1 << 10, help="places for hashed words and pairs of words")
    drop: Path | None = setting(
        default=None, help="suspects.jsonl of an earlier build: the documents named in it are dropped"
    )

    @hookimpl
    def create_stage(self) -> Stage:
        """Make it. Raises DataError where scikit-learn is not installed, or `drop` cannot be read."""
        from nlpkernel_clean.noise import Noise

        return Noise(self)
