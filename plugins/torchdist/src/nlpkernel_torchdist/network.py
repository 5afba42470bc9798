"""Addresses and interfaces: where the workers listen, which is never more than one named interface. Light."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import sys

from nlpkernel.errors import NlpkernelError, UsageError, fail
from nlpkernel_torchdist.codes import OWNER

#: The address of this machine alone.
LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915


def resolve(host: str) -> str:
    """The first address of a host, IPv4 where there is one. Raise OSError where the name is not known."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    found.sort(key=lambda each: each[0] != socket.AF_INET)
    return str(found[0][4][0])


def is_loopback(address: str) -> bool:
    """Whether an address is that of this machine alone."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def listen(address: str, port: int = 0) -> socket.socket:
    """A socket that listens on one address. Raise UsageError (TDI003) where that is not possible."""
    listener = socket.socket(_family(address), socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise fail(
            UsageError,
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
    import fcntl

    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", os.fsencode(interface)[:15])
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            found.append(socket.inet_ntoa(answer[20:24]))
        except OSError:
            pass  # It has no IPv4 address.
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as file:
            for line in file:
                digits, *_, name = line.split()
                if name == interface:
                    found.append(str(ipaddress.IPv6Address(bytes.fromhex(digits))))
    except OSError:
        pass  # A system without IPv6.
    return found


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
