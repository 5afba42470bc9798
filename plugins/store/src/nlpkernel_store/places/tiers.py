"""A hot and a cold place as one: what is new is written to the hot one, older versions are moved to the cold one.

A version is moved by copying its packs, then its manifest; all of that is read back and compared before its manifest,
and then its packs, are removed from the hot place. So at every moment it is whole in one of the two, and in between in
both, where it counts once. Packs that a hot version needs too are in both places.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from nlpkernel_store.catalog import Catalog
from nlpkernel_store.manifest import FOLDER as MANIFESTS
from nlpkernel_store.manifest import Damaged, Entry, Manifest
from nlpkernel_store.packs import FOLDER as PACKS
from nlpkernel_store.places import Place


class Tiered:
    """Two places as one. Only manifests and packs are ever in the cold one.

    owned: this process is the only one that changes the cold place, so it is listed once, and a cold place that is out
    of reach for a while does not keep versions from being saved.
    """

    def __init__(self, hot: Place, cold: Place, *, after: int, owned: bool) -> None:
        self.hot, self.cold, self.after = hot, cold, after
        self._owned = owned
        self._cold: dict[str, int] | None = None
        #: Files that were compared, and are the same in both.
        self._compared: set[str] = set()

    def create(self, name: str, chunks: Iterable[bytes | memoryview], *, size: int | None = None) -> int:
        """See Place."""
        if _moves(name) and name in self.cold_names():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.cold.describe(name))
        return self.hot.create(name, chunks, size=size)

    def replace(self, name: str, data: bytes) -> None:
        """See Place."""
        self.hot.replace(name, data)

    def read(self, name: str) -> bytes:
        """See Place."""
        try:
            return self.hot.read(name)
        except FileNotFoundError:
            if not _moves(name):
                raise
            return self.cold.read(name)

    def local(self, name: str) -> Path:
        """See Place."""
        try:
            return self.hot.local(name)
        except FileNotFoundError:
            if not _moves(name):
                raise
            return self.cold.local(name)

    def copies(self, name: str) -> bool:
        """See Place."""
        return (self.cold if _moves(name) and name not in self.hot.names(name) else self.hot).copies(name)

    def forget(self, name: str) -> bool:
        """See Place."""
        return self.hot.forget(name) or self.cold.forget(name)

    def stream(self, name: str) -> Iterator[bytes]:
        """See Place."""
        place = self.hot if name in self.hot.names(name) or not _moves(name) else self.cold
        yield from place.stream(name)

    def names(self, prefix: str = "") -> Mapping[str, int]:
        """See Place. The hot place is asked first: what is moved in between is in both."""
        hot = self.hot.names(prefix)
        if prefix and not _moves(prefix):
            return hot
        cold = {name: size for name, size in self.cold_names().items() if name.startswith(prefix)}
        return dict(sorted({**cold, **hot}.items()))

    def cold_names(self) -> Mapping[str, int]:
        """What is in the cold place, with sizes in bytes."""
        if self._cold is None or not self._owned:
            self._cold = {name: size for name, size in self.cold.names().items() if _moves(name)}
        return self._cold

    def remove(self, name: str) -> None:
        """See Place."""
        self.hot.remove(name)
        if _moves(name) and name in self.cold_names():
            self._remove_cold(name)

    def clean(self) -> None:
        """See Place."""
        self.hot.clean()
        self.cold.clean()

    def lock(self) -> AbstractContextManager[bool]:
        """See Place: of the hot one, through which whoever changes something goes."""
        return self.hot.lock()

    def free(self) -> int | None:
        """See Place: of the hot one."""
        return self.hot.free()

    def only_cold(self, prefix: str = "") -> set[str]:
        """Files that are in the cold place alone."""
        hot = self.hot.names(prefix)
        return {name for name in self.cold_names() if name.startswith(prefix) and name not in hot}

    def describe(self, name: str = "") -> str:
        """See Place."""
        known = self._cold or {}
        if name in known and name not in self.hot.names(name):
            return self.cold.describe(name)
        return self.hot.describe(name)

    def close(self) -> None:
        """See Place."""
        self.hot.close()
        self.cold.close()

    def copy(self, name: str) -> None:
        """Let a file of the hot place be in the cold one too, as it is in the hot one. Raise OSError."""
        if name in self.cold_names():
            # A move that was cut off had come that far, or another version needs it too.
            if self.same(name):
                return
            self._remove_cold(name)
        size = self.hot.names(name)[name]
        with suppress(FileExistsError):
            self.cold.create(name, self.hot.stream(name), size=size)
        if self._cold is not None:
            self._cold[name] = size
        if not self.same(name):
            self._remove_cold(name)
            raise OSError(f"{self.cold.describe(name)} is not what was written there")

    def same(self, name: str) -> bool:
        """Whether a file that is in both places is the same in both. Each is read for this once; files never change."""
        if name not in self._compared:
            if self.cold_names().get(name) != self.hot.names(name).get(name):
                return False
            if _digest(self.cold.stream(name)) != _digest(self.hot.stream(name)):
                return False
            self._compared.add(name)
        return True

    def _remove_cold(self, name: str) -> None:
        self.cold.remove(name)
        self._compared.discard(name)
        if self._cold is not None:
            self._cold.pop(name, None)


def cool(catalog: Catalog, newest: Entry) -> None:
    """Move versions out of the hot place, all but the newest of the line that ends with `newest`, and finish what an
    earlier move had begun. A version that is damaged stays where it is. Does nothing where there are no tiers.

    Raise OSError; Damaged and NewerFormat while a manifest cannot be read.
    """
    tiers = catalog.files
    if not isinstance(tiers, Tiered):
        return
    stay = {entry.id for entry in catalog.history(newest)[-tiers.after :]}
    hot = tiers.hot.names(MANIFESTS)
    for entry, manifest in catalog.readable().items():
        if entry.id not in stay and entry.file in hot:
            _move(catalog, tiers, entry, manifest)
    _remove_copies(catalog, tiers)


def _move(catalog: Catalog, tiers: Tiered, entry: Entry, manifest: Manifest) -> None:
    there = tiers.names(PACKS)
    if any(there.get(name) != size for name, size in manifest.packs.items()):
        return
    try:
        catalog.read(entry)
    except Damaged:
        return
    hot = tiers.hot.names(PACKS)
    if all(_settle(catalog, tiers, name) for name in manifest.packs if name in hot):
        tiers.copy(entry.file)
        tiers.hot.remove(entry.file)


def _settle(catalog: Catalog, tiers: Tiered, name: str) -> bool:
    """Let a pack of the hot place be the same in the cold one. False where they differ and it is not the hot one that
    is sound: then both stay as they are."""
    from nlpkernel_store.examine import examine

    if name in tiers.cold_names() and not tiers.same(name):
        users = [entry for entry in catalog.entries() if name in catalog.manifest(entry).packs]
        if any(examine(catalog, user) for user in users):
            return False
    tiers.copy(name)
    return True


def _remove_copies(catalog: Catalog, tiers: Tiered) -> None:
    """Remove from the hot place the packs that are in the cold one and that no hot version needs."""
    hot = tiers.hot.names(MANIFESTS)
    needed = {
        name for entry in catalog.entries() if entry.file in hot for name in catalog.manifest(entry).packs
    }
    for name in tiers.hot.names(PACKS):
        if name not in needed and name in tiers.cold_names() and _settle(catalog, tiers, name):
            tiers.hot.remove(name)


def _moves(name: str) -> bool:
    return name.startswith((MANIFESTS, PACKS))


def _digest(chunks: Iterable[bytes]) -> bytes:
    """A digest to compare two copies by."""
    made = hashlib.blake2b()
    for chunk in chunks:
        made.update(chunk)
    return made.digest()
