"""The tokenizer components. Light: what does the work is imported when a tokenizer is made or read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from nlpkernel import component, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.everywhere import Facts
    from nlpkernel.hookspecs.tokenizer import Tokenizer

_SAMPLE = "characters to train on; of a longer text, whole documents (pieces of long ones) from all over"
_SPECIAL = "domain tokens: each has one id and is never split, wherever it stands in a text"
_END = "name of the token that ends a document; in a text, this name is text like any other"
_LOWERCASE = "read all text in lower case, which no decoding gives back"
_UNICODE = "Unicode normalisation of all text before it is tokenized; the text comes back normalised"


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
        from nlpkernel_text.tokenizers.encoders import ByteTokenizer

        return ByteTokenizer()

    @hookimpl
    def load_tokenizer(self, run: Run, saved: bytes) -> Tokenizer:
        """Nothing is kept but the kind."""
        from nlpkernel_text.tokenizers.encoders import ByteTokenizer

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
        from nlpkernel_text.tokenizers.encoders import CharacterTokenizer

        return CharacterTokenizer.train(texts(), replace=self.unknown == "replace", end=self.end)

    @hookimpl
    def load_tokenizer(self, run: Run, saved: bytes) -> Tokenizer:
        """The characters that were collected."""
        from nlpkernel_text.tokenizers.encoders import CharacterTokenizer

        return CharacterTokenizer.load(saved)


@component
class Bpe:
    """Byte-level byte-pair encoding (Sennrich et al., 2016; Radford et al., 2019), trained on the training split."""

    libraries: ClassVar[tuple[str, ...]] = ("tokenizers",)

    vocabulary: int = setting(
        default=4096,
        ge=257,
        unit="count",
        help="entries, with the 256 bytes, the end and the special ones; little text may give fewer",
    )
    min_frequency: int = setting(default=2, ge=1, help="how often a pair must occur to become an entry")
    sample: int = setting(default=100_000_000, ge=1, unit="count", help=_SAMPLE)
    special: tuple[str, ...] = setting(default=(), help=_SPECIAL)
    end: str = setting(default="<|end|>", min_length=1, help=_END)
    lowercase: bool = setting(default=False, help=_LOWERCASE)
    unicode: Literal["none", "nfc", "nfkc"] = setting(default="none", help=_UNICODE)

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Special tokens that cannot be, or for which there is no room."""
        return wrong(self.special, (self.end,), self.vocabulary, 256)

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """What the plan asks for."""
        return attrs.evolve(facts, vocabulary=self.vocabulary)

    @hookimpl
    def create_tokenizer(self, run: Run, texts: Callable[[], Iterable[str]]) -> Tokenizer:
        """Train; the same text gives the same tokenizer."""
        from nlpkernel_text.tokenizers.training import train_bpe

        return train_bpe(self, run, texts)

    @hookimpl
    def load_tokenizer(self, run: Run, saved: bytes) -> Tokenizer:
        """From a file of the tokenizers library."""
        from nlpkernel_text.tokenizers.library import LibraryTokenizer

        return LibraryTokenizer.load(saved, self.end, kind="BPE")


