"""Data that cannot seek, and data that worker processes make ready."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from nlpkernel import component, hookimpl, setting
from nlpkernel.hookspecs.data import Microbatch
from nlpkernel_sdk.notes import note
from nlpkernel_sdk.regression import RegressionData
from nlpkernel_sdk.tiny import TinyData


@component
class Stream(TinyData):
    """Rows in the order of a source that has no length and gives them once, one after the other, in each pass."""

    book: str = setting(default="stream", help="where the rows that were trained on are noted")

    @hookimpl
    def open_data(self, run):
        return StreamData(self, run)


class StreamData(RegressionData):
    """Windows of consecutive rows, over the ends of passes; what it has read so far is its state."""

    def __init__(self, settings: Stream, run: Any) -> None:
        super().__init__(settings, run)
        self.batch, self.book = run.train.batch, settings.book
        self.read = 0
        self.source = self._pass()
        self.at, self.rows = -1, [0]

    def _pass(self) -> Iterator[int]:
        note("passes", self.read)
        return iter(range(self._train))

    def _next(self) -> int:
        row = next(self.source, None)
        if row is None:
            self.source = self._pass()
            row = next(self.source)
        self.read += 1
        return row

    def window(self, step: int) -> Sequence[Microbatch]:
        if step != self.at:
            assert step == self.at + 1 or self.at < 0, "a stream goes forward"
            self.at, self.rows = step, [self._next() for _ in range(self.batch)]
            note(self.book, self.rows)
        return [Microbatch(self.batch, self.batch * self.info.window, {"loss": float(self.batch)})]

    def microbatch(self, step: int, index: int) -> dict[str, torch.Tensor]:
        return {name: values[torch.tensor(self.rows)] for name, values in self._rows.items()}

    def state(self) -> Mapping[str, Any]:
        return {"read": self.read}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.read = state["read"]
        self.source = self._pass()
        skip = self.read % self._train
        note("skipped", skip)
        next(islice(self.source, skip, skip), None)
        self.at = -1


@component
class Deadly(TinyData):
    """Rows; the process ends at the micro-batch that the environment names, counted over the whole run."""

    @hookimpl
    def open_data(self, run):
        return DeadlyData(self, run)


class DeadlyData(RegressionData):
    """Kills its process as `kill -9` would."""

    def microbatch(self, step: int, index: int) -> dict[str, torch.Tensor]:
        if step * len(self.window(step)) + index + 1 == int(os.environ.get("KILLED_AT", "0")):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().microbatch(step, index)


@component
class Workers(TinyData):
    """Rows with noise, made ready ahead of time by worker processes."""

    workers: int = setting(default=0, ge=0, help="worker processes; 0: this one makes them")

    @hookimpl
    def open_data(self, run):
        return WorkersData(self, run)


class WorkersData(RegressionData):
    """A micro-batch is a function of (seed, step, index), whoever makes it."""

    def __init__(self, settings: Workers, run: Any) -> None:
        super().__init__(settings, run)
        self.ahead = Ahead(self._windows)
        # Without a generator of its own, a loader draws from torch's, and moves the model's dropout.
        generator = torch.Generator().manual_seed(run.seed)
        made = Noisy(self._rows, self._windows, run.seed)
        options = {"prefetch_factor": 2, "persistent_workers": True} if settings.workers else {}
        self.loader = DataLoader(
            made,
            batch_size=None,
            sampler=self.ahead,
            num_workers=settings.workers,
            generator=generator,
            **options,
        )
        self.coming: Iterator[Any] = iter(())
        self.expected: tuple[int, int] | None = None

    def microbatch(self, step: int, index: int) -> dict[str, torch.Tensor]:
        if self.expected != (step, index):
            self.ahead.start = (step, index)
            self.coming = iter(self.loader)
        self.expected = self.ahead.after(step, index)
        return next(self.coming)

    def close(self) -> None:
        # Workers that are kept end with the loader's iterator.
        self.coming = iter(())
        self.loader._iterator = None


class Ahead(Sampler[tuple[int, int]]):
    """(step, index) from `start` on, without an end."""

    def __init__(self, windows: Any) -> None:
        self.windows, self.start = windows, (0, 0)

    def after(self, step: int, index: int) -> tuple[int, int]:
        return (step, index + 1) if index + 1 < len(self.windows.window(step)) else (step + 1, 0)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        at = self.start
        while True:
            yield at
            at = self.after(*at)


class Noisy(Dataset[dict[str, torch.Tensor]]):
    """Rows of a micro-batch, with noise keyed by where it stands."""

    def __init__(self, rows: Mapping[str, torch.Tensor], windows: Any, seed: int) -> None:
        self.rows, self.windows, self.seed = rows, windows, seed

    def __getitem__(self, at: tuple[int, int]) -> dict[str, torch.Tensor]:
        step, index = at
        chosen = torch.tensor(self.windows.window(step)[index].rows)
        batch = {name: values[chosen] for name, values in self.rows.items()}
        generator = torch.Generator().manual_seed(hash((self.seed, step, index)) % 2**63)
        batch["x"] = batch["x"] + 0.1 * torch.randn(batch["x"].shape, generator=generator)
        return batch
