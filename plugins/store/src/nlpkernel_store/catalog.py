"""The versions of a store: found, named, tagged, removed. Light: no torch.

Which version training goes on from is the one that was committed last, unless `head` says otherwise: a roll-back
writes it, with the number of the last commit by then, and the next commit has a greater one. So a commit is one file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from nlpkernel.errors import CheckpointError, Place, fail
from nlpkernel.state import VersionInfo
from nlpkernel_store import manifest as manifests
from nlpkernel_store import packs, rotation
from nlpkernel_store.codes import OWNER
from nlpkernel_store.manifest import Damaged, Entry, Manifest, NewerFormat, Part
from nlpkernel_store.places import Place as Files

HEAD, OWNED = "head", "owner"
TAGS, PARTS, CHECKS = "tags/", "parts/", "checks/"
_PACK = re.compile(r"packs/(?P<save>[0-9A-Za-z]+-\d+)-\d+(?:-\d+)?\.safetensors")
_PART = re.compile(r"parts/[0-9A-Za-z]+-\d+/\d+\.msgpack")
_TAG = re.compile(r"tags/[A-Za-z][0-9A-Za-z._-]*")
_CHECK = re.compile(r"checks/[0-9a-f]{64}")


class Catalog:
    """The versions in a place. Manifests never change, so each is read once.

    Where the place cannot be read, CheckpointError (STO011) is raised by every method.
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        self._known: dict[Entry, Manifest] = {}

    # -- reading -----------------------------------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """All versions in the order in which they were committed, whether they are sound or not."""
        with self._told("read"):
            names = self.files.names(manifests.FOLDER)
        return sorted(entry for name in names if (entry := Entry.parse(name)))

    def manifest(self, entry: Entry) -> Manifest:
        """What a version says of itself. Raise Damaged or NewerFormat."""
        if entry not in self._known:
            self._known[entry] = self.read(entry)[0]
        return self._known[entry]

    def read(self, entry: Entry) -> tuple[Manifest, list[Part]]:
        """A version with all that it consists of. Raise Damaged or NewerFormat."""
        try:
            data = self.files.read(entry.file)
        except FileNotFoundError:
            raise Damaged("the manifest is missing") from None
        except OSError as error:
            raise Damaged(f"the manifest cannot be read: {error}") from error
        manifest, parts = manifests.read(entry, data)
        try:
            return manifest, [Part.load(part) for part in parts]
        except manifests.MALFORMED as error:
            raise Damaged(f"the manifest cannot be read: {error}") from error

    def readable(self, entries: Sequence[Entry] | None = None) -> dict[Entry, Manifest]:
        """Versions whose manifests are sound, in order."""
        found: dict[Entry, Manifest] = {}
        for entry in self.entries() if entries is None else entries:
            try:
                found[entry] = self.manifest(entry)
            except (Damaged, NewerFormat):
                continue
        return found

    def head(self) -> Entry | None:
        """The version from which training goes on, or None where there is none."""
        entries = self.entries()
        with self._told("read"):
            found = self._read_head()
        if found is None:
            return entries[-1] if entries else None
        serial, name = found
        if serial is not None and entries and entries[-1].serial > serial:
            return entries[-1]
        for entry in entries:
            if serial is not None and entry.id == name:
                return entry
        missing = f"it names {name[:12]!r} as the version to go on from, which is not there"
        raise fail(
            CheckpointError,
            "STO003",
            "its digest is not the recorded one" if serial is None else missing,
            place=Place(self.files.describe(HEAD)),
            owner=OWNER,
            hint="`nlpkernel rollback RUN VERSION` names another one",
        )

    def history(self, head: Entry) -> list[Entry]:
        """The versions through which training came to `head`, as far as they are still there, and itself, in order."""
        until = dict(self.manifest(head).line)
        return [
            entry
            for entry, manifest in self.readable().items()
            if entry.serial <= head.serial
            and (line := manifest.line[-1][0]) in until
            and ((last := until[line]) is None or entry.step <= last)
        ]

    def candidates(self, entries: Sequence[Entry]) -> list[rotation.Candidate]:
        """Versions as rotation sees them."""
        return [
            rotation.Candidate(name=entry.id, step=entry.step, metrics=self.manifest(entry).metrics)
            for entry in entries
        ]

    def tags(self) -> dict[str, str]:
        """Tags, and the id of the version that each names."""
        with self._told("read"):
            names = [name for name in self.files.names(TAGS) if _TAG.fullmatch(name)]
            return {
                name.removeprefix(TAGS): self.files.read(name).decode("ascii", "replace") for name in names
            }

    def info(self, entry: Entry, tags: dict[str, str] | None = None) -> VersionInfo:
        """A version as a listing shows it. Raise Damaged or NewerFormat."""
        manifest = self.manifest(entry)
        named = (self.tags() if tags is None else tags).items()
        return VersionInfo(
            name=entry.name,
            step=entry.step,
            bytes=manifest.size,
            created=manifest.created,
            metrics=manifest.metrics,
            tags=tuple(sorted(tag for tag, id_ in named if id_ == entry.id)),
        )

    # -- changing ----------------------------------------------------------------------------------------------------

    def commit(self, entry: Entry, manifest: Manifest, data: bytes) -> None:
        """Make a version exist, `data` being its manifest's file. Raise OSError where that fails."""
        try:
            self.files.create(entry.file, [data], size=len(data))
        except FileExistsError:
            # The name says what is in it: an earlier try had come through, and its answer had not.
            if self.files.read(entry.file) != data:
                raise
        self._known[entry] = manifest

    def next_serial(self, *, aside: bool = False) -> int:
        """The number of the next commit. `aside`: of one that training does not go on from, once the head is set with
        this number or a greater one."""
        entries = self.entries()
        last = entries[-1].serial if entries else 0
        found = None if aside else self._read_head()
        return max(last, found[0] or 0 if found else 0) + 1

    def set_head(self, entry: Entry, *, serial: int | None = None) -> None:
        """Go on from this version, until there is a commit with a greater number than `serial`: the last one's, if that
        is left out."""
        with self._told("changed"):
            number = self.next_serial() - 1 if serial is None else serial
            text = f"{number} {entry.id}"
            self.files.replace(HEAD, f"{text} {_short_digest(text)}".encode())

    def _read_head(self) -> tuple[int | None, str] | None:
        """The number of the last commit by then, and the id, in the head file; None where there is none. The number is
        None where the file is not what was written. Raise OSError."""
        try:
            text = self.files.read(HEAD).decode("ascii", "replace")
        except FileNotFoundError:
            return None
        written, _, recorded = text.rpartition(" ")
        serial, _, name = written.partition(" ")
        sound = recorded == _short_digest(written) and serial.isdecimal()
        return int(serial) if sound else None, name

    def set_tag(self, tag: str, entry: Entry) -> None:
        """Give a version a tag; another version may lose it. Raise CheckpointError: STO008 for what can be none, STO004
        where the version was removed meanwhile; then the tag is as before.
        """
        if tag in ("newest", "best") or not _TAG.fullmatch(TAGS + tag):
            raise fail(CheckpointError, "STO008", f"{tag!r} cannot be a tag", owner=OWNER)
        with self._told("changed"), self.files.lock():
            before = self.tags().get(tag)
            self.files.replace(TAGS + tag, entry.id.encode())
            # Looked for after the tag is there: see `remove`.
            if entry in self.entries():
                return
            if before is None:
                self.files.remove(TAGS + tag)
            else:
                self.files.replace(TAGS + tag, before.encode())
        raise fail(CheckpointError, "STO004", f"{entry.name} was removed just now", owner=OWNER)

    def remove_tag(self, tag: str) -> None:
        """Take a tag away."""
        with self._told("changed"):
            self.files.remove(TAGS + tag)

    def remove(self, entry: Entry, *, locked: bool) -> bool:
        """Let a version not exist any more; `sweep` removes what only it needed. False where it has a tag by now, and
        stays. locked: the caller has the lock of the place, and has read the tags since. Raise OSError.
        """
        if locked:
            self.files.remove(entry.file)
        else:
            # Who gives a tag sets it, and looks then whether the version is there. So either that look comes after the
            # removal and finds nothing, or the tag is there before the removal is over, and is seen here.
            data = self.files.read(entry.file)
            if self._tagged(entry):
                return False
            self.files.remove(entry.file)
            if self._tagged(entry):
                self.files.create(entry.file, [data], size=len(data))
                return False
        self.files.remove(CHECKS + entry.id)
        self._known.pop(entry, None)
        return True

    def _tagged(self, entry: Entry) -> bool:
        return entry.id in self.tags().values()

    def sweep(
        self, save: str = "", *, without: Collection[Entry] = (), dry: bool = False, launch: str = ""
    ) -> dict[str, int]:
        """Remove packs that no version needs, or those of one save only, and return them with their sizes. `dry`: only
        look. `without`: as if these versions were not there. `launch`: packs of this start of the run stay. Raise
        OSError; raise Damaged while a manifest cannot be read, for nobody knows what it needs.
        """
        needed: set[str] = set()
        for entry in self.entries():
            if entry in without:
                continue
            try:
                needed.update(self.manifest(entry).packs)
            except NewerFormat as error:
                raise Damaged(f"{entry.name} has {error}") from error
            except Damaged as error:
                raise Damaged(f"{entry.name} is damaged: {error}") from error
        found = self.files.names(f"{packs.FOLDER}{save}-" if save else packs.FOLDER)
        gone = {
            name: size
            for name, size in found.items()
            if (pack := _PACK.fullmatch(name))
            and name not in needed
            and (not launch or pack["save"].rpartition("-")[0] != launch)
        }
        if not dry:
            for name in gone:
                self.files.remove(name)
        return gone

    def strangers(self) -> list[str]:
        """Files in the place that this store did not write."""

        def ours(name: str) -> bool:
            patterns = (_PACK, _PART, _TAG, _CHECK)
            return (
                name in (HEAD, OWNED)
                or bool(Entry.parse(name))
                or any(each.fullmatch(name) for each in patterns)
            )

        return [name for name in self.files.names() if not ours(name)]

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise fail(
                CheckpointError,
                "STO011",
                f"the versions cannot be {what}: {error}",
                place=Place(self.files.describe()),
                owner=OWNER,
            ) from error


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
