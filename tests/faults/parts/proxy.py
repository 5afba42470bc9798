"""What lies between two ends of a unix socket: it passes bytes on, holds them back, and cuts connections."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from pathlib import Path

import attrs

#: Bytes that are held for one way of a connection at most, beside those in the kernel.
_MOST = 1 << 20


@attrs.define(eq=False)
class _End:
    """One side of a connection. waiting: what came from the other side for this one; free: from when on it goes."""

    socket: socket.socket
    way: str
    other: _End | None = None
    waiting: bytearray = attrs.field(factory=bytearray)
    free: float = 0.0
    passed: int = 0


@attrs.define
class _Cut:
    way: str
    after: int


class Proxy:
    """One socket that stands for another. `up` is the way from who connects to who is bound."""

    def __init__(self, here: Path, there: Path) -> None:
        self.here, self.there = here, there
        self.cuts = 0
        self._lock = threading.Lock()
        self._cut: _Cut | None = None
        self._held = {"up": 0.0, "down": 0.0}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(here))
        self._listener.listen(64)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._ends: list[_End] = []
        self._over = False
        self._thread = threading.Thread(target=self._work, name=f"proxy {here.name}", daemon=True)
        self._thread.start()

    def cut(self, way: str, after: int) -> None:
        """Cut the connection that has passed so many more bytes this way, in the middle of them; 0: all, now."""
        with self._lock:
            for end in self._ends:
                end.passed = 0
            self._cut = _Cut(way, after)

    def hold(self, way: str, seconds: float) -> None:
        """Let nothing pass this way for so long."""
        with self._lock:
            self._held[way] = time.monotonic() + seconds

    def close(self) -> None:
        """End."""
        self._over = True
        self._thread.join()
        for end in self._ends:
            end.socket.close()
        self._listener.close()
        self._selector.close()

    # -- the thread ------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._over:
            for key, events in self._selector.select(0.002):
                if key.fileobj is self._listener:
                    self._accept()
                elif events & selectors.EVENT_READ:
                    self._read(key.data)
            with self._lock:
                for end in list(self._ends):
                    self._write(end)
                if self._cut is not None and self._cut.after == 0:
                    self._cut = None
                    for end in list(self._ends):
                        self._drop(end)
            self._watch()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            caller, _ = self._listener.accept()
            other = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                other.connect(str(self.there))
            except OSError:
                # Nobody is there: so it is said to who called.
                other.close()
                caller.close()
                return
            first, second = _End(caller, "down"), _End(other, "up")
            first.other, second.other = second, first
            for end in (first, second):
                end.socket.setblocking(False)
                self._ends.append(end)
                self._selector.register(end.socket, selectors.EVENT_READ, end)

    def _read(self, end: _End) -> None:
        other = end.other
        if other is None or end not in self._ends:
            return
        try:
            data = end.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            other.waiting += data
            return
        # What it said before it ended still goes out, unless it is to be held back.
        with self._lock:
            self._write(other)
            self._drop(end)

    def _write(self, end: _End) -> None:
        if end not in self._ends or not end.waiting or time.monotonic() < self._held[end.way]:
            return
        room = len(end.waiting)
        cut = self._cut if self._cut is not None and self._cut.way == end.way and self._cut.after else None
        if cut is not None:
            room = min(room, cut.after - end.passed)
        try:
            sent = end.socket.send(memoryview(end.waiting)[:room])
        except BlockingIOError:
            return
        except OSError:
            self._drop(end)
            return
        del end.waiting[:sent]
        end.passed += sent
        if cut is not None and end.passed >= cut.after:
            self._cut = None
            self._drop(end)

    def _drop(self, end: _End) -> None:
        """Cut a connection: both of its ends."""
        self.cuts += 1
        for each in (end, end.other):
            if each in self._ends:
                self._ends.remove(each)
                self._selector.unregister(each.socket)
                each.socket.close()

    def _watch(self) -> None:
        """Read where there is room for more."""
        for end in self._ends:
            assert end.other is not None
            full = len(end.other.waiting) > _MOST
            # A selector has no "nothing": what can be written is no news here.
            wanted = selectors.EVENT_WRITE if full else selectors.EVENT_READ
            if self._selector.get_key(end.socket).events != wanted:
                self._selector.modify(end.socket, wanted, end)
