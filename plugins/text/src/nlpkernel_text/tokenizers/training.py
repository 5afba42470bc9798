"""Training BPE, WordPiece and Unigram through the `tokenizers` library: the same texts give the same bytes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from nlpkernel_text.tokenizers.library import LibraryTokenizer, add_domain, template
from nlpkernel_text.tokenizers.unigram import settled

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel_text.tokenizers.components import Bpe, Unigram, WordPiece

_CONTINUES = "##"


def train_bpe(settings: Bpe, run: Run, texts: Callable[[], Iterable[str]]) -> LibraryTokenizer:
    """Byte-level BPE. The order of the words does not matter to the library's trainer, nor the number of cores."""
    tokenizer = _byte_level(Tokenizer(models.BPE()), settings)
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocabulary - len(settings.special),
        min_frequency=settings.min_frequency,
        special_tokens=[settings.end],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    with _Watched(settings, run, texts) as watched:
        tokenizer.train_from_iterator(watched.parts(), trainer)
    why = f"pairs that occur {settings.min_frequency} times or more"
    return _finished(tokenizer, settings, run, "bpe", why)


def train_wordpiece(settings: WordPiece, run: Run, texts: Callable[[], Iterable[str]]) -> LibraryTokenizer:
    """WordPiece, as the library trains it: pairs by frequency."""
    normalizer, words = _normalizer(settings, bert=True), pre_tokenizers.BertPreTokenizer()
    bpe = Tokenizer(models.BPE(continuing_subword_prefix=_CONTINUES))
    bpe.normalizer, bpe.pre_tokenizer = normalizer, words
    with _Watched(settings, run, texts) as watched:
        counts: Counter[str] = Counter()
        for part in watched.parts():
            counts.update(normalizer.normalize_str(part))
    room = settings.vocabulary - len(settings.special) - 2
    kept, entries = _characters(counts, normalizer, words, room // 2)
    # Given from the start, in an order of their own: the library would number them as its hash table has them.
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocabulary - len(settings.special),
        min_frequency=settings.min_frequency,
        special_tokens=[settings.end, settings.unknown, *entries],
        initial_alphabet=kept,
        limit_alphabet=len(kept),
        continuing_subword_prefix=_CONTINUES,
        show_progress=False,
    )
    with _Watched(settings, run, texts) as watched:
        bpe.train_from_iterator(watched.parts(), trainer)
    model = models.WordPiece(
        vocab=bpe.get_vocab(),
        unk_token=settings.unknown,
        max_input_chars_per_word=100,
        continuing_subword_prefix=_CONTINUES,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, words
    tokenizer.decoder = decoders.WordPiece(prefix=_CONTINUES)
    tokenizer.add_special_tokens([settings.end, settings.unknown])
    why = f"pairs that occur {settings.min_frequency} times or more"
    return _finished(tokenizer, settings, run, "wordpiece", why)


def train_unigram(settings: Unigram, run: Run, texts: Callable[[], Iterable[str]]) -> LibraryTokenizer:
    """A unigram model of bytes or characters."""
    tokenizer = Tokenizer(models.Unigram())
    named: dict[str, Any]
    if settings.level == "bytes":
        _byte_level(tokenizer, settings)
        # The longest piece, in bytes: the library's 16 are half as many characters in most scripts.
        named = {"initial_alphabet": sorted(pre_tokenizers.ByteLevel.alphabet()), "max_piece_length": 32}
    else:
        normalizer = _normalizer(settings)
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        # Lines' ends and tabs stand alone: otherwise words on both sides of one are one word.
        lines = pre_tokenizers.Split(Regex(r"\r?\n|\t"), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [lines, pre_tokenizers.Metaspace(prepend_scheme="never")]
        )
        tokenizer.decoder = decoders.Metaspace(prepend_scheme="never")
        named = {"special_tokens": [settings.unknown], "unk_token": settings.unknown}
    # The end is added afterwards: the model would find its name in a text, were it one of its pieces.
    trainer = trainers.UnigramTrainer(
        vocab_size=settings.vocabulary - len(settings.special) - 1, show_progress=False, **named
    )
    with _Watched(settings, run, texts) as watched:
        tokenizer.train_from_iterator(watched.parts(), trainer)
    values = json.loads(tokenizer.to_str())
    unknown = settings.unknown if settings.level == "characters" else None
    values["model"] = settled(values["model"], unknown)
    values["added_tokens"] = []
    tokenizer = Tokenizer.from_str(json.dumps(values))
    tokenizer.add_special_tokens([settings.end] if unknown is None else [unknown, settings.end])
    return _finished(tokenizer, settings, run, "unigram", "the pieces that its words are made of")


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


class _Watched:
    """One pass over the sample, without the special tokens in it, told as progress."""

    def __init__(
        self, settings: Bpe | WordPiece | Unigram, run: Run, texts: Callable[[], Iterable[str]]
    ) -> None:
        self._settings, self._texts = settings, texts
        self._total = sum(map(len, texts()))
        self._working = run.working("training the tokenizer", min(self._total, settings.sample), "characters")

    def __enter__(self) -> _Watched:
        self._task = self._working.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._working.__exit__(*error)

    def parts(self) -> Iterator[str]:
        """The texts, cut where special tokens stand, of which nothing is learnt."""
        special = sorted(self._settings.special, key=len, reverse=True)
        cut = re.compile("|".join(map(re.escape, special))) if special else None
        for text in sample(self._texts(), self._total, self._settings.sample):
            if cut is None:
                yield text
            else:
                yield from filter(None, cut.split(text))
            self._task.advance(len(text))


def _byte_level(tokenizer: Tokenizer, settings: Bpe | Unigram) -> Tokenizer:
    normalizer = _normalizer(settings)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _normalizer(settings: Bpe | WordPiece | Unigram, *, bert: bool = False) -> Any:
    steps: list[Any] = []
    if settings.unicode != "none":
        steps.append({"nfc": normalizers.NFC, "nfkc": normalizers.NFKC}[settings.unicode]())
    if bert:
        steps.append(normalizers.BertNormalizer(strip_accents=False, lowercase=settings.lowercase))
    elif settings.lowercase:
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence(steps) if steps else None


def _characters(
    counts: Counter[str], normalizer: Any, words: Any, room: int
) -> tuple[list[str], Sequence[str]]:
    """The most frequent characters for which there is room, and their entries: at the beginning of a word, and within
    one where they can stand there."""
    kept: list[str] = []
    entries: list[str] = []
    for character, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if character.isspace():
            continue
        within = words.pre_tokenize_str(normalizer.normalize_str("a" + character))
        mine = [character, _CONTINUES + character] if len(within) == 1 else [character]
        if len(entries) + len(mine) > room:
            break
        kept.append(character)
        entries += mine
    return kept, entries


def _finished(
    tokenizer: Tokenizer, settings: Bpe | WordPiece | Unigram, run: Run, name: str, why: str
) -> LibraryTokenizer:
    add_domain(tokenizer, settings.special)
    values = json.loads(tokenizer.to_str())
    values["post_processor"] = template(settings.end, tokenizer.token_to_id(settings.end))
    made = LibraryTokenizer(Tokenizer.from_str(json.dumps(values)), end=settings.end)
    if made.vocabulary < settings.vocabulary:
        run.notice(
            f"tokenizer {name}",
            f"the text gives {made.vocabulary} entries, fewer than the {settings.vocabulary} of the plan ({why})",
        )
    return made
