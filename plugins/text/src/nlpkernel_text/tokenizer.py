"""The tokenizer components `bytes`, `characters` and `bpe`. Light: see `encoders` for what they make."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

import attrs

from nlpkernel import component, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.everywhere import Facts
    from nlpkernel.hookspecs.tokenizer import Tokenizer


@component
class Bytes:
    """The bytes of UTF-8 as tokens, and one that ends a document: 257 entries, nothing to train, no text unknown."""

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """256 bytes and the end."""
        return attrs.evolve(facts, vocabulary=257)

    @hookimpl
    def create_tokenizer(self, run: Run, texts: Callable[[], Iterable[str]]) -> Tokenizer:
        """Nothing is trained."""
        from nlpkernel_text.encoders import ByteTokenizer

        return ByteTokenizer()

    @hookimpl
    def load_tokenizer(self, run: Run, saved: bytes) -> Tokenizer:
        """Nothing is kept but the kind."""
        from nlpkernel_text.encoders import ByteTokenizer

        return ByteTokenizer.load(saved)


@component
class Characters:
    """Characters as tokens: those of the training split, in the order of their code points."""

    unknown: Literal["error", "replace"] = setting(
        default="error", help="a character that the training split does not hold: an error, or read as U+FFFD"
    )
    end: bool = setting(default=False, help="a token that ends each document")

    @hookimpl
    def create_tokenizer(self, run: Run, texts: Callable[[], Iterable[str]]) -> Tokenizer:
        """Collect the characters of the training split."""
        from nlpkernel_text.encoders import CharacterTokenizer

        return CharacterTokenizer.train(texts(), replace=self.unknown == "replace", end=self.end)

    @hookimpl
    def load_tokenizer(self, run: Run, saved: bytes) -> Tokenizer:
        """The characters that were collected."""
        from nlpkernel_text.encoders import CharacterTokenizer

        return CharacterTokenizer.load(saved)


@component
class Bpe:
    """Byte-level byte-pair encoding (Sennrich et al., 2016; Radford et al., 2019), trained on the training split."""

    vocabulary: int = setting(
        default=4096,
        ge=257,
        unit="count",
        help="entries, with the 256 bytes and the end; little text may give fewer",
    )
    min_frequency: int = setting(default=2, ge=1, help="how often a pair must occur to become an entry")
    sample: int = setting(
        default=100_000_000,
        ge=1,
        unit="count",
        help="characters to train on; of a longer text, whole documents (pieces of long ones) from all over",
    )
    end: str = setting(default="<|end|>", min_length=1, help="name of the token that ends a document")

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """What the plan asks for."""
        return attrs.evolve(facts, vocabulary=self.vocabulary)

    @hookimpl
    def create_tokenizer(self, run: Run, texts: Callable[[], Iterable[str]]) -> Tokenizer:
        """Train; the same text gives the same tokenizer."""
        from nlpkernel_text.bpe import train

        return train(self, run, texts)

    @hookimpl
    def load_tokenizer(self, run: Run, saved: bytes) -> Tokenizer:
        """From a file of the tokenizers library."""
        from nlpkernel_text.bpe import BpeTokenizer

        return BpeTokenizer.load(saved, self.end)
