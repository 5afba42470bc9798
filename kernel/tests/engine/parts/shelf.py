"""A checkpoint that keeps whole snapshots, each in one file, and can be full."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import msgpack
import safetensors.torch
import torch

from nlpkernel import component, hookimpl, setting
from nlpkernel.errors import CheckpointError, fail
from nlpkernel.hookspecs.everywhere import Action, Decision
from nlpkernel.state import Leaf, PerWorker, Replicated, Saved, Snapshot, VersionInfo


@component
class Shelf:
    """Versions in the run's folder."""

    every: int | None = setting(default=None, ge=1, help="steps between two saves")
    full: int | None = setting(default=None, help="step whose version does not fit on the disk")

    @hookimpl
    def decide(self, progress):
        due = self.every is not None and progress.step % self.every == 0
        return Decision(Action.SAVE, "due") if due else None

    @hookimpl
    def open_store(self, folder):
        return ShelfStore(folder / "shelf", self.full)


class ShelfStore:
    """See `nlpkernel.hookspecs.checkpoint.Store`."""

    def __init__(self, folder: Path, full: int | None) -> None:
        self.folder, self.full = folder, full
        self.saved: list[Saved] = []
        folder.mkdir(exist_ok=True)

    def save(self, snapshot: Snapshot) -> None:
        if snapshot.step == self.full:
            raise fail(CheckpointError, "X001", "the shelf is full")
        start = time.monotonic()
        path = self.folder / f"step-{snapshot.step:04d}"
        (self.folder / "aside").write_bytes(_pack(snapshot))
        (self.folder / "aside").rename(path)
        self.saved.append(
            Saved(step=snapshot.step, version=self._info(path), seconds=time.monotonic() - start)
        )

    def settle(self, *, wait: bool = False) -> Sequence[Saved]:
        saved, self.saved = self.saved, []
        return saved

    def load(self, reference: str | None = None) -> Snapshot:
        path = self.folder / reference if reference else max(self.folder.glob("step-*"))
        return attrs.evolve(_unpack(path.read_bytes()), name=path.name)

    def list(self) -> Sequence[VersionInfo]:
        return [self._info(path) for path in sorted(self.folder.glob("step-*"))]

    def verify(self, reference: str) -> Sequence[str]:
        return []

    def close(self) -> None:
        """Nothing is open."""

    def _info(self, path: Path) -> VersionInfo:
        return VersionInfo(
            name=path.name, step=int(path.name[5:]), bytes=path.stat().st_size, created=0.0, metrics={}
        )


def _pack(snapshot: Snapshot) -> bytes:
    values = {path: leaf.value for path, leaf in snapshot.tree.items()}
    tensors = {path: each.clone() for path, each in values.items() if isinstance(each, torch.Tensor)}
    workers = {
        path: leaf.kind.worker for path, leaf in snapshot.tree.items() if isinstance(leaf.kind, PerWorker)
    }
    plain = {path: each for path, each in values.items() if path not in tensors}
    rest: list[Any] = [snapshot.step, workers, plain, dict(snapshot.artifacts), dict(snapshot.facts)]
    return msgpack.packb([safetensors.torch.save(tensors), *rest])  # type: ignore[no-any-return]


def _unpack(content: bytes) -> Snapshot:
    tensors, step, workers, plain, artifacts, facts = msgpack.unpackb(content)
    values = {**safetensors.torch.load(tensors), **plain}
    tree = {
        path: Leaf(each, PerWorker(workers[path]) if path in workers else Replicated())
        for path, each in values.items()
    }
    return Snapshot(step=step, tree=tree, artifacts=artifacts, facts=facts)
