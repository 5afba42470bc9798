"""The entry of one run: a folder that its first worker writes."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from nlpkernel.events import Evaluated, Logged, RunEnded, RunStarted
from nlpkernel_experiment.commit import commit_of
from nlpkernel_experiment.files import append, put, put_bytes

ENTRY, EVALUATIONS, PLAN, ALIVE, INDEX = (
    "entry.json",
    "evaluations.json",
    "plan.toml",
    "alive",
    "index.jsonl",
)
#: In the run's own folder: where its entry is.
NOTE = "experiment.json"
#: Seconds to wait for a reader who looks whether the entry is alive.
_PATIENCE = 10.0


class Entry:
    """The entry of a run that begins or goes on. `interval`: seconds between two writes of its progress.

    It holds the lock `alive` until `close` or the end of the process, however that ends.
    """

    def __init__(self, root: Path, event: RunStarted, interval: float) -> None:
        run_folder = Path(event.folder)
        self._root, self._interval, self._written = root, interval, 0.0
        self.folder, known = _find(root, run_folder, event.name, event.time)
        self._lock = FileLock(self.folder / ALIVE)
        try:
            self._lock.acquire(timeout=_PATIENCE)
        except Timeout as error:
            raise RuntimeError(f"the entry {str(self.folder)!r} is another process's") from error
        put(run_folder / NOTE, {"entry": str(self.folder.resolve())})
        self._evaluations = _kept(self.folder / EVALUATIONS, event.start.step)
        starts = known.get("starts", [])
        if starts and starts[-1]["status"] == "running":
            starts[-1]["status"] = "lost"
        now: dict[str, Any] = {
            "time": event.time,
            "ended": None,
            "status": "running",
            "reason": "",
            "from": event.start.step,
            "host": platform.node(),
            "process": os.getpid(),
            "world": event.world,
            "device": event.device,
            "precision": event.precision,
            "commit": commit_of(Path.cwd()),
            "lock": _hash(run_folder / "lock.json"),
        }
        self._value: dict[str, Any] = {
            "name": event.name,
            "folder": str(run_folder.resolve()),
            "created": known.get("created", event.time),
            "status": "running",
            "reason": "",
            "steps": event.steps,
            "parameters": event.parameters,
            "progress": event.start._asdict(),
            "metrics": known.get("metrics", {}) if event.start.step else {},
            "best": None,
            "starts": [*starts, now],
        }
        self._now = now
        plan = run_folder / PLAN
        if plan.is_file():
            put_bytes(self.folder / PLAN, plan.read_bytes())
        self._keep_evaluations()
        self._write()
        self._tell("started", event.time)

    def logged(self, event: Logged) -> None:
        """Take up the newest metrics, and write them where `interval` is over."""
        self._value["progress"] = event.progress._asdict()
        self._value["metrics"] |= event.metrics
        if time.monotonic() - self._written >= self._interval:
            self._write()

    def evaluated(self, event: Evaluated) -> None:
        """Take up an evaluation. One after a roll-back takes the place of those that came later in the run."""
        step = event.progress.step
        self._evaluations = [
            each
            for each in self._evaluations
            if each["step"] < step or (each["step"] == step and each["split"] != event.split)
        ]
        metrics = {f"{event.split}/{name}": value for name, value in event.metrics.items()}
        self._evaluations.append(
            {"step": step, "split": event.split, "best": event.best, "time": event.time, "metrics": metrics}
        )
        self._value["progress"] = event.progress._asdict()
        self._value["metrics"] |= metrics
        self._keep_evaluations()
        self._write()

    def ended(self, event: RunEnded) -> None:
        """The run is over."""
        self._value |= {
            "status": event.status,
            "reason": event.reason,
            "progress": event.progress._asdict(),
        }
        self._now |= {"status": event.status, "reason": event.reason, "ended": event.time}
        self._write()
        self._tell("ended", event.time)

    def close(self) -> None:
        """Let go of the entry."""
        self._lock.release()

    def _keep_evaluations(self) -> None:
        bests = [each for each in self._evaluations if each["best"]]
        self._value["best"] = {"step": bests[-1]["step"], "metrics": bests[-1]["metrics"]} if bests else None
        put(self.folder / EVALUATIONS, self._evaluations)

    def _write(self) -> None:
        self._written = time.monotonic()
        put(self.folder / ENTRY, self._value)

    def _tell(self, what: str, when: float) -> None:
        value = self._value
        append(
            self._root / INDEX,
            {
                "what": what,
                "time": when,
                "entry": self.folder.name,
                "name": value["name"],
                "status": value["status"],
                "step": value["progress"]["step"],
                "best": value["best"],
            },
        )


def _find(root: Path, run_folder: Path, name: str, began: float) -> tuple[Path, Mapping[str, Any]]:
    """The entry of a run, with what is in it: the one that its folder names, or a new one."""
    note = _read(run_folder / NOTE)
    if isinstance(note, dict):
        folder = Path(str(note.get("entry")))
        known = _read(folder / ENTRY)
        if isinstance(known, dict) and folder.parent == root.resolve():
            return folder, known
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(began))
    plain = re.sub(r"[^\w.-]+", "-", name)
    while True:
        folder = root / f"{plain}-{stamp}-{secrets.token_hex(2)}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder.resolve(), {}


def _kept(path: Path, step: int) -> list[dict[str, Any]]:
    """Evaluations of before, up to the step from which the run goes on."""
    known = _read(path)
    return [each for each in known if each["step"] <= step] if isinstance(known, list) and step else []


def _read(path: Path) -> Any:
    """A file of JSON; None where there is none, or it is damaged: then the run gets what it would get at first."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _hash(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
