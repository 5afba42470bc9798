"""Whether a run with a parameter server grows: memory, descriptors and shared maps of each of its processes.

    python tests/benchmarks/soak.py [--minutes 10] [--mode sync] [--payload auto] [--json]

A run of the command line with zmq-ps, two workers and one server, which saves and evaluates, under supervision. After a
fifth of the time the server is killed, after a third a worker other than the first; both come back by themselves. The
run is interrupted in the end. Each few seconds every process is looked at: its memory, its open descriptors, and its
maps of shared memory. Memory is the proportional set size without files: what is shared counts in part, so that shared
memory counts once, and how many other programs have mapped the same libraries does not matter.

What counts is the second half, which begins when they are back, and in which nothing happens: the slope by Theil and
Sen (the median of the slopes of all pairs of samples), times the length of that half. Allowed are 1 MiB of memory, and
no descriptor and no map (half of one at most, since a slope is no whole number). The exit code is 1 where something
grows, or where one that was killed did not come back.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shlex
import signal
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nlpkernel.cli.output import table

#: What each may grow by over the second half: bytes, descriptors, maps.
ALLOWED = {"memory": float(1 << 20), "descriptors": 0.5, "maps": 0.5}
#: When each is killed, as a share of the time.
KILLS = {"server-0": 0.2, "worker-1": 0.35}
BACK = {"server-0": "server 0 goes on from its snapshot", "worker-1": "worker 1 comes in"}
#: Pairs of samples whose slopes are looked at, at most.
PAIRS = 100_000


def plan(options: argparse.Namespace) -> dict[str, Any]:
    """A small model and short steps: what leaks in a step leaks often."""
    return {
        "name": "soak",
        "train": {
            "steps": 100_000_000,
            "batch": 4,
            "micro": 2,
            "clip": 1.0,
            "threads": 1,
            "log": {"every": 50},
            "evaluate": {"every": 500},
        },
        "data": {
            "use": "text",
            "paths": [str(Path(sysconfig.get_paths()["stdlib"]) / "argparse.py")],
            "window": 32,
            "sampling": "random",
            "split": "tail",
            "validation": 0.02,
            "tokenizer": {"use": "bytes"},
        },
        "model": {"use": "gpt", "layers": 2, "width": 64, "heads": 2},
        "optimizer": {"use": "adamw", "lr": 1e-3},
        "communicator": {
            "use": "zmq-ps",
            "workers": 2,
            "servers": 1,
            "mode": options.mode,
            "payload": options.payload,
        },
        "checkpoint": {"use": "store", "every": 500, "keep": {"last": 2}},
        "monitor": [{"use": "jsonl"}],
    }


def look(pid: int) -> dict[str, float] | None:
    """What a process holds; None where there is none."""
    folder = Path(f"/proc/{pid}")
    try:
        told = (folder / "smaps_rollup").read_text()
        maps = (folder / "maps").read_text().splitlines()
        descriptors = len(os.listdir(folder / "fd"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    held = {name: int(size) for name, size in re.findall(r"^Pss_(\w+):\s+(\d+) kB", told, re.MULTILINE)}
    if not held:
        return None
    shared = sum("/memfd:" in line or "/dev/shm/" in line for line in maps)
    return {"memory": (held["Anon"] + held["Shmem"]) * 1024.0, "descriptors": descriptors, "maps": shared}


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """By Theil and Sen, a second."""
    count = len(times)
    if count < 2:
        return 0.0
    if count * (count - 1) // 2 <= PAIRS:
        pairs = [(i, j) for i in range(count) for j in range(i)]
    else:
        chance = random.Random(0)
        pairs = [(i, j) for i, j in (chance.sample(range(count), 2) for _ in range(PAIRS))]
    return statistics.median((values[i] - values[j]) / (times[i] - times[j]) for i, j in pairs)


class Run:
    """The run while it goes on."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        (folder / "plan.json").write_text(json.dumps(plan(options)))
        self._log = folder / "runs/soak/logs/run.log"
        self._said = folder / "said"
        with self._said.open("w") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "nlpkernel", "run", "plan.json", "-q", "--restarts", "10"],
                cwd=folder,
                env=os.environ | {"OMP_NUM_THREADS": "1", "NLPKERNEL_CACHE": str(folder / "cache")},
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        """What the run has written down of itself."""
        return self._log.read_text() if self._log.exists() else ""

    @property
    def said(self) -> str:
        """What it has said."""
        return self._said.read_text()

    def processes(self) -> dict[str, int]:
        """The newest of each name."""
        found = {name: int(pid) for name, pid in re.findall(r"(\S+) started as process (\d+)", self.log)}
        return {"supervisor": self.process.pid, **found}

    def step(self) -> int:
        """The last that the first worker has logged."""
        told = re.findall(r" worker-0 .* Logged step=(\d+)", self.log)
        return int(told[-1]) if told else 0

    def wait_for_steps(self, seconds: float = 120.0) -> None:
        """Until it trains."""
        deadline = time.monotonic() + seconds
        while self.step() == 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the run does not begin:\n{self.said}{self.log[-3000:]}")
            time.sleep(0.5)

    def end(self) -> int:
        """Interrupt it; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(60.0)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise


def soak(run: Run, options: argparse.Namespace) -> tuple[list[dict[str, Any]], int]:
    """Samples of all processes in the second half, with the second in which each was taken; steps of that half."""
    length = options.minutes * 60.0
    run.wait_for_steps()
    begin = time.monotonic()
    samples: list[dict[str, Any]] = []
    killed: set[str] = set()
    half: tuple[float, int] | None = None
    while (now := time.monotonic() - begin) < (1.5 * length if half is None else half[0] + length / 2):
        if run.process.poll() is not None:
            raise SystemExit(f"the run ended:\n{run.said}{run.log[-3000:]}")
        processes, log = run.processes(), run.log
        for name, share in KILLS.items():
            if name not in killed and now >= share * length:
                os.kill(processes[name], signal.SIGKILL)
                killed.add(name)
        if half is None and now >= length / 2 and all(words in log for words in BACK.values()):
            half = now, run.step()
        for name, pid in processes.items():
            held = look(pid) if half is not None else None
            if held is not None:
                samples.append({"process": name, "pid": pid, "seconds": now, **held})
        time.sleep(options.every)
    return samples, 0 if half is None else run.step() - half[1]


def rows(samples: Sequence[dict[str, Any]], length: float) -> list[dict[str, Any]]:
    """What each process, as it is in the end, has grown by in the second half."""
    made = []
    for name in {each["process"]: None for each in samples}:
        mine = [each for each in samples if each["process"] == name]
        times = [each["seconds"] for each in mine]
        row: dict[str, Any] = {"process": name, "samples": len(mine)}
        for what, most in ALLOWED.items():
            values = [each[what] for each in mine]
            grows = slope(times, values) * length / 2
            row[what] = {"median": statistics.median(values), "most": max(values), "grows": grows}
            row[what]["allowed"] = grows <= most
        made.append(row)
    return made


def cells(row: dict[str, Any]) -> Sequence[str]:
    """A row of the table."""
    memory, descriptors, maps = (row[what] for what in ALLOWED)
    return (
        row["process"],
        f"{memory['median'] / 2**20:.1f}",
        f"{memory['grows'] / 1024:+.0f}",
        f"{descriptors['median']:g}",
        f"{descriptors['grows']:+.1f}",
        f"{maps['median']:g}",
        f"{maps['grows']:+.1f}",
        "" if all(row[what]["allowed"] for what in ALLOWED) else "grows",
    )


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long, without the start")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two samples")
    parser.add_argument("--mode", choices=["sync", "async", "ssp"], default="sync")
    parser.add_argument("--payload", choices=["auto", "memory", "frames"], default="auto")
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    options = parser.parse_args()
    before = os.getloadavg()
    with tempfile.TemporaryDirectory() as name:
        run = Run(Path(name), options)
        try:
            samples, steps = soak(run, options)
            log = run.log
        finally:
            code = run.end()
        told = run.said
    made = rows(samples, options.minutes * 60.0)
    wrong = [f"{row['process']} grows" for row in made if not all(row[what]["allowed"] for what in ALLOWED)]
    wrong += [f"{name} did not come back" for name, words in BACK.items() if words not in log]
    if any(len({each["pid"] for each in samples if each["process"] == row["process"]}) > 1 for row in made):
        wrong.append("a process was started again in the second half")
    if not steps:
        wrong.append("no step was made in the second half")
    if code != 128 + signal.SIGINT:
        wrong.append(f"the run ended with {code} where it was interrupted: {told[-2000:]}")
    if options.json:
        for row in made:
            print(json.dumps(row))
    else:
        print(f"{Path(sys.executable).name} {shlex.join(sys.argv)}")
        print(
            f"{options.mode}, {options.minutes:g} minutes, {steps} steps in the second half "
            f"({steps / options.minutes / 30:.1f} a second), {os.cpu_count()} cores (load {before[0]:.1f} before, "
            f"{os.getloadavg()[0]:.1f} after)"
        )
        head = ("process", "MiB", "KiB more", "descriptors", "more", "shared maps", "more", "")
        table([head, *map(cells, made)], head=True)
        print(f"allowed over the second half: {ALLOWED['memory'] / 1024:g} KiB, no descriptor, no map")
    print("; ".join(wrong) if wrong else "nothing grows, and what was killed came back")
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
