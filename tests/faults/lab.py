"""Runs of the real command line in real processes, and what is left of them."""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from nlpkernel.context import Run
from nlpkernel.engine.equality import difference, uncounted
from nlpkernel.plan import Plan
from nlpkernel.state import Snapshot, VersionInfo

PARTS = Path(__file__).parent / "parts"
WITNESS = f"{PARTS / 'witness.py'}:Witness"
#: A process of the kit that takes longer than this hangs, in seconds.
PATIENCE = 120.0
STEPS, EVERY = 24, 3

CORPUS = "".join(f"def f{n}(x):\n    return x + {n}\n\n" for n in range(60))

#: A model, an optimizer with a schedule, dropout, windows of two micro-batches, evaluations, saves, rotation: a step
#: takes milliseconds.
PLAN: dict[str, Any] = {
    "name": "small",
    "train": {
        "seed": 3,
        "steps": STEPS,
        "batch": 4,
        "micro": 2,
        "clip": 1.0,
        "threads": 1,
        "evaluate": {"every": 6},
        "log": {"every": 4},
    },
    "data": {
        "use": "text",
        "paths": ["corpus.txt"],
        "format": {"use": "auto", "documents": "blank"},
        "window": 16,
        "tokenizer": {"use": "bytes"},
        "task": {"use": "lm"},
    },
    "model": {"use": "gpt", "layers": 1, "width": 16, "heads": 2, "dropout": 0.1},
    "optimizer": {"use": "adamw", "lr": 0.1, "schedule": {"use": "cosine", "warmup": 4}},
    "checkpoint": {"use": "store", "every": EVERY, "keep": {"last": 2, "best": 1, "every": 12}},
    "monitor": [{"use": "jsonl"}, {"use": WITNESS}],
}

#: Forks of one process that has imported everything: a cold start costs seconds.
forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload(
    [
        "nlpkernel.engine.api",
        "nlpkernel.cli.run",
        "nlpkernel.cli.resume",
        "nlpkernel_sdk.regression",
        "nlpkernel_store.store",
        "nlpkernel_text.data",
        "nlpkernel_transformer.module",
        "nlpkernel_zmq.server.serve",
        "nlpkernel_zmq.worker.exchange",
        "torch._dynamo",
    ]
)


@attrs.frozen(kw_only=True)
class Told:
    """What the witness of a run was told, by all of its processes: the step after which each began, losses and norms of
    steps, metrics of evaluations, versions that were saved or failed."""

    lines: tuple[tuple[Any, ...], ...]

    @property
    def began(self) -> list[int]:
        """The steps after which processes began, in order."""
        return [line[1] for line in self.lines if line[0] == "begins"]

    @property
    def numbers(self) -> dict[tuple[str, int], set[str]]:
        """Everything that was computed, by kind and step; one value each where processes agree."""
        found: dict[tuple[str, int], set[str]] = {}
        for line in self.lines:
            if line[0] in ("step", "evaluated"):
                found.setdefault((line[0], line[1]), set()).add(json.dumps(line[2], sort_keys=True))
        return found

    @property
    def last(self) -> int:
        """The last step that was told by the last process."""
        steps = 0
        for line in self.lines:
            if line[0] in ("step", "begins"):
                steps = line[1]
        return steps

    def steps(self, kind: str) -> list[int]:
        """Steps of lines of a kind, in order."""
        return [line[1] for line in self.lines if line[0] == kind]


class Started:
    """A process of the command line. `left` lists what there is of it: itself, its children, and theirs."""

    def __init__(
        self, pid: int, wait: Callable[[float], int | None], told: Path, left: Callable[[], list[str]]
    ) -> None:
        self.pid, self._wait, self._told, self.left = pid, wait, told, left
        self.code: int | None = None

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def running(self) -> bool:
        """Whether it has not ended."""
        return self._wait(0.0) is None

    def end(self, code: int | None = 0, *, seconds: float = PATIENCE) -> str:
        """Wait for its end, ask for this exit code (negative: the signal that killed it; None: any), and return what it
        told. Nothing may be left of it."""
        self.code = self._wait(seconds)
        assert self.code is not None, f"it did not end within {seconds} s: {self.told}"
        assert until(lambda: not self.left(), 5.0), f"left of it: {self.left()}"
        assert code is None or self.code == code, f"exit code {self.code}, not {code}: {self.told}"
        return self.told

    @property
    def told(self) -> str:
        """What it told so far."""
        return self._told.read_text(errors="replace") if self._told.exists() else ""


