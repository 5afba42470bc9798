"""Components small enough to read at a glance: regression on made-up rows, a layer or two, torch's own optimizers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from nlpkernel import component, extension, hookimpl, setting
from nlpkernel.hookspecs.everywhere import Facts

if TYPE_CHECKING:
    import torch

    from nlpkernel.context import Run
    from nlpkernel.hookspecs.data import Codec, Data, DataInfo
    from nlpkernel.hookspecs.model import Model, ParameterGroup
    from nlpkernel.hookspecs.optimizer import Schedule


@component
class TinyData:
    """Made-up rows: numbers drawn from a seed, and a linear target. Some can be masked or made not finite."""

    rows: int = setting(default=64, ge=1, help="rows of the training split")
    validation: int = setting(default=10, ge=0, help="rows of the validation split; 0: there is none")
    width: int = setting(default=4, ge=1, help="numbers in a row")
    masked: tuple[int, ...] = setting(default=(), help="training rows that do not count (weight 0)")
    poisoned: tuple[int, ...] = setting(default=(), help="training rows that hold NaN")
    shuffle: bool = setting(default=True, help="another order in each epoch")

    @hookimpl
    def open_data(self, run: Run) -> Data:
        """Draw the rows."""
        from nlpkernel_sdk.regression import RegressionData

        return RegressionData(self, run)

    @hookimpl
    def open_codec(self, run: Run, artifacts: Mapping[str, bytes]) -> Codec:
        """Numbers need no codec; this one carries what the data was."""
        from nlpkernel_sdk.regression import RegressionCodec

        return RegressionCodec.load(artifacts)

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """The window is the row."""
        import attrs

        return attrs.evolve(facts, vocabulary=1, window=self.width)


@component
class TinyModel:
    """One or two linear layers, with dropout in between."""

    hidden: int = setting(default=0, ge=0, help="width of a hidden layer; 0: there is none")
    dropout: float = setting(default=0.0, ge=0, lt=1, help="share of the hidden layer that is dropped")
    value: float | None = setting(default=None, help="start every weight with this value")
    transform: list[object] = extension("transform", many=True, help="changes to the structure, in order")

    @hookimpl
    def create_model(self, info: DataInfo) -> Model:
        """Build the layers."""
        from nlpkernel_sdk.regression import build

        return build(self, info.window)

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """Weights and biases."""
        import attrs

        width = facts.window or 0
        hidden = self.hidden
        parameters = width * hidden + hidden + hidden + 1 if hidden else width + 1
        return attrs.evolve(
            facts, parameters=parameters, trainable=parameters, parameter_bytes=4 * parameters
        )


@component
class TinyOptimizer:
    """torch's AdamW (fused: it honours `found_inf`), or one that is not fused: then each step reads the device."""

    lr: float = setting(default=0.01, gt=0, help="peak rate")
    kind: Literal["adamw", "sgd"] = setting(default="adamw", help="which of the two")
    fused: bool = setting(default=True, help="whether AdamW is fused; SGD never is")
    momentum: float = setting(default=0.0, ge=0, lt=1, help="momentum of SGD")
    decay: Literal["constant", "linear"] = setting(default="constant", help="the rate over the run")
    warmup: int = setting(default=0, ge=0, help="updates over which the rate rises")

    need = "elementwise"

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """A linear decay starts at the peak here."""
        if self.decay == "linear" and self.warmup:
            yield "warmup", "a linear decay has no warm-up here"

    @hookimpl
    def create_optimizer(self, groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
        """One param group for each group."""
        import torch

        tables = [
            {"params": list(group.tensors), "names": list(group.names), "lr": self.lr} for group in groups
        ]
        if self.kind == "sgd":
            return torch.optim.SGD(tables, lr=self.lr, momentum=self.momentum)
        return torch.optim.AdamW(tables, lr=self.lr, weight_decay=0.0, fused=self.fused)

    @hookimpl
    def create_schedule(self, updates: int | None) -> Schedule:
        """Constant, rising, or falling to 0."""
        from nlpkernel_sdk.regression import TinySchedule

        return TinySchedule(self.warmup, updates if self.decay == "linear" else None)


@component
class Scheduled:
    """Plain gradient descent, with a schedule of the plan's choice."""

    lr: float = setting(default=0.01, gt=0, help="peak rate")
    schedule: object = extension("schedule", help="the rate over the run")

    need = "elementwise"

    @hookimpl
    def create_optimizer(self, groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
        """One param group for each group."""
        import torch

        return torch.optim.SGD(
            [{"params": list(group.tensors), "names": list(group.names)} for group in groups], lr=self.lr
        )

    @hookimpl
    def create_schedule(self, run: Run, updates: int | None) -> Schedule:
        """The plan's."""
        made: Schedule = run.ask(self.schedule, "create_schedule", updates=updates)
        return made
