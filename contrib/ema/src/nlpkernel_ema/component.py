"""The component, as a plan sees it. Light: torch is imported when the model is changed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import attrs

from nlpkernel import component, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.hookspecs.everywhere import Facts
    from nlpkernel.hookspecs.model import Model
    from nlpkernel.state import Stateful


@component
class Ema:
    """An exponential moving average of the weights (Polyak and Juditsky, 1992), which the model holds in evaluations;
    training goes on with its own weights."""

    decay: float = setting(default=0.999, gt=0, lt=1, help="share of the average that an update keeps")
    warmup: bool = setting(
        default=True, help="keep less at first: at most (1 + n) / (10 + n) of the average at update n"
    )

    _averages: Any = attrs.field(init=False, default=None)

    @hookimpl
    def misfits(self, facts: Facts) -> Sequence[tuple[str, str]]:
        """Parameters that are cut into pieces."""
        if facts.parameter_parts == 1:
            return ()
        return [("decay", "the average is of whole parameters, and this layout cuts them into pieces")]

    @hookimpl
    def transform_model(self, model: Model) -> Model:
        """The structure stays; its module is the one whose weights are averaged."""
        from nlpkernel_ema.averages import Averages

        self._averages = Averages(model.module, self.decay, self.warmup)
        return model

    @hookimpl
    def update_applied(self, applied: bool) -> None:
        """Take the new weights into the average."""
        if applied:
            self._averages.update()

    @hookimpl
    def weights_for(self) -> AbstractContextManager[None]:
        """The average, for as long as it is needed."""
        held: AbstractContextManager[None] = self._averages.held()
        return held

    @hookimpl
    def component_state(self) -> Stateful:
        """The average, so that a resumed run goes on with it."""
        state: Stateful = self._averages
        return state