class Lab:
    """A folder with a plan, its runs, their caches and temporary files. Everything in it is a test's own."""

    def __init__(self, folder: Path, **sections: Any) -> None:
        self.folder = folder
        self.plan = folder / "plan.json"
        self.run = folder / "runs/small"
        self.witness = folder / "witness"
        self._number = 0
        self._started: list[Started] = []
        (folder / "tmp").mkdir(parents=True)
        (folder / "corpus.txt").write_text(CORPUS)
        values = {**PLAN}
        for name, table in sections.items():
            known = values.get(name)
            same = isinstance(known, dict) and table.get("use", known.get("use")) == known.get("use")
            values[name] = {**known, **table} if same else table
        self.plan.write_text(json.dumps(values))

    def environment(self) -> dict[str, str]:
        """Of the processes that are started here."""
        return {
            "NLPKERNEL_CACHE": str(self.folder / "cache"),
            "TMPDIR": str(self.folder / "tmp"),
            "FAULTS_WITNESS": str(self.witness),
            "OMP_NUM_THREADS": "1",
        }

    # -- processes --------------------------------------------------------------------------------------------------

    def start(self, *words: str, traps: Sequence[dict[str, Any]] = ()) -> Started:
        """A command in a process that was forked from one that has imported torch."""
        told = self._told()
        names = {
            "folder": str(self.folder),
            "words": list(words),
            "tables": list(traps),
            "environment": self.environment(),
            "told": str(told),
            "traps": str(PARTS / "traps.py"),
        }
        process = forks.Process(
            target=runpy.run_path,
            args=(str(PARTS / "command.py"),),
            kwargs={"init_globals": {"given": names}, "run_name": "faults_command"},
        )
        process.start()
        pid = process.pid
        assert pid is not None

        def wait(seconds: float) -> int | None:
            process.join(seconds)
            return process.exitcode

        return self._keep(Started(pid, wait, told, lambda: in_session(pid)))

    def cold(self, *words: str, **environment: str) -> Started:
        """A command as a user starts it: `python -m nlpkernel`, in a session of its own."""
        told = self._told()
        mark = f"FAULTS_MARK={told}"
        with told.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "nlpkernel", *words],
                cwd=self.folder,
                env={**os.environ, **self.environment(), "FAULTS_MARK": str(told), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

        def wait(seconds: float) -> int | None:
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired:
                return None

        def left() -> list[str]:
            return [*in_session(process.pid), *marked(mark)]

        return self._keep(Started(process.pid, wait, told, left))

    def do(self, *words: str, code: int | None = 0, traps: Sequence[dict[str, Any]] = ()) -> str:
        """Start a command, wait for its end, and return what it told."""
        return self.start(*words, traps=traps).end(code)

    @contextmanager
    def held(
        self, step: int, *words: str, code: int | None = 0, traps: Sequence[dict[str, Any]] = ()
    ) -> Iterator[Started]:
        """A process whose loop stands still before a step while the block goes on; then it goes on to its end."""
        go = self.folder / f"go-{self._number}"
        process = self.start(*words, "-q", traps=[{"what": "hold", "step": step, "file": str(go)}, *traps])
        self.reached(process, go)
        yield process
        go.touch()
        process.end(code)

    def reached(self, process: Started, gate: Path) -> None:
        """Wait until a process waits for a file."""
        there = gate.with_name(f"{gate.name}.reached")
        assert until(lambda: there.exists() or not process.running()), "it never came there"
        assert there.exists(), f"it ended before: {process.told}"

    def close(self) -> None:
        """End what a failed test left."""
        for each in self._started:
            for line in each.left():
                os.kill(int(line.partition(" ")[0]), signal.SIGKILL)

    def _told(self) -> Path:
        self._number += 1
        return self.folder / f"told-{self._number}"

    def _keep(self, started: Started) -> Started:
        self._started.append(started)
        return started

    # -- what came of them ------------------------------------------------------------------------------------------

    def told(self, witness: Path | None = None) -> Told:
        """What the witness was told so far."""
        path = witness or self.witness
        text = path.read_text() if path.exists() else ""
        whole, _, _ = text.rpartition("\n")  # A line may be on its way.
        return Told(lines=tuple(tuple(json.loads(line)) for line in whole.splitlines()))

    @contextmanager
    def store(self) -> Iterator[Any]:
        """The run's versions, for reading."""
        run = Run(name=self.run.name, folder=self.run, cache=self.folder, train=Plan.load(self.plan).train)
        component = Plan.load(self.plan).compose().slot("checkpoint").component
        store = run.ask(component, "open_store", run=run, folder=self.run, write=False)
        try:
            yield store
        finally:
            store.close()

    def versions(self) -> list[VersionInfo]:
        """All versions; each is sound."""
        with self.store() as store:
            listed = list(store.list())
            for info in listed:
                assert store.verify(info.name) == [], f"{info.name} is listed and not whole"
            return listed

    def load(self, reference: str | None = None) -> Snapshot:
        """A version, the newest if none is named."""
        with self.store() as store:
            loaded: Snapshot = store.load(reference)
            return loaded

    def remains(self) -> set[str]:
        """Every file and folder that the runs left, from this folder; of the store those that no version needs. What is
        not the runs' own is left out: the folder that torch makes when it imports its compiler, and half-built entries
        of the cache, which several runs share and which go after a day; so is the lock that is made with the first
        removal."""
        with self.store() as store:
            needed = {
                f"runs/small/versions/{name}"
                for entry, manifest in store.catalog.readable().items()
                for name in (entry.file, *manifest.packs)
            }
        found = set()
        for root in ("runs", "cache", "tmp"):
            for path in (self.folder / root).rglob("*"):
                found.add(path.relative_to(self.folder).as_posix())
        others = ("tmp/torchinductor_", "cache/text/.building-", "runs/small/versions/.aside/lock")
        return {name for name in found - needed if not name.startswith(others)}

    def report(self) -> dict[str, Any]:
        """The report, without what follows the clock, the name of a version, and whether the last process had anything
        to do."""
        report: dict[str, Any] = json.loads((self.run / "report.json").read_text())
        if report["reason"] == f"all {STEPS} steps were done before":
            report["reason"] = ""
        return {name: value for name, value in report.items() if name not in ("seconds", "version", "folder")}


def differences(left: Snapshot, right: Snapshot) -> list[str]:
    """What distinguishes two states, a line for each leaf."""
    if left.step != right.step:
        return [f"step {left.step} and step {right.step}"]
    paths = dict.fromkeys(path for path in [*left.tree, *right.tree] if not uncounted(path))
    found = [(path, difference(left.tree.get(path), right.tree.get(path))) for path in paths]
    return [f"{path}: {what}" for path, what in found if what]


def until(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """What `condition` says as soon as it is true; None where that does not come."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            return None
        time.sleep(0.005)
    return found


def answers(path: Path) -> bool:
    """Whether a process listens at a unix socket; one that was killed leaves the file."""
    with socket.socket(socket.AF_UNIX) as made:
        return made.connect_ex(str(path)) == 0


def in_session(session: int) -> list[str]:
    """Processes of a session that have not ended: their numbers and command lines."""
    return _processes(lambda path, stat: int(stat[3]) == session)


def marked(mark: str) -> list[str]:
    """Processes that have `mark` in their environment."""
    return _processes(lambda path, stat: mark.encode() in (path / "environ").read_bytes().split(b"\0"))


def _processes(wanted: Callable[[Path, list[str]], bool]) -> list[str]:
    found = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit() or int(path.name) == os.getpid():
            continue
        try:
            stat = (path / "stat").read_text().rpartition(")")[2].split()
            if stat[0] not in "ZX" and wanted(path, stat):
                line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found.append(f"{path.name} {line}")
        except (OSError, ValueError):
            continue  # It ended meanwhile.
    return found
