"""The one thread that writes versions while the training goes on, and what became of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from nlpkernel.errors import CheckpointError, NlpkernelError, Place, Problem, fail
from nlpkernel.state import Saved, VersionInfo
from nlpkernel_store.capture import Contents
from nlpkernel_store.codes import OWNER
from nlpkernel_store.options import Options
from nlpkernel_store.places import Place as Files

_log = logging.getLogger("nlpkernel.store")


class Writer:
    """Writes one version at a time, in the order in which they come.

    write: makes a version of contents, and raises OSError or CheckpointError where it cannot.
    """

    def __init__(self, write: Callable[[Contents], VersionInfo], options: Options, files: Files) -> None:
        self._write, self._options, self._files = write, options, files
        self._thread: threading.Thread | None = None
        self._saved: list[Saved] = []
        # Those that end the run.
        self._failures: list[BaseException] = []

    def start(self, contents: Contents, began: float) -> None:
        """Write, beside the caller unless the settings say otherwise. began: when the save did, as monotonic time."""
        self.wait()
        if not self._options.asynchronous:
            self._run(contents, began)
            return
        # Not a daemon: a process that ends waits for it.
        self._thread = threading.Thread(target=self._run, args=(contents, began), name="nlpkernel-store")
        self._thread.start()

    def wait(self) -> None:
        """Until nothing is being written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def settle(self, *, wait: bool) -> Sequence[Saved]:
        """What was written since this was asked last. Raise the first failure that ends the run; then the rest is told
        when this is asked again."""
        if wait or (self._thread is not None and not self._thread.is_alive()):
            self.wait()
        self._raise()
        saved, self._saved = self._saved, []
        return saved

    def close(self) -> None:
        """Wait. Raise a failure that ends the run and that nobody has been told of."""
        self.wait()
        self._raise()

    def _raise(self) -> None:
        if self._failures:
            raise self._failures.pop(0)

    def _run(self, contents: Contents, began: float) -> None:
        try:
            info = self._write(contents)
            self._saved.append(Saved(step=contents.step, version=info, seconds=time.monotonic() - began))
        except BaseException as error:
            if not self._options.asynchronous and not isinstance(error, Exception):
                raise  # An interrupt reached the caller's own thread.
            told = self._told(contents, error)
            _log.error("%s", told)
            if isinstance(told, NlpkernelError) and self._options.on_failure == "continue":
                seconds = time.monotonic() - began
                self._saved.append(
                    Saved(step=contents.step, version=None, seconds=seconds, error=_text(told))
                )
            else:
                self._failures.append(told)

    def _told(self, contents: Contents, error: BaseException) -> BaseException:
        """The error as a user meets it."""
        if isinstance(error, CheckpointError):
            where = Problem(
                code="STO002", message=f"the version of step {contents.step} was not saved", owner=OWNER
            )
            return CheckpointError([where, *error.problems])
        if not isinstance(error, OSError):
            return error
        try:
            free = self._files.free()
        except OSError:
            free = None
        room = "" if free is None else f", and {free:,} are free"
        told = fail(
            CheckpointError,
            "STO002",
            f"the version of step {contents.step} could not be written: {error}; "
            f"it needs {contents.total:,} bytes{room}",
            place=Place(self._files.describe()),
            owner=OWNER,
            hint="older versions are untouched; make room or keep fewer versions, and resume",
        )
        told.__cause__ = error
        return told


def _text(error: NlpkernelError) -> str:
    return "; ".join(problem.message for problem in error.problems)
