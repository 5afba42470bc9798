"""The task component `lm`. Light: see `lm.py` for what it makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nlpkernel import component, hookimpl

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.task import Task


@component
class Lm:
    """Language modelling: each token predicts the next one of its document."""

    @hookimpl
    def create_task(self, run: Run, vocabulary: int, labels: Sequence[str]) -> Task:
        """The task; it needs neither vocabulary nor labels."""
        from nlpkernel_text.lm import LanguageModelling

        return LanguageModelling()
