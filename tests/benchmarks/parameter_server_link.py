"""A step of the parameter server over a slow link, with and without compressors, both ways.

    python tests/benchmarks/parameter_server_link.py [--rate 100] [--turns 3] [--steps 30] [--realtime] [--json]

Two network namespaces joined by a pair of virtual interfaces that `tc tbf` holds to a rate (Mbit/s) in both directions.
`nlpkernel run` starts the server and worker 0 in one of them, and `nlpkernel join` worker 1 in the other, over TCP with
keys, as from another machine. A small language model on the standard library's sources, mode `sync`: a step is over
when both workers have the new parameters. Arms are runs, in turns: frames as they are (float32 both ways), and
compressors up (gradients) and down (what the servers change).

A time is that between two steps as the first worker logs them, the median of a run without its first five steps; a
ratio is that of the two runs of one turn, and the table has their median, least and most. The loss is that on what is
held out, after all steps of a run. Needs root, for the namespaces.

Aim (issue 5): with compressors both ways at least 3 times as fast as without.
"""

from __future__ import annotations

import argparse
import json
import os
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
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from compressors import ADDRESSES, Link
from stragglers import put_first

from nlpkernel.cli.output import table

#: Compressors up and down.
ARMS: dict[str, tuple[dict[str, Any] | None, dict[str, Any] | None]] = {
    "float32, float32": (None, None),
    "bf16, bf16": ({"use": "bf16"}, {"use": "bf16"}),
    "int8, int8": ({"use": "int8"}, {"use": "int8"}),
    "topk 0.05, int8": ({"use": "topk", "share": 0.05}, {"use": "int8"}),
}
PLAIN = "float32, float32"
#: Steps of a run that do not count.
FIRST = 5


def plan(arm: str, steps: int) -> dict[str, Any]:
    """A small language model, each worker with half of a window."""
    up, down = ARMS[arm]
    communicator: dict[str, Any] = {
        "use": "zmq-ps",
        "workers": 2,
        "local": 1,
        "servers": 1,
        "listen": ADDRESSES[0],
        # Snapshots would be of the machine's disk.
        "replay": 0,
    }
    communicator |= {name: made for name, made in (("compressor", up), ("down", down)) if made is not None}
    library = Path(sysconfig.get_paths()["stdlib"])
    return {
        "name": "link",
        "train": {"steps": steps, "batch": 8, "micro": 4, "clip": 1.0, "threads": 1, "log": {"every": 1}},
        "data": {
            "use": "text",
            "paths": [str(path) for path in sorted(library.glob("*.py"))[:40]],
            "window": 64,
            "sampling": "random",
            "split": "tail",
            "validation": 0.02,
            "tokenizer": {"use": "bytes"},
        },
        "model": {"use": "gpt", "layers": 4, "heads": 4, "width": 192, "bias": False},
        "optimizer": {"use": "adamw", "lr": 1e-3, "schedule": {"use": "cosine", "warmup": 10}},
        "communicator": communicator,
        "monitor": [{"use": "jsonl"}],
    }


