"""Words with a letter mistyped."""

from __future__ import annotations

from nlpkernel_augment.base import Changing
from nlpkernel_augment.draws import Draws

#: Rows of letters, each half a key to the right of the one above.
ROWS = {
    "qwerty": ("qwertyuiop", "asdfghjkl", "zxcvbnm"),
    "qwertz": ("qwertzuiop", "asdfghjkl", "yxcvbnm"),
    "azerty": ("azertyuiop", "qsdfghjklm", "wxcvbn"),
}


def neighbours(keyboard: str) -> dict[str, str]:
    """The letters that lie beside each letter, in its row and in those above and below."""
    places = {
        letter: (row, at + 0.5 * row)
        for row, letters in enumerate(ROWS[keyboard])
        for at, letter in enumerate(letters)
    }
    beside = {
        letter: "".join(
            sorted(
                other
                for other, (other_row, other_at) in places.items()
                if other != letter and abs(other_row - row) <= 1 and abs(other_at - at) <= 1
            )
        )
        for letter, (row, at) in places.items()
    }
    return beside | {letter.upper(): near.upper() for letter, near in beside.items()}


class Mistyping(Changing):
    """Picked words get one typing error of four kinds, each as likely, at a letter, each as likely."""

    def __init__(self, strength: float, keyboard: str, least: int) -> None:
        super().__init__(strength)
        self._beside, self._least = neighbours(keyboard), least

    def change(self, parts: list[str], picked: list[int], draws: Draws) -> str:
        """Mistype. Where a letter is not on the keyboard it is doubled instead of hit beside."""
        for word in picked:
            given = parts[2 * word + 1]
            letters = [at for at, letter in enumerate(given) if letter.isalpha()]
            if len(letters) >= self._least:
                at = letters[draws.below(len(letters), word, 0)]
                parts[2 * word + 1] = self._mistyped(given, at, draws, word)
        return "".join(parts)

    def _mistyped(self, given: str, at: int, draws: Draws, word: int) -> str:
        kind = draws.below(4, word, 1)
        near = self._beside.get(given[at], "")
        if kind == 0 and near:
            return given[:at] + near[draws.below(len(near), word, 2)] + given[at + 1 :]
        if kind == 1:
            return given[:at] + given[at + 1 :]
        if kind == 2:
            # The last letter is typed before the one in front of it.
            at = min(at, len(given) - 2)
            return given[:at] + given[at + 1] + given[at] + given[at + 2 :]
        return given[: at + 1] + given[at:]
