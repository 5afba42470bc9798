"""Distributed: the tiny plan with two workers, each a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from nlpkernel_sdk.conform.checks import NotApplicable, check, refuse
from nlpkernel_sdk.conform.running import fresh, plan_of, run
from nlpkernel_sdk.conform.subject import Part

#: Seconds in which two workers have to be through, and those in which a failure has to end both.
_LIMIT, _END = 120.0, 40.0


def _two(part: Part) -> dict[str, Any]:
    """The plan for two workers. Raise NotApplicable where nobody here can start them."""
    values = part.values()
    values.pop("checkpoint", None)
    if part.point == "communicator":
        if "workers" not in {field.name for field in part.fields}:
            raise NotApplicable("it has no setting `workers`: it is for one process")
        return {**values, "communicator": {**values["communicator"], "workers": 2}}
    if part.point in ("compressor", "checkpoint"):
        raise NotApplicable("its plan for two workers is the author's own")
    if "torchdist" not in part.subject.catalog.names("communicator"):
        raise NotApplicable("torchdist is not installed: pip install nlpkernel-plugin-torchdist")
    return {**values, "communicator": {"use": "torchdist", "workers": 2, "device": "cpu"}}


def _started(part: Part, values: dict[str, Any], limit: float) -> tuple[int, str, Path, float]:
    """Exit code, what it said last, the run's folder, seconds."""
    folder = fresh()
    (folder / "plan.toml").write_text(plan_of(part, values).text(), encoding="utf-8")
    begun = time.monotonic()
    command = [sys.executable, "-m", "nlpkernel", "run", "plan.toml"]
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    with (folder / "said").open("wb") as said:
        child = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=said, stderr=said, start_new_session=True
        )
        try:
            code = child.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            refuse([f"it is not through after {limit:g} s"])
    lines = (folder / "said").read_text("utf-8", "replace").strip().splitlines()
    return code, lines[-1] if lines else "", folder / "runs" / values["name"], time.monotonic() - begun


def _together(part: Part) -> tuple[int, str, Path, float]:
    """The run of two workers that two checks look at, made once."""
    if "two" not in part.shared:
        values = _two(part)
        values["monitor"] = [*values.get("monitor", []), {"use": "curve", "collectives": True}]
        part.shared["two"] = _started(part, values, _LIMIT)
    told: tuple[int, str, Path, float] = part.shared["two"]
    return told


@check("distributed.same", "two workers compute what one does")
def _same(part: Part) -> str:
    _two(part)
    alone = part.values()
    alone.pop("communicator", None)
    one = run(part, alone)
    if one.error is not None:
        raise NotApplicable("the plan of one process fails")
    code, said, folder, seconds = _together(part)
    if code:
        refuse([f"with two workers it ends with exit code {code}: {said}"])
    two = json.loads((folder / "curve.json").read_text("utf-8"))
    losses = [loss for own in one.losses for loss in own]
    pairs = [(a, b) for a, b in zip(losses, two, strict=True) if a is not None and b is not None]
    worst = max((abs(a - b) / max(1.0, abs(a)) for a, b in pairs), default=0.0)
    if worst > (2e-2 if part.point == "precision" else 2e-6):
        refuse([f"losses of two workers differ from those of one by {worst:.2g}"])
    return f"{len(pairs)} losses in {seconds:.1f} s"


@check(
    "distributed.observer",
    "an observer may be detached on one worker, and the others would wait for its collective",
)
def _observer(part: Part) -> str:
    code, _, folder, _ = _together(part)
    if code:
        raise NotApplicable("the run of two workers fails: see distributed.same")
    refuse(
        f"on worker {path.stem.rpartition('-')[2]}, an observer starts {', '.join(json.loads(path.read_text('utf-8')))}"
        for path in sorted(folder.glob("collectives-*.json"))
    )
    return "no observer starts a collective"


@check("distributed.failing", "one worker that fails ends all of them, in seconds", points=["communicator"])
def _failing(part: Part) -> str:
    values = _two(part)
    values["train"] = {**values["train"], "steps": 1000, "policy": [{"use": "failing", "step": 2, "rank": 1}]}
    code, said, _, seconds = _started(part, values, _END)
    if not code:
        refuse(["a worker raises in step 2, and the run ends well"])
    return f"over after {seconds:.1f} s: {said[:80]}"
