"""The command line in a process of its own that was forked from one that has imported torch.

Names given: `folder` to work in, `words` of the command, `tables` of what befalls it, `environment`, `told` (the file
for what it tells), `traps` (the file with the traps).
"""

from __future__ import annotations

import os
import runpy
import sys

folder: str
words: list[str]
tables: list[dict[str, object]]
environment: dict[str, str]
told: str
traps: str

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

from nlpkernel.cli import main  # noqa: E402 - once the traps are laid

code = main(words)
for ending in laid["ENDINGS"]:
    ending()
sys.exit(code)
