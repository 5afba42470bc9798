"""The word that the workers of one start share: who cannot read the folder of runs does not join them. Light."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

#: A variable that says the word instead, where the workers share no folder.
VARIABLE = "NLPKERNEL_SECRET"


class Secret:
    """The word of a run, in a file beside the run's folder that its owner alone can read."""

    def __init__(self, folder: Path) -> None:
        self._path = folder.with_name(f".{folder.name}.secret")
        self._own = ""

    def make(self) -> str:
        """A new word, for the start whose first worker this is. Raise OSError where it cannot be written."""
        given = os.environ.get(VARIABLE)
        if given:
            return given
        self._own = secrets.token_hex(16)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        aside = self._path.with_name(f"{self._path.name}.{secrets.token_hex(4)}")
        number = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "w", encoding="ascii") as file:
            file.write(self._own)
        os.replace(aside, self._path)
        return self._own

    def read(self) -> str:
        """The word of the newest start. Raise OSError where it is not there, or not for this user."""
        given = os.environ.get(VARIABLE)
        if given:
            return given
        with contextlib.suppress(OSError):
            # Network file systems may go on saying that there is no such file; a listing asks the server.
            os.listdir(self._path.parent)
        try:
            return self._path.read_text(encoding="ascii")
        except OSError as error:
            raise OSError(f"{self._path} cannot be read here ({error.strerror})") from error

    def drop(self) -> None:
        """Remove it, unless another start has made its own."""
        with contextlib.suppress(OSError):
            if self._own and self._path.read_text(encoding="ascii") == self._own:
                self._path.unlink()
