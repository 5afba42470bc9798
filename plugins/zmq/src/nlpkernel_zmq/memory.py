"""Memory that processes of one machine share: anonymous files (memfd_create(2)) that no other process can find by name.

Whoever made it says its process and descriptor, and others of the same user open it there. Nothing is left behind,
however the processes end. It cannot be made smaller, so that no peer can take it away from under a reader.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nlpkernel_zmq.wire.frames import BadFrame

_LABEL = "nlpkernel"
#: fcntl(2): seals. Python 3.11 has no names for them on every build.
_ADD_SEALS, _SHRINK, _GROW, _SEAL = 1033, 0x2, 0x4, 0x1


@cache
def available() -> bool:
    """Whether this system has such memory."""
    return sys.platform.startswith("linux") and hasattr(os, "memfd_create")


@cache
def host() -> str:
    """A word that two processes share if they can share memory: the machine's boot, the namespace of processes, and the
    user."""
    if not available():
        return f"pid {os.getpid()}"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}/{os.getuid()}"


class Memory:
    """Bytes that are shared, or this process's alone where nobody is to share them. `tensor` is all of it, as bytes."""

    def __init__(self, tensor: Tensor, address: Mapping[str, Any] | None, close: Any = None) -> None:
        self.tensor, self.address, self._mapped = tensor, address, close

    @classmethod
    def private(cls, size: int) -> Memory:
        """Of this process alone."""
        return cls(torch.zeros(size, dtype=torch.uint8), None)

    @classmethod
    def shared(cls, size: int) -> Memory:
        """To be opened by others. Raise OSError where the system has not so much."""
        descriptor = os.memfd_create(_LABEL, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, max(size, 1))
        fcntl.fcntl(descriptor, _ADD_SEALS, _SHRINK | _GROW | _SEAL)
        mapped = mmap.mmap(descriptor, max(size, 1))
        address = {"pid": os.getpid(), "descriptor": descriptor, "bytes": size}
        return cls(torch.frombuffer(mapped, dtype=torch.uint8)[:size], address, mapped)

    @classmethod
    def of(cls, address: Mapping[str, Any]) -> Memory:
        """What another process shares. Raise BadFrame where there is no such memory."""
        try:
            pid, number, size = (int(address[name]) for name in ("pid", "descriptor", "bytes"))
            path = f"/proc/{pid}/fd/{number}"
            if not os.readlink(path).startswith(f"/memfd:{_LABEL}"):
                raise BadFrame("field", f"{path} is no memory of nlpkernel")
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except (KeyError, TypeError, ValueError, OverflowError, OSError) as error:
            if isinstance(error, BadFrame):
                raise
            raise BadFrame(
                "field", f"the shared memory of the other side cannot be opened: {error}"
            ) from error
        try:
            sealed = fcntl.fcntl(descriptor, _ADD_SEALS + 1) & _SHRINK
            if not sealed or os.fstat(descriptor).st_size < size or size < 0:
                raise BadFrame("field", f"the shared memory has less than {size} bytes, or could get less")
            mapped = mmap.mmap(descriptor, max(size, 1))
        finally:
            os.close(descriptor)
        return cls(torch.frombuffer(mapped, dtype=torch.uint8)[:size], None, mapped)
