"""File descriptors of a server. ZeroMQ ends the process that has none left for a connection (libzmq 4.3.5,
ipc_listener.cpp), so there have to be enough of them before the first one comes."""

from __future__ import annotations

import contextlib
import resource

from nlpkernel.errors import UsageError, fail
from nlpkernel_zmq.codes import OWNER

#: Of the process itself, of each worker (data, coordinator and beats, and one that was cut and is not closed yet), and
#: of each shard.
_OWN, _WORKER, _SHARD = 40, 4, 2


def reserve(workers: int, servers: int) -> None:
    """Have as many as so many connections may take. Raise UsageError (ZPS010) where the system does not allow it."""
    needed = _OWN + _WORKER * workers + _SHARD * servers
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
        f"a server of {workers} workers may need {needed} file descriptors, and this one may open {hard}",
        owner=OWNER,
        hint=f"`ulimit -n {max(1024, needed)}` before the run",
    )
