"""Back-translation: a text is written in another language, and from that again in its own.

S. Edunov, M. Ott, M. Auli and D. Grangier, "Understanding Back-Translation at Scale", 2018: drawing the translation,
not searching the best one, is what gives other wordings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import torch

from nlpkernel import open_model
from nlpkernel.errors import DataError, NlpkernelError, fail
from nlpkernel.sampling import key
from nlpkernel_augment.codes import OWNER

if TYPE_CHECKING:
    from nlpkernel.engine.opened import OpenModel
    from nlpkernel_augment.draws import Keys

#: Purposes of a key.
_PICKED, _DRAWN = 0, 1
#: Texts of up to so many tokens go together; of more, those of up to twice as many, and so on.
_NARROWEST = 16

#: What happened to so many texts.
Count = Callable[[str, int], None]


class Translator:
    """A model that writes texts. What it writes to a text is a function of that (and its key): whatever else is written
    to, it is computed in a block of `rows` rows, as wide as the text's own length says. Rows of a block do not touch
    each other, but numbers of blocks of other shapes differ in their last bits."""

    def __init__(self, name: str, opened: OpenModel, rows: int, count: Count) -> None:
        self._name, self._opened, self._rows, self._count = name, opened, rows, count
        # A row of its training has one token more than the window, the end counted.
        self._most = min(int(opened.model.context), opened.info.window + 1)  # type: ignore[arg-type]

    def write(
        self, texts: Mapping[int, str], keys: Mapping[int, int] | None = None, **how: Any
    ) -> dict[int, str]:
        """What is written to each of some texts, by their numbers, but for those that it cannot be written to. keys:
        for texts that are drawn. how: see `Writing.write` of nlpkernel_tasks."""
        blocks: dict[int, list[tuple[int, list[int]]]] = {}
        longer = 0
        for number, text in texts.items():
            ids = self._opened.codec.encode(text)
            if not ids:
                continue
            ids = [*ids, self._opened.codec.end]  # type: ignore[list-item]
            if len(ids) > self._most:
                longer += 1
                continue
            width = max(_NARROWEST, 1 << (len(ids) - 1).bit_length())
            blocks.setdefault(min(width, self._most), []).append((number, ids))
        self._count(f"texts longer than the window of `{self._name}`, left as they were", longer)
        found: dict[int, str] = {}
        for width, each in blocks.items():
            for first in range(0, len(each), self._rows):
                found |= self._block(each[first : first + self._rows], width, keys, how)
        return found

    def _block(
        self,
        given: Sequence[tuple[int, list[int]]],
        width: int,
        keys: Mapping[int, int] | None,
        how: Mapping[str, Any],
    ) -> dict[int, str]:
        """Write to at most as many texts as a block has rows."""
        # What is over is the first text again.
        rows = [*given, *[given[0]] * (self._rows - len(given))]
        tokens = torch.zeros(len(rows), width, dtype=torch.long)
        for row, (_, ids) in enumerate(rows):
            tokens[row, : len(ids)] = torch.tensor(ids)
        lengths = torch.tensor([len(ids) for _, ids in rows])
        device, task = self._opened.device, self._opened.task
        with torch.autocast(device.type, enabled=False):
            written = task.write(  # type: ignore[attr-defined]
                self._opened.model,
                tokens.to(device),
                lengths.to(device),
                keys=() if keys is None else [keys[number] for number, _ in rows],
                **how,
            )
        found: dict[int, str] = {}
        for (number, _), text in zip(given, written, strict=False):
            words = self._opened.codec.decode(text.tokens).strip()
            if text.ended and words:
                found[number] = words
        self._count(
            f"texts to which `{self._name}` wrote nothing, or no end, left as they were",
            len(given) - len(found),
        )
        return found


@attrs.frozen(eq=False)
class BackTranslating:
    """Each text is picked with the probability `strength`, drawn in the other language by its key, and searched
    back."""

    strength: float
    there: Translator
    back: Translator
    #: How translations are drawn: temperature, top_k, top_p.
    drawing: Mapping[str, Any]
    beams: int

    def apply(self, texts: Sequence[str], keys: Keys) -> Sequence[str]:
        """Each text in another wording, or as it was."""
        picked = {
            number: int(each)
            for number, each in enumerate(keys)
            if key(int(each), _PICKED) < self.strength * (1 << 64)
        }
        if not picked:
            return texts
        drawn = self.there.write(
            {number: texts[number] for number in picked},
            {number: key(each, _DRAWN) for number, each in picked.items()},
            drawing=self.drawing,
        )
        back = self.back.write(drawn, beams=self.beams)
        return [back.get(number, text) for number, text in enumerate(texts)]


def open_translator(name: str, folder: Path, rows: int, device: str, count: Count) -> Translator:
    """The newest version of a run. Raise DataError where it cannot be opened (AUG003), or does not write texts
    (AUG004)."""
    try:
        opened = open_model(folder, device=device)
    except NlpkernelError as error:
        message = f"the model of `{name}` cannot be opened: {error}"
        raise fail(DataError, "AUG003", message, owner=OWNER) from error
    task = opened.task
    if task.name != "seq2seq" or not hasattr(task, "write"):
        raise _no_writer(name, folder, f"its task is {task.name!r}")
    if not all(hasattr(opened.model, each) for each in ("encode", "decode", "select")):
        raise _no_writer(name, folder, f"a {type(opened.model).__name__} does not write texts")
    return Translator(name, opened, rows, count)


def _no_writer(name: str, folder: Path, reason: str) -> NlpkernelError:
    return fail(
        DataError,
        "AUG004",
        f"`{name}` = {str(folder)!r} is no run that translates: {reason}",
        owner=OWNER,
        hint='train one with `task = "seq2seq"`',
    )
