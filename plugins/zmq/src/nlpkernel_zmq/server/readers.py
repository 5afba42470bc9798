"""Readers of a shard: who has no part in the run, and reads the parameters as they are after a number of windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import msgpack  # type: ignore[import-untyped, unused-ignore]

from nlpkernel_zmq.server.shard import Shard
from nlpkernel_zmq.wire import messages as m
from nlpkernel_zmq.wire.frames import BadFrame
from nlpkernel_zmq.wire.tensors import buffer_of

#: How many there may be at a time.
MOST = 8


@attrs.define
class Readers:
    """Those of one shard. Each asks for one thing at a time: what it asks for later takes the place of what it waits
    for. Nothing that they say changes anything."""

    shard: Shard
    send: Callable[[bytes, m.Message, Any], None]
    #: By connection, what it waits for.
    _asked: dict[bytes, m.Fetch | None] = attrs.field(factory=dict)

    def __contains__(self, who: bytes) -> bool:
        return who in self._asked

    def hello(self, who: bytes) -> None:
        """One says hello. Of too many the oldest one has to say it again."""
        self.leave(who)
        while len(self._asked) >= MOST:
            del self._asked[next(iter(self._asked))]
        self._asked[who] = None

    def leave(self, who: bytes) -> None:
        """One is gone."""
        self._asked.pop(who, None)

    def handle(self, who: bytes, message: m.Message) -> None:
        """A message of one. Raise BadFrame where it is not for a reader to say."""
        if isinstance(message, m.Leave):
            self.leave(who)
        elif isinstance(message, m.Ping):
            self.send(who, m.Pong(), None)
        elif isinstance(message, m.Fetch) and message.what != "optimizer":
            self._asked[who] = message
            self._answer(who)
        else:
            raise BadFrame("kind", f"{type(message).__name__} is not for a reader to say")

    def moved(self) -> None:
        """The parameters are others now."""
        for who in [who for who, asked in self._asked.items() if asked is not None]:
            self._answer(who)

    def _answer(self, who: bytes) -> None:
        """Answer what can be answered now."""
        shard, fetch = self.shard, self._asked[who]
        if fetch is None or not shard.began:
            return
        if fetch.what == "parameters" and shard.step != fetch.step:
            if shard.step > fetch.step:
                self._asked[who] = None
                text = f"there have been {shard.step} windows"
                self.send(who, m.Nack(code="past", text=text, round=shard.step), None)
            return
        self._asked[who] = None
        model = shard.model
        if fetch.what == "schema":
            data = memoryview(msgpack.packb(model.schema.plain()))
        else:
            # A copy: it is on its way while the next update is made.
            data = buffer_of(model.memory.tensor.clone())
        size, total = model.schema.chunk, data.nbytes
        for start in range(0, max(1, total), size):
            stop = min(start + size, total)
            state = m.State(
                what=fetch.what, start=start, stop=stop, total=total, step=shard.step, updates=shard.updates
            )
            self.send(who, state, data[start:stop])
