"""Runs of tiny plans, watched from outside and, through the components in `parts`, from inside."""

from __future__ import annotations

import multiprocessing
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest
import torch

import nlpkernel
from nlpkernel.events import Event, Logged, StepCompleted
from nlpkernel.plugins.catalog import Catalog, Found
from nlpkernel.report import Report
from nlpkernel_sdk import tiny_values
from nlpkernel_sdk.notes import BOOKS

#: The file of each component that a plan of these tests can name.
PARTS = {
    name: path
    for path in (Path(__file__).parent / "parts").glob("*.py")
    for name in re.findall(r"^@component\nclass (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
}

torch.set_num_threads(1)


@attrs.define
class Ran:
    """What came of a run."""

    folder: Path
    events: list[Event]
    error: Exception | None
    book: list[tuple[Any, ...]]
    books: dict[str, list[Any]]

    @property
    def report(self) -> Report:
        return Report.read(self.folder / "report.json")

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        """At the end, as the last hook of the run saw them."""
        found: dict[str, torch.Tensor] = next(entry[1] for entry in self.book if entry[0] == "close")
        return found

    @property
    def losses(self) -> list[float | None]:
        """Of each step, exactly."""
        return [
            float(event.sums["loss"]) / event.totals["loss"] if event.sums else None
            for event in self.of(StepCompleted)
        ]

    def of(self, kind: type[Any]) -> list[Any]:
        """Events of a class."""
        return [event for event in self.events if type(event) is kind]

    def logged(self, name: str) -> list[float | None]:
        """A metric of each log."""
        return [event.metrics[name] for event in self.of(Logged)]

    def seen(self, word: str) -> list[tuple[Any, ...]]:
        """Entries of the spy that begin with a word."""
        return [entry[1:] for entry in self.book if entry[0] == word]


class Bench:
    """A folder of runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def use(self, name: str, /, **settings: Any) -> dict[str, Any]:
        """The table of a component of `parts`."""
        return {"use": f"{PARTS[name]}:{name}", **settings}

    def module(self, name: str) -> ModuleType:
        """The module that plans get when they name a component of `parts`."""
        found = Catalog().resolve("monitor", f"{PARTS[name]}:{name}", base=None, place=None)
        assert isinstance(found, Found), found
        return sys.modules[found.cls.__module__]

    def shelf(self, run: Path) -> Any:
        """The versions of a run that `Shelf` saved."""
        return self.module("Shelf").ShelfStore(run / "shelf", None)

    def values(self, *monitors: dict[str, Any], **sections: Any) -> dict[str, Any]:
        """A tiny plan with the spy, which watches last."""
        spy = sections.pop("spy", {})
        return tiny_values(monitor=[*monitors, self.use("Spy", **spy)], **sections)

    def run(
        self,
        *monitors: dict[str, Any],
        resume: str | None = None,
        allow: Sequence[str] = (),
        **sections: Any,
    ) -> Ran:
        """Run a plan to its end, whatever that is; books begin anew."""
        plan = nlpkernel.Plan.of(self.values(*monitors, **sections))
        BOOKS.clear()
        events: list[Event] = []
        error = None
        try:
            events.extend(nlpkernel.train(plan, runs_folder=self.folder, resume=resume, allow=allow))
        except Exception as raised:  # noqa: BLE001 - what it is, the test says
            error = raised
        return Ran(self.folder / plan.name, events, error, BOOKS.get("spy", []), dict(BOOKS))

    def sums(self, sums: list[float], tokens: list[float], *monitors: Any, **sections: Any) -> Ran:
        """A run over rows that are (loss sum, tokens), by plain descent with rate 1 from w = 1."""
        data = self.use("Sums", sums=sums, tokens=tokens, **sections.pop("data", {}))
        optimizer = self.use("Descent", **sections.pop("optimizer", {}))
        return self.run(*monitors, data=data, model=self.use("Number"), optimizer=optimizer, **sections)

    def fork(self, source: str, *arguments: str) -> tuple[int | None, str]:
        """Python source in a process that has run nothing yet: its exit code, and what it wrote to standard error."""
        head = "import os, sys\nos.chdir(folder)\nos.dup2(os.open('stderr', os.O_WRONLY | os.O_CREAT), 2)\n"
        names = {"__name__": "forked", "folder": str(self.folder), "arguments": arguments}
        process = _forks.Process(target=exec, args=(head + source, names))
        process.start()
        process.join(120)
        return process.exitcode, (self.folder / "stderr").read_text()

    def child(
        self, source: str, *arguments: str, check: int | None = 0, folder: Path | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Python source in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-c", source, *arguments],
            cwd=folder or self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            **options,
        )
        assert check is None or done.returncode == check, done.stdout + done.stderr
        return done


#: Forks of one process that has imported torch (the last module, which its optimizers import at their first step): a
#: fresh start costs seconds on a busy machine.
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["nlpkernel.engine.api", "nlpkernel_sdk.regression", "torch._dynamo"])


@pytest.fixture(scope="session", autouse=True)
def warm() -> None:
    """One step of an optimizer, before anybody watches a run."""
    # The first step of any optimizer imports much of torch, and makes a folder for temporary files.
    parameter = torch.zeros(1, requires_grad=True)
    torch.optim.AdamW([parameter], fused=True).step()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time moves only where a component sleeps, and then at once: what is measured can be written down."""
    now = 1000.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    for name, function in (("sleep", sleep), ("monotonic", lambda: now), ("time", lambda: now)):
        monkeypatch.setattr(time, name, function)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Runs in a folder of the test's own."""
    return Bench(tmp_path)
