"""What a run must leave as it was: the process around it."""

from __future__ import annotations

import locale
import logging
import multiprocessing
import os
import random
import signal
import stat
import sys
import threading
import warnings
from typing import Any

import numpy as np
import torch


def surroundings() -> dict[str, Any]:
    """Everything that is looked at, by name."""
    return {
        # torch itself notes there where its compiler works.
        "environment": {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("TORCHINDUCTOR_", "TRITON_"))
        },
        "working folder": os.getcwd(),
        "umask": _umask(),
        "locale": locale.setlocale(locale.LC_ALL),
        "python's generator": hash(random.getstate()),
        "numpy's generator": str(np.random.get_state()),
        "torch's generator": bytes(torch.get_rng_state().numpy().tobytes()),
        "default type": str(torch.get_default_dtype()),
        "default device": str(torch.get_default_device()),
        "threads of torch": torch.get_num_threads(),
        "determinism": torch.are_deterministic_algorithms_enabled(),
        "gradients": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "anomaly detection": torch.is_anomaly_enabled(),
        "precision of products": torch.get_float32_matmul_precision(),
        "tf32 of convolutions": torch.backends.cudnn.allow_tf32,
        "denormals": float(torch.tensor(1e-40) * 1.0) != 0.0,
        "numpy's errors": np.geterr(),
        "numpy's printing": {key: str(value) for key, value in np.get_printoptions().items()},
        "signal handlers": {str(number): str(signal.getsignal(number)) for number in _SIGNALS},
        "warnings filters": [str(each) for each in warnings.filters],
        "sys.path": list(sys.path),
        "import hooks": [str(each) for each in sys.meta_path],
        "recursion limit": sys.getrecursionlimit(),
        "exception hooks": [str(sys.excepthook), str(threading.excepthook), str(sys.unraisablehook)],
        "standard streams": [id(sys.stdout), id(sys.stderr), id(sys.stdin)],
        "log handlers": [
            f"{name}: {handler}"
            for name in ("", "nlpkernel", "py.warnings")
            for handler in logging.getLogger(name or None).handlers
        ],
        "log levels": [logging.getLogger(name or None).level for name in ("", "nlpkernel")],
        "threads": set(threading.enumerate()),
        "children": [str(each) for each in multiprocessing.active_children()] + _children(),
        "files": _files(),
    }


_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    *(getattr(signal, each) for each in ("SIGUSR1", "SIGHUP") if hasattr(signal, each)),
)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _children() -> list[str]:
    try:
        with open(f"/proc/self/task/{threading.get_native_id()}/children", encoding="ascii") as file:
            return file.read().split()
    except OSError:
        return []


def _files() -> dict[str, str]:
    """Open files, pipes and sockets by their number; nothing where the system does not say."""
    found = {}
    try:
        numbers = os.listdir("/proc/self/fd")
    except OSError:
        return {}
    for number in numbers:
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
            kind = os.fstat(int(number)).st_mode
        except OSError:
            continue  # the listing itself, closed by now
        if stat.S_ISREG(kind) or stat.S_ISSOCK(kind) or stat.S_ISFIFO(kind):
            found[f"{number} ({target})"] = target
    return found
