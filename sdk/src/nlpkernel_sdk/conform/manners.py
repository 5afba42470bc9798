"""Behaviour: what a run of the component must leave alone. All look at one run, the second in its process."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from nlpkernel.hookspecs import POINTS
from nlpkernel_sdk.conform.checks import check, refuse
from nlpkernel_sdk.conform.running import again, base, run
from nlpkernel_sdk.conform.subject import Part

_FIRST = ("files", "threads", "children", "warnings filters", "import hooks", "sys.path")


def _changed(part: Part, *names: str) -> None:
    # What stays changed is changed by the first run; what libraries open and import when they are first used is not
    # the component's doing.
    changed = {name: what for name, what in base(part).changed.items() if name not in _FIRST}
    changed |= again(part).changed
    refuse(f"{name}: {changed[name]}" for name in names if name in changed)


@check("behaviour.environment", "the next run in this process starts from what the user set")
def _environment(part: Part) -> None:
    _changed(part, "environment", "working folder", "umask", "locale")


@check("behaviour.torch", "a switch of torch that stays switched changes other people's numbers")
def _torch(part: Part) -> None:
    _changed(
        part,
        *("default type", "default device", "threads of torch", "determinism", "gradients", "inference mode"),
        *("autocast", "anomaly detection", "precision of products", "tf32 of convolutions", "denormals"),
        *("numpy's errors", "numpy's printing"),
    )


@check("behaviour.interpreter", "handlers, hooks and paths of Python belong to the program")
def _interpreter(part: Part) -> None:
    _changed(
        part,
        *("signal handlers", "warnings filters", "sys.path", "import hooks", "recursion limit"),
        *("exception hooks", "standard streams"),
    )


@check("behaviour.logging", "log handlers and levels belong to the program")
def _logging(part: Part) -> None:
    _changed(part, "log handlers", "log levels")


@check("behaviour.threads", "a thread that is left holds the process open, or what it works with")
def _threads(part: Part) -> None:
    _changed(part, "threads")


@check("behaviour.children", "a process that is left is nobody's")
def _children(part: Part) -> None:
    _changed(part, "children")


@check("behaviour.files", "files and sockets that are left open run out")
def _files(part: Part) -> None:
    _changed(part, "files")


@check("behaviour.generators", "whoever seeds the process's generators makes all other draws alike")
def _generators(part: Part) -> None:
    base(part)
    _changed(part, "python's generator", "numpy's generator", "torch's generator")
    with _seeding(part) as seeded:
        run(part, part.values())
    refuse(seeded)


@contextmanager
def _seeding(part: Part) -> Iterator[list[str]]:
    """Note who of the component's own packages seeds a global generator."""
    import random

    import numpy as np
    import torch

    own = tuple(str(place) for place in part.subject.packages.values())
    found: list[str] = []

    def watching(name: str, real: Any) -> Any:
        def seed(*arguments: Any, **more: Any) -> Any:
            frame = traceback.extract_stack(sys._getframe(1), limit=1)[0]
            if frame.filename.startswith(own):
                found.append(f"{frame.filename}:{frame.lineno} calls {name}")
            return real(*arguments, **more)

        return seed

    with ExitStack() as stack:
        for module, name in ((random, "seed"), (np.random, "seed"), (torch, "manual_seed"), (torch, "seed")):
            shown = f"{module.__name__}.{name}"
            stack.enter_context(mock.patch.object(module, name, watching(shown, getattr(module, name))))
        yield found


@check("behaviour.writes", "a run writes into its folder and into the cache, and nowhere else")
def _writes(part: Part) -> None:
    told = again(part)
    cache = os.environ.get("NLPKERNEL_CACHE", "")
    allowed = tuple(os.path.realpath(each) + os.sep for each in (told.folder, cache) if each)
    temporary = os.path.realpath(tempfile.gettempdir()) + os.sep
    wrong: dict[str, None] = {}
    for what, path in told.writes:
        real = os.path.realpath(path)
        inside = (real + os.sep).startswith(allowed) or real.startswith(("/dev/", "/proc/"))
        # A file without a name is opened by the name of its folder.
        if inside or "__pycache__" in real or real + os.sep == temporary:
            continue
        # A temporary file that is gone again harms nobody.
        if real.startswith(temporary) and not Path(real).exists():
            continue
        wrong[f"{what}: {path}"] = None
    refuse(wrong)


@check(
    "behaviour.rehearsal", "a rehearsal leaves nothing outside the folder that it was given", points=POINTS
)
def _rehearsal(part: Part) -> None:
    from nlpkernel.engine.api import Loop
    from nlpkernel_sdk.conform.running import fresh, plan_of

    base(part)
    plan, folder = plan_of(part, part.values()), fresh()
    beside = set(folder.parent.iterdir())
    loop = Loop(plan, folder / plan.name, rehearsal=True, limit=2, quiet=True)
    for _ in loop.steps():
        pass
    own = {each for each in folder.parent.iterdir() if each not in beside and each.name != "cache"}
    refuse(f"it leaves {each.name}" for each in own)
