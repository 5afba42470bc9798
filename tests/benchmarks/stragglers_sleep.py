"""A component of the plans of stragglers.py: a step takes a fixed time, on some workers sometimes longer."""

from __future__ import annotations

import os
import time

from nlpkernel import component, hookimpl, setting


@component
class Sleep:
    """Sleeps in each backward pass, and writes down when each began and ended. A step of a worker has one of them."""

    seconds: float = setting(gt=0, help="how long it takes")
    worker: int = setting(default=-1, help="the slow worker; -1: none")
    every: int = setting(default=1, ge=1, help="every so many-th of its steps is slow")
    times: float = setting(default=4.0, gt=0, help="how much slower")
    folder: str = setting(help="where to write: a file for each worker, a line for each step")

    @hookimpl
    def subscribe(self, run, bus):
        """Open the file."""
        path = f"{self.folder}/worker-{run.rank}"
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.done = 0

    @hookimpl
    def backward(self, run, loss, sums):
        """Sleep, then fill the gradients."""
        began = time.monotonic()
        self.done += 1
        slow = run.rank == self.worker and self.done % self.every == 0
        time.sleep(self.seconds * (self.times if slow else 1.0))
        loss.backward()
        os.write(self.file, f"{began:.6f} {time.monotonic():.6f}\n".encode())

    @hookimpl
    def close(self):
        """Close the file."""
        os.close(self.file)
