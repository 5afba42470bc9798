"""Error codes, with what `nlpkernel explain` says about each."""

from __future__ import annotations

CODES: dict[str, tuple[str, str]] = {
    "NSC001": (
        "there is one worker, and nothing to compare it with",
        'With `compare = "workers"` the gradient of one worker\'s share is compared with that of all workers. This\n'
        'run has one data worker, whose share is the whole window. Write `compare = "windows"`, which compares a\n'
        "window with the next one, or leave the setting out.",
    ),
}
