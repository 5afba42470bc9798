"""Data, models, optimizers and precisions whose numbers can be written down by hand.

The numbers of `Sums` stand for whole micro-batches, so that what a step must come to is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from nlpkernel import component, hookimpl, setting
from nlpkernel.hookspecs.data import DataInfo, Microbatch, SplitInfo
from nlpkernel.hookspecs.model import Anatomy, Model, Outputs, ParameterFacts
from nlpkernel.hookspecs.task import Term
from nlpkernel.sampling import Windows
from nlpkernel_sdk.notes import note
from nlpkernel_sdk.regression import RegressionTask


@component
class Scaled:
    """A loss scale in float32: halved at an overflow, doubled after so many good windows."""

    start: float = setting(default=256.0, help="first scale")
    growth: int = setting(default=1000, help="good windows before it is doubled")

    @hookimpl
    def create_precision(self):
        return LossScale(self.start, self.growth)


class LossScale:
    """See `nlpkernel.hookspecs.precision.Precision`."""

    name = "scaled"
    parameter = reduce = output = torch.float32
    scaled = True

    def __init__(self, start: float, growth: int) -> None:
        self.value, self.growth, self.counter = start, growth, 0

    def autocast(self):
        note("autocast")
        return nullcontext()

    def scale(self, loss: Tensor) -> Tensor:
        return loss * self.value

    def unscale(self, gradients: Sequence[Tensor]) -> None:
        for gradient in gradients:
            gradient.div_(self.value)

    def observe(self, bad: bool) -> None:
        self.counter = 0 if bad else self.counter + 1
        if bad:
            self.value /= 2
        elif self.counter == self.growth:
            self.value, self.counter = self.value * 2, 0
        note("scale", self.value, self.counter)

    def state(self) -> Mapping[str, Any]:
        return {"value": self.value, "counter": self.counter}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.value, self.counter = state["value"], state["counter"]


@component
class Half:
    """Parameters in bfloat16."""

    @hookimpl
    def create_precision(self):
        made = LossScale(1.0, 1)
        made.scaled, made.parameter = False, torch.bfloat16
        return made


@component
class Number:
    """One weight, which starts at 1."""

    @hookimpl
    def create_model(self):
        module = OneNumber()
        return Model(
            module=module,
            anatomy=Anatomy(blocks=(), embedding=None, head=None, parameters={"w": ParameterFacts()}),
            initialise=lambda name, tensor, generator: tensor.fill_(1.0),
        )


class OneNumber(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.empty(()))

    def forward(self, value: Tensor) -> Outputs:
        return Outputs(logits=self.w * value)


@component
class Sums:
    """Rows that are (loss sum, tokens): the loss of a row is w times its sum, and it counts as so many tokens."""

    sums: tuple[float, ...] = setting(help="loss sum of each row at w = 1")
    tokens: tuple[float, ...] = setting(help="tokens of each row")
    second: str = setting(default="", help="name of a second term, with weight 2 a row")
    weighted: bool = setting(default=True, help="whether the second term has a weight")
    generator: bool = setting(default=False, help="names a row that was asked for, in a book")

    @hookimpl
    def open_data(self, run):
        return SumData(self, run)

    @hookimpl
    def open_codec(self, run, artifacts):
        raise AssertionError("no version of this data is ever opened")


class SumTask:
    """See `nlpkernel.hookspecs.task.Task`."""

    name = "sums"
    main = ("loss", "min")

    def __init__(self, settings: Sums) -> None:
        self.settings = settings

    def inputs(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {"value": batch["value"]}

    def loss(self, outputs: Outputs, batch: Mapping[str, Tensor]) -> Sequence[Term]:
        assert outputs.logits is not None
        terms = [Term("loss", outputs.logits.sum())]
        if self.settings.second:
            terms.append(Term(self.settings.second, (outputs.logits * 0 + 4).sum(), 0.5))
        return terms

    def evaluate(self, forward: Callable[..., Outputs], batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        outputs = forward(**self.inputs(batch))
        assert outputs.logits is not None
        return {"loss": outputs.logits.sum().double(), "tokens": batch["tokens"].sum().double()}

    def value(self, counts: Mapping[str, Any]) -> Mapping[str, float | None]:
        return {"loss": counts["loss"] / counts["tokens"] if counts["tokens"] else None}


class SumData:
    """See `nlpkernel.hookspecs.data.Data`. Both splits hold all rows, in their order."""

    def __init__(self, settings: Sums, run: Any) -> None:
        self.settings = settings
        self.values = torch.tensor(settings.sums)
        self.tokens = torch.tensor(settings.tokens)
        self.micro = run.train.rows
        self.windows = Windows(
            samples=len(settings.sums),
            batch=run.train.batch,
            micro=run.train.rows,
            partial=run.train.partial,
            shuffle=False,
        )
        run.count("sums", "rows dropped in each epoch", self.windows.dropped)
        self.task = SumTask(settings)
        self.codec: Any = None
        splits = {name: SplitInfo(samples=len(settings.sums)) for name in ("train", "validation")}
        self.info = DataInfo(task="sums", vocabulary=1, window=1, fingerprint="sums", splits=splits)

    def steps(self, *, epochs: float | None = None, tokens: int | None = None) -> int:
        assert epochs is not None
        return self.windows.steps(epochs)

    def epoch(self, step: int) -> float:
        return self.windows.epoch(step)

    def window(self, step: int) -> Sequence[Microbatch]:
        made = []
        for part in self.windows.window(step):
            rows = len(part.rows)
            weights = {"loss": float(self.tokens[torch.tensor(part.rows)].sum())}
            if self.settings.second and self.settings.weighted:
                weights[self.settings.second] = 2.0 * rows
            made.append(Microbatch(rows, rows, weights))
        return made

    def microbatch(self, step: int, index: int) -> Mapping[str, Tensor]:
        rows = torch.tensor(self.windows.window(step)[index].rows)
        note("rows", step, rows.tolist())
        return {"value": self.values[rows], "tokens": self.tokens[rows]}

    def names(self, step: int, index: int) -> Sequence[str]:
        return [f"row {row}" for row in self.windows.window(step)[index].rows.tolist()]

    def evaluation(self, split: str) -> Iterator[Mapping[str, Tensor]]:
        for start in range(0, len(self.values), self.micro):
            rows = slice(start, start + self.micro)
            yield {"value": self.values[rows], "tokens": self.tokens[rows]}

    def samples(self, split: str, count: int) -> Sequence[str]:
        return []

    def artifacts(self) -> Mapping[str, bytes]:
        return {}

    def state(self) -> Mapping[str, Any]:
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """There is none."""

    def close(self) -> None:
        """Nothing is open."""


@component
class Descent:
    """Plain gradient descent, fused or not, with a rate that the test can follow."""

    lr: float = setting(default=1.0, help="rate")
    length: int | None = setting(default=None, help="fall to 0 over so many updates")
    warmup: int | None = setting(default=None, help="rise over so many updates")

    @hookimpl
    def create_optimizer(self, groups):
        tensors = [tensor for group in groups for tensor in group.tensors]
        return torch.optim.SGD([{"params": tensors, "lr": self.lr, "names": []}], lr=self.lr, fused=True)

    @hookimpl
    def create_schedule(self, updates):
        from nlpkernel_sdk.regression import TinySchedule

        return TinySchedule(self.warmup or 0, self.length)


@component
class Spoil:
    """Makes the gradients of one window infinite; its loss stays finite."""

    step: int = setting(help="which step")

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def gradients_ready(self, run, named, stage):
        if stage == "local" and run.progress.step == self.step - 1:
            for _, tensor in named:
                tensor.fill_(float("inf"))


@component
class Scored:
    """The tiny data, whose task gives scores that are written down beforehand, one an evaluation."""

    scores: tuple[float, ...] = setting(help="the score of each evaluation")
    every: int = setting(default=2, help="steps between two evaluations")

    @hookimpl
    def open_data(self, run):
        from nlpkernel_sdk.regression import RegressionData
        from nlpkernel_sdk.tiny import TinyData

        data = RegressionData(TinyData(), run)
        data.task = ScoredTask(self, run)
        return data

    @hookimpl
    def open_codec(self, run, artifacts):
        raise AssertionError("no version of this data is ever opened")


class ScoredTask(RegressionTask):
    """The mean squared error, and a score."""

    main = ("score", "max")

    def __init__(self, settings: Scored, run: Any) -> None:
        self.settings, self.run = settings, run

    def value(self, counts: Mapping[str, Any]) -> Mapping[str, float | None]:
        index = self.run.progress.step // self.settings.every - 1
        return {**super().value(counts), "score": self.settings.scores[index]}


@component
class HalfData:
    """The tiny data in bfloat16."""

    @hookimpl
    def open_data(self, run):
        from nlpkernel_sdk.regression import RegressionData
        from nlpkernel_sdk.tiny import TinyData

        data = RegressionData(TinyData(), run)
        data._rows["x"] = data._rows["x"].to(torch.bfloat16)
        return data

    @hookimpl
    def open_codec(self, run, artifacts):
        raise AssertionError("no version of this data is ever opened")


@component
class Grow:
    """Gives a model a parameter, or adds to the one that another transform gave it."""

    by: int = setting(help="what to add")
    tag: str = setting(help="describes the parameter; empty: it is not described")

    @hookimpl
    def transform_model(self, model, run):
        module, before = model.module, model.initialise
        first = not hasattr(module, "factor")
        if first:
            module.factor = nn.Parameter(torch.empty(()))
        note("grow", self.by, module.factor.device.type)
        facts = dict(model.anatomy.parameters)
        if self.tag:
            facts["factor"] = ParameterFacts(tags=frozenset({self.tag}))

        def initialise(name: str, tensor: Tensor, generator: torch.Generator) -> None:
            before(name, tensor, generator)
            if name == "factor":
                tensor.mul_(1 if first else 10).add_(self.by)

        return attrs.evolve(
            model, initialise=initialise, anatomy=attrs.evolve(model.anatomy, parameters=facts)
        )


@component
class Tabled:
    """The tiny model with a table that is made anew wherever it is needed."""

    @hookimpl
    def create_model(self, info):
        from nlpkernel_sdk.regression import build
        from nlpkernel_sdk.tiny import TinyModel

        model = build(TinyModel(), info.window)
        model.module.register_buffer("table", torch.empty(4), persistent=False)
        before = model.initialise

        def initialise(name: str, tensor: Tensor, generator: torch.Generator) -> None:
            if name == "table":
                tensor.copy_(torch.arange(4.0))
            else:
                before(name, tensor, generator)

        return attrs.evolve(model, initialise=initialise)


@component
class Told:
    """Descent whose rate is halved at each evaluation."""

    book: str = setting(default="told", help="where to write what the schedule is told")

    @hookimpl
    def create_optimizer(self, groups):
        return Descent(lr=1.0).create_optimizer(groups)

    @hookimpl
    def create_schedule(self):
        return HalvedWhenTold(self.book)


class HalvedWhenTold:
    """See `nlpkernel.hookspecs.optimizer.Schedule`."""

    def __init__(self, book: str) -> None:
        self.book, self.rate = book, 1.0

    def factor(self, update: int) -> float:
        return self.rate

    def observe(self, metrics: Mapping[str, float | None]) -> None:
        note(self.book, dict(metrics))
        self.rate /= 2

    def state(self) -> Mapping[str, Any]:
        return {"rate": self.rate}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.rate = state["rate"]


@component
class Drifting:
    """Descent at a rate that falls with a number which the optimizer itself keeps in its group."""

    @hookimpl
    def create_optimizer(self, groups):
        tensors = [tensor for group in groups for tensor in group.tensors]
        return DriftingDescent([{"params": tensors, "lr": 0.1, "names": [], "drift": 0}])


class DriftingDescent(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["drift"] += 1
            group["lr"] /= group["drift"]
        return super().step(closure)


@component
class Asleep:
    """The tiny model with dropout, created in evaluation mode."""

    @hookimpl
    def create_model(self, info):
        from nlpkernel_sdk.regression import build
        from nlpkernel_sdk.tiny import TinyModel

        model = build(TinyModel(hidden=16, dropout=0.9), info.window)
        model.module.eval()
        return model


@component
class Stepping:
    """torch's AdamW in either form; its group keeps a number of its own, which only a version can bring back."""

    fused: bool = setting(help="which form")

    @hookimpl
    def create_optimizer(self, groups):
        tensors = [tensor for group in groups for tensor in group.tensors]
        self._made = torch.optim.AdamW([{"params": tensors, "own": 0.0}], lr=0.01, fused=self.fused)
        return self._made

    @hookimpl
    def update_applied(self):
        if self.fused:
            self._made.param_groups[0]["own"] = 0.5

    @hookimpl
    def close(self):
        (group,) = self._made.param_groups
        if not self.fused:
            note("fused", group["fused"], group["own"])
