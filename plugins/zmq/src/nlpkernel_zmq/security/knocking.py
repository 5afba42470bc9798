"""Before a worker begins: whether the servers are there, and take its keys. ZeroMQ itself would try for ever."""

from __future__ import annotations

import re
import time

import zmq
from zmq.utils.monitor import recv_monitor_message

from nlpkernel.errors import NlpkernelError, UsageError, fail
from nlpkernel_zmq import sockets
from nlpkernel_zmq.codes import OWNER
from nlpkernel_zmq.security.keys import Ticket

#: Seconds in which servers that are about to begin may begin to listen.
PATIENCE = 10.0
#: Bytes of an answer: there is none.
_NOTHING = 1024


def check(endpoint: str) -> None:
    """Raise UsageError (ZPS013) where it is none."""
    found = re.fullmatch(r"tcp://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%a-z]+\]):([0-9]{1,5})", endpoint)
    if found is None or not 0 < int(found[1]) < 65536:
        hint = "the run says where its servers listen: tcp://ADDRESS:PORT"
        raise fail(UsageError, "ZPS013", f"{endpoint!r} is no endpoint", owner=OWNER, hint=hint)


def knock(endpoint: str, ticket: Ticket, patience: float = PATIENCE) -> None:
    """Connect, and be taken. Raise UsageError: ZPS013 where nobody listens there, ZPS012 where the keys are refused."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = sockets.dealer(context, endpoint, _NOTHING, ticket, connect=False)
    monitor = socket.get_monitor_socket()
    try:
        socket.connect(endpoint)
        _wait(monitor, endpoint, time.monotonic() + patience)
    except zmq.ZMQError as error:
        message = f"{endpoint} cannot be connected to: {error.strerror}"
        raise fail(UsageError, "ZPS013", message, owner=OWNER) from error
    finally:
        socket.disable_monitor()
        monitor.close(0)
        socket.close(0)
        context.term()


def _wait(monitor: zmq.Socket[bytes], endpoint: str, deadline: float) -> None:
    connected = 0
    while time.monotonic() < deadline:
        if not monitor.poll(100):
            continue
        event = recv_monitor_message(monitor)["event"]
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            return
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            raise _refused(f"the servers at {endpoint} do not take these keys")
        if event == zmq.EVENT_CONNECTED:
            connected += 1
        if connected > 3 or event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
            raise _refused(
                f"who listens at {endpoint} is no server of the run that these keys are of, and hangs up"
            )
    if connected:
        raise _refused(f"who listens at {endpoint} does not answer as a server of a run")
    message = f"nobody listens at {endpoint}"
    hint = "the run says where its servers listen; a firewall may be between"
    raise fail(UsageError, "ZPS013", message, owner=OWNER, hint=hint)


def _refused(message: str) -> NlpkernelError:
    hint = "copy .servers/keys/worker-N of the run's folder, as it is now"
    return fail(UsageError, "ZPS012", message, owner=OWNER, hint=hint)
