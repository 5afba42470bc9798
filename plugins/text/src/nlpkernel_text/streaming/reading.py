"""An endless sequence of tokenized documents, from any place on."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import attrs
import numpy as np

from nlpkernel.errors import DataError, fail
from nlpkernel_text.cleaning.batches import Batch, batches
from nlpkernel_text.cleaning.running import Cleaning
from nlpkernel_text.corpus import Corpus
from nlpkernel_text.encoding import encode, refused_at
from nlpkernel_text.reading.faults import Faults
from nlpkernel_text.tokenizers.encoders import Flat, Ids

if TYPE_CHECKING:
    from nlpkernel.hookspecs.tokenizer import Tokenizer

#: What is counted, by who counts it and by its name in the report.
Counts = Mapping[tuple[str, str], int]


class Position(NamedTuple):
    """A place in the files: passes over all of them before it, the file, and documents of the file before it."""

    passed: int = 0
    file: int = 0
    document: int = 0


@attrs.frozen(eq=False)
class Encoded:
    """Some documents of one file: their tokens one after the other, with an end after each where there is one, how many
    each has, and its place in the file; where reading them begins; what else is to be counted."""

    tokens: Ids
    sizes: Ids
    places: Ids
    at: Position
    counts: Counts


class Reading:
    """The documents of a corpus, pass after pass, cleaned and tokenized. `owner`: who counts what cannot be read."""

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, cleaning: Cleaning | None, owner: str) -> None:
        self._corpus, self._tokenizer, self._cleaning, self._owner = corpus, tokenizer, cleaning, owner
        self._left_out = Counter[tuple[str, str]]()

    def documents(self, at: Position) -> Iterator[Encoded]:
        """From a place on, without end. Raise DataError (TXT002) where a pass has nothing."""
        #: Of batches that are in the stages: where reading them begins, and what was left out.
        begun: deque[tuple[Position, Counts]] = deque()

        def read() -> Iterator[Batch]:
            for batch, position, counts in self._batches(at):
                begun.append((position, counts))
                yield batch

        cleaned = read() if self._cleaning is None else self._cleaning.clean(read())
        before = Counter() if self._cleaning is None else self._cleaning.counts()
        full = at.passed
        for batch in cleaned:
            position, counts = begun.popleft()
            if self._cleaning is not None:
                now = self._cleaning.counts()
                counts = {**counts, **(now - before)}
                before = now
            self._left_out.update(counts)
            if len(batch):
                full = position.passed
            elif position.passed > full + 1:
                raise self.nothing()
            yield self._encoded(batch, position, counts)

    def _batches(self, at: Position) -> Iterator[tuple[Batch, Position, Counts]]:
        while True:
            found = False
            for number in range(at.file, len(self._corpus.files)):
                faults = Faults(self._corpus.text.on_error == "skip")
                told = Counter[str]()
                document = 0
                for batch in batches((number, chunk) for chunk in self._corpus.raw_file(number, faults)):
                    found = True
                    if document >= at.document:
                        new = {(self._owner, what): count for what, count in (faults.counts - told).items()}
                        yield batch, Position(at.passed, number, document), new
                    told = Counter(faults.counts)
                    document += len(batch)
                at = Position(at.passed, number + 1)
            if not found and at.file == len(self._corpus.files):
                raise self.nothing()
            at = Position(at.passed + 1)

    def _encoded(self, batch: Batch, at: Position, counts: Counts) -> Encoded:
        ids, sizes = self._tokens(batch) if len(batch) else (np.zeros(0, np.int64), np.zeros(0, np.int64))
        end = self._tokenizer.end
        type = np.uint16 if self._tokenizer.vocabulary <= 1 << 16 else np.uint32
        ids = ids.astype(type, copy=False)
        if end is not None and len(sizes):
            ids = np.insert(ids, sizes.cumsum(), end)
            sizes = sizes + 1
        # A document without any token is none.
        full = sizes > 0
        return Encoded(ids, sizes[full], np.asarray(batch.places, dtype=np.int64)[full], at, counts)

    def _tokens(self, batch: Batch) -> Flat:
        try:
            return encode(self._tokenizer, batch.texts)
        except DataError as error:
            shown = self._corpus.files[batch.files[0]].shown
            raise refused_at(self._tokenizer, batch.texts, batch.places, shown) or error from error

    def nothing(self) -> Exception:
        """The error for a pass that gives nothing; its hint says what was left out."""
        why = [f"{number:,} {what} ({source})" for (source, what), number in self._left_out.items() if number]
        hint = f"left out so far: {'; '.join(why)}" if why else None
        return fail(DataError, "TXT002", f"no examples in {self._corpus.described()}", hint=hint)
