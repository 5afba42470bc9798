"""Which start of a server this is: a number on disk that rises, and a lock against two of them."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from types import TracebackType

from nlpkernel.errors import UsageError, fail
from nlpkernel_zmq.codes import OWNER

_NAME = "generation"


class Generation:
    """While entered, this process is the one server of a folder. `number` was never given before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.number = 0
        self._descriptor = -1

    def __enter__(self) -> Generation:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / _NAME
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            message = f"another server uses {str(self._folder)!r}"
            raise fail(UsageError, "ZPS001", message, owner=OWNER) from error
        text = os.pread(self._descriptor, 32, 0)
        self.number = int(text or b"0") + 1
        # The lock is on the file itself, so it is written in place; a torn number is a larger or a smaller one, and
        # the launch word tells starts of a run apart.
        os.pwrite(self._descriptor, b"%020d\n" % self.number, 0)
        os.fsync(self._descriptor)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is SystemExit:
            # The run is over. Otherwise whoever comes next has a higher number.
            with contextlib.suppress(OSError):
                (self._folder / _NAME).unlink()
                self._folder.rmdir()
                self._folder.parent.rmdir()
        os.close(self._descriptor)
