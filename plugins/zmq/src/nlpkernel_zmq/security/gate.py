"""Who may come in: the answer to ZeroMQ's question about each connection over TCP (ZAP, rfc.zeromq.org/spec/27).

A thread of its own, so that a connection does not wait for an update of the parameters.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

import zmq
from zmq.utils import z85

#: The domain of our sockets. Where nobody answers for it, nobody comes in.
DOMAIN = b"nlpkernel"
_WHERE = "inproc://zeromq.zap.01"

_log = logging.getLogger("nlpkernel.zmq")


class Gate:
    """Lets in those whose public key is in `workers`, and says of their messages which worker's key it is."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], workers: Mapping[int, str]) -> None:
        self._names = {z85.decode(public): str(number).encode() for number, public in workers.items()}
        self._socket = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(_WHERE)
        self._refused = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nlpkernel-zmq-gate", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; nobody comes in any more."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                if self._socket.poll(100):
                    self._socket.send_multipart(self._answer(self._socket.recv_multipart()))
        finally:
            self._socket.close(0)

    def _answer(self, frames: list[bytes]) -> list[bytes]:
        version, request, domain, address, _, mechanism, *credentials = frames
        name = None
        if domain == DOMAIN and mechanism == b"CURVE" and len(credentials) == 1:
            name = self._names.get(credentials[0])
        if name is not None:
            return [version, request, b"200", b"OK", name, b""]
        self._refused += 1
        if self._refused & (self._refused - 1) == 0:
            # Who tries again and again does not fill the log.
            _log.warning(
                "connection %d was refused: %s has no key of this run",
                self._refused,
                address.decode("ascii", "replace"),
            )
        return [version, request, b"400", b"no key of this run", b"", b""]
