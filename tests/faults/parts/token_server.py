"""A server of a token test, which kills itself at a point of its work where it is told to.

The file `trap-N` in the folder of the test says where, and how often it comes there before. `full-N` makes its disk
full for as long as it is there.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import runpy
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_shared = runpy.run_path(str(Path(__file__).with_name("tokens.py")))
#: Where a server may be killed.
POINTS = (
    "put",
    "begin",
    "begun",
    "ready",
    "commit",
    "stepped",
    "torn",
    "fsync",
    "synced",
    "renamed",
    "release",
    "params",
    "state",
)


class Traps:
    """Those of one server."""

    def __init__(self, folder: Path, number: int) -> None:
        self._trap, self._full = folder / f"trap-{number}", folder / f"full-{number}"
        self._hits = folder / f"full-{number}.hits"

    def at(self, point: str, last: Callable[[], object] = lambda: None) -> None:
        """The server is at a point: it may be its last."""
        if not self._trap.exists():
            return
        told = json.loads(self._trap.read_text())
        if told["point"] != point:
            return
        if told["skip"] > 0:
            fresh = self._trap.with_suffix(".fresh")
            fresh.write_text(json.dumps({**told, "skip": told["skip"] - 1}))
            fresh.replace(self._trap)
            return
        self._trap.unlink()
        last()
        os.kill(os.getpid(), signal.SIGKILL)

    def room(self) -> None:
        """Raise OSError where the disk is full."""
        if self._full.exists():
            with self._hits.open("a") as file:
                file.write(".")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def lay(traps: Traps) -> None:
    """Lay them."""
    from nlpkernel_zmq.server import model, serve, shard
    from nlpkernel_zmq.wire import messages as m

    # What is lost is asked for again at each beat.
    serve.BEAT = 0.05

    def before(owner: type, name: str, point: str) -> None:
        plain = getattr(owner, name)

        def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
            traps.at(point)
            return plain(self, *arguments, **named)

        setattr(owner, name, wrapped)

    def after(owner: type, name: str, point: str) -> None:
        plain = getattr(owner, name)

        def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
            answer = plain(self, *arguments, **named)
            traps.at(point)
            return answer

        setattr(owner, name, wrapped)

    before(shard.Shard, "_put", "put")
    before(shard.Shard, "_begin", "begin")
    after(shard.Shard, "_begin", "begun")
    before(serve.Server, "_ready", "ready")
    before(shard.Shard, "commit", "commit")
    after(model.ShardModel, "step", "stepped")

    send = serve.Server._send
    points = {m.Release: "release", m.Params: "params", m.State: "state"}

    def sends(self: Any, socket: Any, who: Any, message: Any, payload: Any) -> None:
        if type(message) in points:
            traps.at(points[type(message)])
        send(self, socket, who, message, payload)

    serve.Server._send = sends  # type: ignore[method-assign]

    fsync, replace = os.fsync, Path.replace

    def syncs(descriptor: int) -> None:
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        if name.endswith("/state.new"):
            traps.room()
            traps.at("torn", lambda: os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2))
            traps.at("fsync")
            fsync(descriptor)
            traps.at("synced")
        else:
            fsync(descriptor)

    def replaces(self: Path, target: Any) -> Any:
        made = replace(self, target)
        if self.name == "state.new":
            traps.at("renamed")
        return made

    os.fsync = syncs  # type: ignore[assignment]
    Path.replace = replaces  # type: ignore[method-assign, assignment]


def main(table: dict[str, Any]) -> None:
    """Serve until SIGTERM."""
    given = _shared["begin"](table)
    if given.descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (given.descriptors, given.descriptors))

    def ends(number: int, frame: Any) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, ends)
    lay(Traps(given.path, given.number))
    from nlpkernel_zmq.server.serve import serve

    serve(given.settings(), given.run(), given.make)


if __name__ == "faults_command":
    main(globals()["given"])
    sys.exit(0)
