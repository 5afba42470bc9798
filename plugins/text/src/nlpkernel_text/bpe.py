"""Byte-level BPE through the `tokenizers` library."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from nlpkernel.errors import DataError, fail
from nlpkernel_text.encoders import Flat, Ids, split

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel_text.tokenizer import Bpe


class BpeTokenizer:
    """A byte-level BPE tokenizer of the `tokenizers` library. The name of the end token, where it stands in a
    text, is encoded as the text it is: no document can hold an end."""

    pad: int | None = None

    def __init__(self, tokenizer: Tokenizer, end: str) -> None:
        tokenizer.encode_special_tokens = True
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self.vocabulary: int = tokenizer.get_vocab_size(with_added_tokens=True)
        self.end: int | None = tokenizer.token_to_id(end)
        #: Bytes of text that each id stands for: a byte is one character of the library's alphabet.
        self.byte_lengths = np.zeros(self.vocabulary, dtype=np.int64)
        special = tokenizer.get_added_tokens_decoder()
        for token, number in tokenizer.get_vocab(with_added_tokens=True).items():
            self.byte_lengths[number] = 0 if number in special else len(token)

    def encode(self, text: str) -> list[int]:
        """Ids of one text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of many texts, on all cores; uint32."""
        return split(*self.encode_flat(texts))

    def encode_flat(self, texts: Sequence[str]) -> Flat:
        """Ids of many texts one after the other, and how many each has."""
        # The fast variant keeps no offsets, which nothing here reads.
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        # Lists become arrays three times as fast by way of `array` as by numpy.
        ids = array("I")
        sizes = []
        for encoding in encodings:
            found = encoding.ids
            ids.fromlist(found)
            sizes.append(len(found))
        return np.frombuffer(ids, dtype=np.uint32), np.array(sizes, dtype=np.int64)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; bytes that are no text come out as U+FFFD, the end as nothing."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def save(self) -> bytes:
        """The library's own file (tokenizer.json)."""
        text: str = self._tokenizer.to_str(pretty=False)
        return text.encode()

    @classmethod
    def load(cls, saved: bytes, end: str) -> BpeTokenizer:
        """Take up what `save` gave. Raises DataError where it is no file of the library, or has no `end`."""
        try:
            tokenizer = Tokenizer.from_str(saved.decode("utf-8"))
        except Exception as error:
            message = f"the saved tokenizer is no file of the tokenizers library ({error})"
            raise fail(DataError, "TXT012", message) from error
        if tokenizer.token_to_id(end) is None:
            raise fail(DataError, "TXT012", f"the saved tokenizer has no token {end!r}")
        return cls(tokenizer, end)


def train(settings: Bpe, run: Run, texts: Callable[[], Iterable[str]]) -> BpeTokenizer:
    """Train on a sample of the texts. The same texts give the same tokenizer, on any number of cores."""
    total = sum(map(len, texts()))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocabulary,
        min_frequency=settings.min_frequency,
        special_tokens=[settings.end],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    with run.working("training the tokenizer", min(total, settings.sample), "characters") as task:

        def watched() -> Iterator[str]:
            for text in sample(texts(), total, settings.sample):
                yield text
                task.advance(len(text))

        tokenizer.train_from_iterator(watched(), trainer)
    made = BpeTokenizer(tokenizer, settings.end)
    if made.vocabulary < settings.vocabulary:
        run.notice(
            "tokenizer bpe",
            f"the text gives {made.vocabulary} entries, fewer than the {settings.vocabulary} of the plan "
            f"(pairs that occur {settings.min_frequency} times or more)",
        )
    return made


def sample(texts: Iterable[str], total: int, wanted: int) -> Iterator[str]:
    """About `wanted` characters of texts that have `total`, as whole texts spread evenly; all where they fit."""
    due = taken = 0
    for text in texts:
        due += len(text)
        # Take the next text whenever the share taken has fallen behind the share passed.
        if due * wanted > taken * total and taken < wanted:
            part = text[: wanted - taken]
            taken += len(part)
            yield part
