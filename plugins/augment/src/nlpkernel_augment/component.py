"""The augmentations as the plan sees them. Light: what does the work is imported when one is made.

Each has `strength`, the probability that a word is picked, for each word on its own; of back-translation, that a text
is. A word is letters and digits with the apostrophes and hyphens between them; what stands between words stays as it
is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nlpkernel import component, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.augmentation import Augmentation

Part = Literal["noun", "verb", "adjective", "adverb"]


def _strength(what: str) -> Any:
    return setting(default=0.1, ge=0, le=1, help=f"probability for each word that {what}; 0 changes nothing")


_WORDNET = "folder `dict` of WordNet 3.x"


@component
class Synonyms:
    """Words replaced by synonyms of WordNet (Miller, 1995), in the same capitals.

    A picked word that WordNet does not hold as it is written (inflected forms, names), or without a synonym, stays.
    """

    path: Path = setting(help=_WORDNET)
    strength: float = _strength("it is picked")
    senses: int = setting(
        default=1,
        ge=1,
        help="how many of a word's senses count, the most frequent first, in each part of speech",
    )
    parts: tuple[Part, ...] = setting(
        default=("noun", "verb", "adjective", "adverb"), min_length=1, help="parts of speech that count"
    )
    phrases: bool = setting(default=False, help="whether several words may stand for one (`hot dog`)")
    keep: tuple[str, ...] = setting(
        default=(), help="words that stay, beside English function words, which always do"
    )

    def files_read(self) -> Sequence[Path]:
        """What is read of the folder."""
        return wordnet_files(self.path)

    @hookimpl
    def create_augmentation(self) -> Augmentation:
        """Make it. Raises DataError where WordNet is not there."""
        from nlpkernel_augment.changing import Replacing
        from nlpkernel_augment.wordnet import read_synonyms

        found = read_synonyms(self.path, self.parts, self.senses, self.phrases)
        return Replacing(self.strength, found, frozenset(map(str.lower, self.keep)))


@component
class Insert:
    """Words inserted: behind each picked word another one (random insertion: Wei and Zou, 2019)."""

    strength: float = _strength("another one is put behind it")
    source: Literal["text", "synonyms"] = setting(
        default="text",
        help="text: any word of the same text; synonyms: one of any word of the text that has some",
    )
    path: Path | None = setting(default=None, help=f"{_WORDNET}, for the source `synonyms`")
    senses: int = setting(default=1, ge=1, help="for the source `synonyms`: how many senses of a word count")

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Settings that do not go together."""
        if (self.source == "synonyms") != (self.path is not None):
            yield "path", '`path` is needed with `source = "synonyms"`, and with nothing else'

    def files_read(self) -> Sequence[Path]:
        """What is read of the folder."""
        return () if self.path is None else wordnet_files(self.path)

    @hookimpl
    def create_augmentation(self) -> Augmentation:
        """Make it. Raises DataError where WordNet is not there."""
        from nlpkernel_augment.changing import Inserting
        from nlpkernel_augment.wordnet import PARTS, read_synonyms

        found = None if self.path is None else read_synonyms(self.path, PARTS, self.senses, phrases=False)
        return Inserting(self.strength, found)


@component
class Delete:
    """Words left out (random deletion: Wei and Zou, 2019). One word is always left."""

    strength: float = _strength("it is left out, with the white space before it")

    @hookimpl
    def create_augmentation(self) -> Augmentation:
        """Make it."""
        from nlpkernel_augment.changing import Deleting

        return Deleting(self.strength)


@component
class Swap:
    """Words that change places: each picked word with another one of the text (random swap: Wei and Zou, 2019)."""

    strength: float = _strength("it changes places with another one")
    reach: int | None = setting(
        default=None,
        ge=1,
        help="how many words away the other one is at most; left out: anywhere in the text",
    )

    @hookimpl
    def create_augmentation(self) -> Augmentation:
        """Make it."""
        from nlpkernel_augment.changing import Swapping

        return Swapping(self.strength, self.reach)


@component
class Typos:
    """Typing errors: in each picked word one letter is hit beside, left out, doubled, or typed before its neighbour."""

    strength: float = _strength("it gets one typing error")
    keyboard: Literal["qwerty", "qwertz", "azerty"] = setting(
        default="qwerty", help="which letters lie beside each other"
    )
    least: int = setting(default=3, ge=2, help="words of fewer letters stay, even if picked")

    @hookimpl
    def create_augmentation(self) -> Augmentation:
        """Make it."""
        from nlpkernel_augment.typing_errors import Mistyping

        return Mistyping(self.strength, self.keyboard, self.least)


@component
class BackTranslation:
    """Texts translated and translated back, by two trained models of the task `seq2seq`: drawn on the way there
    (Edunov et al., 2018), which gives other wordings, and searched on the way back.

    A text stays where it, or its translation, is longer than a model's window, or where a model writes nothing or no
    end. These are counted. A text without tokens stays too.
    """

    there: Path = setting(help="folder of the run whose newest version translates into another language")
    back: Path = setting(help="folder of the run whose newest version translates back")
    strength: float = setting(
        default=0.5, ge=0, le=1, help="probability for each text that it is translated; 0 changes nothing"
    )
    temperature: float = setting(
        default=0.8,
        gt=0,
        help="what the logits are divided by on the way there: a higher one gives more wordings, and more wrong ones",
    )
    top_k: int | None = setting(
        default=None,
        ge=1,
        help="on the way there, so many of the likeliest tokens are drawn from; left out: all",
    )
    top_p: float = setting(
        default=1.0,
        gt=0,
        le=1,
        help="on the way there, the fewest likeliest tokens are drawn from whose probability is this together",
    )
    beams: int = setting(
        default=1,
        ge=1,
        help="texts that are followed at once on the way back; 1: the likeliest token each time",
    )
    rows: int = setting(
        default=16, ge=2, help="texts that are translated together; blocks are filled up to so many"
    )
    device: str | None = setting(
        default=None, help="where the models compute, such as cpu; left out: where the run does"
    )

    def files_read(self) -> Sequence[Path]:
        """What tells one model from another: the plan of each run, and the list of its newest version, as the store
        `store` keeps it."""
        found: list[Path] = []
        for folder in (self.there, self.back):
            lists = sorted((folder / "versions" / "manifests").glob("*"))
            found += [path for path in (folder / "plan.toml", *lists[-1:]) if path.is_file()]
        return found

    @hookimpl
    def create_augmentation(self, run: Run) -> Augmentation:
        """Open both models. Raise DataError where one cannot be opened, or does not translate."""
        from nlpkernel_augment.translating import BackTranslating, open_translator

        drawn = {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p}
        device = self.device or ("auto" if run.device is None else str(run.device))

        def count(what: str, number: int) -> None:
            # Work that takes long is no standstill.
            run.pulse.moves += 1
            run.count("augmentation 'back-translation'", what, number)

        there, back = (
            open_translator(name, folder, self.rows, device, count)
            for name, folder in (("there", self.there), ("back", self.back))
        )
        return BackTranslating(self.strength, there, back, drawn, self.beams)


def wordnet_files(folder: Path) -> Sequence[Path]:
    """The files of WordNet that are read, of those that are there."""
    names = [f"{kind}.{part}" for kind in ("data", "index") for part in ("noun", "verb", "adj", "adv")]
    return [folder / name for name in names if (folder / name).is_file()]
