"""The extension point `task`: how rows become batches, which loss, which metrics. Independent of architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from nlpkernel.hookspecs._spec import Point, hook

if TYPE_CHECKING:
    from torch import Tensor, nn

    from nlpkernel.context import Run
    from nlpkernel.hookspecs.data import Batch, Codec
    from nlpkernel.hookspecs.model import Outputs
    from nlpkernel.hookspecs.tokenizer import Tokenizer

#: One sample as the data gives it: names to numpy arrays or plain values. "tokens": its ids. Where it has them:
#: "label", the number of its class; "target", the ids of a second text that belongs to the first; "tags", the number of
#: each token's class, -1 for those that have none; "image", uint8 [3, side, side]. "key": a number of 64 bits for what
#: a task draws at random, another one each time that the sample is trained on, the same however a window is divided,
#: and of the sample alone in an evaluation. "number": its place in its split, in an evaluation.
Row = Mapping[str, Any]

#: Counts that are merged by adding them over batches and workers: names to tensors of 0 or 1 dimensions.
Counts = Mapping[str, "Tensor"]


class Term(NamedTuple):
    """One term of the loss of a micro-batch.

    sum: the summed loss (0 dimensions, with gradient). The engine divides it by the total weight of the whole window,
    over all micro-batches and workers, which gives the gradient of the true mean. coefficient: its share in the loss.
    """

    name: str
    sum: Tensor
    coefficient: float = 1.0


class Task(Protocol):
    """A training task. The first term is named "loss"."""

    name: str
    #: The metric that "best" is judged by, and whether smaller or larger is better ("min", "max").
    main: tuple[str, str]

    def batch(self, rows: Sequence[Row]) -> Batch:
        """Rows to host tensors."""

    def weights(self, rows: Sequence[Row]) -> Mapping[str, float]:
        """The weight of each loss term over `rows`: for "loss" the number of counted labels."""

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        """Keyword arguments of the model's forward."""

    def loss(self, outputs: Outputs, batch: Batch) -> Sequence[Term]:
        """Summed loss terms of a micro-batch, in float32 or better."""

    def evaluate(self, forward: Callable[..., Outputs], batch: Batch) -> Counts:
        """Counts of one batch. `forward` is the group's and takes what `inputs` gives; decoding calls it often."""

    def value(self, counts: Mapping[str, Any]) -> Mapping[str, float | None]:
        """Metrics from merged counts (numbers or lists of numbers). None where there was nothing to count."""


class Judged(NamedTuple):
    """What a model says of the rows of a batch, padding left out.

    counts: as `Task.evaluate` gives them, each with a first dimension of rows, and what can only be counted of whole
    answers beside; empty where the truth is not known. answers: of each row, as JSON knows it.
    """

    counts: Counts
    answers: Sequence[Mapping[str, Any]]


class Judging(Task, Protocol):
    """A task that tells what a model says of each row. Of one that does not, rows are evaluated one at a time."""

    #: What of a row, such as "label", the model is asked for.
    truth: frozenset[str]

    def judge(self, model: nn.Module, batch: Batch, codec: Codec) -> Judged:
        """The model's answers to a batch, which has no truth where its rows had none."""


@hook("pick")
def create_task(  # type: ignore[empty-body]
    run: Run, vocabulary: int, labels: Sequence[str], counts: Sequence[int], tokenizer: Tokenizer
) -> Task:
    """Make the task for data with this vocabulary and these labels. counts: samples of the training split with each
    label; empty where they are not known, as when a version is opened without its data."""


POINT = Point(name="task", must=("create_task",), help="how rows become batches, which loss, which metrics")
