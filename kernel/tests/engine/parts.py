"""Components for the tests of the engine, named in plans as a local file.

The numbers of `Sums` stand for whole micro-batches, so that what a step must come to can be written down by hand.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import attrs
import torch
from torch import Tensor, nn

from nlpkernel import component, hookimpl, setting
from nlpkernel.errors import CheckpointError, fail
from nlpkernel.events import Event
from nlpkernel.hookspecs.data import DataInfo, Microbatch, SplitInfo
from nlpkernel.hookspecs.everywhere import Action, Decision
from nlpkernel.hookspecs.model import Anatomy, Model, Outputs, ParameterFacts
from nlpkernel.hookspecs.task import Term
from nlpkernel.sampling import Windows
from nlpkernel.state import Snapshot, VersionInfo
from nlpkernel_sdk.regression import RegressionTask

#: What the components of this file saw, by their setting `book`; a fixture clears it.
BOOKS: dict[str, list[Any]] = {}


def note(book: str, *entry: Any) -> None:
    """Write an entry into a book."""
    BOOKS.setdefault(book, []).append(entry)


# -- monitors and policies ------------------------------------------------------------------------------------------


@component
class Spy:
    """Writes down what hooks tell, and the weights at the end of the run."""

    book: str = setting(default="spy", help="where to write")
    gradients: bool = setting(default=False, help="write gradients down")

    @hookimpl
    def subscribe(self, run, bus):
        note(self.book, "subscribe")

    @hookimpl
    def gradients_ready(self, run, named, stage):
        if self.gradients:
            note(self.book, stage, {name: tensor.clone() for name, tensor in named})

    @hookimpl
    def update_applied(self, run, progress, applied):
        note(self.book, "applied", progress.step, applied)

    @hookimpl
    def weights_for(self, run, use):
        return self._used(use)

    @contextmanager
    def _used(self, use: str) -> Iterator[None]:
        note(self.book, "enter", use)
        yield
        note(self.book, "leave", use)

    @hookimpl
    def close(self, run):
        weights = {}
        if run.model is not None:
            weights = {name: tensor.clone() for name, tensor in run.model.module.state_dict().items()}
        note(self.book, "close", weights)


@component
class Closer:
    """Writes down that it was closed, and may fail to."""

    book: str = setting(default="closed", help="where to write")
    name: str = setting(help="what to write")
    fails: bool = setting(default=False, help="raise")

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def close(self):
        note(self.book, self.name)
        if self.fails:
            raise RuntimeError(f"{self.name} does not close")


@component
class Halver:
    """Halves the gradients of this worker."""

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def gradients_ready(self, named, stage):
        if stage == "local":
            for _, tensor in named:
                tensor.mul_(0.5)


@component
class Other:
    """Evaluates with other weights than it trains with."""

    value: float = setting(help="what every weight is during an evaluation")

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def weights_for(self, run, use):
        return self._swapped(run.model.module)

    @contextmanager
    def _swapped(self, module: nn.Module) -> Iterator[None]:
        kept = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        with torch.no_grad():
            for tensor in module.parameters():
                tensor.fill_(self.value)
        yield
        module.load_state_dict(kept)


@component
class Backward:
    """Owns `backward`: fills the gradients itself, as thrice those of the loss."""

    book: str = setting(default="backward", help="where to write")
    fails: bool = setting(default=False, help="raise instead")

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def backward(self, run, loss, sums):
        if self.fails:
            raise RuntimeError("no gradients today")
        note(self.book, sorted(sums))
        (loss * 3).backward()


@component
class Counter:
    """Counts updates, and keeps its count in versions."""

    book: str = setting(default="counter", help="where to write")
    refuses: bool = setting(default=False, help="refuse any state")

    count: int = attrs.field(init=False, default=0)

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def update_applied(self, applied):
        self.count += applied
        note(self.book, self.count)

    @hookimpl
    def component_state(self):
        return self

    def state(self) -> Mapping[str, Any]:
        return {"count": self.count, "tensor": torch.tensor([float(self.count)])}

    def load_state(self, state: Mapping[str, Any]) -> None:
        if self.refuses:
            raise ValueError("what is this")
        assert float(state["tensor"]) == state["count"]
        self.count = state["count"]


@component
class Script:
    """A policy that says what it is told to, at given steps."""

    book: str = setting(default="script", help="where to write what it was asked")
    at: dict[str, Literal["SAVE", "STOP", "ROLLBACK", "FAIL"]] = setting(
        factory=dict, help="what to say, by step"
    )
    always: bool = setting(default=True, help="say it again when the step is run again")

    _said: set[int] = attrs.field(init=False, factory=set)

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def decide(self, progress, metrics):
        note(self.book, progress.step, dict(metrics))
        action = self.at.get(str(progress.step))
        if action is None or (not self.always and progress.step in self._said):
            return None
        self._said.add(progress.step)
        return Decision(Action[action], f"{action.lower()} at {progress.step}")


@component
class Kill:
    """Sends this process a signal in the middle of a step, an evaluation, or a save."""

    where: Literal["open", "step", "evaluation", "save"] = setting(help="in the middle of what")
    number: int = setting(help="the signal")
    step: int = setting(default=3, help="in or after which step")
    times: int = setting(default=1, help="how often")

    @hookimpl
    def subscribe(self, run, bus):
        if self.where == "open":
            self._send()

    @hookimpl
    def gradients_ready(self, run, stage):
        if self.where == "step" and stage == "global" and run.progress.step == self.step - 1:
            self._send()

    @hookimpl
    def weights_for(self, run, use):
        if self.where == "evaluation" and run.progress.step == self.step:
            self._send()
        return nullcontext()

    @hookimpl
    def component_state(self, run):
        return _KillInSave(self, run)

    def _send(self) -> None:
        for _ in range(self.times):
            os.kill(os.getpid(), self.number)
            # The interpreter runs the handler between two instructions.
            time.sleep(0.01)


class _KillInSave:
    def __init__(self, killer: Kill, run: Any) -> None:
        self.killer, self.run = killer, run

    def state(self) -> Mapping[str, Any]:
        if self.killer.where == "save" and self.run.progress.step == self.killer.step:
            self.killer._send()
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """There is none."""


@component
class Draws:
    """Draws from every generator when the run closes, and in each evaluation."""

    book: str = setting(default="draws", help="where to write")

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def weights_for(self):
        self._draw()
        return self._drawing()

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        yield

    @hookimpl
    def close(self):
        note(self.book, *self._draw())

    def _draw(self) -> tuple[float, float, float]:
        import random

        import numpy

        return random.random(), float(numpy.random.random()), float(torch.rand(()))


@component
class Broken:
    """Fails in whatever it is told to fail in."""

    where: Literal["event", "gradients", "decide"] = setting(help="in what")

    @hookimpl
    def subscribe(self, bus):
        bus.on(Event, self._heard)

    def _heard(self, event: Event) -> None:
        if self.where == "event":
            raise RuntimeError("deaf")

    @hookimpl
    def gradients_ready(self):
        if self.where == "gradients":
            raise RuntimeError("blind")

    @hookimpl
    def decide(self):
        if self.where == "decide":
            raise RuntimeError("undecided")


# -- a store --------------------------------------------------------------------------------------------------------


@component
class Shelf:
    """Versions as files of torch, in the run's folder."""

    every: int | None = setting(default=None, ge=1, help="steps between two saves")
    full: int | None = setting(default=None, help="step whose version does not fit on the disk")

    @hookimpl
    def decide(self, progress):
        due = self.every is not None and progress.step % self.every == 0
        return Decision(Action.SAVE, "due") if due else None

    @hookimpl
    def open_store(self, folder):
        return ShelfStore(folder / "shelf", self.full)


