"""The commit record of a version: what it consists of, with the digest of every piece.

A version exists exactly when its manifest does. Its id is the SHA-256 of the manifest's bytes, which the file's name
carries, so that a manifest that is not what was written is seen. Light: no torch.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import attrs

from nlpkernel.state import Kind, PerWorker, Piece, Replicated, Sharded, Summed
from nlpkernel_store.plain import decode, encode

#: Raised with every change that an older release would read wrongly.
FORMAT = 1

FOLDER = "manifests/"
_NAME = re.compile(r"manifests/(?P<serial>\d{6,})-(?P<step>\d{8,})-(?P<id>[0-9a-f]{64})\.msgpack")
#: Raised where content is not what a manifest consists of.
MALFORMED = (ValueError, TypeError, KeyError, AttributeError)
#: Hexadecimal digits of the id in the name that is shown.
_SHOWN = 12


class Damaged(Exception):
    """A manifest, or what it points to, is not what was written. The text is a clause that says what is wrong; `file`
    names the pack that is meant, and is empty for the manifest."""

    def __init__(self, what: str, file: str = "") -> None:
        super().__init__(what)
        self.file = file


class NewerFormat(Exception):
    """The version was written in a format that this release does not know. `format` is its number."""

    def __init__(self, format: int) -> None:
        super().__init__(f"format {format}, and this release reads formats up to {FORMAT}")
        self.format = format


@attrs.frozen(order=True)
class Entry:
    """A version by the name of its manifest alone. serial: counts the commits of a store, so the greatest is newest."""

    serial: int
    step: int
    id: str

    @property
    def file(self) -> str:
        """The manifest's name in the place."""
        return f"{FOLDER}{self.serial:06d}-{self.step:08d}-{self.id}.msgpack"

    @property
    def name(self) -> str:
        """The version's name, as people see it: step and the first digits of the id."""
        return f"{self.step}-{self.id[:_SHOWN]}"

    @classmethod
    def parse(cls, file: str) -> Entry | None:
        """The version whose manifest has this name, or None for a file of somebody else."""
        match = _NAME.fullmatch(file)
        return cls(int(match["serial"]), int(match["step"]), match["id"]) if match else None


@attrs.frozen
class Blob:
    """Bytes in a pack. digest: their xxh3_128. offset: from the start of the pack's file."""

    digest: bytes
    pack: str
    offset: int
    size: int


class PackSize(NamedTuple):
    """Bytes of a pack's file, those of them that are blobs, which come last, and the digest of what comes first."""

    file: int
    data: int
    header: bytes = b""


@attrs.frozen(kw_only=True)
class StoredLeaf:
    """One leaf as it is stored: a blob, plain bytes in the manifest itself, or the path of the leaf that it is tied to.

    dtype, shape: of a tensor; dtype is None for plain data.
    """

    path: str
    kind: Kind
    content: Blob | bytes | str
    dtype: str | None = None
    shape: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class Part:
    """What one worker has saved of a version. packs: those that hold its blobs."""

    packs: Mapping[str, PackSize] = attrs.field(factory=dict)
    leaves: tuple[StoredLeaf, ...] = ()
    artifacts: Mapping[str, Blob | bytes] = attrs.field(factory=dict)

    def dump(self) -> bytes:
        """Bytes from which `load` makes an equal part."""
        names = list(self.packs)
        number = {name: index for index, name in enumerate(names)}

        def content(value: Blob | bytes | str) -> Any:
            if isinstance(value, Blob):
                return (value.digest, number[value.pack], value.offset, value.size)
            return value

        return encode(
            {
                "packs": [(name, *self.packs[name]) for name in names],
                "leaves": [
                    (leaf.path, _kind(leaf.kind), content(leaf.content), leaf.dtype, leaf.shape)
                    for leaf in self.leaves
                ],
                "artifacts": {name: content(value) for name, value in self.artifacts.items()},
            },
            "part",
        )

    @classmethod
    def load(cls, data: bytes) -> Part:
        """Read a part. Raise what MALFORMED lists where the bytes are none."""
        stored = decode(data)
        packs = {name: PackSize(*size) for name, *size in stored["packs"]}
        names = dict(enumerate(packs))

        def content(value: Any) -> Blob | bytes | str:
            if isinstance(value, tuple):
                digest, pack, offset, size = value
                return Blob(digest, names[pack], offset, size)
            return value  # type: ignore[no-any-return]

        return cls(
            packs=packs,
            leaves=tuple(
                StoredLeaf(
                    path=path,
                    kind=_kind_of(kind),
                    content=content(value),
                    dtype=dtype,
                    shape=_sizes(shape),
                )
                for path, kind, value, dtype, shape in stored["leaves"]
            ),
            artifacts={name: content(value) for name, value in stored["artifacts"].items()},  # type: ignore[misc]
        )

    def blobs(self) -> dict[tuple[bytes, int], Blob]:
        """Every blob once, by digest and size."""
        contents = [*(leaf.content for leaf in self.leaves), *self.artifacts.values()]
        return {(each.digest, each.size): each for each in contents if isinstance(each, Blob)}


