"""Supervisors and their processes, real ones, and looks at what is left of them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PARTS = Path(__file__).parent / "parts"


def wait_for(condition: Callable[[], Any], what: str, seconds: float = 30.0) -> Any:
    """What `condition` says as soon as it is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come in {seconds} s")


def alive(mark: str) -> list[str]:
    """Command lines of processes that have `mark` in their environment or on their command line."""
    found = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit() or int(path.name) == os.getpid():
            continue
        try:
            if path.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "Z":
                continue
            line = path.joinpath("cmdline").read_bytes()
            if mark.encode() in line or mark.encode() in path.joinpath("environ").read_bytes():
                found.append(f"{path.name} {line.replace(bytes(1), b' ').decode()}")
        except (OSError, ValueError):
            continue
    return found


class Supervised:
    """A supervisor in a process of its own, with light workers."""

    def __init__(
        self, folder: Path, arguments: dict[str, Any], prefix: tuple[str, ...] = (), **options: Any
    ) -> None:
        self.folder = folder
        # All of its processes have this in their environment, and none of another test's.
        self.mark = f"nlpkernel-test={folder}"
        values = {"folder": str(folder), "steps": 10_000, "pace": 0.01, **arguments}
        self.process = subprocess.Popen(
            [*prefix, sys.executable, str(PARTS / "owner.py"), json.dumps(values)],
            env={**os.environ, "NLPKERNEL_TEST": self.mark},
            text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **options},
        )

    @property
    def log(self) -> str:
        """The one log of the run."""
        path = self.folder / "run.log"
        return path.read_text() if path.exists() else ""

    def begun(self, rank: int = 0, step: int = 1) -> int:
        """Wait until a worker has begun a step; returns the last one begun."""

        def look() -> int:
            try:
                number = int((self.folder / f"begun-{rank}").read_text() or 0)
            except FileNotFoundError:
                return 0
            return number if number >= step else 0

        return wait_for(look, f"step {step} of worker {rank}")

    def worker(self, rank: int = 0) -> int:
        """Process number of a worker's newest process."""
        pattern = rf"worker-{rank} started as process (\d+)"
        return int(wait_for(lambda: re.findall(pattern, self.log), f"the start of worker {rank}")[-1])

    def server(self, number: int = 0, starts: int = 1) -> dict[str, Any]:
        """What a server told of itself when it was started for this time; waits for that."""
        path = self.folder / f"server-{number}.told"

        def look() -> list[str]:
            lines = path.read_text().splitlines() if path.exists() else []
            return lines if len(lines) >= starts else []

        found: dict[str, Any] = json.loads(wait_for(look, f"start {starts} of server {number}")[starts - 1])
        return found

    def stopped(self, rank: int = 0) -> int:
        """The step after which a worker stopped."""
        return int((self.folder / f"stopped-{rank}").read_text())

    def end(self, seconds: float = 30.0) -> tuple[int, str]:
        """Wait for its end: exit code and output."""
        output, _ = self.process.communicate(timeout=seconds)
        return self.process.returncode, output

    def left(self) -> list[str]:
        """Processes of it that are there."""
        return alive(self.mark)

    def gone(self, seconds: float = 5.0) -> None:
        """Nothing is left of it within so many seconds."""
        try:
            wait_for(lambda: not self.left(), "the end of all processes", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.left()}") from None


@pytest.fixture(name="wait_for")
def wait_for_fixture() -> Callable[..., Any]:
    """`wait_for`, for test modules, which cannot import this one."""
    return wait_for


@pytest.fixture(name="alive")
def alive_fixture() -> Callable[[str], list[str]]:
    """`alive`, likewise."""
    return alive


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[..., Supervised]]:
    """Start supervisors; whatever a test leaves of them is killed."""
    made: list[Supervised] = []

    def start(
        *, prefix: tuple[str, ...] = (), options: dict[str, Any] | None = None, **arguments: Any
    ) -> Supervised:
        made.append(Supervised(tmp_path, arguments, prefix, **(options or {})))
        return made[-1]

    start.folder = tmp_path  # type: ignore[attr-defined]
    yield start
    for each in made:
        for line in each.left():
            os.kill(int(line.partition(" ")[0]), signal.SIGKILL)
        each.process.wait()
        if each.process.stdout is not None:
            each.process.stdout.close()
