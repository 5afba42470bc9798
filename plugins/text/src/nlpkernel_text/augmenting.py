"""Other wordings of documents, as rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpkernel.errors import DataError, fail
from nlpkernel.hookspecs.augmentation import Augmentation
from nlpkernel.sampling import Part, key
from nlpkernel_text.encoding import encode
from nlpkernel_text.packing import Packer, RowPacker
from nlpkernel_text.rows import Rows

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.tokenizer import Tokenizer

Ids = np.ndarray[Any, np.dtype[Any]]

#: Purpose of a key.
_WORDING = 0xA06


class Augmenting:
    """The augmentations of a plan. What becomes of a document is a function of (seed, step, document)."""

    def __init__(self, run: Run, components: Sequence[object], packer: Packer, tokenizer: Tokenizer) -> None:
        assert isinstance(packer, RowPacker), "check_settings refuses others"
        self._packer, self._tokenizer, self._seed = packer, tokenizer, run.seed
        self._owners = [run.hooks.owner(each) if run.hooks is not None else "" for each in components]
        self._steps: list[Augmentation] = [run.ask(each, "create_augmentation") for each in components]

    def window(self, step: int, parts: Sequence[Part]) -> list[Rows]:
        """The rows of the micro-batches of window `step`."""
        return [self.rows(part.rows, step) for part in parts]

    def rows(self, ids: Ids, step: int) -> Rows:
        """The rows with these numbers, in the wording that they have in this step."""
        packer, end = self._packer, self._tokenizer.end
        documents = packer.documents[ids]
        tokens, sizes = encode(self._tokenizer, self.texts(documents, step))
        lengths = np.minimum(sizes + (end is not None), packer.window + 1)
        width = packer.window + 1 if packer.fixed else max(2, int(lengths.max(initial=0)))
        block = np.full((len(sizes), width), packer.pad, dtype=packer.stream.tokens.dtype)
        begins = (sizes.cumsum() - sizes).tolist()
        for row, (first, size, length) in enumerate(
            zip(begins, sizes.tolist(), lengths.tolist(), strict=True)
        ):
            block[row, : min(size, length)] = tokens[first : first + min(size, length)]
            if end is not None and size < length:
                block[row, size] = end
        return Rows(packer, packer.stream.starts[documents], lengths, of=documents, block=block)

    def texts(self, documents: Ids, step: int) -> Sequence[str]:
        """The wording of documents in a step. Raise DataError (TXT034) for an augmentation that leaves nothing."""
        kept = self._packer.stream.texts
        assert kept is not None, "they are kept for plans that augment"
        texts: Sequence[str] = [kept[document] for document in documents.tolist()]
        for number, (one, owner) in enumerate(zip(self._steps, self._owners, strict=True)):
            keys = [key(self._seed, _WORDING, step, document, number) for document in documents.tolist()]
            texts = one.apply(texts, np.array(keys, dtype=np.uint64))
            if len(texts) != len(documents) or not all(texts):
                raise fail(
                    DataError,
                    "TXT034",
                    f"an augmentation got {len(documents)} texts, and gave {len(texts)}, of which "
                    f"{sum(not text for text in texts)} are empty",
                    owner=owner,
                    hint="it must give a text for each",
                )
        return texts
