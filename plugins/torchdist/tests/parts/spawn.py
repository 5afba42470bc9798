"""Processes of a test that meet over a file store on the loopback interface, and what each of them found."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def spawn(script: str, world: int, folder: Path, *, seconds: float = 120.0) -> list[dict[str, Any]]:
    """Run parts/SCRIPT in `world` processes that end with this call; what each of them found, by rank."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(world):
            with (folder / f"{rank}.log").open("wb") as log:
                command = [sys.executable, str(HERE / script), str(rank), str(world), str(folder)]
                started.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
        for rank, process in enumerate(started):
            if process.wait(seconds):
                raise AssertionError((folder / f"{rank}.log").read_text())
    finally:
        for process in started:
            process.kill()
            process.wait()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]


def found(cases: Callable[[int, int], Mapping[str, Any]]) -> None:
    """In such a process: join the others, run `cases`, and leave what they found."""
    import torch
    import torch.distributed as dist

    # Whatever becomes of the test, its processes end with it.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=60))
    result = cases(rank, world)
    (folder / f"{rank}.json").write_text(json.dumps(result))
    if dist.is_initialized():
        dist.destroy_process_group()
