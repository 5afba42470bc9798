"""What a run sets for its whole process, and puts back at its end."""

from __future__ import annotations

import hashlib
import logging
import os
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from mmap import PAGESIZE
from pathlib import Path
from typing import Any

import torch

from nlpkernel.plan.train import Train


@contextmanager
def environment(train: Train, threads_before: int | None = None) -> Iterator[None]:
    """Seed all generators, set threads and determinism; afterwards everything is as it was before. `threads_before`:
    what a run had that is continued here; it computes the same with as many, whatever this machine would choose."""
    own_threads = torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    filling = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    with generators_kept():
        try:
            if threads := train.threads or threads_before:
                torch.set_num_threads(threads)
            if train.deterministic:
                # Filling fresh memory finds bugs of torch, not ours, and costs a pass over every new tensor.
                torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
                torch.use_deterministic_algorithms(True, warn_only=True)
            seed_all(train.seed)
            yield
        finally:
            torch.set_num_threads(own_threads)
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
            torch.utils.deterministic.fill_uninitialized_memory = filling  # type: ignore[attr-defined]


def stream_seed(seed: int, stream: int, step: int = 0) -> int:
    """The seed of a run's stream of random numbers from `step` on; for the first at the start it is the plan's own."""
    if not stream and not step:
        return seed
    digest = hashlib.blake2b(f"{seed}/{stream}/{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_all(seed: int) -> None:
    """Seed the generators of Python, numpy (where it is loaded) and torch."""
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def random_state(device: torch.device | None = None) -> dict[str, Any]:
    """The state of every global generator, as tensors and plain data: of all accelerators, or of `device` alone, which
    may have another number in another process."""
    version, words, gauss = random.getstate()
    state: dict[str, Any] = {
        "python": [version, list(words), gauss],
        "torch": torch.get_rng_state(),
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, position, has_gauss, cached = numpy.random.get_state()
        state["numpy"] = [name, [int(key) for key in keys], int(position), int(has_gauss), float(cached)]
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if device is not None and device.type != "cpu":
        state[f"{device.type}:own"] = torch.get_device_module(device.type).get_rng_state(device)
    elif device is None and accelerator is not None:
        module = torch.get_device_module(accelerator)
        for index in range(torch.accelerator.device_count()):
            state[f"{accelerator.type}:{index}"] = module.get_rng_state(index)
    return state


def load_random_state(state: dict[str, Any], device: torch.device | None = None) -> None:
    """Put every generator back where `random_state`, asked for the same, found it. A device of another kind than that
    of the state keeps its own."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    torch.set_rng_state(state["torch"])
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy" in state:
        name, keys, position, has_gauss, cached = state["numpy"]
        numpy.random.set_state((name, numpy.array(keys, dtype="uint32"), position, has_gauss, cached))
    for name, value in state.items():
        kind, colon, index = name.partition(":")
        if colon and index != "own":
            torch.get_device_module(kind).set_rng_state(value, int(index))
        elif colon and device is not None and device.type == kind:
            torch.get_device_module(kind).set_rng_state(value, device)


@contextmanager
def generators_kept() -> Iterator[None]:
    """Put every generator back in the end: what is drawn inside moves no draw outside."""
    before = random_state()
    try:
        yield
    finally:
        load_random_state(before)


@contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Write what is logged under `nlpkernel`, and Python's warnings, into one file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    told = logging.getLogger("py.warnings")
    loggers = [logging.getLogger("nlpkernel"), told]
    before = [(logger.level, logger.propagate) for logger in loggers]

    def show(
        message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        told.warning("%s", warnings.formatwarning(message, category, filename, lineno, line))

    for logger in loggers:
        # Who did not ask for information gets none: there are monitors for that.
        logger.propagate = logger.propagate and logger.isEnabledFor(logging.INFO)
        logger.setLevel(min(logger.getEffectiveLevel(), logging.INFO))
        logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show
            yield
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate
        handler.close()


def memory_in_use(device: torch.device) -> int:
    """Bytes that torch holds on an accelerator, or that this process holds on the CPU (0 where nobody can say)."""
    if device.type != "cpu":
        return int(torch.accelerator.memory_allocated(device))
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return 0
    try:
        pages = int(os.read(file, 128).split()[1])
    finally:
        os.close(file)
    return pages * PAGESIZE