class ShelfStore:
    """See `nlpkernel.hookspecs.checkpoint.Store`."""

    def __init__(self, folder: Path, full: int | None) -> None:
        self.folder, self.full = folder, full
        folder.mkdir(exist_ok=True)

    def save(self, snapshot: Snapshot) -> VersionInfo:
        if snapshot.step == self.full:
            raise fail(CheckpointError, "X001", "the shelf is full")
        path = self.folder / f"step-{snapshot.step:04d}"
        torch.save(snapshot, self.folder / "aside")
        (self.folder / "aside").rename(path)
        return self._info(path)

    def load(self, reference: str | None = None) -> Snapshot:
        path = self.folder / reference if reference else max(self.folder.glob("step-*"))
        loaded: Snapshot = torch.load(path, weights_only=False)
        return loaded

    def list(self) -> Sequence[VersionInfo]:
        return [self._info(path) for path in sorted(self.folder.glob("step-*"))]

    def verify(self, reference: str) -> Sequence[str]:
        return []

    def close(self) -> None:
        """Nothing is open."""

    def _info(self, path: Path) -> VersionInfo:
        return VersionInfo(
            name=path.name, step=int(path.name[5:]), bytes=path.stat().st_size, created=0.0, metrics={}
        )


# -- precisions -----------------------------------------------------------------------------------------------------


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


# -- a model that is one number, on data that is sums ---------------------------------------------------------------


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
        raise NotImplementedError


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
        raise NotImplementedError


class ScoredTask(RegressionTask):
    """The mean squared error, and a score."""

    main = ("score", "max")

    def __init__(self, settings: Scored, run: Any) -> None:
        self.settings, self.run = settings, run

    def value(self, counts: Mapping[str, Any]) -> Mapping[str, float | None]:
        index = self.run.progress.step // self.settings.every - 1
        return {**super().value(counts), "score": self.settings.scores[index]}


@component
class Slow:
    """Takes its time in each evaluation."""

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def weights_for(self):
        time.sleep(0.11)
        return nullcontext()


@component
class Warner:
    """Warns, and logs."""

    @hookimpl
    def subscribe(self, run):
        warnings.warn("look out", stacklevel=1)
        run.log(self).info("all is well")


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
        raise NotImplementedError


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
class Lagging:
    """Takes its time in given steps."""

    steps: dict[str, float] = setting(help="seconds by step")

    @hookimpl
    def subscribe(self):
        """Nothing to listen to."""

    @hookimpl
    def gradients_ready(self, run, stage):
        if stage == "local":
            time.sleep(self.steps.get(str(run.progress.step + 1), 0.0))


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
