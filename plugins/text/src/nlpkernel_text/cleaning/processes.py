"""Stages that share their work among several processes, in order."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from nlpkernel.errors import DataError, fail
from nlpkernel_text.cleaning.batches import Batch
from nlpkernel_text.cleaning.work import Opened, Tally, apply, open_stages

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.plan.train import Train

#: What a worker process has opened: stages by their number, and the names of the files.
_opened: list[Opened] = []
_shown: Sequence[str] = ()


@attrs.frozen
class _Start:
    """What a worker process begins with."""

    name: str
    folder: Path
    cache: Path
    train: Train
    components: Sequence[object]
    names: Sequence[str]
    shown: Sequence[str]


class Processes:
    """`workers` processes that open the stages of a plan. Raise DataError (TXT032) for a stage that cannot go to
    another process, and where one ends by itself."""

    def __init__(
        self,
        run: Run,
        components: Sequence[object],
        names: Sequence[str],
        shown: Sequence[str],
        workers: int,
    ) -> None:
        start = _Start(run.name, run.folder, run.cache, run.train, components, names, shown)
        try:
            packed = pickle.dumps(start)
            pickle.loads(packed)
        except Exception as error:
            raise fail(
                DataError,
                "TXT032",
                f"a stage cannot go to another process: {error}",
                hint="write workers = 0, or put the component into an installed package",
            ) from error
        self._most = 2 * workers
        # Not a fork: libraries of the parent may have threads, whose locks a fork would leave locked.
        self._pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin, (packed,))

    def map(self, first: int, last: int, batches: Iterable[Batch]) -> Iterator[tuple[Batch, list[Tally]]]:
        """What the stages from `first` to `last` make of each batch, in order."""
        waiting: deque[Future[tuple[Batch, list[Tally]]]] = deque()
        try:
            for batch in batches:
                waiting.append(self._pool.submit(_apply, first, last, batch))
                if len(waiting) > self._most:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise fail(
                DataError,
                "TXT032",
                "a process that works on the stages ended by itself",
                hint="it may have been killed for want of memory: write fewer `workers`; its log says more",
            ) from error
        finally:
            for future in waiting:
                future.cancel()

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(cancel_futures=True)


def _begin(packed: bytes) -> None:
    from nlpkernel.context import Run

    # Ctrl-C reaches all processes of a terminal; what becomes of it is for the parent to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    start: _Start = pickle.loads(packed)
    run = Run(name=start.name, folder=start.folder, cache=start.cache, train=start.train)
    global _shown
    _shown = start.shown
    _opened[:] = open_stages(run, start.components, start.names)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _apply(first: int, last: int, batch: Batch) -> tuple[Batch, list[Tally]]:
    return apply(_opened[first:last], batch, _shown)
