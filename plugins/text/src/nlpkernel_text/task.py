"""The task component `lm`. Light: see `lm.py` for what it makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from nlpkernel import component, hookimpl

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.everywhere import Facts
    from nlpkernel.hookspecs.task import Task


@component
class Lm:
    """Language modelling: each token predicts the next one of its document."""

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """The task's name."""
        return attrs.evolve(facts, task="lm")

    @hookimpl
    def create_task(self, run: Run, vocabulary: int, labels: Sequence[str]) -> Task:
        """The task; it needs neither vocabulary nor labels."""
        from nlpkernel_text.lm import LanguageModelling

        return LanguageModelling()
