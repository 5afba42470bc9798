"""The command line in a process that was forked from one that has imported torch. The name `given` is a table: `folder`
to work in, `words`, `environment`, `told` (the file for what it tells)."""

from __future__ import annotations

import os
import sys


def run(folder: str, words: list[str], environment: dict[str, str], told: str) -> int:
    os.setsid()
    os.chdir(folder)
    os.environ.update(environment)
    output = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)

    from nlpkernel.cli import main

    return main(words)


sys.exit(run(**globals()["given"]))
