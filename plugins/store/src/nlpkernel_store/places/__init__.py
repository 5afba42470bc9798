"""Places: where the files of a store are. What was put there is whole, or it is not there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol


class Place(Protocol):
    """Files by name, with "/" between the parts of a name. Whatever goes wrong is an OSError."""

    def create(self, name: str, chunks: Iterable[bytes | memoryview], *, size: int | None = None) -> int:
        """Make a file that is not there yet, whole or not at all, and return its bytes. `size`: how many bytes will
        come, where that is known. Raise FileExistsError where the name is taken; what is there stays as it is."""

    def replace(self, name: str, data: bytes) -> None:
        """Make a small file, or put new content into it: readers see the old content or the new."""

    def read(self, name: str) -> bytes:
        """The content of a file. Raise FileNotFoundError."""

    def local(self, name: str) -> Path:
        """A path on this machine with the file's content, to be mapped into memory; what is far away is fetched first.
        The content is not compared with any digest here. Raise FileNotFoundError."""

    def copies(self, name: str) -> bool:
        """Whether what `local` gives is a copy on this machine, which can be damaged where the file is not."""

    def forget(self, name: str) -> bool:
        """Throw away the copy of a far file here, so that `local` fetches it again, and tell whether there was one."""

    def stream(self, name: str) -> Iterator[bytes]:
        """The content of a file in pieces, from where it really is, past any copy here. Raise FileNotFoundError."""

    def names(self, prefix: str = "") -> Mapping[str, int]:
        """Complete files whose names start with `prefix`, with their sizes in bytes, in order of their names."""

    def remove(self, name: str) -> None:
        """Remove a file; one that is not there is fine."""

    def clean(self) -> None:
        """Remove what writers left that died before their file was whole. A file that is being written stays."""

    def lock(self) -> AbstractContextManager[bool]:
        """Keep out, for as long as it takes, who asks for the same, and say True; others are waited for up to a minute.
        A place without locks says False, and keeps nobody out."""

    def free(self) -> int | None:
        """Bytes that still go in, or None where nobody knows."""

    def describe(self, name: str = "") -> str:
        """The whole path or URL of a file, for messages; nothing secret."""

    def close(self) -> None:
        """Give back connections and the like."""


def open_place(
    url: str,
    options: Mapping[str, Any],
    *,
    cache: Path,
    secrets: Mapping[str, str] = MappingProxyType({}),
    fsync: bool = True,
) -> Place:
    """The place behind a URL (`s3://bucket/run`, `memory://x`, `file:///mnt/shared/run`). `options` go to its driver,
    and so do `secrets`, which no message shows; files that are fetched to be mapped lie below `cache`. fsync: of a
    folder, whether each file is waited for. Raise CheckpointError (STO050, STO051) where it cannot be opened."""
    protocol, _, path = url.partition("://")
    if protocol in ("file", "local") and "::" not in url:
        from nlpkernel_store.places.shared import Shared

        return Shared(Path(path), fsync=fsync)
    from nlpkernel_store.places.remote import Remote

    return Remote(url, options, cache=cache, secrets=secrets)