@component
class WordPiece:
    """WordPiece as BERT has it (Devlin et al., 2019), trained on the training split. White space is not kept, and a
    word with a character that is not in the vocabulary is unknown as a whole."""

    libraries: ClassVar[tuple[str, ...]] = ("tokenizers",)

    vocabulary: int = setting(
        default=8192,
        ge=32,
        unit="count",
        help="entries, with the end, the unknown word and the special ones; little text may give fewer. At most half "
        "of them are single characters, the most frequent ones",
    )
    min_frequency: int = setting(default=2, ge=1, help="how often a pair must occur to become an entry")
    sample: int = setting(default=100_000_000, ge=1, unit="count", help=_SAMPLE)
    special: tuple[str, ...] = setting(default=(), help=_SPECIAL)
    end: str = setting(default="<|end|>", min_length=1, help=_END)
    unknown: str = setting(default="[UNK]", min_length=1, help="name of the token for an unknown word")
    lowercase: bool = setting(default=True, help=_LOWERCASE)
    unicode: Literal["none", "nfc", "nfkc"] = setting(default="nfc", help=_UNICODE)

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Special tokens that cannot be, or for which there is no room."""
        return wrong(self.special, (self.end, self.unknown), self.vocabulary, 16)

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """What the plan asks for."""
        return attrs.evolve(facts, vocabulary=self.vocabulary)

    @hookimpl
    def create_tokenizer(self, run: Run, texts: Callable[[], Iterable[str]]) -> Tokenizer:
        """Train; the same text gives the same tokenizer."""
        from nlpkernel_text.tokenizers.training import train_wordpiece

        return train_wordpiece(self, run, texts)

    @hookimpl
    def load_tokenizer(self, run: Run, saved: bytes) -> Tokenizer:
        """From a file of the tokenizers library."""
        from nlpkernel_text.tokenizers.library import LibraryTokenizer

        return LibraryTokenizer.load(saved, self.end, kind="WordPiece")


@component
class Unigram:
    """The unigram language model (Kudo, 2018), trained on the training split: of bytes, so that every text comes back,
    or of characters as SentencePiece has it."""

    libraries: ClassVar[tuple[str, ...]] = ("tokenizers",)

    vocabulary: int = setting(
        default=8192,
        ge=32,
        unit="count",
        help="entries, with the 256 bytes (or the unknown character), the end and the special ones; little text may "
        "give fewer",
    )
    level: Literal["bytes", "characters"] = setting(
        default="bytes",
        help="bytes: every text is known and comes back; characters: those that the training split does not hold are "
        "unknown, and U+2581 comes back as a space",
    )
    sample: int = setting(default=100_000_000, ge=1, unit="count", help=_SAMPLE)
    special: tuple[str, ...] = setting(default=(), help=_SPECIAL)
    end: str = setting(default="<|end|>", min_length=1, help=_END)
    unknown: str = setting(
        default="<unk>",
        min_length=1,
        help='name of the token for unknown characters, with level = "characters"',
    )
    lowercase: bool = setting(default=False, help=_LOWERCASE)
    unicode: Literal["none", "nfc", "nfkc"] = setting(default="none", help=_UNICODE)

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Special tokens that cannot be, or for which there is no room."""
        characters = self.level == "characters"
        named = (self.end, self.unknown) if characters else (self.end,)
        return wrong(self.special, named, self.vocabulary, 16 if characters else 256)

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """What the plan asks for."""
        return attrs.evolve(facts, vocabulary=self.vocabulary)

    @hookimpl
    def create_tokenizer(self, run: Run, texts: Callable[[], Iterable[str]]) -> Tokenizer:
        """Train; the same text gives the same tokenizer."""
        from nlpkernel_text.tokenizers.training import train_unigram

        return train_unigram(self, run, texts)

    @hookimpl
    def load_tokenizer(self, run: Run, saved: bytes) -> Tokenizer:
        """From a file of the tokenizers library."""
        from nlpkernel_text.tokenizers.library import LibraryTokenizer

        return LibraryTokenizer.load(saved, self.end, kind="Unigram")


@component
class Pretrained:
    """A tokenizer that is there already: a `tokenizer.json`, a SentencePiece model, or a Hugging Face folder. A version
    holds the whole tokenizer, and needs the path no more."""

    path: Path = setting(
        help="a tokenizer.json, a SentencePiece model, or a folder with one of them, with vocab.json and merges.txt, "
        "or with vocab.txt; relative to the file that writes it"
    )
    end: str | None = setting(
        default=None,
        help='name of the token that ends a document; left out: the one that the files name; "" for none',
    )
    pad: str | None = setting(
        default=None, help='name of the token for padding; left out: the one that the files name; "" for none'
    )
    special: tuple[str, ...] = setting(
        default=(),
        help="tokens to add where the vocabulary lacks them, which then grows: each has one id and is never split, "
        "wherever it stands in a text; one that is also the end or the padding is not read in texts",
    )

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Special tokens that cannot be."""
        return wrong(self.special, (), None, 0)

    def files_read(self) -> Sequence[Path]:
        """The files that are read: a cache of what they gave depends on their content."""
        from nlpkernel_text.tokenizers.finding import files_of

        return files_of(self.path)

    @hookimpl
    def create_tokenizer(self, run: Run, texts: Callable[[], Iterable[str]]) -> Tokenizer:
        """Read the files; nothing is trained."""
        from nlpkernel_text.tokenizers.finding import open_pretrained

        return open_pretrained(self, run)

    @hookimpl
    def load_tokenizer(self, run: Run, saved: bytes) -> Tokenizer:
        """From the one file that a version holds."""
        from nlpkernel_text.tokenizers.finding import load_saved

        return load_saved(saved)


def wrong(
    special: Sequence[str], named: Sequence[str], vocabulary: int | None, least: int
) -> Iterator[tuple[str, str]]:
    """What is wrong with special tokens, beside those that the tokenizer has of itself (`named`). least: entries that
    it needs for anything else."""
    seen: set[str] = set()
    for token in (*named, *special):
        if token in seen:
            yield "special", f"the token {token!r} is there twice"
        seen.add(token)
    for token in special:
        if not token.strip():
            yield "special", f"a special token has to hold something that can be seen, unlike {token!r}"
        if "\n" in token or "\r" in token:
            # Long documents are tokenized in pieces, which are cut at the ends of lines.
            yield "special", f"a special token cannot go over the end of a line, as {token!r} does"
    needed = least + len(named) + len(special)
    if vocabulary is not None and needed > vocabulary:
        yield (
            "vocabulary",
            f"{needed} entries are needed for what the settings name, and there are {vocabulary}",
        )
