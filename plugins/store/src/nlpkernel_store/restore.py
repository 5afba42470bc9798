"""Leaves of a version back as a snapshot: tensors are the mapped files, so that no second copy of them exists."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nlpkernel.state import Addends, Leaf, PerWorker, Piece, Replicated, Sharded, Snapshot, Spread, Summed
from nlpkernel_store.examine import Mapped
from nlpkernel_store.manifest import Blob, Manifest, Part
from nlpkernel_store.packs import TYPES
from nlpkernel_store.plain import decode
from nlpkernel_store.shares import Share, checked


def restore(manifest: Manifest, parts: Sequence[Part], mapped: Mapped, rank: int = 0) -> Snapshot:
    """What the worker `rank` takes up of the parts of all workers, however many: everything but what belongs to other
    workers alone. Tied leaves come back as one tensor; all others have memory of their own, also where they were equal.

    Raise what MALFORMED lists where they are not what was written, Damaged where a pack is gone.
    """
    found = checked(parts)
    values = Values(found, mapped)
    tree: dict[str, Leaf] = {}
    for path, given in found.items():
        if isinstance(given[0].kind, PerWorker):
            given = [share for share in given if share.kind == PerWorker(rank)]
        if given:
            kind = given[0].kind
            tree[path] = Leaf(values.of(given), kind if isinstance(kind, PerWorker) else Replicated())
    artifacts = {
        name: bytes(mapped.view(content)) if isinstance(content, Blob) else content
        for part in parts
        for name, content in part.artifacts.items()
    }
    return Snapshot(step=manifest.step, tree=tree, artifacts=artifacts, facts=decode(manifest.facts))


class Values:
    """Values of leaves, each made once; `found`: all of them that are made."""

    def __init__(self, found: Mapping[str, Sequence[Share]], mapped: Mapped) -> None:
        self._mapped = mapped
        self._made: dict[tuple[int, str], Tensor] = {}
        lent = {
            (share.part, share.leaf.path): share.leaf.content
            for given in found.values()
            for share in given
            if isinstance(share.kind, Sharded)
        }
        # How many leaves hand out pieces of a blob. Nobody else gets its memory.
        self._lent = Counter(content for content in lent.values() if isinstance(content, Blob))
        self._given = set(self._lent)

    def of(self, given: Sequence[Share]) -> Any:
        """The value that the shares of a leaf make; of one that belongs to a worker there is one share."""
        first = given[0]
        if first.leaf.dtype is None:
            return self._plain(first)
        match first.kind:
            case Sharded(shape):
                return self._spread(shape, given)
            case Summed():
                return Addends(
                    {
                        share.kind.worker: self._tensor(share)
                        for share in given
                        if isinstance(share.kind, Summed)
                    }
                )
        return self._tensor(first)

    def _spread(self, shape: tuple[int, ...], given: Sequence[Share]) -> Spread:
        parts: list[tuple[Piece, Tensor]] = []
        for share in given:
            assert isinstance(share.kind, Sharded)
            tensor = self._tensor(share, lend=True)
            parts += [(piece, tensor) for piece in share.kind.pieces]
        if not parts:
            # A whole without elements, of which nobody has a piece.
            parts = [(Sharded.whole(shape).pieces[0], tensor.new_empty(shape))]
        equal = any(
            isinstance(share.leaf.content, Blob) and self._lent[share.leaf.content] > 1 for share in given
        )
        return Spread(shape, parts, shared=equal)

    def _plain(self, share: Share) -> Any:
        content = share.leaf.content
        assert not isinstance(content, str), "what a leaf is tied to is tied to nothing"
        return decode(bytes(self._mapped.view(content)) if isinstance(content, Blob) else content)

    def _tensor(self, share: Share, *, lend: bool = False) -> Tensor:
        """lend: a piece of it is taken out of it."""
        key = share.part, share.leaf.path
        if key not in self._made:
            self._made[key] = self._mapping(share, lend)
        return self._made[key]

    def _mapping(self, share: Share, lend: bool) -> Tensor:
        leaf = share.leaf
        assert leaf.dtype is not None, "it is a tensor"
        if leaf.dtype not in TYPES:
            raise ValueError(f"{leaf.path} is of the unknown type {leaf.dtype}")
        dtype = getattr(torch, leaf.dtype)
        content, size = leaf.content, math.prod(leaf.shape) * TYPES[leaf.dtype][1]
        if size != (content.size if isinstance(content, Blob) else 0):
            raise ValueError(f"{leaf.path} of {leaf.dtype} {list(leaf.shape)} does not have {size} bytes")
        if not isinstance(content, Blob):
            return torch.empty(leaf.shape, dtype=dtype)  # Only tensors without elements are in the manifest.
        # A memory map is a buffer that can be written to: what is written stays in this process.
        flat = torch.frombuffer(
            self._mapped[content.pack], dtype=torch.uint8, count=content.size, offset=content.offset
        )
        tensor = flat.view(dtype).view(leaf.shape)
        if lend:
            return tensor
        if content in self._given:
            return tensor.clone()
        self._given.add(content)
        return tensor
