"""Where the workers of one start of a run find each other: a store that the first of them keeps."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from nlpkernel import runs
from nlpkernel.errors import NlpkernelError, TrainingError, fail
from nlpkernel_torchdist import network
from nlpkernel_torchdist.blame import workers

#: The file, in a run's folder, that says where the store of its newest start is.
FILE = ".meeting.json"
#: Seconds between two looks for it.
_SOON = 0.02


def keep(host: str, timeout: float) -> tuple[Store, int]:
    """Keep a store that listens on `host` alone, on a free port. Raise UsageError (TDI003) where it cannot."""
    listener = network.listen(host)
    port = int(listener.getsockname()[1])
    # The store owns the descriptor from here on. libuv would open a listener of its own, on all interfaces.
    store: Store = dist.TCPStore(  # type: ignore[attr-defined, unused-ignore]
        host,
        port,
        is_master=True,
        timeout=timedelta(seconds=timeout),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
        use_libuv=False,
    )
    return store, port


def publish(folder: Path, launch: str, host: str, port: int) -> None:
    """Say where the store of this start is."""
    runs.write(folder / FILE, json.dumps({"launch": launch, "host": host, "port": port}) + "\n")


def find(folder: Path, launch: str, timeout: float) -> Store:
    """The store of this start, once the first worker keeps it. Raise TrainingError (TDI003) where it does not come."""
    end = time.monotonic() + timeout
    while True:
        try:
            said = json.loads((folder / FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            said = {}
        if said.get("launch") == launch:
            return visit(said["host"], said["port"], timeout)
        if time.monotonic() > end:
            raise fail(TrainingError, "TDI003", f"the first worker was not there within {timeout:g} s")
        time.sleep(_SOON)


def visit(host: str, port: int, timeout: float) -> Store:
    """A store that another process keeps. Raise TrainingError (TDI003) where it cannot be reached."""
    try:
        store: Store = dist.TCPStore(  # type: ignore[attr-defined, unused-ignore]
            host, port, is_master=False, timeout=timedelta(seconds=timeout), wait_for_workers=False
        )
        return store
    except (dist.DistError, RuntimeError, TimeoutError) as error:
        message = f"the first worker's store at {host}:{port} cannot be reached: {_first_line(error)}"
        raise fail(TrainingError, "TDI003", message) from error


def leave(folder: Path, launch: str) -> None:
    """Take the word back where it is of this start."""
    path = folder / FILE
    try:
        if json.loads(path.read_text(encoding="utf-8"))["launch"] == launch:
            path.unlink()
    except (OSError, ValueError, KeyError):
        return


def gathered(store: Store, what: str, world: int, timeout: float) -> list[bytes]:
    """What each worker put under `what`, in their order. Raise TrainingError (TDI003) naming those who did not come, or
    where the store is lost. (All errors of torch's stores are RuntimeErrors.)"""
    keys = [f"{what}/{rank}" for rank in range(world)]
    try:
        store.wait(keys, timedelta(seconds=timeout))
        return [bytes(store.get(key)) for key in keys]
    except RuntimeError as error:
        try:
            missing = [rank for rank, key in enumerate(keys) if not store.check([key])]
        except RuntimeError:
            missing = []  # Nobody can say.
        if not missing:
            raise gone(error) from error
        raise fail(
            TrainingError, "TDI003", f"{workers(missing)} did not come within {timeout:g} s"
        ) from error


def said(store: Store, key: str, timeout: float) -> bytes:
    """What the first worker put under `key`. Raise TrainingError (TDI003) where it does not come, or is lost."""
    try:
        store.wait([key], timedelta(seconds=timeout))
        return bytes(store.get(key))
    except RuntimeError as error:
        try:
            late = not store.check([key])
        except RuntimeError:
            late = False
        if not late:
            raise gone(error) from error
        raise fail(TrainingError, "TDI003", f"worker 0 did not come within {timeout:g} s") from error


def gone(error: RuntimeError) -> NlpkernelError:
    """The store's process ended, or the way to it."""
    return fail(TrainingError, "TDI003", f"the connection to worker 0's store was lost: {_first_line(error)}")


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
