"""The newest state of a shard on disk, for a server that is started again within the same start of a run.

A file is written beside the old one, synced, and put in its place, so there is always a whole one.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from nlpkernel_zmq import blobs
from nlpkernel_zmq.wire.frames import BadFrame

_SUM = struct.Struct("<I")
_NAME = "state"


class Snapshots:
    """The snapshot of one shard in a folder of its own. launch: the start of the run that it belongs to; that of
    another start is void."""

    def __init__(self, folder: Path, launch: str) -> None:
        self._folder, self._launch = folder, launch
        self._path = folder / _NAME

    def write(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Replace it. Raise OSError; then the one before is still there."""
        self._folder.mkdir(parents=True, exist_ok=True)
        data = blobs.pack({**facts, "launch": self._launch}, tensors)
        fresh = self._path.with_suffix(".new")
        try:
            with fresh.open("wb") as file:
                file.write(_SUM.pack(zlib.crc32(data)))
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Facts and tensors; None where there is none of this start. Raise BadFrame where it is damaged."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        (expected,) = _SUM.unpack_from(data) if len(data) >= _SUM.size else (None,)
        content = memoryview(data)[_SUM.size :]
        if expected is None or zlib.crc32(content) != expected:
            raise BadFrame("header", f"the snapshot {str(self._path)!r} is damaged")
        facts, tensors = blobs.unpack(content)
        return (facts, tensors) if facts["launch"] == self._launch else None

    def remove(self) -> None:
        """There is no use for it any more."""
        for path in (self._path, self._path.with_suffix(".new")):
            path.unlink(missing_ok=True)
        for folder in (self._folder, self._folder.parent):
            try:
                folder.rmdir()
            except OSError:
                return
