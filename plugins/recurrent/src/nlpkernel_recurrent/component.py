"""The component `recurrent`. Light: no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, get_args

import attrs

from nlpkernel import component, extension, hookimpl, setting
from nlpkernel.errors import PlanError, fail
from nlpkernel_recurrent.codes import OWNER
from nlpkernel_recurrent.shape import Cell, Pool, Purpose, Shape

if TYPE_CHECKING:
    from nlpkernel.hookspecs.data import DataInfo
    from nlpkernel.hookspecs.everywhere import Facts
    from nlpkernel.hookspecs.model import Model

#: The tasks that there is a head for.
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)
#: Named sizes. `medium` is about that of Zaremba et al. (2014).
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "nano": {"layers": 2, "width": 128},
    "small": {"layers": 2, "width": 256},
    "medium": {"layers": 2, "width": 650},
}


@component(presets=PRESETS)
class Recurrent:
    """Layers of LSTM (Hochreiter and Schmidhuber, 1997) or GRU (Cho et al., 2014) cells between an embedding and the
    head that the task needs: a baseline without attention."""

    preset: str = setting(default="nano", help="a named size: layers and width")
    cell: Cell = setting(
        default="lstm", help="the recurrent cell: LSTM, or GRU, which has three quarters of its weights"
    )
    layers: int = setting(ge=1, help="number of recurrent layers")
    width: int = setting(
        ge=1, help="width of the embedding and of the states; two directions have half of it each"
    )
    bidirectional: bool = setting(
        default=True,
        help="rows are read from both ends, to classify them or their tokens; language modelling reads forward only",
    )
    dropout: float = setting(default=0.0, ge=0, lt=1, help="of the embedding and of what each layer gives")
    tie: bool = setting(default=True, help="the head of language modelling uses the embedding's weight")
    pool: Pool = setting(
        default="max",
        help="how a row's states become the one that is classified: their mean, their maximum, or the last of each "
        "direction",
    )
    context: int | None = setting(
        default=None, ge=1, help="most tokens that generation reads at once; left out: the window of the data"
    )
    init_std: float = setting(
        default=0.2,
        gt=0,
        help="standard deviation of the first weights of embedding and head, far below which a cell hardly tells its "
        "inputs apart at first; those of the layers are uniform up to one "
        "over the square root of their width",
    )
    transform: list[Any] = extension(
        "transform", many=True, help="changes to the structure before it is filled, in order"
    )

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Settings that do not go together."""
        if self.bidirectional and self.width % 2:
            yield "width", f"width is {self.width}, and two directions have half of it each"

    def shape(self, vocabulary: int, window: int, purpose: Purpose, labels: int) -> Shape:
        """The model's shape for data with this vocabulary and rows of at most `window` tokens. Raise PlanError (RCR002)
        where `context` is shorter."""
        context = window if self.context is None else self.context
        if context < window:
            raise fail(
                PlanError,
                "RCR002",
                f"context is {context}, and the data has rows of {window} tokens",
                owner=OWNER,
                hint=f"leave context out or write at least {window}",
            )
        return Shape(
            vocabulary=vocabulary,
            context=context,
            purpose=purpose,
            labels=labels,
            cell=self.cell,
            layers=self.layers,
            width=self.width,
            both=self.bidirectional and purpose != "lm",
            dropout=self.dropout,
            tie=self.tie,
            pool=self.pool,
            init_std=self.init_std,
        )

    @hookimpl
    def create_model(self, info: DataInfo) -> Model:
        """Build the structure, its anatomy, and the rule that fills it. Raise PlanError (RCR001) for a task that it has
        no head for."""
        from nlpkernel_recurrent.build import build

        for purpose in PURPOSES:
            if info.task == purpose:
                return build(self.shape(info.vocabulary, info.window, purpose, len(info.labels)))
        known = ", ".join(map(repr, PURPOSES))
        raise fail(
            PlanError,
            "RCR001",
            f"a recurrent network has no head for the task {info.task!r}, only for {known}",
            owner=OWNER,
            hint="choose another model or another task",
        )

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """Parameters and bytes, in float32, as far as vocabulary and window are known; rows for classes, which only the
        data tells, are not counted. The layers cannot be cut along their width."""
        facts = attrs.evolve(facts, blocks=self.layers, cuts=1)
        if facts.task is not None and facts.task not in PURPOSES:
            message = (
                f"the task is {facts.task}, for which a recurrent network has no head: the run will stop"
            )
            return attrs.evolve(facts, notes=(*facts.notes, message))
        if facts.vocabulary is None or facts.window is None:
            return facts
        if self.context is not None and self.context < facts.window:
            message = (
                f"model.context is {self.context}, and the data's rows are {facts.window}: the run will stop"
            )
            return attrs.evolve(facts, notes=(*facts.notes, message))
        purpose: Purpose = next((each for each in PURPOSES if each == facts.task), "lm")
        made = self.shape(facts.vocabulary, facts.window, purpose, 0)
        number = made.parameters()
        return attrs.evolve(
            facts,
            parameters=number,
            trainable=number,
            parameter_bytes=4 * number,
            gradient_bytes=4 * number,
            activation_bytes=made.activation_bytes(facts.micro, facts.window),
        )
