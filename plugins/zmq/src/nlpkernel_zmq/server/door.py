"""What a server has for workers of other machines: an address, keys, and a gate."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import zmq

from nlpkernel_zmq import sockets
from nlpkernel_zmq.security import places
from nlpkernel_zmq.security.folder import KEYS, endpoint_file, folder_of, told
from nlpkernel_zmq.security.gate import DOMAIN, Gate
from nlpkernel_zmq.security.keys import START, ServerKeys

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel_zmq.component import ZmqPs


class Door:
    """See the module. The first server makes the keys; the others wait for them."""

    def __init__(
        self,
        settings: ZmqPs,
        listen: str,
        run: Run,
        number: int,
        context: zmq.Context[zmq.Socket[bytes]],
    ) -> None:
        self._folder = folder_of(run)
        self._first = number == 0
        self._servers = settings.servers
        #: The address that is bound, and no other.
        self._address = places.address_of(listen)
        self._mine: list[Path] = []
        self._endpoints: tuple[str, ...] | None = None
        word = os.environ.get(START, run.launch)
        keys = self._folder / KEYS
        if self._first:
            self.keys = ServerKeys.take(keys, word, range(settings.here, settings.workers))
        else:
            self.keys = ServerKeys.wait(keys, word)
        self._gate = Gate(context, self.keys.workers)

    def bind(self, made: zmq.Socket[bytes], name: str) -> str:
        """Let a socket listen there too, for those with keys: what it was bound to before stays without. At the same
        port as at an earlier start under the same supervisor. Returns the endpoint. Raise UsageError (ZPS013)."""
        made.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)
        # Without a gate nobody is let in.
        made.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        made.setsockopt(zmq.CURVE_SERVER, 1)
        made.setsockopt(zmq.CURVE_SECRETKEY, self.keys.own.secret.encode("ascii"))
        sockets.over_network(made)
        path = endpoint_file(self._folder, name)
        before = self._told(path)
        port = places.bind(made, self._address, int(before.rpartition(":")[2]) if before else None)
        host = f"[{self._address}]" if ":" in self._address else self._address
        endpoint = f"tcp://{host}:{port}"
        fresh = path.with_suffix(".new")
        fresh.write_text(f"{self.keys.run} {endpoint}\n", encoding="ascii")
        fresh.replace(path)
        self._mine.append(path)
        return endpoint

    def worker_of(self, frame: zmq.Frame) -> int | None:
        """Whose key a message came with; None: it came from this machine, through a socket without keys."""
        try:
            return int(frame.get("User-Id"))
        except zmq.ZMQError:
            return None

    def endpoints(self) -> tuple[str, ...] | None:
        """Those of all shards; None while one is not there yet."""
        if self._endpoints is None:
            told = [self._told(endpoint_file(self._folder, f"shard-{each}")) for each in range(self._servers)]
            if all(told):
                self._endpoints = tuple(told)
        return self._endpoints

    def close(self, *, over: bool) -> None:
        """Let nobody in any more. over: the run is, so that keys and ports are of no more use."""
        self._gate.close()
        if not over:
            return
        for path in self._mine:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        if self._first:
            shutil.rmtree(self._folder / KEYS, ignore_errors=True)

    def _told(self, path: Path) -> str:
        """An endpoint of this run; "" where there is none."""
        return told(path, self.keys.run)
