"""The network interface that the backends of torch listen on. Light."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from nlpkernel.errors import UsageError, fail
from nlpkernel_torchdist import network
from nlpkernel_torchdist.codes import OWNER

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel_torchdist.component import TorchDist

#: What Gloo and NCCL read. Without it Gloo asks for the address of the host's name, and NCCL takes what it finds.
VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def bind(settings: TorchDist, run: Run, address: str) -> str:
    """Let the backends listen on the interface from which the first worker's address is reached, and on no other, or on
    the one that the plan names. Returns its name. Raise UsageError (TDI021) where it cannot be found out."""
    name = interface(settings.interface, address)
    for variable in VARIABLES:
        given = os.environ.get(variable)
        if given == name:
            continue
        if given is not None:
            if settings.trusted_network and not network.is_loopback(address):
                continue  # Whoever set it knows the network.
            run.notice(
                "communicator torchdist",
                f"{variable}={given} is set, and the workers use {name}: without trusted_network they are all on this "
                "machine",
                level="warning",
            )
        os.environ[variable] = name
    return name


def interface(named: str | None, address: str) -> str:
    """The interface toward an address; `named` says which, unless the address is that of this machine alone."""
    if network.is_loopback(address):
        return next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), "lo")
    if named is not None:
        network.address_of(named)
        return named
    try:
        own = network.toward(address)
        found = network.interface_of(own)
    except OSError as error:
        own, found = str(error), None
    if found is None:
        raise fail(
            UsageError,
            "TDI021",
            f"the network interface from which {address} is reached cannot be found out ({own})",
            owner=OWNER,
            hint='name it: interface = "eth0" in [communicator]',
        )
    return found
