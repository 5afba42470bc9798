"""Opened text: which rows each step sees, and their batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from nlpkernel.hookspecs.communicator import Requirements
from nlpkernel.hookspecs.data import Microbatch
from nlpkernel.sampling import Draws, Windows
from nlpkernel_text.packing import Packer, RowPacker, Rows

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.data import Batch, Codec
    from nlpkernel_text.codec import TextCodec
    from nlpkernel_text.files import File

#: Whose what is counted and said is.
OWNER = "data text"


class TextData:
    """The splits of a text, packed. See `nlpkernel.hookspecs.data.Data`.

    A batch is what the task makes of a `Rows`. `window` and `microbatch` are meant to be called in turn: the
    rows of the last window are kept.
    """

    def __init__(
        self,
        *,
        codec: TextCodec,
        packers: Mapping[str, Packer],
        run: Run,
        sampling: Literal["shuffle", "order", "random"],
        files: Sequence[File],
    ) -> None:
        self.info = codec.info
        self.codec: Codec = codec
        self._artifacts = codec.artifacts
        self.task = codec.task
        self._packers = packers
        self._train = packers["train"]
        self._files = files
        self._random = sampling == "random"
        self._seed = run.train.seed
        self._micro = run.train.rows
        self._requires = run.group.requires if run.group is not None else Requirements()
        self._plain = not self._requires.fixed_shapes and self._requires.multiple == 1
        self.windows = Windows(
            self._train.samples,
            run.train.batch,
            self._micro,
            # Rows that begin anywhere have no last ones: every window is full.
            "carry" if self._random else run.train.partial,
            self._seed,
            sampling == "shuffle",
        )
        # A random row can begin wherever a full row fits.
        self._draws = Draws(self._seed, run.train.batch, max(1, self._train.last + 1))
        #: Rows that each epoch leaves out, and the epochs that are accounted for.
        self._dropped = 0 if self._random else self.windows.dropped
        self._epochs: set[int] = set()
        self._count = run.count
        self._step = -1
        self._kept: list[Rows] = []
        self._described: list[Microbatch] = []

    def steps(self, *, epochs: float | None = None, tokens: int | None = None) -> int:
        """The fewest windows that hold so many epochs, or at least so many tokens."""
        if (epochs is None) == (tokens is None):
            raise ValueError("give epochs or tokens")
        if epochs is not None:
            return self.windows.steps(epochs)
        assert tokens is not None
        return (
            self._steps_by_count(tokens)
            if isinstance(self._train, RowPacker)
            else self._steps_by_size(tokens)
        )

    def epoch(self, step: int) -> float:
        """Passes over the training split before window `step`."""
        return self.windows.epoch(step)

    def window(self, step: int) -> Sequence[Microbatch]:
        """The micro-batches of window `step`."""
        if step != self._step:
            self._kept = self._rows(step)
            self._described = [
                Microbatch(len(rows) if self._plain else rows.real, rows.used, self.task.weights(rows))
                for rows in self._kept
            ]
            self._step = step
            if self._dropped:
                self._account(step)
        return self._described

    def microbatch(self, step: int, index: int) -> Batch:
        """Micro-batch `index` of window `step`."""
        if step != self._step:
            self.window(step)
        return self.task.batch(self._kept[index])

    def names(self, step: int, index: int) -> Sequence[str]:
        """Where each row comes from: file and line of the document that it begins in, and how many tokens of
        that document lie before it: "corpus/a.txt:120" or "corpus/a.txt:120+512"."""
        rows = self._kept[index] if step == self._step else self._rows(step)[index]
        return [self._name(start) for start in rows.starts[: rows.real].tolist()]

    def evaluation(self, split: str) -> Iterator[Batch]:
        """All rows of `split` in their order, in batches of the size of a micro-batch."""
        for rows in self._in_order(self._packers[split]):
            if self._requires.fixed_shapes:
                rows = rows.packer.padded(rows, self._micro)
            yield self.task.batch(rows)

    def samples(self, split: str, count: int) -> Sequence[str]:
        """The text of the first `count` rows."""
        packer = self._packers[split]
        rows = packer.rows(np.arange(min(count, packer.samples)))
        return [self.codec.decode(row["tokens"][: self.info.window].tolist()) for row in rows]

    def artifacts(self) -> Mapping[str, bytes]:
        """Tokenizer and facts of the data."""
        return self._artifacts()

    def state(self) -> Mapping[str, Any]:
        """Nothing: a window is a function of (seed, step)."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to take up."""

    def close(self) -> None:
        """Let go of the mapped files."""
        self._kept, self._described, self._step = [], [], -1
        self._packers = {}
        del self._train

    # -- rows ----------------------------------------

    def _rows(self, step: int) -> list[Rows]:
        parts = self.windows.window(step)
        if self._random:
            count = sum(len(part.rows) for part in parts)
            # Drawn for the window as a whole, so that micro-batches of another size hold the same rows.
            starts = self._draws.window(step)[:count]
            blocks = [self._train.at(starts[at : at + self._micro]) for at in range(0, count, self._micro)]
        else:
            blocks = [self._train.rows(part.rows) for part in parts]
        return blocks if self._plain else self._filled(blocks)

    def _filled(self, blocks: list[Rows]) -> list[Rows]:
        """What the layout asks for, made of padding that weighs nothing."""
        if self._requires.fixed_shapes:
            blocks = [self._train.padded(rows, self._micro) for rows in blocks]
        while len(blocks) % self._requires.multiple:
            nothing = self._train.rows(np.zeros(0, dtype=np.int64))
            blocks.append(self._train.padded(nothing, self._micro))
        return blocks

    def _account(self, step: int) -> None:
        """Count what an epoch left out when its last window comes."""
        epoch, within = divmod(step + 1, int(self.windows.per_epoch))
        if not within and epoch not in self._epochs:
            self._epochs.add(epoch)
            self._count(OWNER, "samples dropped at the end of an epoch", self._dropped)

    def _in_order(self, packer: Packer) -> Iterable[Rows]:
        for first in range(0, packer.samples, self._micro):
            ids = np.arange(first, min(first + self._micro, packer.samples))
            yield packer.rows(ids, measured=True)

    def _name(self, start: int) -> str:
        file, line, before = self._train.place(start)
        return f"{self._files[file].shown}:{line}" + (f"+{before}" if before else "")

    # -- length of a run ----------------------------------------

    def _steps_by_size(self, tokens: int) -> int:
        """By the size of full rows. At most one row of an epoch is shorter, and counts as if it came first."""
        window, lost = self._train.window, self._train.samples * self._train.window - self._train.tokens
        if self._random:
            window, lost = min(window, self._train.tokens), 0

        def held(step: int) -> int:
            begun = -(-self.windows.seen(step) // self.windows.samples)
            return self.windows.seen(step) * window - lost * begun

        low, high = 0, 1
        while held(high) < tokens:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if held(middle) < tokens else (low, middle)
        return high

    def _steps_by_count(self, tokens: int) -> int:
        """By counting, because rows differ in length; whole epochs at once where windows end with them."""
        whole = (tokens - 1) // self._train.tokens if self.windows.partial == "step" else 0
        step = whole * int(self.windows.per_epoch)
        left = tokens - whole * self._train.tokens
        while left > 0:
            left -= sum(rows.used for rows in self._rows(step))
            step += 1
        return step
