"""What is wrong with a version: every blob compared with its digest, over the mapped files. Light: no torch."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from nlpkernel.errors import CheckpointError, Place, Problem
from nlpkernel.state import PerWorker, Replicated
from nlpkernel_store.catalog import Catalog
from nlpkernel_store.codes import OWNER
from nlpkernel_store.hashing import digest, digests
from nlpkernel_store.manifest import Blob, Damaged, Entry, NewerFormat, PackSize, Part, StoredLeaf
from nlpkernel_store.shares import checked, shares

#: Leaves that a message names.
_NAMED = 20


@attrs.frozen
class Damage:
    """Something that is wrong: the file, and a clause that says what."""

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


class Mapped:
    """Packs of a version, mapped into memory when they are asked for. Writing to the memory does not reach the file.

    Raise Damaged where a pack is missing or has another size than was recorded.
    """

    def __init__(self, catalog: Catalog, parts: Iterable[Part]) -> None:
        self._files = catalog.files
        self._sizes: dict[str, PackSize] = {}
        for part in parts:
            self._sizes.update(part.packs)
        self._maps: dict[str, mmap.mmap] = {}

    def __getitem__(self, name: str) -> mmap.mmap:
        if name not in self._maps:
            self._maps[name] = self._map(name, self._sizes[name].file)
        return self._maps[name]

    def _map(self, name: str, recorded: int) -> mmap.mmap:
        try:
            path: Path = self._files.local(name)
            with path.open("rb") as file:
                found = file.seek(0, 2)
                if found != recorded:
                    raise Damaged(f"it has {found:,} bytes, and {recorded:,} were recorded", name)
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except FileNotFoundError:
            raise Damaged(f"it is missing, and {recorded:,} bytes were recorded", name) from None
        except OSError as error:
            raise Damaged(f"it cannot be read: {error}", name) from error

    def fetch_again(self) -> bool:
        """Let go of copies of far files, which are then fetched anew; tell whether there were any."""
        copies = [name for name in self._maps if self._files.forget(name)]
        for name in copies:
            del self._maps[name]
        return bool(copies)

    def header(self, name: str) -> tuple[bytes, bytes]:
        """The digest of what comes before the blobs of a pack, and the recorded one."""
        size = self._sizes[name]
        return digest(memoryview(self[name])[: size.file - size.data]), size.header

    def view(self, blob: Blob) -> memoryview:
        """The bytes of a blob."""
        mapped = self[blob.pack]
        if blob.offset + blob.size > len(mapped):
            raise Damaged(
                f"a blob ends at {blob.offset + blob.size:,}, behind the end of the file", blob.pack
            )
        return memoryview(mapped)[blob.offset : blob.offset + blob.size]


def portion(parts: Sequence[Part], rank: int, world: int, copied: Callable[[str], bool]) -> Sequence[Part]:
    """What the worker `rank` of `world` compares of a version that all of them load, so that each need not read all of
    it: what it takes up as a whole, and of pieces and addends those that every `world`-th worker has saved. Together
    they compare all. Pieces in packs that are `copied` to this machine are compared by each, for the copy of another
    machine says nothing of this one. Raise ValueError where a leaf is tied to none.
    """
    found = []
    for number, part in enumerate(parts):
        if number % world != rank:
            away = {name for name in part.packs if copied(name)}
            stored = {
                share.leaf.path: share.leaf
                for given in shares([part]).values()
                for share in given
                if isinstance(share.kind, Replicated)
                or (not isinstance(share.kind, PerWorker) and _pack(share.leaf) in away)
            }
            part = attrs.evolve(part, leaves=tuple(stored.values()))
        found.append(part)
    return found


def compare(catalog: Catalog, mapped: Mapped, parts: Sequence[Part]) -> list[Damage]:
    """Damage of the blobs of `parts`; of each pack that is missing or cut short one, of the others one for a blob."""
    found = _compare(catalog, mapped, parts)
    # A copy of a far file may have been damaged here; what counts is how the file is there.
    return _compare(catalog, mapped, parts) if found and mapped.fetch_again() else found


def _compare(catalog: Catalog, mapped: Mapped, parts: Sequence[Part]) -> list[Damage]:
    users = _users(parts)
    damage: dict[str, Damage] = {}
    views: dict[Blob, memoryview] = {}
    for blob in users:
        try:
            views[blob] = mapped.view(blob)
        except Damaged as error:
            names = users[blob][0]
            what = f"{error} (the first leaf in it is {names})"
            damage.setdefault(blob.pack, Damage(catalog.files.describe(blob.pack), what))
    for name in dict.fromkeys(blob.pack for blob in views):
        now, recorded = mapped.header(name)
        if now != recorded:
            what = f"its header has xxh3 {now.hex()}, and {recorded.hex()} was recorded"
            damage[name] = Damage(catalog.files.describe(name), what)
    found = digests(list(views.values()))
    wrong = [(blob, now) for blob, now in zip(views, found, strict=True) if now != blob.digest]
    listed = [
        Damage(
            catalog.files.describe(blob.pack),
            f"{' = '.join(users[blob])} has xxh3 {now.hex()}, and {blob.digest.hex()} was recorded",
        )
        for blob, now in wrong
    ]
    return [*damage.values(), *listed]


def examine(catalog: Catalog, entry: Entry) -> list[Damage]:
    """Everything that is wrong with a version. Raise NewerFormat."""
    try:
        _, parts = catalog.read(entry)
        checked(parts)
    except (Damaged, ValueError) as error:
        return [Damage(catalog.files.describe(entry.file), str(error))]
    return compare(catalog, Mapped(catalog, parts), parts)


def damaged(catalog: Catalog, entry: Entry, damage: Sequence[Damage]) -> CheckpointError:
    """The error for a damaged version: every damage, and the newest version that is sound."""
    sound = newest_sound(catalog, entry)
    hint = f"the newest sound version is {sound.name}" if sound else "no other version is sound"
    problems = [
        Problem(
            code="STO003",
            message=f"{entry.name} is damaged: {each.what}",
            place=Place(each.file),
            owner=OWNER,
            hint=hint,
        )
        for each in damage[:_NAMED]
    ]
    if len(damage) > _NAMED:
        message = f"{entry.name} has {len(damage) - _NAMED} further damaged pieces"
        problems.append(Problem(code="STO003", message=message, owner=OWNER))
    return CheckpointError(problems)


def newest_sound(catalog: Catalog, but: Entry) -> Entry | None:
    """The newest version that could be taken instead: of the same line if there is one, else of any."""
    others = [entry for entry in reversed(catalog.entries()) if entry != but]
    try:
        line = set(catalog.history(but))
    except (Damaged, NewerFormat):
        line = set()
    for entry in sorted(others, key=lambda entry: entry not in line):
        try:
            if not examine(catalog, entry):
                return entry
        except NewerFormat:
            continue
    return None


def _pack(leaf: StoredLeaf) -> str | None:
    return leaf.content.pack if isinstance(leaf.content, Blob) else None


def _users(parts: Sequence[Part]) -> dict[Blob, list[str]]:
    """Blobs, and the paths of the leaves that they are."""
    users: dict[Blob, list[str]] = {}
    for part in parts:
        contents: Mapping[str, object] = {
            **{f"artifact {name}": value for name, value in part.artifacts.items()},
            **{leaf.path: leaf.content for leaf in part.leaves},
        }
        for path, content in contents.items():
            if isinstance(content, Blob):
                users.setdefault(content, []).append(path)
    return users
