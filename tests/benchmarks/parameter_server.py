"""A step of the parameter server against Gloo's all-reduce and a parameter server on torch RPC, in turns.

    python tests/benchmarks/parameter_server.py [--mib 4 16 64] [--workers 2 4] [--blocks 7] [--steps 8] [--json]

Every arm adds up the gradients of all workers, steps SGD, and has the new parameters on all workers, and is checked for
that. `gloo`: one all-reduce, then each worker steps. `rpc`: torch RPC (TensorPipe), one server. `memory` and `frames`:
zmq-ps with one server, by shared memory and by frames over a socket of the machine; snapshots are off. A step takes as
long as on the slowest worker. Blocks of steps are taken in turns; a ratio is that of two blocks of one turn, and the
table has their median, least and most. Processes have one thread each; the first block of each arm does not count.

Budget (issue 5): memory at most 1.5 of gloo, and 0.6 of rpc from 16 MiB on.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from nlpkernel.cli.output import table

MEMBER = Path(__file__).with_name("parameter_server_arms.py")
ARMS = ("gloo", "rpc", "memory", "frames")


class Arm:
    """The processes of one arm, kept for all blocks."""

    def __init__(self, name: str, workers: int, size: int, folder: Path, threads: int) -> None:
        folder.mkdir(parents=True)
        asked = {
            "arm": name,
            "workers": workers,
            "servers": 1,
            "bytes": size,
            "folder": str(folder),
            "launch": secrets.token_hex(8),
            "threads": threads,
        }
        number = workers + (name != "gloo")
        environment = {"GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": str(threads)}
        self._log = (folder / "log").open("w")
        self._path = folder / "log"
        self._all = [
            subprocess.Popen(
                [sys.executable, str(MEMBER), json.dumps({**asked, "rank": rank})],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                env=os.environ | environment,
            )
            for rank in range(number)
        ]
        self._workers = self._all[:workers]
        for process in self._workers:
            self._answer(process)

    def block(self, steps: int) -> float:
        """Mean seconds of a step, of the slowest worker of each."""
        for process in self._workers:
            assert process.stdin is not None
            process.stdin.write(json.dumps({"steps": steps}) + "\n")
            process.stdin.flush()
        answers = [self._answer(process) for process in self._workers]
        if not all(answer["right"] for answer in answers):
            raise SystemExit("an arm computes something else")
        return statistics.mean(map(max, zip(*(answer["seconds"] for answer in answers), strict=True)))

    def close(self) -> None:
        """End them."""
        for process in self._all:
            process.kill()
            process.wait()
        self._log.close()

    def _answer(self, process: subprocess.Popen[str]) -> Any:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"a process ended:\n{self._path.read_text()[-4000:]}")
        return json.loads(line)


def measure(mib: int, workers: int, options: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """A row for each arm."""
    times: dict[str, list[float]] = {name: [] for name in options.arms}
    with ExitStack() as stack:
        arms = {}
        for name in options.arms:
            own = folder / f"{name}-{mib}-{workers}"
            arms[name] = Arm(name, workers, mib << 20, own, options.threads)
            stack.callback(arms[name].close)
        for number in range(options.blocks + 1):
            for name, arm in arms.items():
                seconds = arm.block(options.steps)
                if number:
                    times[name].append(seconds)
    for name in options.arms:
        row: dict[str, Any] = {"mib": mib, "workers": workers, "arm": name}
        row["ms"] = round(statistics.median(times[name]) * 1e3, 1)
        for other in ("gloo", "rpc"):
            if other in times and name != other:
                row[f"over_{other}"] = spread([a / b for a, b in zip(times[name], times[other], strict=True)])
        yield row


def spread(ratios: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {
        "median": round(statistics.median(ratios), 2),
        "least": round(min(ratios), 2),
        "most": round(max(ratios), 2),
    }


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A row of the table."""

    def told(name: str) -> str:
        found = row.get(name)
        return "" if found is None else f"{found['median']:g} ({found['least']:g} to {found['most']:g})"

    return (
        f"{row['mib']} MiB",
        str(row["workers"]),
        row["arm"],
        f"{row['ms']:g}",
        told("over_gloo"),
        told("over_rpc"),
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, nargs="+", default=[4, 16, 64], help="sizes of the gradient")
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--blocks", type=int, default=7, help="blocks of each arm that count")
    parser.add_argument("--steps", type=int, default=8, help="steps of a block")
    parser.add_argument("--threads", type=int, default=1, help="threads of each process")
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    options = parser.parse_args()
    before = os.getloadavg()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        for mib in options.mib:
            for workers in options.workers:
                for row in measure(mib, workers, options, Path(name)):
                    rows.append(row)
                    if options.json:
                        print(json.dumps(row), flush=True)
    if options.json:
        return
    print(f"{Path(sys.executable).name} {shlex.join(sys.argv)}")
    print(
        f"{options.blocks} blocks of {options.steps} steps, torch {torch.__version__}, {options.threads} thread a "
        f"process, {os.cpu_count()} cores (load {before[0]:.1f} before, {os.getloadavg()[0]:.1f} after)"
    )
    table(
        [("gradient", "workers", "arm", "ms a step", "over gloo", "over rpc"), *map(cells, rows)], head=True
    )


if __name__ == "__main__":
    main()
