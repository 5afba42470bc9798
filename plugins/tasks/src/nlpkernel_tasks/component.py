"""The task components. Light: what does the work is imported when a task is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

import attrs

from nlpkernel import component, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.everywhere import Facts
    from nlpkernel.hookspecs.task import Task
    from nlpkernel.hookspecs.tokenizer import Tokenizer

#: The metrics that "best" can go by, and which direction is better.
Main = Literal["loss", "accuracy", "f1_micro", "f1_macro", "matthews", "calibration_error"]


@component
class Classification:
    """One class for each row: a text has one of several labels."""

    weights: Literal["balanced"] | dict[str, float] | None = setting(
        default=None,
        gt=0,
        help="weights of the classes in the loss, by name, 1 for those left out; "
        '"balanced": the rarer the class, the more (samples / (classes * samples of the class))',
    )
    smoothing: float = setting(
        default=0.0, ge=0, lt=1, help="share of each label that is spread over all classes, in training"
    )
    main: Main = setting(default="accuracy", help='the metric that "best" is judged by')

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """The task's name."""
        return attrs.evolve(facts, task="classification")

    @hookimpl
    def create_task(self, run: Run, labels: Sequence[str], counts: Sequence[int]) -> Task:
        """The task. Raise DataError for data without classes, and for weights of classes that it does not have."""
        from nlpkernel_tasks.classification import Classifying, class_weights

        weights = class_weights(self.weights, labels, counts)
        return Classifying(labels, weights, self.smoothing, self.main)


@component
class Mlm:
    """Masked language modelling (Devlin et al., 2019): some tokens are hidden, and restored from those around them.
    Which, is drawn anew each time that a row is trained on (Liu et al., 2019)."""

    share: float = setting(default=0.15, gt=0, lt=1, help="share of the tokens that are to be restored")
    masked: float = setting(
        default=0.8, ge=0, le=1, help="share of those that the mask stands in the place of"
    )
    replaced: float = setting(
        default=0.1,
        ge=0,
        le=1,
        help="share of those that any other token stands in the place of; the rest stay as they are",
    )
    words: bool = setting(default=False, help="whole words are chosen, all their pieces together")
    mask: str = setting(default="[MASK]", min_length=1, help="name of the token that masks")

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Shares that are more than there is."""
        if self.masked + self.replaced > 1 + 1e-9:
            yield "replaced", f"masked and replaced are {self.masked + self.replaced:g} together, more than 1"

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """The task's name."""
        return attrs.evolve(facts, task="mlm")

    @hookimpl
    def create_task(self, run: Run, tokenizer: Tokenizer) -> Task:
        """The task. Raise DataError for a tokenizer that has no mask, or does not tell what words are."""
        from nlpkernel_tasks.masking import Masking
        from nlpkernel_tasks.mlm import MaskedModelling
        from nlpkernel_tasks.pieces import Pieces

        pieces = Pieces.of(tokenizer, self.mask, self.words)
        return MaskedModelling(Masking(pieces, self.share, self.masked, self.replaced))
