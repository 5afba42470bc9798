"""The heavy half of the tiny components."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nlpkernel.context import Run
from nlpkernel.hookspecs.data import Batch, Codec, DataInfo, Microbatch, SplitInfo
from nlpkernel.hookspecs.model import Anatomy, Model, Outputs, ParameterFacts
from nlpkernel.hookspecs.task import Counts, Row, Task, Term
from nlpkernel.sampling import Windows

if TYPE_CHECKING:
    from nlpkernel_sdk.tiny import TinyData, TinyModel


class RegressionTask:
    """Summed squared error; rows with weight 0 do not count."""

    name = "regression"
    main = ("loss", "min")

    def batch(self, rows: Sequence[Row]) -> Batch:
        """Rows to tensors."""
        return {key: torch.stack([row[key] for row in rows]) for key in ("x", "y", "weight")}

    def weights(self, rows: Sequence[Row]) -> Mapping[str, float]:
        """Rows that count."""
        return {"loss": float(sum(float(row["weight"]) for row in rows))}

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        """The numbers of each row."""
        return {"x": batch["x"]}

    def loss(self, outputs: Outputs, batch: Batch) -> Sequence[Term]:
        """One term."""
        assert outputs.logits is not None, "the tiny model gives logits"
        error = (outputs.logits[:, 0].float() - batch["y"]) ** 2
        return [Term("loss", (error * batch["weight"]).sum())]

    def evaluate(self, forward: Callable[..., Outputs], batch: Batch) -> Counts:
        """Sum and count."""
        (term,) = self.loss(forward(**self.inputs(batch)), batch)
        return {"loss": term.sum.double(), "rows": batch["weight"].double().sum()}

    def value(self, counts: Mapping[str, Any]) -> Mapping[str, float | None]:
        """The mean squared error."""
        return {"loss": counts["loss"] / counts["rows"] if counts.get("rows") else None}


class RegressionCodec:
    """No text; only what the data was."""

    end: int | None = None

    def __init__(self, info: DataInfo) -> None:
        self.info = info
        self.task: Task = RegressionTask()

    def encode(self, text: str) -> list[int]:
        """The code points."""
        return [ord(character) for character in text]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the code points."""
        return "".join(map(chr, ids))

    @classmethod
    def load(cls, artifacts: Mapping[str, bytes]) -> RegressionCodec:
        """From artifacts."""
        width = json.loads(artifacts["info.json"])["width"]
        return cls(DataInfo(task="regression", vocabulary=1, window=width, fingerprint="", splits={}))


class RegressionData:
    """Rows in memory."""

    def __init__(self, settings: TinyData, run: Run) -> None:
        generator = torch.Generator().manual_seed(12345)
        count = settings.rows + settings.validation
        x = torch.randn(count, settings.width, generator=generator)
        y = x @ torch.linspace(-1, 1, settings.width) + 0.1 * torch.randn(count, generator=generator)
        weight = torch.ones(count)
        weight[list(settings.masked)] = 0.0
        x[list(settings.poisoned)] = float("nan")
        self._rows = {"x": x, "y": y, "weight": weight}
        self._weights = weight.tolist()
        self._train, self._all = settings.rows, count
        self._micro = run.train.rows
        self._windows = Windows(
            samples=settings.rows,
            batch=run.train.batch,
            micro=run.train.rows,
            partial=run.train.partial,
            seed=run.seed,
            shuffle=settings.shuffle,
        )
        run.count("tiny", "rows dropped in each epoch", self._windows.dropped)
        splits = {"train": SplitInfo(samples=settings.rows, tokens=settings.rows * settings.width)}
        if settings.validation:
            splits["validation"] = SplitInfo(samples=settings.validation)
        self.task: Task = RegressionTask()
        self.info = DataInfo(
            task="regression",
            vocabulary=1,
            window=settings.width,
            fingerprint=f"tiny {settings.rows} {settings.validation} {settings.width}",
            splits=splits,
        )
        self.codec: Codec = RegressionCodec(self.info)

    def steps(self, *, epochs: float | None = None, tokens: int | None = None) -> int:
        """Windows of so many epochs, or the fewest that hold so many tokens."""
        if epochs is not None:
            return self._windows.steps(epochs)
        rows = -(-(tokens or 1) // self.info.window)
        steps = -(-rows // self._windows.batch)
        while self._windows.seen(steps) < rows:
            steps += 1
        return steps

    def epoch(self, step: int) -> float:
        """Passes before a window."""
        return self._windows.epoch(step)

    def window(self, step: int) -> Sequence[Microbatch]:
        """Counts and weights of each micro-batch."""
        return [
            Microbatch(
                len(part.rows),
                len(part.rows) * self.info.window,
                {"loss": sum(self._weights[row] for row in part.rows)},
            )
            for part in self._windows.window(step)
        ]

    def microbatch(self, step: int, index: int) -> Batch:
        """Rows by their ids."""
        rows = torch.tensor(self._windows.window(step)[index].rows)
        return {name: values[rows] for name, values in self._rows.items()}

    def names(self, step: int, index: int) -> Sequence[str]:
        """Row numbers."""
        return [f"row {row}" for row in self._windows.window(step)[index].rows]

    def evaluation(self, split: str) -> Iterator[Batch]:
        """Every row once, in order."""
        first, last = (0, self._train) if split == "train" else (self._train, self._all)
        for start in range(first, last, self._micro):
            rows = slice(start, min(start + self._micro, last))
            yield {name: values[rows] for name, values in self._rows.items()}

    def samples(self, split: str, count: int) -> Sequence[str]:
        """Rows as numbers."""
        return [str(row.tolist()) for row in self._rows["x"][:count]]

    def artifacts(self) -> Mapping[str, bytes]:
        """What the codec needs."""
        return {"info.json": json.dumps({"width": self.info.window}).encode()}

    def state(self) -> Mapping[str, Any]:
        """A window is a function of the step."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to take up."""

    def close(self) -> None:
        """Nothing to let go of."""


class Regression(nn.Module):
    """x [rows, width] to logits [rows, 1]."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.body = nn.Linear(width, hidden) if hidden else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden or width, 1)

    def forward(self, x: Tensor) -> Outputs:
        """One number a row."""
        body = torch.tanh(self.body(x)) if isinstance(self.body, nn.Linear) else x
        return Outputs(logits=self.head(self.dropout(body)))


def build(settings: TinyModel, width: int) -> Model:
    """The tiny model with its anatomy."""
    module = Regression(width, settings.hidden, settings.dropout)

    def initialise(name: str, tensor: Tensor, generator: torch.Generator) -> None:
        if settings.value is not None:
            tensor.fill_(settings.value)
        else:
            tensor.normal_(0.0, 0.1, generator=generator)

    facts = {name: ParameterFacts(decay=p.dim() > 1) for name, p in module.named_parameters()}
    blocks = ("body",) if settings.hidden else ()
    anatomy = Anatomy(blocks=blocks, embedding=None, head="head", parameters=facts)
    return Model(module=module, anatomy=anatomy, initialise=initialise)


class TinySchedule:
    """Rises over `warmup` updates, or falls to 0 over `length`."""

    def __init__(self, warmup: int, length: int | None) -> None:
        self._warmup, self._length = warmup, length

    def factor(self, update: int) -> float:
        """The factor for an update."""
        if self._length is not None:
            return max(0.0, 1.0 - update / self._length)
        return min(1.0, (update + 1) / self._warmup) if self._warmup else 1.0

    def observe(self, metrics: Mapping[str, float | None]) -> None:
        """Metrics change nothing."""

    def state(self) -> Mapping[str, Any]:
        """Nothing to remember."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to take up."""
