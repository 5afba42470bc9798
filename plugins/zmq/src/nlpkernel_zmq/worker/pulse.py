"""A worker's beats to the coordinator, from a thread and a connection of their own: they wait neither behind a gradient
nor for the training loop, whose progress they carry."""

from __future__ import annotations

import threading
import time

import zmq

from nlpkernel.supervise.heartbeat import Pulse
from nlpkernel_zmq.memory import host
from nlpkernel_zmq.release import RELEASE
from nlpkernel_zmq.wire import messages as m
from nlpkernel_zmq.wire.frames import LARGEST_HEADER, BadFrame
from nlpkernel_zmq.worker.way import Way


class Beats:
    """Beats until it is closed. members: the workers of the run as the coordinator told last; late: those of them that
    came into it later."""

    def __init__(
        self, launch: str, rank: int, incarnation: int, pulse: Pulse, seconds: float, way: Way
    ) -> None:
        self._launch, self._rank, self._incarnation = launch, rank, incarnation
        self._pulse, self._seconds, self._way = pulse, seconds, way
        self.members: tuple[int, ...] | None = None
        #: Whether the worker is in the run already.
        self.took_part = False
        self.late: tuple[int, ...] = ()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nlpkernel-zmq-beats", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join(5 * self._seconds)

    def _run(self) -> None:
        context = zmq.Context()
        socket = self._way.dealer(context, self._way.control, LARGEST_HEADER)
        known, heard = False, time.monotonic()
        try:
            while not self._over.wait(self._seconds):
                pulse = self._pulse
                beat = m.Ping(phase=pulse.phase, step=pulse.step, moves=pulse.moves)
                try:
                    socket.send(m.pack(beat if known else self._hello()), zmq.NOBLOCK)
                except zmq.Again:
                    known = known and time.monotonic() - heard < 4 * self._seconds
                while socket.poll(0):
                    message = m.unpack(socket.recv())
                    heard = time.monotonic()
                    if isinstance(message, m.Welcome):
                        known = True
                    elif isinstance(message, m.Nack):
                        known = False
                    elif isinstance(message, m.Pong):
                        self.members, self.late = message.members, message.late
                    elif isinstance(message, m.Reject):
                        # A coordinator that was started again may not know the worker yet; one that goes on refuses
                        # for good, which the worker hears itself.
                        known = False
        except BadFrame:
            return
        finally:
            socket.close(0)
            context.term()

    def _hello(self) -> m.Hello:
        return m.Hello(
            run=self._launch,
            role="pulse",
            number=self._rank,
            incarnation=self._incarnation,
            release=RELEASE,
            host=host(),
            took_part=self.took_part,
        )
