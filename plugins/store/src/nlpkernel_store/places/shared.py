"""A folder that other machines see too (`file:///mnt/shared/run`): a local one where names are given by hard links."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nlpkernel_store.places.local import Local


class Shared(Local):
    """Like Local, but nothing is written where the file system has no hard links: without them two machines could
    give the same name at once, and one of them would lose what it wrote."""

    def __init__(self, folder: Path, *, fsync: bool = True) -> None:
        super().__init__(folder, fsync=fsync)
        self.creates = True
        self._tried = False

    def create(self, name: str, chunks: Iterable[bytes | memoryview], *, size: int | None = None) -> int:
        """See Place."""
        if not self._tried:
            self._try()
        return super().create(name, chunks, size=size)

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """See Place. Locks of file systems that several machines see hold on some of them only."""
        yield False

    def describe(self, name: str = "") -> str:
        """See Place."""
        return f"file://{super().describe(name)}"

    def _try(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        first = self.folder / f".{secrets.token_hex(8)}"
        second = first.with_name(f"{first.name}-linked")
        try:
            first.touch(exist_ok=False)
            os.link(first, second)
        except OSError as error:
            if not first.exists():
                raise
            self.creates = False
            message = f"the file system has no hard links ({error.strerror})"
            raise OSError(errno.ENOTSUP, message, self.describe()) from error
        finally:
            first.unlink(missing_ok=True)
            second.unlink(missing_ok=True)
        self._tried = True
