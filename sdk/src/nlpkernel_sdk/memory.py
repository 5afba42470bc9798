"""Components for checks: a store in memory, a wire for compressors, the losses as a file, a worker that fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs

from nlpkernel import component, extension, hookimpl, setting
from nlpkernel.events import Logged, RunEnded
from nlpkernel.hookspecs.everywhere import Action, Decision
from nlpkernel.progress import Progress

if TYPE_CHECKING:
    from nlpkernel.bus import Bus
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.checkpoint import Store
    from nlpkernel.hookspecs.communicator import Group


@component
class Memory:
    """Versions in memory, by the folder of their run: fast, exact, gone with the process. It can be made to fail."""

    every: int | None = setting(default=None, ge=1, help="steps between two saves; left out: at the end only")
    fail_at: tuple[int, ...] = setting(default=(), help="numbers of the saves, from 0, that fail")
    slow: float = setting(default=0.0, ge=0, unit="seconds", help="how long each save takes")
    on_failure: Literal["stop", "continue"] = setting(
        default="stop", help="when a save fails: end the run, or train on"
    )

    _due: Decision = attrs.field(init=False, default=Decision(Action.SAVE, "the save interval ended"))

    @hookimpl
    def decide(self, progress: Progress) -> Decision | None:
        """Ask for a save every `every` steps."""
        return self._due if self.every is not None and progress.step % self.every == 0 else None

    @hookimpl
    def open_store(self, run: Run, folder: Path, write: bool) -> Store:
        """Take up what this process kept for the folder."""
        from nlpkernel_sdk.keeping import MemoryStore

        return MemoryStore(folder, self.fail_at, self.slow, stops=self.on_failure == "stop")


@component
class Wire:
    """One process whose gradients go through a compressor, as if they had to travel."""

    compressor: object = extension(
        "compressor", default=None, help="fewer bytes for gradients; left out: as they are"
    )

    @hookimpl
    def open_group(self, run: Run) -> Group:
        """One worker on the CPU."""
        from nlpkernel_sdk.keeping import WireGroup

        return WireGroup(None if self.compressor is None else run.ask(self.compressor, "create_compressor"))


@component
class Curve:
    """The losses of a run as one list, in the file curve.json of its folder."""

    collectives: bool = setting(
        default=False,
        help="refuse collectives that an observer starts, and note them in collectives-RANK.json",
    )
    _losses: list[float | None] = attrs.field(init=False, factory=list)

    @hookimpl
    def subscribe(self, run: Run, bus: Bus) -> None:
        """Hear of the logs, and write at the end. Of several workers the first one does."""
        if self.collectives:
            from nlpkernel_sdk.collectives import refuse

            refuse(run.folder / f"collectives-{run.rank}.json")
        if run.rank == 0:
            bus.on(Logged, lambda event: self._losses.extend(event.losses))
            bus.on(RunEnded, lambda event: self._write(run.folder))

    def _write(self, folder: Path) -> None:
        (folder / "curve.json").write_text(json.dumps(self._losses), encoding="utf-8")


@component
class Failing:
    """Raises on one worker after a step, to see what becomes of the others."""

    step: int = setting(default=2, ge=1, help="the step after which it raises")
    rank: int = setting(default=0, ge=0, help="the worker on which it raises")

    @hookimpl
    def decide(self, run: Run, progress: Progress) -> Decision | None:
        """Raise RuntimeError at its step."""
        if run.rank == self.rank and progress.step == self.step:
            raise RuntimeError("this worker fails (made up)")
        return None
