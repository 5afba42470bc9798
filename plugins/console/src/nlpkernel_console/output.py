"""Standard output that may go away while the run goes on."""

from __future__ import annotations

import os
from typing import TextIO


class Output:
    """A text stream whose failures end the output, not the run.

    A reader that leaves (`| head`), a closed terminal or a full disk behind a redirection: from the first failure on
    everything written is dropped. Characters that the encoding lacks are written as escapes.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.gone = False

    @property
    def encoding(self) -> str:
        """The stream's encoding."""
        return self._stream.encoding or "ascii"

    def write(self, text: str) -> int:
        """Write text as far as there is still a reader."""
        if not self.gone:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                self.write(text.encode(self.encoding, "backslashreplace").decode(self.encoding))
            except (OSError, ValueError) as error:
                self._leave(error)
        return len(text)

    def flush(self) -> None:
        """Hand on what was written."""
        if not self.gone:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._leave(error)

    def line(self, text: str) -> None:
        """Write one line and hand it on."""
        self.write(text + "\n")
        self.flush()

    def isatty(self) -> bool:
        """Whether this is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """The stream's descriptor. Raise OSError where it has none."""
        return self._stream.fileno()

    def _leave(self, error: Exception) -> None:
        self.gone = True
        if not isinstance(error, BrokenPipeError):
            return
        # What is still buffered would raise again when Python flushes it at exit, and turn the exit code into 120.
        try:
            descriptor = self._stream.fileno()
        except OSError:
            return
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, descriptor)
        os.close(null)
