"""Rows of tokens from a stream: where each begins, and many of them at once as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nlpkernel.sampling import mix
from nlpkernel_text.streams import Stream
from nlpkernel_text.tokenizers.encoders import Ids

#: What becomes of a document that is longer than a row: several rows, its first row, or nothing.
Long = Literal["split", "truncate", "skip"]


class Rows(Sequence[Mapping[str, Any]]):
    """Some rows of a split, as a task gets them: a sequence of mappings, with arrays of all rows beside it.

    A row is `window` tokens and the one that follows them, so that each token has a next one; a row at the end of a
    stream or document may be shorter, and a row of no tokens is padding. As a mapping it has "tokens", without
    padding; "key", a number for what a task draws; where documents are isolated, "documents": the number of each
    token's document, from 0; where each row is of one document that has a class, "label": its number. Nothing is
    gathered before it is asked for.
    """

    __slots__ = ("_block", "_documents", "drawn", "lengths", "measured", "of", "packer", "starts")

    def __init__(
        self,
        packer: Packer,
        starts: Ids,
        lengths: Ids | None,
        measured: bool = False,
        of: Ids | None = None,
        block: Ids | None = None,
    ) -> None:
        self.packer = packer
        self.starts = starts
        #: Tokens of each row, the next one counted; None where all rows are full.
        self.lengths = lengths
        #: Whether the task should count the bytes of text that the labels stand for.
        self.measured = measured and packer.byte_lengths is not None
        #: The document that each row is of, where it is of one; -1 for padding.
        self.of = of
        #: A number for what is drawn for these rows: 0 in an evaluation, another one in each step of a training.
        self.drawn = 0
        self._block = block
        self._documents: Ids | None = None

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def isolated(self) -> bool:
        """Whether documents must not see each other."""
        return self.packer.isolated

    @property
    def real(self) -> int:
        """Rows that are not padding."""
        return len(self.starts) if self.lengths is None else int((self.lengths > 0).sum())

    @property
    def used(self) -> int:
        """Tokens that have a next one in their row."""
        if self.lengths is None:
            return len(self.starts) * self.packer.window
        return int(np.maximum(self.lengths - 1, 0).sum())

    @property
    def counted(self) -> int:
        """Tokens that are predicted: those that follow another of their document."""
        if not self.isolated:
            return self.used
        ends = self.starts + (self.packer.window + 1 if self.lengths is None else np.maximum(self.lengths, 1))
        begun = self.packer.stream.starts
        seams = np.searchsorted(begun, ends) - np.searchsorted(begun, self.starts + 1)
        return self.used - int(seams.sum())

    @property
    def tokens(self) -> Ids:
        """All rows, [rows, width], of the stream's type; what is past a row's end is padding."""
        if self._block is None:
            self._block = self.packer.gather(self.starts, self.lengths)
        return self._block

    @property
    def documents(self) -> Ids:
        """The document of each token of `tokens`, from 0 in each row; padding has one of its own. int64."""
        if self._documents is None:
            self._documents = self.packer.seams(self.starts, self.lengths, self.tokens.shape[1]).cumsum(
                axis=1
            )
        return self._documents

    @property
    def classes(self) -> Ids | None:
        """The number of each row's class, int64 [rows], -1 for padding; None where rows have none."""
        labels = self.packer.stream.labels
        if labels is None or self.of is None:
            return None
        found: Ids = np.where(self.of < 0, -1, labels[np.maximum(self.of, 0)]).astype(np.int64)
        return found

    @property
    def keys(self) -> Ids:
        """A number for what a task draws for each row, uint64 [rows]."""
        found: Ids = mix(mix(self.starts.astype(np.uint64)) ^ np.uint64(self.drawn))
        return found

    @property
    def padding(self) -> Ids | None:
        """Where `tokens` is padding; None where nothing is."""
        if self.lengths is None:
            return None
        padding: Ids = np.arange(self.tokens.shape[1]) >= self.lengths[:, None]
        return padding

    def padded(self, more: int, pad: int) -> Ids | None:
        """What was gathered already, with so many rows of padding; None where nothing was."""
        if self._block is None:
            return None
        return np.pad(self._block, ((0, more), (0, 0)), constant_values=pad)

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Mapping[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, Any] | Sequence[Mapping[str, Any]]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        length = self.packer.window + 1 if self.lengths is None else int(self.lengths[index])
        row = {"tokens": self.tokens[index][:length], "key": int(self.keys[index])}
        if self.isolated:
            row["documents"] = self.documents[index][:length]
        if self.classes is not None:
            row["label"] = int(self.classes[index])
        return row

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return (self[number] for number in range(len(self)))


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
        width = self.window + 1 if self.fixed else max(2, int(lengths.max(initial=0)))
        columns = self._columns[:width]
        # What is past the end is read from the last token, and then painted over.
        at = np.minimum(starts[:, None] + columns, max(0, len(self.stream.tokens) - 1))
        block: Ids = self.stream.tokens[at]
        block[columns >= lengths[:, None]] = self.pad
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
        self.longer = int(over.sum())
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
        return {"documents of one token": self.short, **longer}

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
