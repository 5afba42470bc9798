"""Opened text: which rows each step sees, and their batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from nlpkernel.hookspecs.communicator import Requirements
from nlpkernel.hookspecs.data import Microbatch
from nlpkernel.sampling import key
from nlpkernel_text.accounts import OWNER
from nlpkernel_text.length import steps_for
from nlpkernel_text.packing import Packer
from nlpkernel_text.recent import Recent
from nlpkernel_text.rows import Rows
from nlpkernel_text.windows_ahead import WindowsAhead

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.data import Batch, Codec
    from nlpkernel.hookspecs.sampler import Group, Sampler
    from nlpkernel_text.augmenting import Augmenting
    from nlpkernel_text.codec import TextCodec

#: Purpose of a key.
_DRAWN = 0xD4A3


@attrs.define
class Made:
    """A window: the rows of each micro-batch, what is said of it, and batches that are made already, by number."""

    rows: list[Rows]
    described: list[Microbatch]
    batches: dict[int, Batch] = attrs.field(factory=dict)


class PackedData(ABC):
    """Packed text, as far as it does not matter where the rows of a window come from.

    A batch is what the task makes of a `Rows`. `window` and `microbatch` are meant to be called in turn: the
    rows of the last window are kept. packers: those of the splits that are held as a whole.
    """

    def __init__(
        self,
        *,
        codec: TextCodec,
        packers: Mapping[str, Packer],
        run: Run,
        shown: Sequence[str],
        kept_bytes: int = 0,
    ) -> None:
        self.info = codec.info
        self.codec: Codec = codec
        self._artifacts = codec.artifacts
        self.task = codec.task
        self.packers = packers
        self.shown = shown
        self._recent = Recent(kept_bytes)
        self._micro = run.train.rows
        self._seed = run.seed
        self._requires = run.group.requires if run.group is not None else Requirements()
        self._plain = not self._requires.fixed_shapes and self._requires.multiple == 1
        self._step = -1
        self._made = Made([], [])

    def window(self, step: int) -> Sequence[Microbatch]:
        """The micro-batches of window `step`."""
        if step != self._step:
            self._made = self._make(step)
            self._step = step
            self._account(step)
        return self._made.described

    def microbatch(self, step: int, index: int) -> Batch:
        """Micro-batch `index` of window `step`."""
        if step != self._step:
            self.window(step)
        made = self._made.batches.pop(index, None)
        return self.task.batch(self._made.rows[index]) if made is None else made

    def kept(self, step: int, index: int) -> Rows:
        """The rows of micro-batch `index` of window `step`."""
        self.window(step)
        return self._made.rows[index]

    def names(self, step: int, index: int) -> Sequence[str]:
        """Where each row comes from: file and line of the document that it begins in, and how many tokens of
        that document lie before it: "corpus/a.txt:120" or "corpus/a.txt:120+512"."""
        rows = (self._made.rows if step == self._step else self._rows(step))[index]
        return [self._name(rows.packer, start) for start in rows.starts[: rows.real].tolist()]

    def evaluation(self, split: str) -> Iterator[Batch]:
        """All rows of `split` in their order, in batches of the size of a micro-batch."""
        packer = self.packers[split]
        for first in range(0, packer.samples, self._micro):
            yield self._recent.get((split, first), partial(self._evaluated, packer, first))

    def samples(self, split: str, count: int) -> Sequence[str]:
        """The text of the first `count` rows."""
        packer = self.packers[split]
        rows = packer.rows(np.arange(min(count, packer.samples)))
        return [self.codec.decode(row["tokens"][: self.info.window].tolist()) for row in rows]

    def artifacts(self) -> Mapping[str, bytes]:
        """Tokenizer and facts of the data."""
        return self._artifacts()

    def close(self) -> None:
        """Let go of the mapped files."""
        self._made, self._step = Made([], []), -1
        self.packers = {}

    def _make(self, step: int) -> Made:
        found = self._rows(step)
        for rows in found:
            rows.drawn = key(self._seed, _DRAWN, step)
        described = [
            Microbatch(len(rows) if self._plain else rows.real, rows.used, self.task.weights(rows))
            for rows in found
        ]
        return Made(found, described)

    @abstractmethod
    def _rows(self, step: int) -> list[Rows]:
        """The rows of each micro-batch of a window."""

    @abstractmethod
    def _account(self, step: int) -> None:
        """Count what is left out with a window."""

    def _filled(self, blocks: list[Rows]) -> list[Rows]:
        """What the layout asks for, made of padding that weighs nothing."""
        if self._plain:
            return blocks
        packer = blocks[0].packer
        if self._requires.fixed_shapes:
            blocks = [packer.padded(rows, self._micro) for rows in blocks]
        while len(blocks) % self._requires.multiple:
            nothing = packer.rows(np.zeros(0, dtype=np.int64))
            blocks.append(packer.padded(nothing, self._micro))
        return blocks

    def _evaluated(self, packer: Packer, first: int) -> Batch:
        ids = np.arange(first, min(first + self._micro, packer.samples))
        rows = packer.rows(ids, measured=True)
        if self._requires.fixed_shapes:
            rows = packer.padded(rows, self._micro)
        rows.numbers = np.pad(ids, (0, len(rows) - len(ids)), constant_values=-1)
        return self.task.batch(rows)

    def _name(self, packer: Packer, start: int) -> str:
        file, line, before = packer.place(start)
        return f"{self._shown_as(file)}:{line}" + (f"+{before}" if before else "")

    def _shown_as(self, file: int) -> str:
        return self.shown[file]


class TextData(PackedData):
    """The splits of a text, packed: a window is a function of (seed, step). See `nlpkernel.hookspecs.data.Data`."""

    def __init__(
        self,
        *,
        sampler: Sampler,
        groups: Sequence[Group] = (),
        augmenting: Augmenting | None = None,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        #: The sources of a mixture.
        self.groups = groups
        self._train = self.packers["train"]
        self.sampler = sampler
        self._augmenting = augmenting
        self._ahead = WindowsAhead(self._whole) if augmenting is not None else None
        # A sampler may keep what it has worked out, and is asked by both threads.
        self._sampling = Lock()
        #: The epochs whose dropped rows are accounted for.
        self._epochs: set[int] = set()
        self._count = common["run"].count

    def steps(self, *, epochs: float | None = None, tokens: int | None = None) -> int:
        """The fewest windows that hold so many epochs, or at least so many tokens."""
        if (epochs is None) == (tokens is None):
            raise ValueError("give epochs or tokens")
        if epochs is not None:
            with self._sampling:
                return self.sampler.steps(epochs)
        assert tokens is not None
        return steps_for(tokens, self.sampler, self._train)

    def epoch(self, step: int) -> float:
        """Passes over the training split before window `step`."""
        with self._sampling:
            return self.sampler.epoch(step)

    def state(self) -> Mapping[str, Any]:
        """Nothing: a window is a function of (seed, step)."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to take up."""

    def close(self) -> None:
        """Let go of the mapped files."""
        if self._ahead is not None:
            self._ahead.close()
        super().close()
        del self._train

    def _rows(self, step: int) -> list[Rows]:
        with self._sampling:
            parts = self.sampler.window(step)
        if self.sampler.anywhere:
            blocks = [self._train.at(part.rows) for part in parts]
        elif self._augmenting is not None:
            blocks = self._augmenting.window(step, parts)
        else:
            blocks = [self._train.rows(part.rows) for part in parts]
        return self._filled(blocks)

    def microbatch(self, step: int, index: int) -> Batch:
        """See PackedData. From the first one on, the next window is made beside the training."""
        batch = super().microbatch(step, index)
        if self._ahead is not None:
            self._ahead.begin(step + 1)
        return batch

    def names(self, step: int, index: int) -> Sequence[str]:
        """See PackedData."""
        if self._ahead is not None:
            self._ahead.settle()
        return super().names(step, index)

    def _make(self, step: int) -> Made:
        return super()._make(step) if self._ahead is None else self._ahead.take(step)

    def _whole(self, step: int) -> Made:
        """A window with its batches, so that nothing is left to the thread that trains."""
        made = super()._make(step)
        made.batches = {index: self.task.batch(rows) for index, rows in enumerate(made.rows)}
        return made

    def _account(self, step: int) -> None:
        """Count what an epoch left out when its last window comes."""
        if not self.sampler.dropped:
            return
        epoch = self.epoch(step + 1)
        if epoch.is_integer() and epoch not in self._epochs:
            self._epochs.add(int(epoch))
            self._count(OWNER, "samples dropped at the end of an epoch", self.sampler.dropped)
