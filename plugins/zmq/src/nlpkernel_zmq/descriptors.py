"""File descriptors of the processes of a run. ZeroMQ ends the process that has none left for a connection (libzmq
4.3.5, ipc_listener.cpp, signaler.cpp), so there have to be enough of them before the first one comes."""

from __future__ import annotations

import contextlib
import resource

from nlpkernel.errors import UsageError, fail
from nlpkernel_zmq.codes import OWNER

#: Of the process itself, with what ZeroMQ and torch have open.
_OWN = 40
#: On a server: of each worker (data, coordinator and beats, one that was cut and is not closed yet, and the memory that
#: it shares), and of each other server.
_WORKER, _SHARD = 5, 2
#: Of all readers, on a server.
_READERS = 20
#: On a worker: of each server (the connection, its signals, and its memory), and of data files beside them.
_SERVER, _FILES = 4, 60


def for_server(workers: int, servers: int) -> int:
    """How many a server may need."""
    return _OWN + _READERS + _WORKER * workers + _SHARD * servers


def for_worker(servers: int) -> int:
    """How many a worker may need."""
    return _OWN + _FILES + _SERVER * servers


def reserve(needed: int, who: str) -> None:
    """Have as many. Raise UsageError (ZPS010) where the system does not allow it. who: whose they are, for people."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard == resource.RLIM_INFINITY or hard >= needed:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
            return
    raise fail(
        UsageError,
        "ZPS010",
        f"{who} may need {needed} file descriptors, and this process may open {hard}",
        owner=OWNER,
        hint=f"`ulimit -n {max(1024, needed)}` before the run",
    )
