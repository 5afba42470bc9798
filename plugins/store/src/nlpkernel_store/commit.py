"""From contents to a version: digests, packs, manifest; then rotation. Runs on the writer's thread."""

from __future__ import annotations

import itertools
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import attrs

from nlpkernel.errors import CheckpointError, NlpkernelError, fail
from nlpkernel_store import packs, parts, sharing
from nlpkernel_store.capture import Contents, Item
from nlpkernel_store.catalog import Catalog
from nlpkernel_store.codes import OWNER
from nlpkernel_store.hashing import digests
from nlpkernel_store.manifest import (
    Blob,
    Damaged,
    Entry,
    Manifest,
    NewerFormat,
    PackSize,
    Part,
    StoredLeaf,
    entry_of,
)
from nlpkernel_store.options import Options, Worker
from nlpkernel_store.packs import Piece
from nlpkernel_store.places.tiers import cool
from nlpkernel_store.plain import refuse
from nlpkernel_store.rotation import kept
from nlpkernel_store.shares import fault, shares

_log = logging.getLogger("nlpkernel.store")
_T = TypeVar("_T")


@attrs.define(kw_only=True)
class Committer:
    """Makes versions, one after the other.

    parent: the version that training came from, and so the one that is shared with. aside: what is made is no step of
    the training, so it has a line of its own. notices: what a person should read; whoever owns the committer passes it
    on.
    """

    catalog: Catalog
    options: Options
    worker: Worker
    notices: list[str]
    parent: Entry | None = None
    aside: bool = False
    _count: int = 0
    #: The version that is being committed.
    _pending: Entry | None = None
    #: Packs that were written for it.
    _written: list[str] = attrs.field(factory=list)
    #: The parent's own blobs, as long as it is the version that was written last.
    _shared: tuple[Entry, Mapping[sharing.Key, Blob], Mapping[str, PackSize]] | None = None
    _told: set[str] = attrs.field(factory=set)

    def write(self, contents: Contents) -> Entry:
        """Make a version. Raise OSError or CheckpointError where that fails; then nothing of it is left, and older
        versions are as before."""
        save = f"{self.worker.launch}-{self._count}"
        self._count += 1
        self._pending, self._written = None, []
        several = self.worker.world > 1
        if several and not self.worker.rank:
            self._patiently(lambda: parts.forget(self.catalog.files, save))
        gathering = parts.Gathering(self.catalog.files, save, self.worker, self.options.rank_timeout)
        try:
            part = self._patiently(lambda: self._write_part(contents, save))
            if self.worker.rank:
                self._patiently(lambda: gathering.put(part.dump()))
            else:
                stored = [part.dump(), *(gathering.gather() if several else ())]
                whole = [Part.load(each) for each in stored]
                _check(whole)
                if several:
                    self._patiently(lambda: gathering.await_packs(whole))
                manifest = self._manifest(contents, save, whole)
                self._patiently(lambda: self._commit(manifest, stored))
        except BaseException as error:
            self._undo(save)
            if several:
                self._give_up(gathering, error)
            raise
        if self.worker.rank:
            gathering.wait()
            return self._committed(save)
        entry = self._pending
        assert entry is not None, "it was committed"
        self.parent = entry
        self._share(entry, whole)
        self._rotate(entry, manifest)
        if several:
            self._end(gathering)
        self._cool(entry)
        return entry

    def _write_part(self, contents: Contents, save: str) -> Part:
        """Write what is not there yet."""
        self._remove_packs()  # Of a try that failed.
        pieces: dict[int, Piece] = {
            id(piece): piece
            for piece in [*(item.content for item in contents.items), *contents.artifacts.values()]
            if isinstance(piece, Piece)
        }
        found = digests([piece.data for piece in pieces.values()])
        keys = {
            identity: (digest, piece.data.nbytes)
            for (identity, piece), digest in zip(pieces.items(), found, strict=True)
        }
        distinct: dict[sharing.Key, Piece] = {}
        for identity, piece in pieces.items():
            distinct.setdefault(keys[identity], piece)
        known, sizes = self._known()
        placement = sharing.place(list(distinct), known, sizes)
        blobs = dict(placement.reused)
        used = {blob.pack: sizes[blob.pack] for blob in blobs.values()}
        for wanted in placement.written:
            pack = packs.pack([distinct[key] for key in wanted])
            name = self._create(pack, save)
            used[name] = pack.size
            for key, offset in zip(wanted, pack.offsets, strict=True):
                blobs[key] = Blob(key[0], name, offset, key[1])

        def content(value: Piece | bytes | str) -> Blob | bytes | str:
            return blobs[keys[id(value)]] if isinstance(value, Piece) else value

        return Part(
            packs=used,
            leaves=tuple(_stored(item, content(item.content)) for item in contents.items),
            artifacts={name: content(value) for name, value in contents.artifacts.items()},  # type: ignore[misc]
        )

    def _create(self, pack: packs.Pack, save: str) -> str:
        """Write a pack under a name that is free."""
        for number in itertools.count():
            ending = f"-{number}" if number else ""
            name = f"{packs.FOLDER}{save}-{self.worker.rank}{ending}.safetensors"
            if name in self._written:
                continue
            try:
                self.catalog.files.create(name, pack.chunks(), size=pack.size.file)
            except FileExistsError:
                continue
            self._written.append(name)
            return name
        raise AssertionError("numbers do not end")

    def _known(self) -> tuple[Mapping[sharing.Key, Blob], Mapping[str, PackSize]]:
        """Blobs of the parent, and those of its packs that are there with the size that they had."""
        if self.parent is None:
            return {}, {}
        if self._shared is None or self._shared[0] != self.parent:
            try:
                _, stored = self.catalog.read(self.parent)
            except (Damaged, NewerFormat):
                return {}, {}
            self._share(self.parent, stored)
        assert self._shared is not None
        _, blobs, sizes = self._shared
        there = self.catalog.files.names(packs.FOLDER)
        return blobs, {name: size for name, size in sizes.items() if there.get(name) == size.file}

    def _share(self, entry: Entry, stored: Sequence[Part]) -> None:
        blobs: dict[sharing.Key, Blob] = {}
        sizes: dict[str, PackSize] = {}
        for part in stored:
            blobs.update(part.blobs())
            sizes.update(part.packs)
        self._shared = (entry, blobs, sizes)

    def _manifest(self, contents: Contents, save: str, stored: list[Part]) -> Manifest:
        files = {name: size.file for part in stored for name, size in part.packs.items()}
        blobs = {key for part in stored for key in part.blobs()}
        written = sum(size for name, size in files.items() if name.startswith(f"{packs.FOLDER}{save}-"))
        return Manifest(
            serial=self._patiently(lambda: self.catalog.next_serial(aside=self.aside)),
            step=contents.step,
            created=time.time(),
            metrics=contents.metrics,
            main=contents.main,
            parent=self.parent.id if self.parent else None,
            line=self._line(),
            save=save,
            world=self.worker.world,
            packs=files,
            size=sum(size for _, size in blobs) + len(contents.facts),
            new=written + len(contents.facts),
            facts=contents.facts,
        )

    def _commit(self, manifest: Manifest, stored: list[bytes]) -> None:
        data = manifest.dump(stored)
        self._pending = entry_of(data, manifest)
        self.catalog.commit(self._pending, manifest, data)

    def _line(self) -> tuple[tuple[str, int | None], ...]:
        """The parent's line, or a new one where the parent is not its newest version."""
        new = (secrets.token_hex(4), None)
        if self.parent is None:
            return (new,)
        try:
            line = self.catalog.manifest(self.parent).line
        except (Damaged, NewerFormat):
            return (new,)
        name = line[-1][0]
        if self.aside:
            return (*line[:-1], (name, self.parent.step), new)
        for entry, manifest in self.catalog.readable().items():
            if entry.serial > self.parent.serial and manifest.line[-1][0] == name:
                return (*line[:-1], (name, self.parent.step), new)
        return line

    def _rotate(self, newest: Entry, manifest: Manifest) -> None:
        """Remove versions that are not kept, and packs that nobody needs. What fails is told of, and does no harm."""
        try:
            if self.options.keep is not None:
                with self.catalog.files.lock() as locked:
                    line = self.catalog.history(newest)
                    protected = {newest.id, *self.catalog.tags().values()}
                    stay = kept(self.catalog.candidates(line), self.options.keep, manifest.main, protected)
                    for entry in line:
                        if entry.id not in stay:
                            self.catalog.remove(entry, locked=locked)
            self.catalog.sweep()
        except (OSError, NlpkernelError, Damaged, NewerFormat) as error:
            self._tell(f"older versions stay: {error}")

    def _cool(self, newest: Entry) -> None:
        """Move older versions to the cold place. What fails is told of, and tried again after the next version."""
        try:
            cool(self.catalog, newest)
        except (OSError, NlpkernelError, Damaged, NewerFormat) as error:
            self._tell(f"versions are not moved to the cold place yet: {error}")

    def _end(self, gathering: parts.Gathering) -> None:
        """Let the other workers go on. The version is complete, whatever becomes of this."""
        try:
            self._patiently(gathering.end)
        except OSError as error:
            self._tell(f"the other workers were not told of a version: {error}")

    def _tell(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            self.notices.append(message)

    def _committed(self, save: str) -> Entry:
        """On the other workers: the version that the first one has made."""
        for entry in reversed(self.catalog.entries()):
            try:
                manifest = self.catalog.manifest(entry)
            except (Damaged, NewerFormat):
                continue
            if manifest.save == save:
                self.parent = entry
                return entry
        raise fail(CheckpointError, "STO007", "worker 0 did not commit the version", owner=OWNER)

    def _patiently(self, work: Callable[[], _T]) -> _T:
        """Do something on the disk, trying again where that fails."""
        for attempt in range(self.options.retries):
            try:
                return work()
            except OSError as error:
                _log.warning("a version is not written yet: %s; it is tried again", error)
                time.sleep(self.options.retry_after * 2**attempt)
        return work()

    def _undo(self, save: str) -> None:
        """Remove what was written. Packs stay while their manifest may be there: a commit that failed may have come
        through, and only its answer not. When the store is opened next, the rest goes."""
        try:
            if self._pending is not None:
                self.catalog.files.remove(self._pending.file)
            self._remove_packs()
            if self.worker.rank == 0 and self.worker.world > 1:
                self.catalog.sweep(save)
        except (OSError, Damaged, NlpkernelError) as error:
            _log.warning("what was written of a version is removed later: %s", error)

    def _remove_packs(self) -> None:
        while self._written:
            self.catalog.files.remove(self._written[-1])
            self._written.pop()

    def _give_up(self, gathering: parts.Gathering, error: BaseException) -> None:
        try:
            gathering.give_up(f"{type(error).__name__}: {error}")
            if self.worker.rank == 0:
                gathering.end()
        except OSError as second:
            _log.warning("the other workers were not told: %s", second)


def _check(stored: Sequence[Part]) -> None:
    """Raise CheckpointError (STO006) for a leaf of which the workers' shares do not make one value."""
    for path, given in shares(stored).items():
        if wrong := fault(given):
            raise refuse(path, wrong, "STO006")


def _stored(item: Item, content: Blob | bytes | str) -> StoredLeaf:
    return StoredLeaf(path=item.path, kind=item.kind, content=content, dtype=item.dtype, shape=item.shape)
