"""Personal data found and masked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nlpkernel.hookspecs.stage import Documents, Outcome
from nlpkernel_clean.components.pii import REPLACEMENT
from nlpkernel_clean.outcome import Work
from nlpkernel_clean.personal.addresses import emails, ips
from nlpkernel_clean.personal.money import cards, ibans

if TYPE_CHECKING:
    from nlpkernel_clean.components.pii import Pii

Finder = Callable[[str], Iterator[tuple[int, int]]]

#: How reports call each kind.
CALLED = {
    "email": "e-mail addresses",
    "iban": "IBANs",
    "card": "payment cards",
    "ip": "IP addresses",
    "phone": "phone numbers",
    "name": "names",
}


class Find(NamedTuple):
    """A place of a text with personal data."""

    start: int
    end: int
    kind: str


class Masker:
    """The stage: personal data is masked, or documents that hold some go."""

    ordered = False

    def __init__(self, settings: Pii) -> None:
        self.settings = settings
        self.replacement = {**REPLACEMENT, **settings.replacement}
        # In the order in which they win.
        self._finders = [(kind, self._finder(kind)) for kind in REPLACEMENT if kind in settings.kinds]

    def find(self, text: str) -> list[Find]:
        """Personal data in a text, in the order of the text, no two overlapping."""
        finds: list[Find] = []
        for kind, finder in self._finders:
            for start, end in finder(text):
                if all(end <= find.start or find.end <= start for find in finds):
                    finds.append(Find(start, end, kind))
        finds.sort()
        return finds

    def apply(self, documents: Documents) -> Outcome:
        """Mask, or drop."""
        work = Work(documents)
        for index, text in enumerate(documents.texts):
            finds = self.find(text)
            if not finds:
                continue
            kinds = Counter(find.kind for find in finds)
            held = ", ".join(f"{CALLED[kind]}: {count}" for kind, count in kinds.items())
            if self.settings.action == "drop":
                work.drop(index, f"holds {CALLED[finds[0].kind]}", held)
                continue
            work.change(index, self._masked(text, finds))
            work.notes[index] = f"masked {held}"
            work.counts.update({f"{CALLED[kind]} masked": count for kind, count in kinds.items()})
        return work.outcome()

    def finish(self, folder: Path) -> Sequence[str]:
        """Nothing more to say."""
        return ()

    def _masked(self, text: str, finds: Sequence[Find]) -> str:
        parts, done = [], 0
        for find in finds:
            parts += [text[done : find.start], self.replacement[find.kind]]
            done = find.end
        return "".join([*parts, text[done:]])

    def _finder(self, kind: str) -> Finder:
        if kind == "phone":
            # phonenumbers takes a fifth of a second to import.
            from nlpkernel_clean.personal.phones import phone_finder

            return phone_finder(self.settings.regions, self.settings.phones)
        if kind == "name":
            from nlpkernel_clean.personal.names import name_finder

            assert self.settings.names is not None  # check_settings saw to it.
            return name_finder(self.settings.names)
        return {"email": emails, "iban": ibans, "card": cards, "ip": ips}[kind]
