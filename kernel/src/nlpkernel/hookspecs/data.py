"""The slot `data`: what is trained on, and which samples each step sees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from nlpkernel.hookspecs._spec import Point, hook

if TYPE_CHECKING:
    from torch import Tensor

    from nlpkernel.context import Run
    from nlpkernel.hookspecs.task import Task

#: A batch: names to tensors whose first dimension is the row. What the names are is between data and task.
Batch = Mapping[str, "Tensor"]


@attrs.frozen(kw_only=True)
class SplitInfo:
    """Size of one split: samples as the sampler counts them (for packed text: windows), documents, tokens."""

    samples: int
    documents: int | None = None
    tokens: int | None = None


@attrs.frozen(kw_only=True)
class DataInfo:
    """What the data turned out to be.

    splits: those whose size is known; that of a stream is not. vocabulary: entries of the tokenizer. window: tokens of
    the longest row. labels: class names in the order of their ids. fingerprint: a hash of content, tokenizer and
    settings; two runs with the same one see the same samples. image: pixels of a side of the rows' images; None where
    they have none."""

    task: str
    vocabulary: int
    window: int
    fingerprint: str
    splits: Mapping[str, SplitInfo]
    labels: tuple[str, ...] = ()
    image: int | None = None


@attrs.frozen
class Microbatch:
    """One global micro-batch of a window, as known on the host before any forward.

    samples, tokens: rows and tokens, padding not counted. weights: weight of each loss term, by its name.
    """

    samples: int
    tokens: int
    weights: Mapping[str, float]


class Codec(Protocol):
    """Text to token ids and back, with what a model needs to know of the data; rebuilt from a version's artifacts."""

    info: DataInfo
    task: Task
    #: Id that ends a text, or None.
    end: int | None

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, without a start or end mark."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; bytes that are no text come out as U+FFFD."""


class Data(Protocol):
    """Opened data. `window` is a pure function of (seed, step): not of history, not of the number of workers."""

    info: DataInfo
    codec: Codec
    task: Task

    def steps(self, *, epochs: float | None = None, tokens: int | None = None) -> int:
        """Windows that hold so many epochs, or at least so many tokens. Raise DataError for epochs of a stream."""

    def epoch(self, step: int) -> float:
        """Passes over the training split that lie before window `step`."""

    def window(self, step: int) -> Sequence[Microbatch]:
        """The global micro-batches of window `step` (from 0), in order."""

    def microbatch(self, step: int, index: int) -> Batch:
        """Micro-batch `index` of window `step`, on the host."""

    def names(self, step: int, index: int) -> Sequence[str]:
        """Where each row of a micro-batch comes from, for messages: "corpus/a.txt:120"."""

    def evaluation(self, split: str) -> Iterable[Batch]:
        """Batches that cover `split` exactly once."""

    def samples(self, split: str, count: int) -> Sequence[str]:
        """The first `count` samples as a person reads them."""

    def artifacts(self) -> Mapping[str, bytes]:
        """Files that `open_codec` needs later, by name."""

    def state(self) -> Mapping[str, Any]:
        """What `window` needs beside (seed, step): empty for all that can seek."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave."""

    def close(self) -> None:
        """Let go of files and workers."""


class Unseen(Protocol):
    """Samples that a trained model is tried on, in their order."""

    samples: int

    def batches(self) -> Iterable[Batch]:
        """All samples, each once."""

    def names(self, first: int, count: int) -> Sequence[str]:
        """Where some samples come from: "held.jsonl:120"."""

    def texts(self, first: int, count: int) -> Sequence[str]:
        """Some samples as a person reads them."""


@hook("pick")
def open_data(run: Run) -> Data:  # type: ignore[empty-body]
    """Open the data. `run.train` says batch, micro, seed and what to do with a partial window. Raise DataError for
    anything wrong with it, before any model is built."""


@hook("pick")
def open_codec(run: Run, artifacts: Mapping[str, bytes]) -> Codec:  # type: ignore[empty-body]
    """Rebuild the codec from the artifacts of a version, without the training data."""


@hook("pick")
def open_unseen(  # type: ignore[empty-body]
    run: Run, codec: Codec, paths: Sequence[str], truth: bool
) -> Unseen:
    """Open samples for a trained model: those of `paths`, relative to the working folder, or where there are none the
    plan's validation split. truth: whether samples have what the model is to say, such as labels. Raise DataError for
    anything wrong with them."""


POINT = Point(
    name="data",
    slot=True,
    must=("open_data", "open_codec"),
    may=("open_unseen",),
    help="what is trained on, and which samples each step sees",
)
