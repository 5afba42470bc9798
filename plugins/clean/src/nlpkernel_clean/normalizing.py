"""Texts written in one way. Done twice it changes nothing more, but for what was decoded or escaped several times."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import ftfy

from nlpkernel.hookspecs.stage import Documents, Outcome
from nlpkernel_clean.outcome import Work

if TYPE_CHECKING:
    from nlpkernel_clean.components.normalize import Normalize

#: Control characters but tab, LF and the separators that are white space; marks of direction and of byte order, soft
#: hyphens, interlinear annotation, tags. Joiners stay: Indic scripts and emoji need them.
_CONTROLS = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffc"
    "\U000e0001\U000e0020-\U000e007f]"
)
#: Subdivision flags are spelt with tags after a black flag: those stay.
_FLAG = "\U0001f3f4"
_LINE_ENDS = re.compile("\r\n?")
#: Separators that Unicode calls a line's or a paragraph's end.
_VERTICAL = re.compile("[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_HORIZONTAL = re.compile(r"[^\S\n]+")
_RUN = re.compile(r"[^\S\n ]|  ")
_AROUND_LINE_END = re.compile(r" *\n *")
_BLANK_LINES = re.compile(r"\n{3,}")

_QUOTES = str.maketrans(dict.fromkeys("‘’‚‛′‹›", "'") | dict.fromkeys("“”„‟″«»", '"'))
_DASHES = str.maketrans(dict.fromkeys("‐‑‒–—―−", "-") | {"…": "..."})

#: What of ftfy is used: mending wrong decodings and broken surrogates. The rest is steps of our own.
_REPAIR = ftfy.TextFixerConfig(
    unescape_html=False,
    remove_terminal_escapes=False,
    fix_latin_ligatures=False,
    fix_character_width=False,
    uncurl_quotes=False,
    fix_line_breaks=False,
    remove_control_chars=False,
    normalization=None,
    explain=False,
)


class Normalizer:
    """The stage: each text written in one way."""

    ordered = False

    def __init__(self, settings: Normalize) -> None:
        self.settings = settings
        self._form: Literal["NFC", "NFKC"] | None = None
        if settings.form != "none":
            self._form = "NFC" if settings.form == "nfc" else "NFKC"

    def apply(self, documents: Documents) -> Outcome:
        """Write each text in one way."""
        work = Work(documents)
        for index, text in enumerate(documents.texts):
            done: list[str] = []
            new = self._text(text, done)
            if new != text:
                work.change(index, new)
                work.counts.update(done)
                work.notes[index] = "changed" + (f": {', '.join(done)}" if done else "")
        return work.outcome()

    def finish(self, folder: Path) -> Sequence[str]:
        """Nothing more to say."""
        return ()

    def _text(self, text: str, done: list[str]) -> str:
        settings = self.settings
        if settings.entities and "&" in text:
            text = _step(text, html.unescape(text), "HTML entities resolved", done)
        plain = text.isascii()
        if settings.repair and not plain:
            # Before control characters go: wrongly decoded text holds some that are halves of a character.
            text = _step(text, ftfy.fix_text(text, _REPAIR), "mojibake repaired", done)
        if settings.controls:
            if "\r" in text:
                text = _LINE_ENDS.sub("\n", text)
            if not text.isprintable():
                text = _step(text, _without_controls(text), "control characters removed", done)
        if not plain:
            if self._form is not None:
                text = unicodedata.normalize(self._form, text)
            if settings.quotes:
                text = text.translate(_QUOTES)
            if settings.dashes:
                text = text.translate(_DASHES)
        if settings.whitespace != "keep":
            text = _spaced(text, settings.whitespace)
        return text


def _step(before: str, after: str, what: str, done: list[str]) -> str:
    if after != before:
        done.append(what)
    return after


def _without_controls(text: str) -> str:
    if _FLAG in text:
        parts = re.split("(\U0001f3f4[\U000e0020-\U000e007f]+)", text)
        return "".join(part if at % 2 else _CONTROLS.sub("", part) for at, part in enumerate(parts))
    return _CONTROLS.sub("", text)


def _spaced(text: str, policy: str) -> str:
    if policy == "collapse":
        return " ".join(text.split())
    text = _VERTICAL.sub("\n", text)
    if policy == "ends":
        # The first line's indentation stays with the others.
        return "\n".join(map(str.rstrip, text.split("\n"))).strip("\n")
    if _RUN.search(text):
        text = _HORIZONTAL.sub(" ", text)
    text = text.strip()
    if "\n" in text:
        text = _BLANK_LINES.sub("\n\n", _AROUND_LINE_END.sub("\n", text))
    return text
