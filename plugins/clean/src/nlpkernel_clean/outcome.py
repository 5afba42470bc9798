"""What a stage made of some documents, while it is being made."""

from __future__ import annotations

from collections import Counter

from nlpkernel.hookspecs.stage import Documents, Outcome


class Work:
    """An Outcome that grows. The list of texts is copied at the first change."""

    def __init__(self, documents: Documents) -> None:
        self._given = documents.texts
        self._texts: list[str] | None = None
        self.dropped: dict[int, str] = {}
        self.counts: Counter[str] = Counter()
        self.notes: dict[int, str] = {}

    def change(self, index: int, text: str) -> None:
        """This text is now `text`."""
        if self._texts is None:
            self._texts = list(self._given)
        self._texts[index] = text

    def drop(self, index: int, reason: str, note: str = "") -> None:
        """This document goes. Documents are counted by `reason`; `note` is about this one."""
        self.dropped[index] = reason
        if note:
            self.notes[index] = note

    def outcome(self) -> Outcome:
        """The finished Outcome."""
        return Outcome(texts=self._texts, dropped=self.dropped, counts=dict(self.counts), notes=self.notes)
