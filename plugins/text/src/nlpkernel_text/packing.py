"""Where the rows of a stream begin, and their tokens."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nlpkernel_text.rows import Rows
from nlpkernel_text.streams import Stream
from nlpkernel_text.tokenizers.encoders import Ids

#: What becomes of a document that is longer than a row: several rows, its first row, or nothing.
Long = Literal["split", "truncate", "skip"]


class Packer:
    """Cuts a stream into rows of `window` tokens, one after the other.

    samples: rows of the split; together they hold each token that has a next one exactly once. tokens: how
    many those are. fixed: all blocks are as wide as the window, whatever rows they hold.
    """

    def __init__(
        self,
        stream: Stream,
        window: int,
        *,
        isolated: bool = False,
        pad: int = 0,
        fixed: bool = True,
        byte_lengths: Ids | None = None,
    ) -> None:
        self.stream = stream
        self.window = window
        self.isolated = isolated
        self.pad = pad
        self.fixed = fixed
        self.byte_lengths = byte_lengths
        size = len(stream.tokens)
        #: The largest place at which a full row can begin; negative where the stream has no full row.
        self.last = size - window - 1
        self._full = sliding_window_view(stream.tokens, window + 1) if self.last >= 0 else None
        self._columns = np.arange(window + 1)
        self._measure()

    def _measure(self) -> None:
        self.tokens = max(0, len(self.stream.tokens) - 1)
        self.samples = -(-self.tokens // self.window)

    def rows(self, ids: Ids, measured: bool = False) -> Rows:
        """The rows with these numbers."""
        return self.at(ids * self.window, measured)

    def at(self, starts: Ids, measured: bool = False) -> Rows:
        """The rows that begin at these tokens; those at the end of the stream are shorter."""
        if len(starts) and starts.max() <= self.last:
            return Rows(self, starts, None, measured)
        return Rows(self, starts, np.minimum(len(self.stream.tokens) - starts, self.window + 1), measured)

    def padded(self, rows: Rows, count: int) -> Rows:
        """The same with rows of padding behind, `count` in all."""
        more = count - len(rows)
        if more <= 0:
            return rows
        lengths = np.full(len(rows), self.window + 1) if rows.lengths is None else rows.lengths
        starts = np.concatenate((rows.starts, np.zeros(more, dtype=np.int64)))
        lengths = np.concatenate((lengths, np.zeros(more, dtype=np.int64)))
        of = None if rows.of is None else np.concatenate((rows.of, np.full(more, -1, dtype=np.int64)))
        return Rows(self, starts, lengths, rows.measured, of, rows.padded(more, self.pad))

    def gather(self, starts: Ids, lengths: Ids | None) -> Ids:
        """The tokens of rows, [rows, width]."""
        if lengths is None and self._full is not None:
            return self._full[starts]
        assert lengths is not None
        return self.gathered(self.stream.tokens, starts, lengths, self.pad)

    def gathered(self, values: Ids, starts: Ids, lengths: Ids | None, pad: int) -> Ids:
        """What there is of each token, of rows [rows, width]; `pad` in the place of padding."""
        if lengths is None:
            lengths = np.full(len(starts), self.window + 1)
        width = self.window + 1 if self.fixed else max(2, int(lengths.max(initial=0)))
        columns = self._columns[:width]
        # What is past the end is read from the last token, and then painted over.
        block: Ids = values[np.minimum(starts[:, None] + columns, max(0, len(values) - 1))]
        block[columns >= lengths[:, None]] = pad
        return block

    def seams(self, starts: Ids, lengths: Ids | None, width: int) -> Ids:
        """1 where a document begins behind a row's first token, and where padding begins; else 0. int64."""
        marks = np.zeros((len(starts), width), dtype=np.int64)
        begun = self.stream.starts
        ends = starts + width if lengths is None else starts + np.maximum(lengths, 1)
        first = np.searchsorted(begun, starts + 1)
        counts = np.searchsorted(begun, ends) - first
        if total := int(counts.sum()):
            # All document starts of all rows: a run of consecutive numbers for each row.
            row = np.repeat(np.arange(len(starts)), counts)
            number = np.arange(total) - np.repeat(counts.cumsum() - counts, counts) + first[row]
            marks[row, begun[number] - starts[row]] = 1
        if lengths is not None:
            short = np.flatnonzero((lengths < width) & (lengths > 0))
            marks[short, lengths[short]] = 1
        return marks

    @property
    def labels(self) -> Ids | None:
        """The number of each row's class, int32 [samples]; None where documents have none, or rows hold several."""
        return None

    @property
    def weights(self) -> Ids | None:
        """How often each row should come, float64 [samples]; None where the plan names no field for it, or rows hold
        several documents."""
        return None

    @property
    def lengths(self) -> Ids:
        """Tokens of each row that have a next one, int64 [samples]."""
        lengths = np.full(self.samples, self.window, dtype=np.int64)
        if self.samples:
            lengths[-1] = self.tokens - (self.samples - 1) * self.window
        return lengths

    def first(self, document: int) -> int:
        """The number of the first row that begins with a document, or after it."""
        starts = self.stream.starts
        at = int(starts[document]) if document < len(starts) else len(self.stream.tokens)
        return min(self.samples, -(-at // self.window))

    def place(self, start: int) -> tuple[int, int, int]:
        """Where a token comes from: file, line of its document, tokens of the document before it."""
        number = int(np.searchsorted(self.stream.starts, start, side="right")) - 1
        file, line = self.stream.where[number]
        return int(file), int(line), start - int(self.stream.starts[number])


class RowPacker(Packer):
    """Cuts a stream so that each document begins a row of its own."""

    def __init__(self, stream: Stream, window: int, long: Long, **options: Any) -> None:
        self.long = long
        #: Documents that have no next token to predict, and those that were longer than a row.
        self.short = 0
        self.longer = 0
        super().__init__(stream, window, **options)

    def _measure(self) -> None:
        begins = np.asarray(self.stream.starts)
        sizes = np.diff(begins, append=len(self.stream.tokens))
        documents = np.arange(len(begins))
        keep = sizes > 1
        self.short = int((~keep).sum())
        over = sizes > self.window + 1
        if self.stream.targets is not None:
            over |= np.diff(self.stream.targets.starts) > self.window
        self.longer = int(over.sum())
        #: Documents whose prompt alone fills a row, so that nothing of them is learnt.
        self.filled = 0
        if self.stream.prompts is not None and self.long == "truncate":
            self.filled = int((np.asarray(self.stream.prompts) > self.window).sum())
        if self.long == "skip":
            keep &= ~over
        begins, sizes, documents = begins[keep], sizes[keep], documents[keep]
        if self.long == "split":
            counts = -(-(sizes - 1) // self.window)
            document = np.repeat(np.arange(len(begins)), counts)
            passed = (np.arange(len(document)) - np.repeat(counts.cumsum() - counts, counts)) * self.window
            begins, sizes = begins[document] + passed, sizes[document] - passed
            documents = documents[document]
        self._starts = begins
        #: The document of each row.
        self.documents = documents
        self._lengths = np.minimum(sizes, self.window + 1)
        self.samples = len(begins)
        self.tokens = int((self._lengths - 1).sum())

    def left_out(self) -> dict[str, int]:
        """What of the documents is in no row, by its name in the report."""
        done = {"split": None, "truncate": "truncated", "skip": "skipped"}[self.long]
        longer = {f"documents longer than the window, {done}": self.longer} if done else {}
        filled = {"documents whose prompt fills the window": self.filled}
        return {"documents of one token": self.short, **longer, **(filled if self.filled else {})}

    @property
    def labels(self) -> Ids | None:
        """See Packer."""
        labels = self.stream.labels
        return None if labels is None else labels[self.documents]

    @property
    def weights(self) -> Ids | None:
        """See Packer."""
        weights = self.stream.weights
        return None if weights is None else weights[self.documents]

    @property
    def lengths(self) -> Ids:
        """See Packer."""
        return self._lengths - 1

    def first(self, document: int) -> int:
        """See Packer."""
        return int(np.searchsorted(self.documents, document))

    def rows(self, ids: Ids, measured: bool = False) -> Rows:
        """The rows with these numbers."""
        return Rows(self, self._starts[ids], self._lengths[ids], measured, self.documents[ids])
