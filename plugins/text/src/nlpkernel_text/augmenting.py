"""Other wordings of documents, as rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nlpkernel.errors import DataError, fail
from nlpkernel.hookspecs.augmentation import Augmentation
from nlpkernel.sampling import key
from nlpkernel_text.packing import Packer, RowPacker, Rows

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.tokenizer import Tokenizer

Ids = np.ndarray[Any, np.dtype[Any]]

#: Purpose of a key.
_WORDING = 0xA06


class Augmenting:
    """The augmentations of a plan. What becomes of a document is a function of (seed, epoch, document)."""

    def __init__(self, run: Run, components: Sequence[object], packer: Packer, tokenizer: Tokenizer) -> None:
        assert isinstance(packer, RowPacker), "check_settings refuses others"
        self._packer, self._tokenizer, self._seed = packer, tokenizer, run.seed
        self._owners = [run.hooks.owner(each) if run.hooks is not None else "" for each in components]
        self._steps: list[Augmentation] = [run.ask(each, "create_augmentation") for each in components]

    def rows(self, ids: Ids, epoch: int) -> Rows:
        """The rows with these numbers, in the wording that they have in this epoch."""
        packer = self._packer
        documents = packer.documents[ids]
        ids_of = [self._encoded(text) for text in self.texts(documents, epoch)]
        lengths = np.fromiter(map(len, ids_of), dtype=np.int64, count=len(ids_of))
        width = packer.window + 1 if packer.fixed else max(2, int(lengths.max(initial=0)))
        block = np.full((len(ids_of), width), packer.pad, dtype=packer.stream.tokens.dtype)
        for row, tokens in enumerate(ids_of):
            block[row, : len(tokens)] = tokens
        return Rows(packer, packer.stream.starts[documents], lengths, of=documents, block=block)

    def texts(self, documents: Ids, epoch: int) -> Sequence[str]:
        """The wording of documents in an epoch. Raise DataError (TXT034) for an augmentation that leaves nothing."""
        kept = self._packer.stream.texts
        assert kept is not None, "they are kept for plans that augment"
        texts: Sequence[str] = [kept[document] for document in documents.tolist()]
        for number, (step, owner) in enumerate(zip(self._steps, self._owners, strict=True)):
            keys = [key(self._seed, _WORDING, epoch, document, number) for document in documents.tolist()]
            texts = step.apply(texts, np.array(keys, dtype=np.uint64))
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

    def _encoded(self, text: str) -> list[int]:
        ids = self._tokenizer.encode(text)
        if self._tokenizer.end is not None:
            ids.append(self._tokenizer.end)
        return ids[: self._packer.window + 1]
