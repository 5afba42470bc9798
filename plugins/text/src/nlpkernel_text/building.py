"""What a plan's documents are made into: cleaned ones, and tokens; each from the cache where it is there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nlpkernel_text.cache import Cache, Entry, content_key, derived_key, described, owned, releases
from nlpkernel_text.cleaning import kept
from nlpkernel_text.cleaning.batches import batches
from nlpkernel_text.cleaning.running import Cleaning
from nlpkernel_text.corpus import Corpus, changed, found
from nlpkernel_text.images.stored import Stored, content_of, decode
from nlpkernel_text.labels import Labels
from nlpkernel_text.reading.faults import Faults
from nlpkernel_text.tokenizing import write_streams

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.tokenizer import Tokenizer
    from nlpkernel_text.component import Text

#: File of the tokenizer in an entry of the cache.
TOKENIZER = "tokenizer"

_Build = Callable[[Path], dict[str, Any]]


class Known(NamedTuple):
    """What a trained model knows, and is told its data by: its tokenizer and its labels. words: it tells something of
    each word, so that texts are taken as words."""

    tokenizer: Tokenizer
    labels: Sequence[str]
    words: bool = False

    def described(self) -> Any:
        """As plain data, for a key."""
        return [hashlib.sha256(self.tokenizer.save()).hexdigest(), list(self.labels)]


class Building:
    """The documents of a plan, and what is made of them. known: where a model has been trained already, what it knows.
    Raise DataError for all that is wrong with the data."""

    def __init__(self, text: Text, run: Run, known: Known | None = None) -> None:
        self.text, self.run, self._known = text, run, known
        self.corpus = corpus = Corpus(text, run, words=known is not None and known.words)
        self._cache = Cache(run, text.cache.limit)
        self._stamps = [each.file.stamp() for each in corpus.files]
        with run.working("reading", self._bytes(), "bytes") as work:
            self.raw_key = content_key(corpus, lambda file: file.digest(work.advance))
        self.clean_key = self.raw_key
        if text.images is not None:
            self._seen = content_of(corpus)
            self.clean_key = self.images_key = derived_key(
                self.raw_key,
                images=described(text.images),
                content=self._seen[0],
                libraries=releases(["pillow"]),
            )
        if text.stages:
            stages = [owned(run, each) for each in text.stages]
            self.clean_key = derived_key(self.clean_key, stages=stages)
        self.tokens_key = derived_key(
            self.clean_key,
            split=text.split,
            share=text.share,
            tokenizer=owned(run, text.tokenizer),
            texts=bool(text.augment),
            known=None if known is None else known.described(),
        )

    @property
    def folders(self) -> Mapping[str, Path]:
        """Where the cache has, or would have, what is made: "images" (of a plan with images), "documents" (of one with
        stages) and "tokens"."""
        images = {"images": self._cache.folder(self.images_key)} if self.text.images is not None else {}
        documents = {"documents": self._cache.folder(self.clean_key)} if self.text.stages else {}
        return {**images, **documents, "tokens": self._cache.folder(self.tokens_key)}

    @cached_property
    def images(self) -> Entry | None:
        """The decoded images; None where the plan has none."""
        if self.text.images is None:
            return None
        entry = self._cache.get(self.images_key, self._unchanged(self._decode))
        self.corpus.images = Stored.open(entry)
        return entry

    def cleaned(self) -> Entry | None:
        """The documents after the stages; None where the plan has none."""
        if not self.text.stages:
            return None
        self._look()
        return self._cache.get(self.clean_key, self._unchanged(self._clean))

    def documents(self) -> Corpus:
        """The corpus with its documents found, after the stages where there are any."""
        self._look()
        cleaned = self.cleaned()
        if cleaned is None:
            self._measure(Faults(self.text.on_error == "skip"))
        else:
            self._take(cleaned)
        return self.corpus

    def tokens(self) -> tuple[Entry, Entry | None]:
        """The tokens, and the cleaned documents that they are made of, where there are any."""
        self._look()
        cleaned = self.cleaned()
        if cleaned is not None:
            self._take(cleaned)
        return self._cache.get(self.tokens_key, self._unchanged(self._tokenize)), cleaned

    def forget(self) -> int:
        """Remove all of it from the cache; the bytes that it had."""
        return sum(map(self._cache.remove, self.folders.values()))

    def _look(self) -> None:
        """Decode the images, if that is not done: documents have the numbers of theirs from then on."""
        _ = self.images

    def _decode(self, folder: Path) -> dict[str, Any]:
        assert self.text.images is not None
        with self.run.working("decoding images", self._bytes() + self._seen[1], "bytes") as work:
            facts = decode(self.corpus, self.text.images, folder, work)
        for listed, before, after in zip(
            self.corpus.files, self._seen[0], content_of(self.corpus)[0], strict=True
        ):
            if before != after:
                raise changed(f"an image of {listed.shown}")
        return facts

    def _take(self, cleaned: Entry) -> None:
        documents = kept.Kept(cleaned.folder / kept.NAME, cleaned.facts["documents"])
        self.corpus.cleaned(documents, _why_empty(cleaned.facts))

    def _measure(self, faults: Faults) -> None:
        with self.run.working("checking", self._bytes(), "bytes") as work:
            self.corpus.measure(faults, work)

    def _clean(self, folder: Path) -> dict[str, Any]:
        corpus, text, faults = self.corpus, self.text, Faults(self.text.on_error == "skip")
        shown = [each.shown for each in corpus.files]

        def own(name: str) -> Path:
            path = folder / "stages" / name
            path.mkdir(parents=True)
            return path

        cleaning = Cleaning(self.run, text.stages, shown, text.workers)
        try:
            with self.run.working("cleaning", self._bytes(), "bytes") as work:
                documents = kept.write(
                    folder / kept.NAME, cleaning.clean(batches(corpus.raw(faults, work.advance)))
                )
            said = cleaning.finish(own)
        finally:
            cleaning.close()
        return {
            "documents": documents,
            "stages": [tally.plain() for tally in cleaning.tallies],
            "said": said,
            **_told(faults),
        }

    def _tokenize(self, folder: Path) -> dict[str, Any]:
        corpus, run, faults = self.corpus, self.run, Faults(self.text.on_error == "skip")
        if not self.text.stages:
            self._measure(faults)
        known, maker = self._known, self.text.tokenizer
        tokenizer: Tokenizer = (
            known.tokenizer if known else run.ask(maker, "create_tokenizer", texts=corpus.texts)
        )
        labels = Labels(known.labels if known else None)
        (folder / TOKENIZER).write_bytes(tokenizer.save())
        with run.working("tokenizing", corpus.size.characters, "characters") as work:
            written = write_streams(corpus, tokenizer, labels, folder, work, texts=bool(self.text.augment))
        return {
            "type": written.type,
            "labels": list(written.labels),
            "documents": corpus.size.documents,
            "characters": corpus.size.characters,
            **_told(faults),
        }

    def _unchanged(self, build: _Build) -> _Build:
        def checked(folder: Path) -> dict[str, Any]:
            facts = build(folder)
            for each, before in zip(self.corpus.files, self._stamps, strict=True):
                if each.file.stamp() != before:
                    raise changed(each.shown)
            return facts

        return checked

    def _bytes(self) -> int:
        return sum(each.file.size() for each in self.corpus.files)


def _told(faults: Faults) -> dict[str, Any]:
    return {"counts": dict(faults.counts), "first": faults.first, "hint": found(faults)}


def _why_empty(facts: Mapping[str, Any]) -> str | None:
    """Why no document is left after the stages."""
    why = [facts["hint"]] if facts["hint"] else []
    for plain in facts["stages"]:
        why += [f"{plain['name']} dropped {number}: {reason}" for reason, number in plain["dropped"].items()]
    return "; ".join(why) or None
