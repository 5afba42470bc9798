"""What all augmentations share: cut texts into words, pick some, put the rest back as it was."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from nlpkernel_augment.draws import Draws, Keys, Picked
from nlpkernel_augment.words import cut


class Changing(ABC):
    """An augmentation of words. What becomes of a text is a function of it and its key."""

    def __init__(self, strength: float) -> None:
        self.strength = strength

    def apply(self, texts: Sequence[str], keys: Keys) -> Sequence[str]:
        """Each text, changed or not, never empty."""
        if not self.strength:
            return texts
        cuts = [cut(text) for text in texts]
        counts = [len(parts) // 2 for parts in cuts]
        changed: list[str] | None = None
        for index, picked in Picked(keys, counts, self.strength):
            if changed is None:
                changed = list(texts)
            text = self.change(cuts[index], picked, Draws(keys[index]))
            # What has a word keeps one, in each augmentation; this is for a subclass that errs.
            assert text, f"{type(self).__name__} left nothing of {texts[index]!r}"
            changed[index] = text
        return texts if changed is None else changed

    @abstractmethod
    def change(self, parts: list[str], picked: list[int], draws: Draws) -> str:
        """The text, changed. `parts` are its own, to be changed in place: word n stands at 2 n + 1. `picked` are the
        numbers of words, ascending, one at least."""
