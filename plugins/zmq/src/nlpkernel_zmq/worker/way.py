"""The way from a worker to the servers: on this machine, or to another one with keys."""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import zmq

from nlpkernel_zmq import sockets
from nlpkernel_zmq.security.keys import Ticket

#: The variables by which `nlpkernel join` tells its worker where the servers are, and where its keys.
JOINS, KEYS = "NLPKERNEL_ZMQ_JOINS", "NLPKERNEL_ZMQ_KEYS"


@attrs.frozen
class Way:
    """Where the coordinator is, and the keys for it where that is another machine."""

    control: str
    ticket: Ticket | None = None

    @classmethod
    def given(cls) -> Way | None:
        """That of `nlpkernel join`; None where this worker was started beside the servers."""
        if JOINS not in os.environ:
            return None
        return cls(os.environ[JOINS], Ticket.read(Path(os.environ[KEYS])))

    def dealer(self, context: zmq.Context[zmq.Socket[bytes]], where: str, largest: int) -> zmq.Socket[bytes]:
        """A socket that connects to a server. Nothing is ever connected to over TCP without keys."""
        if self.ticket is None:
            return sockets.dealer(context, where, largest)
        return sockets.dealer(context, where, largest, self.ticket)
