"""Tiny components of text: data that opens the extension points of text, a tokenizer, a task and a model for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from nlpkernel import component, extension, hookimpl, setting
from nlpkernel.hookspecs.everywhere import Facts

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.data import Codec, Data, DataInfo
    from nlpkernel.hookspecs.model import Model
    from nlpkernel.hookspecs.task import Task
    from nlpkernel.hookspecs.tokenizer import Tokenizer


@component
class TinyText:
    """Made-up sentences of two classes, or the records of one file, through every extension point that text has."""

    documents: int = setting(default=24, ge=2, help="documents of the training split, where they are made up")
    validation: int = setting(default=6, ge=0, help="documents of the validation split, the last ones")
    window: int = setting(default=16, ge=2, help="tokens of a row; longer documents are cut")
    path: Path | None = setting(default=None, help="a file that `format` reads instead")
    columns: tuple[str, ...] = setting(
        default=("text",), min_length=1, help="columns that are asked of `format`"
    )
    format: object = extension("reader", default=None, help="reads `path`; its first column is the text")
    stages: list[object] = extension("stage", many=True, help="what is done to documents, in order")
    augment: list[object] = extension("augmentation", many=True, help="other wordings of a text, in order")
    sampler: object = extension("sampler", default=None, help="which samples a step sees; left out: shuffled")
    tokenizer: object = extension("tokenizer", default="tiny", help="text to ids")
    task: object = extension("task", default="tiny", help="what is learnt")

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """A file needs somebody who reads it."""
        if (self.path is None) != (self.format is None):
            yield "format", "`path` and `format` go together"

    @hookimpl
    def open_data(self, run: Run) -> Data:
        """Make the documents, and all of them ready for the tokenizer."""
        from nlpkernel_sdk.wording import WordData

        return WordData(self, run)

    @hookimpl
    def open_codec(self, run: Run, artifacts: Mapping[str, bytes]) -> Codec:
        """The tokenizer and the task, as they were."""
        from nlpkernel_sdk.wording import load_codec

        return load_codec(self, run, artifacts)

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """The window is the widest row."""
        return attrs.evolve(facts, window=self.window)


@component
class TinyTokenizer:
    """The bytes of UTF-8, and one id that ends a document."""

    @hookimpl
    def create_tokenizer(self, run: Run, texts: Callable[[], Iterable[str]]) -> Tokenizer:
        """Nothing is trained."""
        from nlpkernel_sdk.wording import ByteTokenizer

        return ByteTokenizer()

    @hookimpl
    def load_tokenizer(self, run: Run, saved: bytes) -> Tokenizer:
        """Nothing is kept."""
        from nlpkernel_sdk.wording import ByteTokenizer

        return ByteTokenizer()

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """Bytes and the end."""
        return attrs.evolve(facts, vocabulary=257)


@component
class TinyTask:
    """The next token of each."""

    @hookimpl
    def create_task(
        self, run: Run, vocabulary: int, labels: Sequence[str], counts: Sequence[int], tokenizer: Tokenizer
    ) -> Task:
        """Nothing to set up."""
        from nlpkernel_sdk.wording import NextToken

        return NextToken()


@component
class TinyTextModel:
    """An embedding, a layer, and a head of the size that the task needs: of classes, or of the vocabulary."""

    width: int = setting(default=8, ge=1, help="width of the embedding and of the layer")
    transform: list[object] = extension("transform", many=True, help="changes to the structure, in order")

    @hookimpl
    def create_model(self, info: DataInfo) -> Model:
        """Build the layers."""
        from nlpkernel_sdk.wording import build

        return build(self.width, info)