def start(link: Link, end: int, folder: Path, words: Sequence[str], cache: Path) -> subprocess.Popen[bytes]:
    """A command of the package in one of the namespaces."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "said").open("wb") as said:
        return subprocess.Popen(
            ["ip", "netns", "exec", link.names[end], sys.executable, "-m", "nlpkernel", *words],
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1", "NLPKERNEL_CACHE": str(cache)},
            stdout=said,
            stderr=said,
        )


def wait(made: Path, process: subprocess.Popen[bytes], folder: Path) -> None:
    """Until there is such a file."""
    deadline = time.monotonic() + 120.0
    while not made.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the run does not begin:\n{(folder / 'said').read_text()}")
        time.sleep(0.05)


def run(link: Link, arm: str, options: argparse.Namespace, folder: Path, cache: Path) -> dict[str, Any]:
    """One run; seconds of a step, and the loss after all."""
    here, there, steps = folder / "here", folder / "there", options.steps
    here.mkdir(parents=True)
    path = here / "plan.json"
    path.write_text(json.dumps(plan(arm, steps)))
    served = here / "runs/link/.servers"
    with ExitStack() as stack:
        first = start(link, 0, here, ["run", str(path), "-q"], cache)
        stack.callback(end, first)
        wait(served / "control.endpoint", first, here)
        wait(served / "keys/worker-1", first, here)
        endpoint = (served / "control.endpoint").read_text().split()[-1]
        words = ["join", endpoint, str(path), "--keys", str(served / "keys/worker-1"), "-q"]
        second = start(link, 1, there, words, cache)
        stack.callback(end, second)
        log, events = here / "runs/link/logs/run.log", here / "runs/link/events.jsonl"
        first_of_all = options.realtime
        while first.poll() is None and not second.poll():
            time.sleep(0.1)
            if first_of_all and events.exists() and '"losses"' in events.read_text():
                pids = re.findall(r"started as process (\d+)", log.read_text())
                put_first([*map(int, pids), second.pid])
                first_of_all = False
        end(second)
    if first.returncode or second.returncode:
        raise SystemExit(f"{arm}: {(here / 'said').read_text()}{(there / 'said').read_text()}")
    told = [json.loads(line) for line in events.read_text().splitlines()]
    times = [event["time"] for event in told if event.get("losses")]
    if len(times) != steps:
        raise SystemExit(f"{arm}: {len(times)} steps were logged of {steps}")
    report = json.loads((here / "runs/link/report.json").read_text())
    return {
        "seconds": statistics.median(late - early for early, late in pairwise(times[FIRST:])),
        "loss": report["metrics"]["validation/loss"],
        "said": re.findall(r"zmq-ps: ([^\n]* bytes a step[^\n]*)", log.read_text()),
    }


def end(process: subprocess.Popen[bytes]) -> None:
    """Let it end, and make sure that it does."""
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None and number is not None:
            process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(20.0)
            return


def cells(arm: str, runs: Sequence[dict[str, Any]], plain: Sequence[dict[str, Any]]) -> Sequence[str]:
    """A row of the table."""
    ratios = [bare["seconds"] / each["seconds"] for each, bare in zip(runs, plain, strict=True)]
    seconds = [each["seconds"] for each in runs]
    losses = [each["loss"] for each in runs]
    return (
        arm,
        f"{statistics.median(seconds) * 1e3:,.0f} ({min(seconds) * 1e3:,.0f} to {max(seconds) * 1e3:,.0f})",
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        f"{statistics.median(losses):.4f}",
        "" if arm == PLAIN else ("reached" if statistics.median(ratios) >= 3 else "not reached"),
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, default=100, help="Mbit/s; 0: as it is")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30, help="of a run")
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="once a run has begun, let its processes run before all others of the machine",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a run")
    options = parser.parse_args()
    if os.geteuid():
        print("left out: namespaces and the shaping of their link need root")
        return
    before = os.getloadavg()
    runs: dict[str, list[dict[str, Any]]] = {arm: [] for arm in options.arms}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        link = Link()
        stack.callback(link.close)
        link.open()
        link.shape(options.rate)
        for turn in range(options.turns):
            for number, arm in enumerate(options.arms):
                made = run(link, arm, options, folder / f"{turn}-{number}", folder / "cache")
                runs[arm].append(made)
                if options.json:
                    print(json.dumps({"arm": arm, "turn": turn, **made}), flush=True)
    if options.json:
        return
    print(f"{Path(sys.executable).name} {shlex.join(sys.argv)}")
    print(
        f"{options.turns} turns of runs of {options.steps} steps, {options.rate} Mbit/s, {os.cpu_count()} cores "
        f"(load {before[0]:.1f} before, {os.getloadavg()[0]:.1f} after)"
    )
    head = ("up, down", "ms a step", "times as fast", "loss", "aim: 3 times")
    plain = runs.get(PLAIN)
    if plain is None:
        return
    table([head, *(cells(arm, runs[arm], plain) for arm in options.arms)], head=True)
    for arm in options.arms:
        for said in runs[arm][0]["said"]:
            print(f"{arm}: {said}")


if __name__ == "__main__":
    main()
