"""The store: versions saved beside the training, listed, verified and loaded."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

import attrs

from nlpkernel.errors import CheckpointError, Place, fail
from nlpkernel.state import Saved, Snapshot, VersionInfo
from nlpkernel_store import parts
from nlpkernel_store.buffers import Buffers, dense
from nlpkernel_store.capture import Contents, capture
from nlpkernel_store.catalog import Catalog
from nlpkernel_store.codes import OWNER
from nlpkernel_store.commit import Committer
from nlpkernel_store.examine import Damage, Mapped, compare, damaged, examine, portion
from nlpkernel_store.manifest import MALFORMED, Damaged, Entry, Manifest, NewerFormat, Part
from nlpkernel_store.options import Options, Worker
from nlpkernel_store.plain import refuse
from nlpkernel_store.references import resolve
from nlpkernel_store.restore import restore
from nlpkernel_store.writer import Writer

_log = logging.getLogger("nlpkernel.store")


class VersionStore:
    """Versions of one run; see `nlpkernel.hookspecs.checkpoint.Store`.

    write: this process owns the run. notice: tells a person something; it is called on the caller's thread only. aside:
    what is saved is no step of the training. owner: names the component that a leaf is of.
    """

    def __init__(
        self,
        catalog: Catalog,
        options: Options,
        worker: Worker,
        *,
        write: bool,
        notice: Callable[[str], None],
        aside: bool = False,
        owner: Callable[[str], str | None] = lambda path: None,
    ) -> None:
        self.catalog = catalog
        self._options, self._worker, self._writes, self._notice = options, worker, write, notice
        self._owner = owner
        self._buffers = Buffers()
        self._notices: list[str] = []
        self._committer = Committer(
            catalog=catalog, options=options, worker=worker, aside=aside, notices=self._notices
        )
        self._writer = Writer(self._make, options, catalog.files)
        if write and worker.rank == 0:
            self._clean()

    def save(self, snapshot: Snapshot) -> None:
        """Copy the state and hand it to the writer, once that is through with the version before.

        Raise CheckpointError (STO001, STO006), naming leaf and owner, for a value that cannot be stored; nothing is
        written then.
        """
        assert self._writes, "a store that was opened for reading does not save"
        began = time.monotonic()
        self._writer.wait()
        keep = self._options.keep
        if keep is not None and keep.best and not snapshot.facts.get("main"):
            raise refuse("the version", "keep.best needs the name of the main metric in facts['main']")
        copy = self._buffers.take if self._options.asynchronous else dense
        contents = capture(snapshot, copy, first=self._worker.rank == 0, owner=self._owner)
        self._writer.start(contents, began)

    def settle(self, *, wait: bool = False) -> Sequence[Saved]:
        """What became of saves since this was asked last. Raise CheckpointError (STO002, STO007) for one that failed,
        unless the settings say that the run goes on."""
        try:
            return self._writer.settle(wait=wait)
        finally:
            self._tell()

    def load(self, reference: str | None = None) -> Snapshot:
        """The version `reference`, or the one that training goes on from. Raise CheckpointError: STO003 where it is
        damaged, naming files, leaves, both digests and the newest sound version; STO004 where there is none; STO005 for
        a newer format. With `verify`, all workers together compare every byte (see `portion`).
        """
        self._writer.wait()
        entry = resolve(self.catalog, reference)
        manifest, stored = self._read(entry)
        worker, mapped = self._worker, Mapped(self.catalog, stored)
        try:
            if self._options.verify:
                mine = portion(stored, worker.rank, worker.world, self.catalog.files.copies)
                if damage := compare(self.catalog, mapped, mine):
                    raise damaged(self.catalog, entry, damage)
            snapshot = restore(manifest, stored, mapped, worker.rank)
        except (Damaged, *MALFORMED) as error:
            file = error.file if isinstance(error, Damaged) else ""
            what = str(error) if file else f"its content cannot be read: {error}"
            damage = [Damage(self.catalog.files.describe(file or entry.file), what)]
            raise damaged(self.catalog, entry, damage) from error
        self._committer.parent = entry
        return attrs.evolve(snapshot, name=entry.name)

    def list(self) -> Sequence[VersionInfo]:
        """Complete versions in the order in which they were committed; but the one that training goes on from comes
        last. One whose manifest cannot be read is left out, and `load` and `verify` name what is wrong with it.

        Raise CheckpointError (STO003, STO005) where there are versions and none can be read: that is not the same as
        none.
        """
        entries = self.catalog.entries()
        found = list(self.catalog.readable(entries))
        if not found:
            if self.catalog.entries() != entries:
                return self.list()  # All of them were rotated meanwhile.
            if entries:
                self._read(entries[-1])
            return []
        head = self.catalog.head()
        tags = self.catalog.tags()
        return [
            self.catalog.info(entry, tags)
            for entry in sorted(found, key=lambda entry: (entry == head, entry))
        ]

    def verify(self, reference: str) -> Sequence[str]:
        """What is wrong with a version, a line for each piece. Raise CheckpointError (STO004) where there is none."""
        entry = resolve(self.catalog, reference)
        try:
            return [str(damage) for damage in examine(self.catalog, entry)]
        except NewerFormat as error:
            return [f"{entry.name}: {error}"]

    def close(self) -> None:
        """Wait for the writer. Raise what failed and was not told yet, as `settle` does."""
        try:
            self._writer.close()
        finally:
            self._tell()
            self.catalog.files.close()

    def _make(self, contents: Contents) -> VersionInfo:
        return self.catalog.info(self._committer.write(contents))

    def _tell(self) -> None:
        while self._notices:
            self._notice(self._notices.pop(0))

    def _clean(self) -> None:
        """Remove what dead writers left. A folder that cannot be changed is as good to read as before."""
        try:
            self.catalog.files.clean()
            parts.forget(self.catalog.files, f"{self._worker.launch}-0")
            # Another worker of this start may have opened and written before: its packs are no leftovers.
            self.catalog.sweep(launch=self._worker.launch if self._worker.world > 1 else "")
            strangers = self.catalog.strangers()
        except OSError as error:
            _log.info("leftovers stay: %s", error)
            return
        except Damaged as error:
            self._notice(f"packs that no version needs stay as long as {error}")
            return
        if strangers:
            listed = ", ".join(strangers[:3]) + (", ..." if len(strangers) > 3 else "")
            self._notice(
                f"{self.catalog.files.describe()} holds files that are not the store's, which stay: {listed}"
            )

    def _read(self, entry: Entry) -> tuple[Manifest, Sequence[Part]]:
        """A version with all that it consists of. Raise CheckpointError (STO003, STO005)."""
        try:
            return self.catalog.read(entry)
        except Damaged as error:
            damage = Damage(self.catalog.files.describe(entry.file), str(error))
            raise damaged(self.catalog, entry, [damage]) from error
        except NewerFormat as error:
            raise self._newer(entry, error) from error

    def _newer(self, entry: Entry, error: NewerFormat) -> CheckpointError:
        return fail(  # type: ignore[return-value]
            CheckpointError,
            "STO005",
            f"{entry.name} has {error}",
            place=Place(self.catalog.files.describe(entry.file)),
            owner=OWNER,
            hint="install a newer nlpkernel-plugin-store",
        )
