"""Digests of blobs: xxh3_128, which is as fast as memory, so that it never is what a save waits for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import xxhash

#: Digests are taken without the interpreter's lock; more threads than this only wait for memory.
_THREADS = min(4, os.cpu_count() or 1)
#: From so many bytes on, threads pay.
_LARGE = 4 << 20


def digest(data: bytes | memoryview) -> bytes:
    """The 16 bytes of a blob's digest."""
    return xxhash.xxh3_128_digest(data)


def digests(blobs: Sequence[bytes | memoryview]) -> list[bytes]:
    """The digest of each, in their order; of many bytes in several threads."""
    total = sum(memoryview(blob).nbytes for blob in blobs)
    if _THREADS == 1 or total < _LARGE:
        return [digest(blob) for blob in blobs]
    try:
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="store-hash") as pool:
            return list(pool.map(digest, blobs))
    except RuntimeError:
        # The interpreter is ending and starts no thread any more, while the writer finishes a version.
        return [digest(blob) for blob in blobs]
