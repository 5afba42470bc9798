"""Opened text that is read as training goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nlpkernel.errors import DataError, fail
from nlpkernel_text.cleaning.running import Cleaning
from nlpkernel_text.data import PackedData
from nlpkernel_text.rows import Rows
from nlpkernel_text.streaming.blocks import Block, Blocks, Start
from nlpkernel_text.streaming.reading import Position


class StreamedData(PackedData):
    """A stream of text. Windows come one after the other, and what is needed to go on from one is in the state; every
    window is full, and a block of rows that are shuffled together is a whole number of windows."""

    def __init__(
        self,
        blocks: Blocks,
        batch: int,
        files: int,
        cleaning: Cleaning | None,
        *,
        ragged: bool,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self._blocks, self._batch, self._files, self._cleaning = blocks, batch, files, cleaning
        self._ragged = ragged
        self._block: Block | None = None
        #: Rows of the block that were given out.
        self._given = 0

    def steps(self, *, epochs: float | None = None, tokens: int | None = None) -> int:
        """Windows that hold so many tokens. Raise DataError (TXT035) for epochs, and for tokens where rows differ in
        length: what is not read is not known."""
        what = "an epoch" if epochs is not None else "so many tokens" if self._ragged else None
        if what is not None:
            raise fail(
                DataError,
                "TXT035",
                f"how many steps are {what} of this stream is not known before it is read",
                hint="write `steps` in [train]",
            )
        assert tokens is not None
        return -(-tokens // (self._batch * self.info.window))

    def epoch(self, step: int) -> float:
        """Passes over the files before the window that comes next, as far as whole files tell."""
        if self._block is None or self._given == len(self._block.rows):
            return self._passes(self._blocks.start)
        return max(self._passes(self._block.start), float(self._block.passed[self._given]))

    def samples(self, split: str, count: int) -> Sequence[str]:
        """The text of the first rows."""
        if split != "train":
            return super().samples(split, count)
        start = self._blocks.start
        block = self._blocks.next()
        self._blocks.seek(start)
        rows = block.packer.rows(np.sort(block.rows)[:count])
        return [self.codec.decode(row["tokens"][: self.info.window].tolist()) for row in rows]

    def state(self) -> Mapping[str, Any]:
        """Where the block begins, and how many of its rows were given out."""
        start = Start() if self._block is None else self._block.start
        return {
            "passed": start.at.passed,
            "file": start.at.file,
            "document": start.at.document,
            "skip": start.skip,
            "block": start.number,
            "given": self._given,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        at = Position(state["passed"], state["file"], state["document"])
        start = Start(at, state["skip"], state["block"])
        if self._block is None or self._block.start != start:
            self._blocks.seek(start)
            self._block = None
            if state["given"]:
                self._block = self._blocks.next()
        self._given, self._step = state["given"], -1

    def names(self, step: int, index: int) -> Sequence[str]:
        """See PackedData. Of the newest window alone: what came before is gone."""
        return super().names(step, index) if step == self._step else []

    def close(self) -> None:
        """End reading."""
        self._blocks.close()
        if self._cleaning is not None:
            self._cleaning.close()
        self._block = None
        super().close()

    def _passes(self, start: Start) -> float:
        return start.at.passed + start.at.file / self._files

    def _rows(self, step: int) -> list[Rows]:
        if self._block is None or self._given == len(self._block.rows):
            self._block, self._given = self._blocks.next(), 0
        mine = self._block.rows[self._given : self._given + self._batch]
        self._given += self._batch
        packer = self._block.packer
        return self._filled(
            [packer.rows(mine[at : at + self._micro]) for at in range(0, len(mine), self._micro)]
        )

    def _account(self, step: int) -> None:
        """Nothing is left out with a window: what is left out of documents is counted as they come."""

    def _shown_as(self, file: int) -> str:
        # In the stream of a block that is the number of some documents of one file.
        assert self._block is not None
        return self.shown[self._block.files[file]]
