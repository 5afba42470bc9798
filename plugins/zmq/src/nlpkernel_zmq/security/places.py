"""Where servers listen for other machines: the address of an interface, and a port that stays the same."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import ipaddress
import os
import socket
import struct
from pathlib import Path

import zmq

from nlpkernel.errors import NlpkernelError, UsageError, fail
from nlpkernel_zmq.codes import OWNER

#: ioctl(2): the IPv4 address of an interface (netdevice(7)).
_SIOCGIFADDR = 0x8915
#: The state of a socket that listens, in /proc/net/tcp.
_LISTENS = "0A"


def address_of(listen: str) -> str:
    """The address that a setting names, itself or by the name of an interface. Raise UsageError (ZPS013)."""
    try:
        return str(ipaddress.ip_address(listen))
    except ValueError:
        pass
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            answer = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("256s", listen.encode()[:15]))
    except OSError as error:
        known = ", ".join(name for _, name in socket.if_nameindex())
        raise fail(
            UsageError,
            "ZPS013",
            f"{listen!r} is no address, and no interface of this machine with one",
            owner=OWNER,
            hint=f"its interfaces: {known}",
        ) from error
    return socket.inet_ntoa(answer[20:24])


def bind(made: zmq.Socket[bytes], address: str, port: int | None) -> int:
    """Bind a socket to an address, and to a port or to a free one. Returns the port. Raise UsageError (ZPS013)."""
    host = address
    if ":" in address:
        host = f"[{address}]"
        made.setsockopt(zmq.IPV6, 1)
    try:
        made.bind(f"tcp://{host}:{'*' if port is None else port}")
    except zmq.ZMQError as error:
        raise _taken(address, port, error) from error
    last = made.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(last, bytes)
    return int(last.rstrip(b"\0").rpartition(b":")[2])


def _taken(address: str, port: int | None, error: zmq.ZMQError) -> NlpkernelError:
    if error.errno != zmq.EADDRINUSE or port is None:
        message, hint = f"servers cannot listen at {address}: {zmq.strerror(error.errno or 0)}", None
        if error.errno in (zmq.EADDRNOTAVAIL, errno.ENODEV):
            hint = "`listen` of [communicator] names an address of this machine"
        return fail(UsageError, "ZPS013", message, owner=OWNER, hint=hint)
    return fail(
        UsageError,
        "ZPS013",
        f"port {port} of {address} is in use{listener(port)}",
        owner=OWNER,
        hint="workers of other machines look for the servers there: end that process, or start the run again",
    )


def listener(port: int) -> str:
    """Who listens at a port of this machine, as far as this user may know."""
    sockets = _inodes(port)
    if not sockets:
        return ""
    for process in Path("/proc").glob("[0-9]*"):
        # One may end meanwhile, or be somebody else's.
        with contextlib.suppress(OSError):
            if any(_is_one_of(each, sockets) for each in (process / "fd").iterdir()):
                name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
                return f": process {process.name} ({name}) listens there"
    return ": another process listens there"


def _is_one_of(descriptor: Path, sockets: set[str]) -> bool:
    try:
        return os.readlink(descriptor) in sockets
    except OSError:
        return False


def _inodes(port: int) -> set[str]:
    """The sockets that listen at a port, as /proc/PID/fd names them."""
    found = set()
    for table in ("tcp", "tcp6"):
        path = Path("/proc/net") / table
        if not path.exists():
            continue
        for line in path.read_text(encoding="ascii").splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{words[9]}]")
    return found
