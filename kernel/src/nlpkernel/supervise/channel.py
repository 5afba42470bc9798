"""The channel between the supervisor and one process: numbered msgpack messages over an inherited socket.

A frame is its length (4 bytes, little-endian) and a msgpack array [number, kind, body]. Each sender numbers its
messages from 0; a message that was not sent keeps its number, so the receiver counts what is missing.
"""

from __future__ import annotations

import logging
import queue
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgpack  # type: ignore[import-untyped, unused-ignore]

#: The variable that holds the number of the inherited descriptor.
CHANNEL = "NLPKERNEL_CHANNEL"
#: Bytes of one frame's content at most.
LARGEST = 64 * 1024
#: Of these, bytes that number and kind may take.
_REST = 256
#: Messages that wait to be sent at most.
WAITING = 2048
_HEAD = struct.Struct("<I")
_log = logging.getLogger("nlpkernel.supervise")


class Message(NamedTuple):
    """One message. `missing` counts those of its sender that should have come before it and did not."""

    number: int
    kind: str
    body: Mapping[str, Any]
    missing: int = 0


class BadFrame(ValueError):
    """What arrived is no message; the channel cannot be read any further."""


def packed(body: Mapping[str, Any]) -> bytes:
    """The body of a message. Raise ValueError, TypeError, OverflowError or RecursionError where it cannot be sent."""
    content: bytes = msgpack.packb(body, default=_foreign, unicode_errors="backslashreplace")
    if len(content) > LARGEST - _REST:
        raise ValueError(f"a message of {len(content)} bytes, which is too much")
    return content


def frame(number: int, kind: str, content: bytes) -> bytes:
    """A packed body as the frame that goes over the socket."""
    head: bytes = b"\x93" + msgpack.packb(number) + msgpack.packb(kind)
    return _HEAD.pack(len(head) + len(content)) + head + content


def _foreign(value: object) -> str:
    # Never its text: that of a tensor would wait for the device.
    return f"<{type(value).__name__}>"


class Frames:
    """Cuts a stream of bytes, however it arrives, into messages, and counts the missing."""

    def __init__(self) -> None:
        self.missing = 0
        self._buffer = bytearray()
        self._next = 0

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete with `data`. Raise BadFrame where there can be no more."""
        self._buffer += data
        while len(self._buffer) >= _HEAD.size:
            (length,) = _HEAD.unpack_from(self._buffer)
            if length > LARGEST:
                raise BadFrame(f"a frame of {length} bytes")
            end = _HEAD.size + length
            if len(self._buffer) < end:
                return
            content = bytes(self._buffer[_HEAD.size : end])
            del self._buffer[:end]
            yield self._message(content)

    def _message(self, content: bytes) -> Message:
        try:
            number, kind, body = msgpack.unpackb(content)
        except Exception as error:
            raise BadFrame(f"{type(error).__name__}: {error}") from error
        if not (isinstance(number, int) and isinstance(kind, str) and isinstance(body, dict)):
            raise BadFrame("not [number, kind, body]")
        if number < self._next:
            raise BadFrame(f"message {number} after {self._next - 1}")
        missing, self._next = number - self._next, number + 1
        self.missing += missing
        return Message(number, kind, body, missing)


class Sender:
    """Sends from a thread of its own, so that nobody who has something to tell waits for the other side.

    What does not fit into the queue is dropped and counted by the numbers of those that follow. `send` may be called
    from a signal handler.
    """

    def __init__(self, sock: socket.socket, *, waiting: int = WAITING) -> None:
        self._sock, self._waiting = sock, waiting
        # A SimpleQueue can be put to while a put goes on in the same thread, as in a signal handler.
        self._queue: queue.SimpleQueue[tuple[str, bytes] | None] = queue.SimpleQueue()
        self._dropped: deque[None] = deque()
        self._gone = False
        self._thread = threading.Thread(target=self._run, name="nlpkernel-sender", daemon=True)
        self._thread.start()

    def send(self, kind: str, body: Mapping[str, Any], *, must: bool = False) -> None:
        """Have a message sent. `must`: also where the queue is full (answers, which are few)."""
        if self._gone or (not must and self._queue.qsize() >= self._waiting):
            self._dropped.append(None)
            return
        try:
            # Its values of now; its number is known when its turn comes.
            content = packed(body)
        except (TypeError, ValueError, OverflowError, RecursionError):
            self._dropped.append(None)
            return
        self._queue.put((kind, content))

    def close(self, timeout: float = 1.0) -> None:
        """Send what waits, as far as `timeout` seconds go."""
        self._queue.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        number = 0
        while True:
            item = self._queue.get()
            if item is None:
                return
            while self._dropped:
                self._dropped.pop()
                number += 1
            try:
                self._sock.sendall(frame(number, *item))
            except OSError as error:
                self._gone = True
                _log.info("the supervisor cannot be told any more: %s", error)
                return
            number += 1


def receive(sock: socket.socket) -> Iterator[Message]:
    """The messages that arrive at a blocking socket, until the other end closes. Raise BadFrame."""
    frames = Frames()
    while True:
        try:
            data = sock.recv(65536)
        except OSError:
            return
        if not data:
            return
        yield from frames.feed(data)
