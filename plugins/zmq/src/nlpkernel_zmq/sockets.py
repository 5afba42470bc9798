"""Sockets, with the options that make ZeroMQ tell of what it would lose in silence; and where they are found.

On one machine they are files in a folder of the user's own that nobody else can enter. The same start of a run has the
same folder, so that a server that is started again is found where it was.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

import zmq

from nlpkernel.errors import UsageError, fail
from nlpkernel_zmq.codes import OWNER
from nlpkernel_zmq.security.keys import Ticket
from nlpkernel_zmq.wire.frames import LARGEST_HEADER, PREAMBLE

#: Bytes of that folder's path: with the word of a start and a name in it a socket's path has 107 at most (unix(7)).
_LONGEST = 107 - 1 - 16 - 1 - len("shard-0000000")
#: The file that says which process keeps the folder.
_KEEPER = "keeper"
#: Milliseconds, as ZeroMQ counts.
_SECOND = 1000


def base() -> Path:
    """The folder of all runs of this user: where temporary files are, unless that has too long a name for a socket.
    Raise UsageError where somebody else has made it."""
    name = f"nlpkernel-{os.getuid()}"
    folder = Path(tempfile.gettempdir()) / name
    if len(os.fsencode(folder)) > _LONGEST:
        folder = Path("/tmp") / name
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        message = f"{str(folder)!r} is not a folder of this user alone"
        raise fail(
            UsageError, "ZPS001", message, owner=OWNER, hint="remove it, or set TMPDIR to another place"
        )
    return folder


def folder(launch: str) -> Path:
    """That of one start of a run."""
    return base() / launch


def endpoint(launch: str, name: str) -> str:
    """Where a socket of that start is."""
    return f"ipc://{folder(launch) / name}"


def keep(launch: str, *, first: bool) -> None:
    """Make the folder of this start; the first server removes those whose keepers are gone."""
    own = folder(launch)
    own.mkdir(mode=0o700, exist_ok=True)
    if not first:
        return
    # The supervisor: a server of a run that goes on may just be started again.
    (own / _KEEPER).write_text(f"{os.getppid()}\n", encoding="ascii")
    for other in own.parent.iterdir():
        if other == own:
            continue
        with contextlib.suppress(OSError, ValueError):
            pid = int((other / _KEEPER).read_text(encoding="ascii"))
            if not _lives(pid):
                shutil.rmtree(other, ignore_errors=True)


def leave(launch: str) -> None:
    """Remove the folder of this start."""
    shutil.rmtree(folder(launch), ignore_errors=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def router(context: zmq.Context[zmq.Socket[bytes]], where: str, largest: int) -> zmq.Socket[bytes]:
    """A socket that many connect to, bound. largest: bytes of a payload."""
    made = context.socket(zmq.ROUTER)
    _set(made, largest)
    # What it sends is not copied, so that many may wait.
    made.setsockopt(zmq.SNDHWM, 4096)
    made.setsockopt(zmq.ROUTER_MANDATORY, 1)
    made.bind(where)
    return made


def dealer(
    context: zmq.Context[zmq.Socket[bytes]],
    where: str,
    largest: int,
    ticket: Ticket | None = None,
    *,
    connect: bool = True,
) -> zmq.Socket[bytes]:
    """A socket that connects to one such, with keys where it is on another machine."""
    made = context.socket(zmq.DEALER)
    _set(made, largest)
    if ticket is not None:
        made.setsockopt(zmq.CURVE_SERVERKEY, ticket.server.encode("ascii"))
        made.setsockopt(zmq.CURVE_PUBLICKEY, ticket.own.public.encode("ascii"))
        made.setsockopt(zmq.CURVE_SECRETKEY, ticket.own.secret.encode("ascii"))
        if where.startswith("tcp://["):
            made.setsockopt(zmq.IPV6, 1)
        over_network(made)
    # What is sent while there is no connection would reach whoever listens there next.
    made.setsockopt(zmq.IMMEDIATE, 1)
    if connect:
        made.connect(where)
    return made


def over_network(socket: zmq.Socket[bytes]) -> None:
    """What is connected or bound from here on notices where the other machine is gone without a word. ZeroMQ answers by
    itself, however long the process takes for a step."""
    socket.setsockopt(zmq.HEARTBEAT_IVL, 5 * _SECOND)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 30 * _SECOND)


def _set(socket: zmq.Socket[bytes], largest: int) -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, max(largest, LARGEST_HEADER) + PREAMBLE + LARGEST_HEADER)
    # Messages, for each connection: what does not fit waits with its sender, which is told.
    socket.setsockopt(zmq.SNDHWM, 64)
    socket.setsockopt(zmq.RCVHWM, 64)
    socket.setsockopt(zmq.HANDSHAKE_IVL, 5 * _SECOND)
    socket.setsockopt(zmq.RECONNECT_IVL, 20)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, _SECOND)
