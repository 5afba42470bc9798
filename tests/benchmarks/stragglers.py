"""What a slow worker of the parameter server costs the others, against what a simulation says.

    python tests/benchmarks/stragglers.py [--workers 3] [--step 0.25] [--seconds 40] [--realtime] [--json]

Runs of the command line with zmq-ps, one server, and workers whose step is a sleep, so that what is measured is the
protocol and not the cores. The last worker is the slow one: four times as slow in every tenth of its steps, or always.
Modes in turn: `ssp` (staleness 3), `async`, `sync`; and `async` where nobody is slow.

What counts are the windows that the other workers have done from the moment when the first began until the first has
nothing left to do. `of bound` is that number over the one of a simulation in which computing takes what it took here
(medians, of slow steps and of others) and all else no time: a window is given to whoever asks next, nobody begins one
who has done more than `staleness` windows more than the slowest, and with `sync` all wait for all. `of undisturbed` is
their rate over that of the run where nobody is slow.

Aims (issue 5): every tenth step slow, ssp: 0.9 of the bound. Always slow: async 0.9 of undisturbed; ssp goes at the
pace of the slow worker, and the run says so.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from nlpkernel.cli.output import table

SLEEP = f"{Path(__file__).with_name('stragglers_sleep.py')}:Sleep"
TIMES, STALENESS = 4.0, 3
#: Which steps of the slow worker are slow: every so many-th; 0: none.
NEVER, ALWAYS, TENTH = 0, 1, 10
CASES = (
    (NEVER, "async"),
    (TENTH, "ssp"),
    (TENTH, "async"),
    (TENTH, "sync"),
    (ALWAYS, "async"),
    (ALWAYS, "ssp"),
    (ALWAYS, "sync"),
)
WORDS = {NEVER: "nobody", TENTH: "every 10th step", ALWAYS: "always"}


# -- the simulation ----------------------------------------------------------------------------------------------------


def simulate(
    workers: int, took: Callable[[int, int], float], staleness: float | None, seconds: float
) -> list[int]:
    """Windows that each worker has done after so many seconds. took: seconds of the nth window of a worker. staleness:
    None: no bound."""
    done = [0] * workers
    ends = [(took(worker, 0), worker) for worker in range(workers)]
    heapq.heapify(ends)
    waiting: list[int] = []
    while ends and ends[0][0] <= seconds:
        now, worker = heapq.heappop(ends)
        done[worker] += 1
        waiting.append(worker)
        for each in list(waiting):
            if staleness is None or done[each] - min(done) <= staleness:
                waiting.remove(each)
                heapq.heappush(ends, (now + took(each, done[each]), each))
    return done


def together(workers: int, took: Callable[[int, int], float], seconds: float) -> list[int]:
    """The same where all do a share of each window, and wait for all."""
    now, done = 0.0, 0
    while (now := now + max(took(worker, done) for worker in range(workers))) <= seconds:
        done += 1
    return [done] * workers


# -- a run -------------------------------------------------------------------------------------------------------------


def plan(folder: Path, options: argparse.Namespace, every: int, mode: str, windows: int) -> dict[str, Any]:
    """A model that takes next to no time. A step of a worker is one micro-batch: all of a window, or its share."""
    micro = 1 if mode == "sync" else options.workers
    return {
        "name": "run",
        "train": {
            "steps": windows,
            "batch": options.workers,
            "micro": micro,
            "threads": 1,
            "log": {"every": 50},
        },
        "data": {
            "use": "text",
            "paths": [str(folder / "corpus.txt")],
            "window": 16,
            "validation": 0,
            "tokenizer": {"use": "bytes"},
        },
        "model": {"use": "gpt", "layers": 1, "width": 16, "heads": 2},
        "optimizer": {"use": "adamw", "lr": 1e-3},
        "communicator": {
            "use": "zmq-ps",
            "workers": options.workers,
            "mode": mode,
            **({"staleness": STALENESS} if mode == "ssp" else {}),
        },
        "monitor": [
            {
                "use": SLEEP,
                "seconds": options.step,
                "worker": options.workers - 1 if every else -1,
                "every": every or 1,
                "times": TIMES,
                "folder": str(folder),
            }
        ],
    }


def measure(options: argparse.Namespace, every: int, mode: str, folder: Path) -> dict[str, Any]:
    """Run one case; what came of it beside what the simulation says."""
    folder.mkdir()
    (folder / "corpus.txt").write_text("".join(f"def f{n}(x):\n    return x + {n}\n\n" for n in range(200)))
    slow, others = options.workers - 1, range(options.workers - 1)

    def is_slow(worker: int, number: int) -> bool:
        return bool(every) and worker == slow and number % every == every - 1

    def simulated(seconds: float, fast: float, late: float) -> list[int]:
        def took(worker: int, number: int) -> float:
            return late if is_slow(worker, number) else fast

        if mode == "sync":
            return together(options.workers, took, seconds)
        return simulate(options.workers, took, STALENESS if mode == "ssp" else None, seconds)

    expected = simulated(options.seconds, options.step, options.step * TIMES)
    windows = expected[0] if mode == "sync" else sum(expected)
    path, log = folder / "plan.json", folder / "runs/run/logs/run.log"
    path.write_text(json.dumps(plan(folder, options, every, mode, windows)))
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "nlpkernel", "run", str(path), "-q"],
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1", "NLPKERNEL_CACHE": str(folder / "cache")},
            stdout=said,
            stderr=said,
        )
    if options.realtime:
        began = [folder / f"worker-{each}" for each in range(options.workers)]
        while process.poll() is None and not all(each.exists() and each.stat().st_size for each in began):
            time.sleep(0.05)
        put_first(int(pid) for pid in re.findall(r"started as process (\d+)", log.read_text()))
    if process.wait():
        raise SystemExit(f"the run failed:\n{(folder / 'said').read_text()[-4000:]}")
    steps = [
        [tuple(map(float, line.split())) for line in (folder / f"worker-{each}").read_text().splitlines()]
        for each in range(options.workers)
    ]
    begin = min(first for (first, _), *_ in steps)
    # Then there is nothing left to do for the first who asks.
    end = min(each[-1][1] for each in steps)
    done = [sum(last <= end for _, last in each) for each in steps]
    took = [
        (is_slow(worker, number), last - first)
        for worker, each in enumerate(steps)
        for number, (first, last) in enumerate(each)
    ]
    fast = statistics.median(seconds for late, seconds in took if not late)
    late = statistics.median([seconds for late, seconds in took if late] or [fast])
    bound = simulated(end - begin, fast, late)
    named = sorted(set(re.findall(r"worker \d+ is the slowest[^\n]*", log.read_text())))
    return {
        "slow": WORDS[every],
        "mode": mode,
        "seconds": end - begin,
        "step": fast,
        "step_slow": late,
        "done": done,
        "bound": bound,
        "rate": sum(done[each] for each in others) / len(others) / (end - begin),
        "rate_slow": done[slow] / (end - begin),
        "of_bound": sum(done[each] for each in others) / sum(bound[each] for each in others),
        "said": [each for each in named if each.startswith(f"worker {slow} ")],
        "said_of_others": [each for each in named if not each.startswith(f"worker {slow} ")],
    }


def put_first(processes: Iterable[int]) -> None:
    """Let all threads of these run before all others of the machine."""
    for process in processes:
        for thread in Path(f"/proc/{process}/task").iterdir():
            os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))


def verdict(row: dict[str, Any]) -> str:
    """The aim of a case, and whether it is reached."""
    case = (row["slow"], row["mode"])
    if case == (WORDS[TENTH], "ssp"):
        return "0.9 of bound: " + ("reached" if row["of_bound"] >= 0.9 else "not reached")
    if case == (WORDS[ALWAYS], "async"):
        return "0.9 of undisturbed: " + ("reached" if row["of_undisturbed"] >= 0.9 else "not reached")
    if case == (WORDS[ALWAYS], "ssp"):
        return "its pace, and says so: " + ("reached" if row["said"] else "not reached, nothing was said")
    return ""


def cells(row: dict[str, Any]) -> Sequence[str]:
    """A row of the table."""
    return (
        row["slow"],
        row["mode"],
        f"{row['rate']:.2f}",
        f"{row['rate_slow']:.2f}",
        f"{row['of_bound']:.3f}",
        f"{row['of_undisturbed']:.3f}",
        verdict(row),
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--step", type=float, default=0.25, help="seconds of a step")
    parser.add_argument("--seconds", type=float, default=40.0, help="of a run without its start, about")
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="once a run has begun, let its processes run before all others of the machine (root)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    options = parser.parse_args()
    before, rows = os.getloadavg(), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as name:
        for number, (every, mode) in enumerate(CASES):
            row = measure(options, every, mode, Path(name) / str(number))
            row["of_undisturbed"] = row["rate"] / (rows[0]["rate"] if rows else row["rate"])
            rows.append(row)
            if options.json:
                print(json.dumps(row), flush=True)
    if options.json:
        return
    print(f"{Path(sys.executable).name} {shlex.join(sys.argv)}")
    print(
        f"{options.workers} workers, a step of {options.step * 1e3:g} ms, {os.cpu_count()} cores "
        f"(load {before[0]:.1f} before, {os.getloadavg()[0]:.1f} after)"
    )
    head = ("slow", "mode", "steps/s, others", "slow worker", "of bound", "of undisturbed", "aim")
    table([head, *map(cells, rows)], head=True)
    for row in rows:
        for said in row["said"] + row["said_of_others"]:
            print(f"said with {row['mode']}, {row['slow']}: {said}")


if __name__ == "__main__":
    main()
