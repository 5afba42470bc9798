"""The driver's hand on a machine: what it does there for one worker. Light; plain data goes in and comes out."""

from __future__ import annotations

import os
import platform
import secrets
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nlpkernel import __version__
from nlpkernel_ray.keeper import Keeper, Line

#: Variables by which a launcher shows a process some of the machine's GPUs.
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
#: The file that shows whether a folder is shared begins so.
_TOKEN = ".nlpkernel-ray-"
#: Seconds between two looks for it.
_LOOK = 0.1


class Hand:
    """One on the machine of each worker. Errors that a user may meet are returned as text."""

    def __init__(self) -> None:
        self._keeper: Keeper | None = None

    def node(self) -> str:
        """What tells this machine from others in the cluster."""
        return socket.gethostname()

    def address(self) -> str:
        """How the others reach this machine."""
        return "127.0.0.1"

    def facts(self) -> dict[str, Any]:
        """This machine, what is installed there, and the GPUs that this worker may use."""
        return {
            "node": self.node(),
            "host": socket.gethostname(),
            "address": self.address(),
            "python": platform.python_version(),
            "nlpkernel": __version__,
            "visible": {name: os.environ[name] for name in VISIBLE if name in os.environ},
        }

    def provide(self, files: Mapping[str, bytes]) -> str | None:
        """Write files where they are not; what is wrong where one is there that is another."""
        for name, content in files.items():
            path = Path(name)
            try:
                if path.exists():
                    if path.read_bytes() != content:
                        return f"{name} is there, and has other content than the driver's"
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
                aside.write_bytes(content)
                os.replace(aside, path)
            except OSError as error:
                return f"{name} cannot be written: {error.strerror or error}"
        return None

    def mark(self, folder: str, token: str) -> str | None:
        """Write a file that others look for."""
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            _file(folder, token).write_text(token, encoding="utf-8")
        except OSError as error:
            return f"{folder} cannot be written: {error.strerror or error}"
        return None

    def sees(self, folder: str, token: str, seconds: float) -> bool:
        """Whether that file is here, within so many seconds: network file systems may show it late."""
        end = time.monotonic() + seconds
        while True:
            try:
                # A listing asks the server again where a look-up is answered from a cache.
                if _file(folder, token).name in os.listdir(folder):
                    return True
            except OSError:
                pass  # The folder itself may come late.
            if time.monotonic() > end:
                return False
            time.sleep(_LOOK)

    def unmark(self, folder: str, token: str) -> None:
        """Remove the file."""
        _file(folder, token).unlink(missing_ok=True)

    def port(self, address: str) -> int:
        """One that is free at this address."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.create_server((address, 0), family=family) as server:
            return int(server.getsockname()[1])

    def start(self, words: Sequence[str], environment: Mapping[str, str], folder: str) -> str | None:
        """Start `nlpkernel` with these words, in the environment of this process and some more."""
        if not Path(folder).is_dir():
            return f"there is no folder {folder}"
        try:
            self._keeper = Keeper(self.command(words), {**os.environ, **environment}, folder)
        except (OSError, ValueError) as error:
            return f"{sys.executable} cannot be started: {getattr(error, 'strerror', None) or error}"
        return None

    def command(self, words: Sequence[str]) -> list[str]:
        """`nlpkernel` with these words, of the Python that this process has. Nothing beside the plan is imported."""
        return [sys.executable, "-P", "-m", "nlpkernel", *words]

    def read(self, seconds: float) -> tuple[list[Line], int | None]:
        """What the process wrote since, and its exit code once it has ended."""
        assert self._keeper is not None
        return self._keeper.read(seconds)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        if self._keeper is not None:
            self._keeper.signal(number)

    def end(self) -> None:
        """End it at once."""
        if self._keeper is not None:
            self._keeper.end()


def _file(folder: str, token: str) -> Path:
    return Path(folder) / f"{_TOKEN}{token}"
