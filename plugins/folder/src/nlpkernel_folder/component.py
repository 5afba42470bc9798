"""The component `folder`: when to save, and which versions to keep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from nlpkernel import component, hookimpl, setting, settings
from nlpkernel.errors import CheckpointError, fail
from nlpkernel.hookspecs.everywhere import Action, Decision, Facts
from nlpkernel.progress import Progress

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.checkpoint import Store

#: How messages name this component.
OWNER = "folder of nlpkernel-plugin-folder"


@settings
class Keep:
    """Which versions stay when a new one is complete. The newest one always does."""

    last: int = setting(default=1, ge=1, help="the newest versions that stay")
    best: int = setting(
        default=0, ge=0, help="versions that stay for being best by the task's main metric, beside the newest"
    )


@component
class Folder:
    """Versions in the folder `versions` of the run, on a local disk.

    Each is a folder of its own (weights and state as safetensors and msgpack, artifacts as files, a
    manifest with the SHA-256 of all of them), written aside and committed by a rename: it is complete or it
    is not there.
    """

    every: int | None = setting(default=None, ge=1, help="steps between two saves; left out: at the end only")
    keep: Keep | None = setting(
        default=None, help="which versions stay, as { last = 3, best = 1 }; left out: all of them"
    )
    fsync: bool = setting(
        default=True, help="wait until the disk has a version before it counts; needed to survive a power cut"
    )
    verify: bool = setting(default=True, help="compare the SHA-256 of every file before a version is loaded")

    _due: Decision = attrs.field(init=False, default=Decision(Action.SAVE, "the save interval ended"))

    @hookimpl
    def decide(self, progress: Progress) -> Decision | None:
        """Ask for a save every `every` steps."""
        if self.every is None or progress.step % self.every:
            return None
        return self._due

    @hookimpl
    def open_store(self, run: Run, folder: Path) -> Store:
        """Open the versions in `folder`; clean up after writers that died. Raise CheckpointError (FLD006)
        for a run of several workers.
        """
        if run.world > 1:
            raise fail(
                CheckpointError,
                "FLD006",
                f"the run has {run.world} workers, and this store keeps the state of one process",
                owner=OWNER,
            )
        from nlpkernel_folder.store import FolderStore

        keep = self.keep
        return FolderStore(
            folder / "versions",
            fsync=self.fsync,
            check_digests=self.verify,
            last=keep.last if keep else None,
            best=keep.best if keep else 0,
            notice=lambda message: run.notice("folder", message, level="warning"),
        )

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """Say how large a version is, where parameters and optimizer are known."""
        if facts.parameter_bytes is None or facts.optimizer_bytes is None:
            return facts
        size = (facts.parameter_bytes + facts.optimizer_bytes) / 1e6
        count = f"; at most {self.keep.last + self.keep.best} are kept" if self.keep else "; all are kept"
        note = f"a version takes about {size:,.1f} MB on disk{count}"
        return attrs.evolve(facts, notes=(*facts.notes, note))
