"""The base of our streams: what it holds comes in pieces, and a failure comes after what could be read before it."""

from __future__ import annotations

import io
from typing import Any


class Pulled(io.RawIOBase):
    """A stream from a method that gives its next piece.

    Unlike a BufferedReader it does not lose what it has read when the next piece fails: that is given first, and the
    failure is raised by the next call.
    """

    def __init__(self) -> None:
        super().__init__()
        self._held = b""
        self._failed: Exception | None = None

    def pull(self, size: int) -> bytes:
        """The next piece, of about `size` bytes; empty at the end."""
        raise NotImplementedError

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes, fewer only at the end or before a failure; all for a negative number or None."""
        everything = size is None or size < 0
        left = -1 if size is None else size
        pieces: list[bytes] = []
        while everything or left > 0:
            piece = self._next(1 << 20 if everything else left)
            if not piece:
                break
            if not everything and len(piece) > left:
                piece, self._held = piece[:left], piece[left:]
            pieces.append(piece)
            left -= len(piece)
        if not pieces and self._failed is not None:
            raise self._failed
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def readall(self) -> bytes:
        """All that is left."""
        return self.read(-1)

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer as far as there is something."""
        data = self.read(len(memoryview(buffer).cast("B")))
        memoryview(buffer).cast("B")[: len(data)] = data
        return len(data)

    def peek(self, size: int = 1, /) -> bytes:
        """The next `size` bytes, fewer only at the end or before a failure; they are read again."""
        pieces = [self._held]
        while sum(map(len, pieces)) < size and (piece := self._pull(size)):
            pieces.append(piece)
        self._held = b"".join(pieces)
        return self._held[:size]

    def _next(self, size: int) -> bytes:
        if self._held:
            held, self._held = self._held, b""
            return held
        return self._pull(size)

    def _pull(self, size: int) -> bytes:
        if self._failed is not None:
            return b""
        try:
            return self.pull(size)
        except Exception as error:
            self._failed = error
            if isinstance(error, (MemoryError, AssertionError)):
                raise
            return b""
