"""The command line in a process of its own that was forked from one that has imported torch.

The name `given` is a table: `folder` to work in, `words` of the command, `tables` of what befalls it, `environment`,
`told` (the file for what it tells), `traps` (the file with the traps).
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any


def run(
    folder: str, words: list[str], tables: list[Any], environment: dict[str, str], told: str, traps: str
) -> int:
    # What is left of this process in the end is found by its session.
    os.setsid()
    os.chdir(folder)
    os.environ.update(environment)
    output = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    laid = runpy.run_path(traps)
    laid["install"](tables)

    from nlpkernel.cli import main

    code = main(words)
    for ending in laid["ENDINGS"]:
        ending()
    return code


sys.exit(run(**globals()["given"]))
