"""What many workers cost: CPU time of a step over a loop written by hand, and steps a second over one process.

    python tests/benchmarks/scaling.py [--turns 8] [--crews 8] [--steps 20] [--only NAME ...] [--json]
    python tests/benchmarks/scaling.py --instructions

`theirs` is a loop on DDP (`data`), on DDP with ZeroRedundancyOptimizer (`zero 1`) or on `fully_shard` (`zero 2`,
`zero 3`), written as a careful engineer does: no sync before the last micro-batch, a loss over the global number of
labels, foreach clipping, fused AdamW, losses kept on the device and added up over workers at the log interval. `ours`
is a run of nlpkernel with torchdist, the monitors console and jsonl and the checkpoint store. Both train the same model
on the same micro-batches, laid out before, and take steps in turns, some at a time; a pair is two blocks of `--steps`
that were taken so. Each arm has processes of its own (a crew), which are started anew several times: where things lie
in memory moves a process by more than what is looked for, and those that are started first are slower, whatever they
run, so that each arm is first as often as last.

CPU time is that of a worker's process, all threads: Gloo waits without spinning, but its threads, woken by messages,
are in it, and make it noisy. So there are rows `without exchange`: one worker of two, whose process group gives back
what it gets, with a narrow model, where all that is left is what both arms do in Python and how they ask for exchanges.
`main` is the main thread alone, where Python, the forward and the backward pass run.

`added` is the median of ours - theirs over all pairs, with the 95 % interval of a bootstrap (crews drawn anew, and
pairs of each), and the medians of each crew. `CPU` and `wall` are medians of ours / theirs. `speed` is steps a second
over those of one process that takes the same steps alone, again in turns; more workers than cores share them. Budget
(issue 4): at most 50 us of CPU time added.

`--instructions` runs the rows without exchange under valgrind's callgrind instead, with a narrow model, and
counts the instructions of the process in `--steps` steps: the same on a machine that others use too. It says nothing
of caches.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import secrets
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from scaling_arms import installed, plan_of

from nlpkernel.cli.output import table

WORKER = Path(__file__).with_name("scaling_arms.py")
#: What a step is: micro-batches, their rows, the tokens of a row, and the model.
SIZE = {"count": 4, "rows": 2, "window": 32, "layers": 4, "heads": 4, "width": 64}
#: As little work as makes sense, where every instruction is counted.
LEAST = SIZE | {"rows": 1, "window": 4, "heads": 1, "width": 8}
UNITS = 1e6
#: Drawn anew for an interval.
DRAWS = 2000


@attrs.frozen
class Case:
    """A layout. theirs: how its loop by hand shards, None where there is none. fake: nothing is exchanged."""

    name: str
    workers: int
    changes: dict[str, Any] = attrs.field(factory=dict)
    theirs: int | None = None
    fake: bool = False

    @property
    def arms(self) -> tuple[str, ...]:
        """What is compared."""
        return ("ours",) if self.theirs is None else ("ours", "theirs")

    @property
    def processes(self) -> int:
        """How many are started."""
        return 1 if self.fake else self.workers

    def communicator(self) -> dict[str, Any]:
        """Its section of the plan."""
        return {"workers": self.workers, **self.changes}


CASES = [
    *(
        Case(f"{name}, without exchange", 2, {"shard": shard}, shard, fake=True)
        for shard, name in enumerate(("data 2", "zero 1", "zero 2", "zero 3"))
    ),
    *(
        Case(name, 2, {"shard": shard}, shard)
        for shard, name in enumerate(("data 2", "zero 1", "zero 2", "zero 3"))
    ),
    Case("tensor 2", 2, {"tensor": 2}),
    Case("pipeline 2", 2, {"pipeline": 2}),
    Case("data 4", 4, {}),
    Case("zero 1, 4 workers", 4, {"shard": 1}),
    Case("zero 2, 4 workers", 4, {"shard": 2}),
    Case("zero 3, 4 workers", 4, {"shard": 3}),
    Case("data 2 x tensor 2", 4, {"tensor": 2}),
    Case("data 2 x pipeline 2", 4, {"pipeline": 2}),
]

Cost = dict[str, float]


class Crew:
    """Processes that have both arms of one case open."""

    def __init__(self, processes: int, folder: Path, *under: str) -> None:
        """under: a command that runs the command of each."""
        self.folder = folder
        environment = {
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "NLPKERNEL_CACHE": str(folder / "cache"),
        }
        self._log = (folder / "crew.log").open("a")
        self._members = [
            subprocess.Popen(
                [*under, sys.executable, str(WORKER), str(rank), str(processes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                env=os.environ | environment,
            )
            for rank in range(processes)
        ]

    def tell(self, what: str, **asked: Any) -> list[Any]:
        """Tell all, and wait for their answers."""
        for member in self._members:
            assert member.stdin is not None
            member.stdin.write(json.dumps({"do": what, **asked}) + "\n")
            member.stdin.flush()
        answers: list[Any] = []
        for member in self._members:
            assert member.stdout is not None
            line = member.stdout.readline()
            if not line:
                raise SystemExit(f"a worker ended:\n{(self.folder / 'crew.log').read_text()[-4000:]}")
            answers.append(json.loads(line))
        return answers

    def open(self, case: Case | None, size: dict[str, int], arm: str = "ours") -> None:
        """Open an arm of a case; None: one process alone."""
        run = self.folder / f"run-{secrets.token_hex(4)}"
        run.mkdir()
        asked: dict[str, Any] = {
            "arm": arm,
            "run": str(run),
            "launch": secrets.token_hex(4),
            "communicator": None if case is None else case.communicator(),
            "theirs": None if case is None else case.theirs,
            "fake": case.workers if case is not None and case.fake else 0,
            **size,
        }
        (run / "plan.toml").write_text(plan_of(run.name, asked).text())
        self.tell("open", **asked)

    def block(self, steps: int) -> Cost:
        """A block of steps: the mean of the workers, and of the clock the slowest."""
        costs = self.tell("block", steps=steps)
        mean = {name: statistics.mean(cost[name] for cost in costs) for name in ("process", "thread")}
        return {**mean, "wall": max(cost["wall"] for cost in costs)}

    def close(self) -> None:
        """End them."""
        for member in self._members:
            member.kill()
            member.wait()
        self._log.close()


# -- figures ---------------------------------------------------------------------------------------------------------


def told(crews: Sequence[Sequence[float]], digits: int) -> dict[str, Any]:
    """The median of all pairs, between which it lies in 95 of 100 cases if crews, and pairs of each, are drawn anew,
    and the median of each crew."""
    draws = random.Random(1)
    medians = sorted(
        statistics.median(
            value for crew in draws.choices(crews, k=len(crews)) for value in draws.choices(crew, k=len(crew))
        )
        for _ in range(DRAWS)
    )
    return {
        "median": round(statistics.median(value for crew in crews for value in crew), digits),
        "low": round(medians[DRAWS // 40], digits),
        "high": round(medians[-1 - DRAWS // 40], digits),
        "crews": [round(statistics.median(crew), digits) for crew in crews],
    }


@attrs.define
class Seen:
    """What the turns of one case gave: a list of pairs for each crew."""

    case: Case
    turns: list[list[dict[str, Cost]]] = attrs.field(factory=list)

    def told(self, figure: Callable[[dict[str, Cost]], float], digits: int) -> dict[str, Any]:
        """One figure of all turns."""
        return told([list(map(figure, crew)) for crew in self.turns], digits)

    def row(self) -> dict[str, Any]:
        """What is printed of it."""
        row: dict[str, Any] = {"row": self.case.name, "workers": self.case.workers}
        for arm in self.case.arms:
            row[f"{arm}_us"] = self.told(lambda turn, arm=arm: UNITS * turn[arm]["process"], 0)["median"]
        if self.case.theirs is not None:
            for key, what in (("added_us", "process"), ("main_us", "thread")):

                def added(turn: dict[str, Cost], what: str = what) -> float:
                    return UNITS * (turn["ours"][what] - turn["theirs"][what])

                row[key] = self.told(added, 0)
            row["cpu"] = self.told(lambda turn: turn["ours"]["process"] / turn["theirs"]["process"], 3)
            row["wall"] = self.told(lambda turn: turn["ours"]["wall"] / turn["theirs"]["wall"], 3)
            row["pairs"] = sum(map(len, self.turns))
        if not self.case.fake:
            row["speed"] = self.told(lambda turn: turn["one"]["wall"] / turn["ours"]["wall"], 2)
        return row


def turn(crews: dict[str, Crew], number: int, options: argparse.Namespace) -> dict[str, Cost]:
    """Seconds of a step of each arm, from a block that is cut into pieces, which the arms take in turns, each first as
    often as last: what slows a machine down for a while slows down all of them."""
    length = options.steps // options.pieces
    spent = {name: dict.fromkeys(("process", "thread", "wall"), 0.0) for name in crews}
    for piece in range(options.pieces):
        order = list(crews) if (piece + number) % 2 else list(reversed(crews))
        for name in order:
            for what, cost in crews[name].block(length).items():
                spent[name][what] += cost / (length * options.pieces)
    return spent


def calm(seconds: float) -> None:
    """Wait, at most so long, until nothing but this process has run for a moment."""
    end = time.monotonic() + seconds
    still = 0
    while still < 10 and time.monotonic() < end:
        running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
        still = still + 1 if running < 2 else 0
        time.sleep(0.02)


def measure(case: Case, one: Crew, options: argparse.Namespace, folder: Path) -> Seen:
    """Blocks of all arms in turns, in several crews one after the other."""
    seen = Seen(case)
    # A speed alone takes no such care.
    for number in range(options.crews if case.theirs is not None else 2):
        # What is made first in a process or a machine is slower, so each arm is first as often as last.
        order = case.arms if number % 2 else case.arms[::-1]
        crews = {name: Crew(case.processes, folder) for name in order}
        try:
            for name, crew in crews.items():
                crew.open(case, LEAST if case.fake else SIZE, name)
            together = crews if case.fake else crews | {"one": one}
            turns = []
            for number in range(options.turns + 1):
                calm(options.calm)
                turns.append(turn(together, number, options))
            seen.turns.append(turns[1:])  # The first one warms up.
        finally:
            for crew in crews.values():
                crew.close()
    return seen


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[Crew]:
    """One process that trains by itself."""
    crew = Crew(1, folder)
    try:
        crew.open(None, SIZE)
        yield crew
    finally:
        crew.close()


def count(case: Case, steps: int, folder: Path) -> dict[str, Any]:
    """Instructions of a step of each arm, in processes that run under callgrind."""
    found = {name: instructions(case, name, steps, folder) for name in case.arms}
    ours, theirs = found["ours"], found["theirs"]
    return {
        "row": case.name,
        "theirs": round(theirs),
        "ours": round(ours),
        "added": round(ours - theirs),
        "ratio": round(ours / theirs, 4),
    }


def instructions(case: Case, arm: str, steps: int, folder: Path) -> float:
    """Those of a step of one arm."""
    out = folder / f"callgrind-{secrets.token_hex(4)}"
    crew = Crew(
        1, folder, "valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"
    )
    try:
        crew.open(case, LEAST, arm)
        crew.tell("count", steps=steps)
        text = out.with_name(f"{out.name}.1").read_text()
    finally:
        crew.close()
    return int(re.findall(r"^totals: (\d+)", text, re.MULTILINE)[0]) / steps


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A row of the table."""

    def spread(key: str) -> str:
        found = row.get(key)
        if found is None:
            return ""
        return f"{found['median']:g} ({found['low']:g} to {found['high']:g})"

    crews = row.get("added_us", {}).get("crews", ())
    return (
        row["row"],
        f"{row['theirs_us']:g}" if "theirs_us" in row else "",
        f"{row['ours_us']:g}",
        spread("added_us"),
        " ".join(f"{each:g}" for each in crews),
        spread("main_us"),
        spread("cpu"),
        spread("wall"),
        spread("speed"),
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=8, help="blocks of each arm in a crew")
    parser.add_argument("--crews", type=int, default=8, help="how often the processes are started anew")
    parser.add_argument("--steps", type=int, default=20, help="steps of a block, one of which is logged")
    parser.add_argument("--pieces", type=int, default=5, help="into how many a block is cut")
    parser.add_argument(
        "--calm",
        type=float,
        default=0.0,
        help="seconds to wait before each turn until nothing else runs (Linux)",
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="rows that begin with one of these")
    parser.add_argument(
        "--instructions",
        action="store_true",
        help="count instructions of the rows without exchange (valgrind)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    options = parser.parse_args()
    cases = [case for case in CASES if not options.only or case.name.startswith(tuple(options.only))]
    before = os.getloadavg()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        if options.instructions:
            made = (count(case, options.steps, folder) for case in cases if case.fake)
        else:
            one = stack.enter_context(alone(folder))
            made = (measure(case, one, options, folder).row() for case in cases)
        for row in made:
            rows.append(row)
            if options.json:
                print(json.dumps(row), flush=True)
    if options.json:
        return
    size = LEAST if options.instructions else SIZE
    what = "instructions" if options.instructions else "CPU us"
    print(f"{Path(sys.executable).name} {shlex.join(sys.argv)}")
    print(
        f"{what} of a step and worker, {options.crews} crews, {options.turns} turns of {options.steps} steps, torch "
        f"{torch.__version__}, one thread a worker, {os.cpu_count()} cores (load {before[0]:.1f} before, "
        f"{os.getloadavg()[0]:.1f} after); gpt and step {json.dumps(size)}; the run has {json.dumps(installed())}"
    )
    if options.instructions:
        heads = ("row", "theirs", "ours", "added", "ratio")
        table([heads, *(tuple(str(row[key]) for key in heads) for row in rows)], head=True)
        return
    head = (
        "row",
        "theirs",
        "ours",
        "added",
        "by crew",
        "main",
        "CPU, ours/theirs",
        "wall, ours/theirs",
        "speed over one process",
    )
    table([head, *map(cells, rows)], head=True)


if __name__ == "__main__":
    main()
