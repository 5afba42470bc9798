"""A run's process without a run: it takes its post and makes empty steps. What it is to do comes as JSON.

steps, pace: how many, and seconds of each. at: what to do in given steps, by step: "die" (SIGKILL), "fail" (exit
code 7), "refuse" (exit code 2), "end" (exit code 0), "sleep" (for ever), "hold" (keep the interpreter for ever), "save"
(tell of a version), "flood" (tell 20,000 events), "children" (start some), "noise" (send bytes that are no message).
only: the one rank that does so. once: not where this is a restart. resumes: where the process before was.
serve: what a process that is no worker does: "silent" (once: it beats no more), "refuse" (exit code 2), "stubborn" (it
does not end), "fall" (exit code 7, once there is a file of that name), "early" (it ends at once).
start: seconds before the run is open. wait: the file that the first step waits for. deaf: to the kernel's word that the
parent is gone.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from multiprocessing import shared_memory
from pathlib import Path

from nlpkernel.engine.signals import Dismissal, Signals
from nlpkernel.events import Logged, RunStarted, VersionSaved
from nlpkernel.progress import Progress
from nlpkernel.supervise.post import SupervisedPost, take_post


def started(step: int) -> RunStarted:
    return RunStarted(
        time=time.time(),
        name="light",
        folder=".",
        start=Progress(step),
        steps=0,
        steps_per_epoch=None,
        parameters=0,
        device="cpu",
        precision="fp32",
        world=1,
    )


def logged(step: int) -> Logged:
    return Logged(
        time=time.time(),
        progress=Progress(step),
        steps=1,
        metrics={"loss": 1.0},
        losses=(),
        seconds=0.0,
        tokens=0,
        samples=0,
        skipped=0,
        memory=0,
    )


def children() -> None:
    """One in the group, one in a session of its own, one that ignores SIGTERM, and shared memory."""
    code = "import signal, time; {} time.sleep(600)"
    ignoring = code.format("signal.signal(signal.SIGTERM, signal.SIG_IGN);")
    for source, alone in ((code.format(""), False), (code.format(""), True), (ignoring, False)):
        subprocess.Popen([sys.executable, "-S", "-c", source], start_new_session=alone)
    kept.append(shared_memory.SharedMemory(create=True, size=1000, name=f"nlpk-test-{os.getpid()}"))


def serve(post: SupervisedPost) -> None:
    """Until it is told to end, or what it is asked for."""
    what = asked.get("serve")
    post.pulse.enter("serving")
    told = {"name": post.name, "rank": post.rank, "world": post.world, "pid": os.getpid()}
    told["restart"] = None if post.restart is None else json.loads(post.restart.text())
    with (folder / f"{post.name}.told").open("a") as file:
        file.write(json.dumps(told) + "\n")
    if what == "silent" and post.restart is None:
        time.sleep(1.5)  # Whoever never beat is not silent.
        ctypes.PyDLL(None).sleep(600)
    elif what == "refuse":
        sys.exit(2)
    elif what == "early":
        return
    while what == "fall":
        if (folder / "fall").exists():
            os._exit(7)
        time.sleep(0.001)
    try:
        while True:
            time.sleep(600)
    finally:
        while what == "stubborn":
            time.sleep(600)
        (folder / f"{post.name}.closed").touch()


kept: list[shared_memory.SharedMemory] = []
asked = json.loads(sys.argv[1])
folder = Path(asked["folder"])
if asked.get("deaf"):
    ctypes.CDLL(None).prctl(1, 0)
post = take_post()
assert isinstance(post, SupervisedPost)
if post.serves:
    with post.manned(folder), Dismissal(post) as dismissal:
        dismissal.until(lambda: serve(post))
    sys.exit(0)
mine = asked.get("only") in (None, post.rank)
with post.manned(folder), Signals() as signals:
    time.sleep(asked.get("start", 0.0))
    begun = folder / f"begun-{post.rank}"
    first = int(begun.read_text()) if begun.exists() and asked.get("resumes") else 0
    post.hears(started(first))
    signals.armed = True
    while "wait" in asked and not Path(asked["wait"]).exists():
        time.sleep(0.01)
    post.pulse.enter("step")
    number = None
    for step in range(first + 1, asked["steps"] + 1):
        number = post.due(step, signals.received)
        if number is not None:
            (folder / f"stopped-{post.rank}").write_text(f"{step - 1}")
            break
        post.pulse.step = step
        post.pulse.moves += 1
        begun.write_text(f"{step}")
        what = asked.get("at", {}).get(str(step)) if mine else None
        if asked.get("once") and post.restart is not None:
            what = None
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "fail":
            sys.exit(7)
        elif what == "refuse":
            sys.exit(2)
        elif what == "end":
            break
        elif what == "sleep":
            time.sleep(600)
        elif what == "hold":
            ctypes.PyDLL(None).sleep(600)
        elif what == "save":
            post.hears(
                VersionSaved(time=time.time(), progress=Progress(step), version="v", bytes=0, seconds=0)
            )
        elif what == "children":
            children()
        elif what == "noise":
            post._sock.sendall(b"\xff" * 16)
        elif what == "flood":
            start = time.monotonic()
            for _ in range(20_000):
                post.hears(logged(step))
            (folder / "flooded").write_text(f"{time.monotonic() - start}")
        time.sleep(asked.get("pace", 0.0))
    if post.restart is not None:
        (folder / f"restart-{post.rank}").write_text(post.restart.text())
if number is not None:
    sys.exit(128 + number)
