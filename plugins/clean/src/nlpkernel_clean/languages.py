"""Documents chosen by their language."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from py3langid.langid import MODEL_FILE, LanguageIdentifier  # type: ignore[import-untyped]

from nlpkernel.errors import DataError, fail
from nlpkernel.hookspecs.stage import Documents, Outcome
from nlpkernel_clean.outcome import Work

if TYPE_CHECKING:
    from nlpkernel_clean.components.language import Language

_LETTER = re.compile(r"[^\W\d_]")


class Languages:
    """The stage: documents of other languages go."""

    ordered = False

    def __init__(self, settings: Language) -> None:
        self.settings = settings
        self._kept = frozenset(settings.languages)
        # A model of its own: the library's shared one could be restricted by others in this process.
        self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        known = set(self._identifier.labels)
        for code in (*settings.languages, *settings.among):
            if code not in known:
                close = get_close_matches(code.lower()[:2], known, 1, 0.6)
                raise fail(
                    DataError,
                    "CLN003",
                    f"py3langid knows no language {code!r}",
                    owner="language of nlpkernel-plugin-clean",
                    hint=(f"did you mean {close[0]!r}? " if close else "")
                    + f"it knows {', '.join(sorted(known))}",
                )
        if settings.among:
            self._identifier.set_languages(settings.among)

    def apply(self, documents: Documents) -> Outcome:
        """Drop documents of other languages."""
        settings, work = self.settings, Work(documents)
        for index, text in enumerate(documents.texts):
            head = text[: settings.read]
            if settings.short and _letters(head, settings.short) < settings.short:
                work.notes[index] = "too short to tell its language"
                if settings.on_short == "drop":
                    work.drop(index, f"fewer than {settings.short} letters: too short to tell the language")
                else:
                    work.counts["too short to tell the language, kept"] += 1
                continue
            language, score = self._identifier.classify(head)
            work.notes[index] = f"language {language}, {score:.3f}"
            if score < settings.threshold:
                work.drop(index, f"language uncertain: below {settings.threshold:g}")
            elif language not in self._kept:
                work.drop(index, f"language {language}")
        return work.outcome()

    def finish(self, folder: Path) -> Sequence[str]:
        """Nothing more to say."""
        return ()


def _letters(text: str, enough: int) -> int:
    """How many letters a text holds; counting ends at `enough`."""
    if text[:enough].isalpha():
        return min(len(text), enough)
    # Most texts are longer and most of what they hold are letters: look at little of them.
    count = len(_LETTER.findall(text, 0, 2 * enough))
    return count if count >= enough else len(_LETTER.findall(text))
