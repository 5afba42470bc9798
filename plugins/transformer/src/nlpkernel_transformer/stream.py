"""From token ids, one at a time, to pieces of text that are final. Light: no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nlpkernel.hookspecs.data import Codec

#: What a decoder gives for bytes that are no text.
UNKNOWN = "\ufffd"
#: An unfinished character has lost at most three bytes, and so shows as at most three of them.
UNFINISHED = 3
#: Ids after which text that is out is no longer decoded again.
_RENEW = 64
#: Ids that are kept before new ones, since some decoders look at what stands before (a space, say).
_LEAD = 8


class TextStream:
    """Decodes ids as they come, and lets text out once it cannot change any more.

    Held back are characters of which bytes may still come, and a tail that may be the beginning of a stop text. When a
    stop text is complete, `stopped` becomes True and the text ends before it.
    """

    def __init__(self, codec: Codec, stop: Sequence[str] = ()) -> None:
        self.stopped = False
        self._codec = codec
        self._stop = tuple(stop)
        self._ids: list[int] = []
        self._done = ""
        self._held = ""

    def push(self, token: int) -> str:
        """Take one more id; return the text that became final, which may be empty."""
        self._ids.append(token)
        text = self._codec.decode(self._ids)
        if text.endswith(UNKNOWN) and not text.startswith(self._done):
            # Some decoders give up all bytes in a row while the last character is unfinished.
            return ""
        start, end = len(self._done), len(text)
        while end > start and len(text) - end < UNFINISHED and text[end - 1] == UNKNOWN:
            end -= 1
        if end <= start:
            return ""
        self._done = text[:end]
        if end == len(text) and len(self._ids) >= _RENEW:
            self._renew(text)
        return self._until_stop(text[start:end])

    def finish(self) -> str:
        """No more ids come: return what was held back."""
        if self.stopped:
            return ""
        rest = self._codec.decode(self._ids)[len(self._done) :] if self._ids else ""
        last = self._until_stop(rest) + ("" if self.stopped else self._held)
        self._held = ""
        return last

    def _renew(self, text: str) -> None:
        """Forget ids whose text is out, if the rest of them decodes to the end of the same text."""
        lead = self._ids[-_LEAD:]
        tail = self._codec.decode(lead)
        if text.endswith(tail) and UNKNOWN not in tail:
            self._ids, self._done = lead, tail

    def _until_stop(self, piece: str) -> str:
        if not self._stop or self.stopped:
            return "" if self.stopped else piece
        text = self._held + piece
        found = [at for at in map(text.find, self._stop) if at >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = max(_overlap(text, stop) for stop in self._stop)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Characters at the end of `text` that may be the beginning of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((length for length in range(longest, 0, -1) if stop.startswith(text[-length:])), 0)
