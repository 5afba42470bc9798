"""Some rows of a split as a task gets them: many at once, as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from nlpkernel.sampling import mix
from nlpkernel_text.tokenizers.encoders import Ids

if TYPE_CHECKING:
    from nlpkernel_text.packing import Packer


class Rows(Sequence[Mapping[str, Any]]):
    """Some rows of a split, as a task gets them: a sequence of mappings, with arrays of all rows beside it.

    A row is `window` tokens and the one that follows them, so that each token has a next one; a row at the end of a
    stream or document may be shorter, and a row of no tokens is padding. As a mapping it has "tokens", without padding;
    "key", a number for what a task draws; in an evaluation "number", its own; where documents are isolated,
    "documents": the number of each token's document, from 0; where each row is of one document, what that has: "label",
    the number of its class, "labels", those of any number of them, "prompt", how many tokens are of one, "tags", those
    of its tokens, "target", the tokens of its second text, and "image". Nothing is gathered before it is asked for."""

    __slots__ = (
        "_block",
        "_documents",
        "_images",
        "_prompted",
        "_tags",
        "_targets",
        "drawn",
        "lengths",
        "measured",
        "numbers",
        "of",
        "packer",
        "starts",
    )

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
        #: The number of each row in its split, in an evaluation.
        self.numbers: Ids | None = None
        self._block = block
        self._documents: Ids | None = None
        self._tags: Ids | None = None
        self._targets: tuple[Ids, Ids] | None = None
        self._images: Ids | None = None
        self._prompted: Ids | None = None

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
        """Tokens that are predicted: those that follow another of their document, and are not of a prompt."""
        prompted = self.prompted
        if prompted is not None:
            # One that is no other token's next, or is padding, is not predicted in any case.
            counted = ~prompted[:, 1:]
            if (padding := self.padding) is not None:
                counted &= ~padding[:, 1:]
            if self.isolated:
                counted &= self.documents[:, 1:] == self.documents[:, :-1]
            return int(counted.sum())
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
    def prompted(self) -> Ids | None:
        """Whether each token of `tokens` is of a prompt, bool; None where the data has none."""
        prompts = self.packer.stream.prompts
        if prompts is None or self._prompted is not None:
            return self._prompted
        begun = self.packer.stream.starts
        at = self.starts[:, None] + np.arange(self.tokens.shape[1])
        if self.of is None:
            document = np.searchsorted(begun, at, side="right") - 1
        else:
            document = np.maximum(self.of, 0)[:, None]
        self._prompted = at < begun[document] + prompts[document]
        return self._prompted

    @property
    def sets(self) -> tuple[Ids, Ids] | None:
        """The numbers of the rows' labels, one row after another, int64, and how many each row has, int64 [rows]; None
        where the data has none."""
        sets = self.packer.stream.sets
        if sets is None or self.of is None:
            return None
        real = np.maximum(self.of, 0)
        begins = sets.starts[real]
        sizes = np.where(self.of < 0, 0, sets.starts[real + 1] - begins)
        at = np.arange(int(sizes.sum())) + np.repeat(begins - (sizes.cumsum() - sizes), sizes)
        return sets.numbers[at].astype(np.int64), sizes

    @property
    def tags(self) -> Ids | None:
        """The number of each token's tag, int64 like `tokens`, -1 for those without; None where the data has none."""
        tags = self.packer.stream.tags
        if self._tags is None and tags is not None:
            self._tags = self.packer.gathered(tags, self.starts, self.lengths, -1).astype(np.int64)
        return self._tags

    @property
    def targets(self) -> tuple[Ids, Ids] | None:
        """The second text of each row [rows, width], of the stream's type, and how many tokens each has, int64 [rows],
        0 for padding; None where the data has none."""
        targets = self.packer.stream.targets
        if self._targets is None and targets is not None and self.of is not None:
            real = np.maximum(self.of, 0)
            begins = targets.starts[real]
            sizes = np.where(
                self.of < 0, 0, np.minimum(targets.starts[real + 1] - begins, self.packer.window)
            )
            width = self.packer.window if self.packer.fixed else max(1, int(sizes.max(initial=0)))
            columns = np.arange(width)
            block = targets.tokens[np.minimum(begins[:, None] + columns, len(targets.tokens) - 1)]
            block[columns >= sizes[:, None]] = self.packer.pad
            self._targets = block, sizes
        return self._targets

    @property
    def images(self) -> Ids | None:
        """The image of each row, uint8 [rows, 3, size, size], black for padding; None where the data has none."""
        images = self.packer.stream.images
        if self._images is None and images is not None and self.of is not None:
            self._images = images.pixels[images.numbers[np.maximum(self.of, 0)]]
            self._images[self.of < 0] = 0
        return self._images

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
        if self.numbers is not None:
            row["number"] = int(self.numbers[index])
        if self.isolated:
            row["documents"] = self.documents[index][:length]
        if self.classes is not None:
            row["label"] = int(self.classes[index])
        if (prompted := self.prompted) is not None:
            row["prompt"] = int(prompted[index][:length].sum())
        if (sets := self.sets) is not None:
            end = int(sets[1][: index + 1].sum())
            row["labels"] = sets[0][end - int(sets[1][index]) : end]
        if (tags := self.tags) is not None:
            row["tags"] = tags[index][:length]
        if (targets := self.targets) is not None:
            row["target"] = targets[0][index][: targets[1][index]]
        if (images := self.images) is not None:
            row["image"] = images[index]
        return row

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return (self[number] for number in range(len(self)))
