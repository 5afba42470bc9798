"""Where buckets are encoded and exchanged while the backward pass goes on: one after the other, in the order in which
they were given, which is the same on all workers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

import torch
from torch import Tensor
from torch.futures import Future


class Lane(Protocol):
    """A place for jobs beside the backward pass."""

    def put(self, job: Callable[[], None], result: Tensor) -> Future[Tensor]:
        """Do this next; the future has `result` when it is done."""

    def finish(self) -> None:
        """After the backward pass: raise what a job has raised."""

    def close(self) -> None:
        """No more jobs come."""


def lane(device: torch.device) -> Lane:
    """That of a device."""
    return _Stream(device) if device.type == "cuda" else _Thread()


class _Thread:
    """A thread. torch leaves the interpreter to others while it computes or waits.

    torch hands on of an exception in a future no more than its text. So the future has its result all the same, and the
    exception itself is raised after the backward pass.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], None], Tensor, Future[Tensor]] | None] = SimpleQueue()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def put(self, job: Callable[[], None], result: Tensor) -> Future[Tensor]:
        if self._thread is None:
            # A daemon: it may wait for workers that are gone when this process wants to end.
            self._thread = threading.Thread(target=self._work, name="nlpkernel-compress", daemon=True)
            self._thread.start()
        future: Future[Tensor] = Future()
        self._jobs.put((job, result, future))
        return future

    def finish(self) -> None:
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._jobs.put(None)

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, result, future = item
            if self._error is None:
                try:
                    job()
                except BaseException as error:  # noqa: BLE001 - `finish` raises it.
                    self._error = error
            future.set_result(result)


class _Stream:
    """A CUDA stream: the host waits for nothing."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call, unused-ignore]

    def put(self, job: Callable[[], None], result: Tensor) -> Future[Tensor]:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        future: Future[Tensor] = Future(devices=[self._device])
        with torch.cuda.stream(self._stream):
            job()
            future.set_result(result)
        return future

    def finish(self) -> None:
        """What a job raises came out of the backward pass."""

    def close(self) -> None:
        """A stream needs no end."""
