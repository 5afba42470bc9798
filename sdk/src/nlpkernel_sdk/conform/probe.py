"""What a clean process sees of the light floor: asked by `Subject.probed`, never imported for anything else.

Standard input: JSON with `path`, `modules` and `plans` (name to values and base). The last line of standard output is
JSON with what each module and each plan brought along, printed and changed.
"""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from nlpkernel.plugins.probe import Watch

#: Packages that no light module may import, beside those that doctor knows.
HEAVY = (
    *("torch", "numpy", "zmq", "cupy", "transformers", "tokenizers", "safetensors", "pyarrow"),
    *("pandas", "scipy", "sklearn", "datasets", "h5py", "matplotlib", "tensorflow", "jax"),
)


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    # Ours first, so that what the kernel needs is not put down to the plugin.
    from nlpkernel.plan import Plan
    from nlpkernel.plan.fit import check_fit, estimate
    from nlpkernel.plugins import examine  # noqa: F401

    def checked(values: Any, base: str) -> None:
        plan = Plan.of(values, base=base)
        check_fit(plan, estimate(plan))

    watch: Any = Watch(HEAVY)
    sys.meta_path.insert(0, watch)
    from nlpkernel_sdk import memory, tiny, words  # noqa: F401

    answer: dict[str, Any] = {"modules": {}, "plans": {}}
    for module in request["modules"]:
        answer["modules"][module] = _watched(watch, lambda module=module: __import__(module))  # type: ignore[misc]
    for name, (values, base) in request["plans"].items():
        answer["plans"][name] = _watched(watch, lambda values=values, base=base: checked(values, base))  # type: ignore[misc]
    sys.stdout.write("\n" + json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)


def _watched(watch: Any, work: Callable[[], object]) -> dict[str, Any]:
    before, seen, said = _facts(), set(watch.seen), io.StringIO()
    started, error = time.perf_counter(), ""
    try:
        with redirect_stdout(said), redirect_stderr(said):
            work()
    except (Exception, SystemExit) as failure:  # noqa: BLE001 - it may fail in any way; it is named
        error = f"{type(failure).__name__}: {failure}"
    seconds, after = time.perf_counter() - started, _facts()
    return {
        "heavy": [
            [name, where] for name, where in watch.seen.items() if name not in seen and name in sys.modules
        ],
        "said": said.getvalue(),
        "changed": [name for name, value in after.items() if value != before[name]],
        "error": error,
        "seconds": seconds,
    }


def _facts() -> dict[str, Any]:
    return {
        "the environment": dict(os.environ),
        "the working folder": os.getcwd(),
        "the number of threads": threading.active_count(),
        "the handlers of signals": [
            str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)
        ],
        "the filters of warnings": [str(each) for each in warnings.filters],
        "the handlers of the root logger": len(logging.root.handlers),
        "sys.path": list(sys.path),
        "the recursion limit": sys.getrecursionlimit(),
        "the hooks for exceptions": [str(sys.excepthook), str(threading.excepthook)],
    }