@attrs.frozen(kw_only=True)
class Manifest:
    """A version without its leaves.

    main: the metric that "best" is judged by, and "min" or "max"; empty where there is none. parent: the id of the
    version from which training came here. line: ids of lines, each with the step until which it counts here; the last
    one is this version's own and has no end. save: a word that all workers of one save share. packs: all that it needs,
    with the sizes of their files. size: bytes of all that the version consists of; new: bytes that were written for it.
    facts: encoded.
    """

    serial: int
    step: int
    created: float
    metrics: Mapping[str, float | None]
    main: tuple[str, ...]
    parent: str | None
    line: tuple[tuple[str, int | None], ...]
    save: str
    world: int
    packs: Mapping[str, int]
    size: int
    new: int
    facts: bytes = attrs.field(repr=False)

    def dump(self, parts: list[bytes]) -> bytes:
        """The manifest's file; `parts`: of each worker, in their order."""
        content = attrs.asdict(self, recurse=False)
        return encode(
            {"format": FORMAT, **content, "metrics": dict(self.metrics), "parts": parts}, "manifest"
        )


def entry_of(data: bytes, manifest: Manifest) -> Entry:
    """The version that a manifest's bytes make."""
    return Entry(manifest.serial, manifest.step, hashlib.sha256(data).hexdigest())


def read(entry: Entry, data: bytes) -> tuple[Manifest, list[bytes]]:
    """The manifest and the parts in the bytes of its file. Raise Damaged and NewerFormat."""
    found = hashlib.sha256(data).hexdigest()
    if found != entry.id:
        raise Damaged(f"the manifest has SHA-256 {found}, and {entry.id} was recorded")
    try:
        content = decode(data)
        if content["format"] > FORMAT:
            raise NewerFormat(content["format"])
        del content["format"]
        parts = content.pop("parts")
        manifest = Manifest(**content)
    except MALFORMED as error:
        raise Damaged(f"the manifest cannot be read: {error}") from error
    if (manifest.serial, manifest.step) != (entry.serial, entry.step):
        raise Damaged(
            f"the manifest is of step {manifest.step}, number {manifest.serial}, and its name is not"
        )
    return manifest, parts


def _kind(kind: Kind) -> tuple[Any, ...]:
    match kind:
        case Replicated():
            return ("replicated",)
        case Sharded(shape, pieces):
            stored = tuple((tuple(each.at), tuple(each.offset), tuple(each.shape)) for each in pieces)
            return ("sharded", tuple(shape), stored)
        case PerWorker(worker):
            return ("worker", worker)
        case Summed(worker):
            return ("summed", worker)


def _kind_of(stored: tuple[Any, ...]) -> Kind:
    match stored:
        case ("replicated",):
            return Replicated()
        case ("sharded", shape, pieces):
            return Sharded(
                _sizes(shape),
                tuple(Piece(_sizes(at), _sizes(offset), _sizes(size)) for at, offset, size in pieces),
            )
        case ("worker", worker):
            return PerWorker(worker)
        case ("summed", worker):
            return Summed(worker)
    raise ValueError(f"unknown kind of leaf {stored!r}")


def _sizes(stored: Any) -> tuple[int, ...]:
    if type(stored) is tuple and all(type(each) is int and each >= 0 for each in stored):
        return stored
    raise ValueError(f"{stored!r} are no sizes")
