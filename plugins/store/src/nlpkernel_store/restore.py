"""Leaves of a version back as a snapshot: tensors are the mapped files, so that no second copy of them exists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nlpkernel.state import Kind, Leaf, PerWorker, Replicated, Snapshot
from nlpkernel_store.examine import Mapped
from nlpkernel_store.manifest import Blob, Manifest, Part, StoredLeaf
from nlpkernel_store.plain import decode


def restore(manifest: Manifest, parts: Sequence[Part], mapped: Mapped) -> Snapshot:
    """The snapshot that the leaves of `parts` make. Tied leaves come back as one tensor; all others have memory of
    their own, also where they were equal. Raise ValueError, TypeError, KeyError where they are not what was written,
    Damaged where a pack is gone.
    """
    given: set[Blob] = set()
    tree: dict[str, Leaf] = {}
    for part in parts:
        values: dict[str, Any] = {}
        for leaf in part.leaves:
            values[leaf.path] = _value(leaf, values, mapped, given)
            tree[leaf.path] = Leaf(values[leaf.path], leaf.kind)
    artifacts = {
        name: bytes(mapped.view(content)) if isinstance(content, Blob) else content
        for part in parts
        for name, content in part.artifacts.items()
    }
    return Snapshot(step=manifest.step, tree=tree, artifacts=artifacts, facts=decode(manifest.facts))


def mine(parts: Sequence[Part], rank: int) -> list[Part]:
    """What the worker `rank` takes up of the parts of as many workers: what is the same on all, and its own."""
    if rank == 0:
        return [parts[0]]
    shared = Part(
        packs=parts[0].packs,
        leaves=tuple(leaf for leaf in parts[0].leaves if isinstance(leaf.kind, Replicated)),
        artifacts=parts[0].artifacts,
    )
    return [shared, parts[rank]]


def whole(kinds: Sequence[Kind]) -> bool:
    """Whether leaves of these kinds are whole values, so that anybody can take them up."""
    return all(isinstance(kind, (Replicated, PerWorker)) for kind in kinds)


def value(leaf: StoredLeaf, mapped: Mapped) -> Any:
    """The value of one leaf that is not tied to another."""
    return _value(leaf, {}, mapped, set())


def _value(leaf: StoredLeaf, values: dict[str, Any], mapped: Mapped, given: set[Blob]) -> Any:
    content = leaf.content
    if isinstance(content, str):
        return values[content]
    if leaf.dtype is None:
        return decode(bytes(mapped.view(content)) if isinstance(content, Blob) else content)
    dtype = getattr(torch, leaf.dtype)
    if isinstance(content, bytes):
        return torch.empty(leaf.shape, dtype=dtype)  # Only tensors without elements are in the manifest.
    return _tensor(content, dtype, leaf.shape, mapped, given)


def _tensor(
    blob: Blob, dtype: torch.dtype, shape: tuple[int, ...], mapped: Mapped, given: set[Blob]
) -> Tensor:
    # A memory map is a buffer that can be written to: what is written stays in this process.
    flat = torch.frombuffer(mapped[blob.pack], dtype=torch.uint8, count=blob.size, offset=blob.offset)
    tensor = flat.view(dtype).view(shape)
    if blob in given:
        return tensor.clone()
    given.add(blob)
    return tensor
