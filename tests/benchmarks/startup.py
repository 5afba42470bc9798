"""What starting costs: CPU time and imported modules of `--help`, `plugins` and `check`, with all that is installed.

    python tests/benchmarks/startup.py [--plan plan.toml] [--repeats 20] [--json]

Every row is a child process, `python -m nlpkernel ...`, with warm bytecode. The rows take turns, and bare
`python -c pass` takes its turn among them as the yardstick: on a shared machine compare the ratios, not the
milliseconds. Budget (issue 2): at most 60 ms for `--help` and `plugins`, 150 ms for `check`; none imports torch,
numpy, zmq or cupy.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from nlpkernel.cli.output import table

#: Never at start, whatever the command.
HEAVY = ("torch", "numpy", "zmq", "cupy")
#: Not for `--help` and `plugins`, which do without: each costs tens of milliseconds.
DEAR = ("attr", "attrs", "cattrs", "rich", "importlib.metadata", "json", "pluggy", "dataclasses", "inspect")

BARE = ["-c", "pass"]


def environment() -> dict[str, str]:
    """The environment of the children: without what changes how Python starts, but for where it finds modules."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return kept | {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ}


def command(*arguments: str) -> list[str]:
    """The interpreter's arguments for one of our commands."""
    return ["-m", "nlpkernel", *arguments]


def cpu(arguments: Sequence[str], folder: Path) -> float:
    """CPU milliseconds, user and system, of one child. Raise RuntimeError where it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment(), capture_output=True, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(
            f"{shlex.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def imported(arguments: Sequence[str], folder: Path) -> set[str]:
    """Names of the modules that one child imports. Raise RuntimeError where it fails."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{shlex.join(arguments)}: exit code {done.returncode}\n{done.stdout}")
    lines = [line.split("|") for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line[2].strip() for line in lines[1:]}


def starter(folder: Path) -> str | None:
    """A plan to check: the starter plan of what is installed. None where nothing brings one."""
    done = subprocess.run(
        [sys.executable, *command("init", "plan.toml")],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
    )
    return None if done.returncode else "plan.toml"


def measure(rows: dict[str, list[str]], repeats: int, folder: Path) -> list[dict[str, object]]:
    """Run all rows in turns; the first turn warms the bytecode and is not counted."""
    times: dict[str, list[float]] = {name: [] for name in rows}
    for turn in range(repeats + 1):
        for name, arguments in rows.items():
            spent = cpu(arguments, folder)
            if turn:
                times[name].append(spent)
    bare = statistics.median(times["bare python"])
    base = imported(BARE, folder)
    measured = []
    for name, arguments in rows.items():
        modules = imported(arguments, folder)
        median = statistics.median(times[name])
        measured.append(
            {
                "row": name,
                "min_ms": round(min(times[name]), 1),
                "median_ms": round(median, 1),
                "over_bare_ms": round(median - bare, 1),
                "ratio": round(median / bare, 2),
                "modules": len(modules - base),
                "heavy": [each for each in HEAVY if each in modules],
                "dear": [each for each in DEAR if each in modules],
            }
        )
    return measured


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plan", help="the plan that `check` reads (default: the starter plan of `init`)")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    args = parser.parse_args()
    rows = {"bare python": BARE, "--help": command("--help"), "plugins": command("plugins")}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        plan = str(Path(args.plan).resolve()) if args.plan else starter(folder)
        if plan is not None:
            rows["check"] = command("check", plan)
        measured = measure(rows, args.repeats, folder)
    if args.json:
        for row in measured:
            print(json.dumps(row))
        return
    print(f"{Path(sys.executable).name} {shlex.join(sys.argv)}")
    print(f"CPU ms of a child process, {args.repeats} turns, Python {sys.version.split()[0]}")
    head = ("row", "min", "median", "over bare", "ratio", "modules", "heavy", "dear")
    cells = [head, *[tuple(_cell(value) for value in row.values()) for row in measured]]
    table(cells, head=True)
    if plan is None:
        print("check: skipped, because no installed plugin brings a starter plan; give one with --plan")


def _cell(value: object) -> str:
    return (" ".join(value) or "none") if isinstance(value, list) else str(value)


if __name__ == "__main__":
    main()
