"""Runs with a worker that joins over TCP, as from another machine, all as processes on this one."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WORDS = ("river", "stone", "light", "on", "the", "of", "alpha", "beta", "gamma", "delta")
#: Seconds for whatever is waited for.
PATIENCE = 90.0


def until(true: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + patience
    while not true():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.02)


class Site:
    """A folder with plans, their runs, and the processes of both sides."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._processes: list[subprocess.Popen[str]] = []
        draws = random.Random(1)
        lines = (" ".join(draws.choices(WORDS, k=draws.randint(1, 9))) for _ in range(300))
        (root / "corpus.txt").write_text("\n".join(lines) + "\n")

    def plan(
        self, name: str, steps: int = 30, *, sections: dict[str, Any] | None = None, **communicator: Any
    ) -> None:
        """A small model for two workers. sections: in the place of others."""
        content = {
            "name": name,
            "train": {"seed": 1, "steps": steps, "batch": 8, "micro": 2, "clip": 1.0, "log": {"every": 5}},
            "data": {
                "use": "text",
                "paths": [str(self.root / "corpus.txt")],
                "window": 32,
                "format": {"use": "auto", "documents": "line"},
                "pack": "rows",
            },
            "model": {"use": "gpt", "layers": 2, "heads": 4, "width": 32},
            "optimizer": {"use": "adamw", "lr": 1e-3},
            "checkpoint": {"use": "store"},
            "monitor": [{"use": "jsonl"}],
            "communicator": {"use": "zmq-ps", "workers": 2, **communicator},
            **(sections or {}),
        }
        (self.root / f"{name}.json").write_text(json.dumps(content))

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Run a command of the kernel."""
        environment = {**os.environ, "NLPKERNEL_CACHE": str(self.root / "cache"), "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "nlpkernel", *words],
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._processes.append(process)
        return process

    def run(self, name: str, *options: str) -> subprocess.Popen[str]:
        """Begin a run whose servers listen, and wait until they do."""
        process = self.start("run", f"{name}.json", *options)
        path = self.servers(name) / "control.endpoint"
        until(lambda: path.exists() or process.poll() is not None, "the servers to listen")
        assert path.exists(), process.communicate()[0]
        return process

    def join(self, name: str, keys: Path | None = None, *options: str) -> subprocess.Popen[str]:
        """Begin a worker that joins."""
        chosen = str(self.keys(name) if keys is None else keys)
        return self.start("join", self.endpoint(name), f"{name}.json", "--keys", chosen, *options)

    def servers(self, name: str) -> Path:
        """What the servers of a run keep."""
        return self.root / "runs" / name / ".servers"

    def keys(self, name: str) -> Path:
        """Those of the worker that joins."""
        return self.servers(name) / "keys" / "worker-1"

    def endpoint(self, name: str, socket: str = "control") -> str:
        """Where it listens."""
        return (self.servers(name) / f"{socket}.endpoint").read_text().split()[1]

    def log(self, name: str, file: str = "run.log") -> str:
        """What was logged."""
        path = self.root / "runs" / name / "logs" / file
        return path.read_text() if path.exists() else ""

    def losses(self, name: str) -> list[float]:
        """Of all steps."""
        lines = (self.root / "runs" / name / "events.jsonl").read_text().splitlines()
        return [loss for line in lines for loss in json.loads(line).get("losses", ())]

    def close(self) -> None:
        """End what is left."""
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def ended(process: subprocess.Popen[str], patience: float = PATIENCE) -> tuple[int, str]:
    """Exit code and what it said."""
    told, _ = process.communicate(timeout=patience)
    return process.returncode, told
