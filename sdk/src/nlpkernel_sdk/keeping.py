"""The heavy half of the store in memory and of the wire."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import Tensor

from nlpkernel.engine.group import SingleGroup, named_gradients, update
from nlpkernel.errors import CheckpointError, fail
from nlpkernel.hookspecs.communicator import Update, Work
from nlpkernel.hookspecs.compressor import Compressor, Encoder, Span
from nlpkernel.state import Addends, Leaf, Sharded, Snapshot, Spread, Summed, VersionInfo
from nlpkernel.state import Saved as SavedVersion

#: Versions by the folder of their run, oldest first.
KEPT: dict[Path, list[Snapshot]] = {}


class MemoryStore:
    """See `nlpkernel.hookspecs.checkpoint.Store`. fail_at: the saves, counted from 0, that fail; slow: seconds of each;
    stops: whether one that fails ends the run."""

    def __init__(
        self, folder: Path, fail_at: Sequence[int] = (), slow: float = 0.0, *, stops: bool = True
    ) -> None:
        self._folder, self._fail_at, self._slow, self._stops = folder, frozenset(fail_at), slow, stops
        self._number = 0
        self._news: list[SavedVersion] = []

    def save(self, snapshot: Snapshot) -> None:
        """Keep a copy."""
        started = time.monotonic()
        time.sleep(self._slow)
        number, self._number = self._number, self._number + 1
        if number in self._fail_at:
            self._news.append(
                SavedVersion(
                    step=snapshot.step, version=None, seconds=self._slow, error="no space left (made up)"
                )
            )
            return
        kept = KEPT.setdefault(self._folder, [])
        tree = {
            path: attrs.evolve(leaf, value=copy.deepcopy(leaf.value)) for path, leaf in snapshot.tree.items()
        }
        own = attrs.evolve(
            snapshot,
            tree=tree,
            artifacts=dict(snapshot.artifacts),
            facts=copy.deepcopy(dict(snapshot.facts)),
            name=f"step-{snapshot.step}",
        )
        # The same step saved again, after a roll-back, takes the place of the old one.
        kept[:] = [each for each in kept if each.step < own.step] + [own]
        self._news.append(
            SavedVersion(step=own.step, version=_listed(own), seconds=time.monotonic() - started)
        )

    def settle(self, *, wait: bool = False) -> Sequence[SavedVersion]:
        """What became of the saves. Raise CheckpointError (SDK022) where one failed and stops the run."""
        news, self._news = self._news, []
        for each in news:
            if each.version is None and self._stops:
                raise fail(CheckpointError, "SDK022", f"the save of step {each.step} failed: {each.error}")
        return news

    def load(self, reference: str | None = None) -> Snapshot:
        """A copy of a version. Raise CheckpointError (SDK023) where there is none."""
        for each in reversed(KEPT.get(self._folder, ())):
            if reference in (None, each.name):
                return attrs.evolve(each, tree={path: _given(leaf) for path, leaf in each.tree.items()})
        raise fail(CheckpointError, "SDK023", f"there is no version {reference or 'yet'} in memory")

    def list(self) -> Sequence[VersionInfo]:
        """All that are kept."""
        return [_listed(each) for each in KEPT.get(self._folder, ())]

    def verify(self, reference: str) -> Sequence[str]:
        """Memory is not damaged."""
        return []

    def close(self) -> None:
        """Nothing is open."""


def _listed(snapshot: Snapshot) -> VersionInfo:
    size = sum(leaf.value.nbytes for leaf in snapshot.tree.values() if isinstance(leaf.value, Tensor))
    return VersionInfo(
        name=snapshot.name or "",
        step=snapshot.step,
        bytes=size,
        created=time.time(),
        metrics=dict(snapshot.facts.get("metrics", {})),
    )


def _given(leaf: Leaf) -> Leaf:
    """A copy of a leaf, in the form in which a version gives it."""
    value = copy.deepcopy(leaf.value)
    if isinstance(leaf.kind, Sharded):
        return attrs.evolve(
            leaf, value=Spread(leaf.kind.shape, [(piece, value) for piece in leaf.kind.pieces])
        )
    if isinstance(leaf.kind, Summed):
        return attrs.evolve(leaf, value=Addends({leaf.kind.worker: value}))
    return attrs.evolve(leaf, value=value)


class WireGroup(SingleGroup):
    """One worker: each gradient is encoded and decoded before the update."""

    def __init__(self, compressor: Compressor | None) -> None:
        super().__init__(torch.device("cpu"))
        self.compressor = compressor
        self._encoders: dict[str, Encoder] = {}

    def update(self, work: Work, number: int, sums: Mapping[str, Tensor]) -> Update:
        """Through the wire, then as ever."""
        if self.compressor is None:
            return super().update(work, number, sums)
        for name, gradient in named_gradients(work):
            self._travel(name, gradient)
        made = update(work, number, sums)
        self.compressor.settle(made.bad)
        return made

    def _travel(self, name: str, gradient: Tensor) -> None:
        assert self.compressor is not None, "asked by `update`"
        if name not in self._encoders:
            spans = [Span.whole(name, gradient.shape)]
            self._encoders[name] = self.compressor.encoder(spans, gradient.device)
        encoder, flat = self._encoders[name], gradient.view(-1)
        if self.compressor.summable:
            for _ in encoder.rounds(flat):
                pass
            return
        wire = encoder.encode(flat)
        gradient.zero_()
        encoder.decode(wire, flat)

    def state(self) -> Mapping[str, Leaf]:
        """What the compressor keeps."""
        if self.compressor is None:
            return {}
        owed = {f"owed/{name}": Leaf(value, Summed(0)) for name, value in self.compressor.owed().items()}
        return {
            **owed,
            **{f"factors/{name}": Leaf(value) for name, value in self.compressor.factors().items()},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Give it back."""
        if self.compressor is None:
            return
        owed = {name[5:]: value.total() for name, value in state.items() if name.startswith("owed/")}
        factors = {name[8:]: value for name, value in state.items() if name.startswith("factors/")}
        self.compressor.load(owed, factors)
