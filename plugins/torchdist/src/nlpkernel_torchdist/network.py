"""Addresses and interfaces: where the workers listen, which is never more than one named interface. Light."""

from __future__ import annotations

import array
import errno
import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Iterator

from nlpkernel.errors import NlpkernelError, TrainingError, UsageError, fail
from nlpkernel_torchdist.codes import OWNER

#: The address of this machine alone.
LOOPBACK = "127.0.0.1"
_SIOCGIFCONF = 0x8912
#: Addresses that are read of all interfaces, at most.
_MOST = 512


def resolve(host: str) -> str:
    """The first address of a host, IPv4 where there is one. A name of this machine may mean the loopback interface
    here (/etc/hosts), and something else on others: that address is given only where there is no other. Raise OSError
    where the name is not known."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    found.sort(key=lambda each: (is_loopback(str(each[4][0])), each[0] != socket.AF_INET))
    return str(found[0][4][0])


def means_this_machine(host: str) -> bool:
    """Whether a host is the loopback interface by what it is called, and so on every machine."""
    if host.rstrip(".").lower() in ("localhost", "ip6-localhost", "localhost.localdomain"):
        return True
    try:
        return is_loopback(host)
    except ValueError:
        return False  # A name.


def is_loopback(address: str) -> bool:
    """Whether an address is that of this machine alone."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def listen(address: str, port: int = 0) -> socket.socket:
    """A socket that listens on one address. Raise TrainingError (TDI003) where something else listens there, which may
    be over the next time, and UsageError (TDI003) where it is not possible at all."""
    listener = socket.socket(_family(address), socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise fail(
            TrainingError if error.errno == errno.EADDRINUSE else UsageError,
            "TDI003",
            f"the first worker cannot listen on {address}, port {port}: {error.strerror or error}",
            owner=OWNER,
            hint="the address has to be one of this machine, and the port free: see MASTER_ADDR and MASTER_PORT",
        ) from error
    return listener


def connect(address: str, port: int, timeout: float) -> socket.socket:
    """A connection. Raise OSError."""
    made = socket.create_connection((address, port), timeout=timeout)
    made.settimeout(None)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def toward(address: str) -> str:
    """The address of this machine from which another one is reached. Raise OSError where it cannot be."""
    with socket.socket(_family(address), socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # Sends nothing: it only asks for the route.
        return str(probe.getsockname()[0])


def interface_of(address: str) -> str | None:
    """The interface that has an address, where the system tells."""
    for _, name in socket.if_nameindex():
        if address in addresses(name):
            return name
    return None


def addresses(interface: str) -> list[str]:
    """The addresses of an interface, where the system tells (Linux)."""
    if sys.platform != "linux":
        return []
    found = [address for name, address in _ipv4() if name == interface]
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as file:
            for line in file:
                digits, *_, name = line.split()
                if name == interface:
                    found.append(str(ipaddress.IPv6Address(bytes.fromhex(digits))))
    except OSError:
        pass  # A system without IPv6.
    return found


def _ipv4() -> Iterator[tuple[str, str]]:
    """All interfaces and their IPv4 addresses, several of one among them (Linux)."""
    import fcntl

    # The kernel fills an array of entries: a name of 16 bytes, and a socket address, padded.
    size = 40 if struct.calcsize("P") == 8 else 32
    room = array.array("B", bytes(size * _MOST))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("iP", len(room), room.buffer_info()[0])
        length = struct.unpack("iP", fcntl.ioctl(probe.fileno(), _SIOCGIFCONF, request))[0]
    filled = room.tobytes()[:length]
    for at in range(0, length, size):
        entry = filled[at : at + size]
        # A second address may have a name of its own: eth0:1.
        name = os.fsdecode(entry[:16].partition(b"\0")[0]).partition(":")[0]
        yield name, socket.inet_ntoa(entry[20:24])


def address_of(interface: str) -> str:
    """The first address of a named interface. Raise UsageError (TDI021) where there is none."""
    found = addresses(interface)
    if not found:
        known = ", ".join(name for _, name in socket.if_nameindex())
        raise _no_interface(f"the interface {interface!r} has no address here", f"there are {known}")
    return found[0]


def _no_interface(message: str, hint: str) -> NlpkernelError:
    return fail(UsageError, "TDI021", message, owner=OWNER, hint=hint)


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
