"""All examples: `python docs/examples/run.py` makes the data, trains, evaluates, and prints a table.

Data and runs are written beside this file, into `data` and `runs`. Names of examples as arguments: only those.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent


class Step(NamedTuple):
    """A run of an example: its folder, its plan there, what is set otherwise, and the metrics that the table shows.
    tokenizer: write the plan's tokenizer to data/NAME.tokenizer.json, for other plans."""

    example: str
    plan: str
    metrics: tuple[str, ...]
    settings: tuple[str, ...] = ()
    tokenizer: str = ""
    note: str = ""

    @property
    def run(self) -> str:
        """The run's name."""
        values = tomllib.loads((HERE / self.example / self.plan).read_text(encoding="utf-8"))
        named = dict(setting.split("=", 1) for setting in self.settings)
        return named.get("name", str(values["name"]))


_NEW = "model.transform=[]"
STEPS = (
    Step("classification", "plan.toml", ("accuracy", "f1_macro")),
    Step("tagging", "plan.toml", ("accuracy", "entity_f1")),
    Step("translation", "plan.toml", ("bleu", "chrf", "perplexity")),
    Step("masked", "plan.toml", ("loss", "accuracy"), tokenizer="masked", note="pre-training"),
    Step("masked", "tune.toml", ("accuracy", "entity_f1"), note="fine-tuned"),
    Step(
        "masked",
        "tune.toml",
        ("accuracy", "entity_f1"),
        ("name=scratch", _NEW),
        note="the same, from scratch",
    ),
    Step("embedding", "plan.toml", ("recall_1", "recall_10", "mrr")),
    Step(
        "instruction", "plan.toml", ("perplexity", "bits_per_byte"), tokenizer="decoder", note="pre-training"
    ),
    Step("instruction", "tune.toml", ("perplexity", "bits_per_byte"), note="fine-tuned"),
    Step(
        "instruction",
        "tune.toml",
        ("perplexity", "bits_per_byte"),
        ("name=instructed-scratch", _NEW),
        note="the same, from scratch",
    ),
)


def nlpkernel(*arguments: str) -> str:
    """What a command writes to standard output. One that fails ends this program with its message."""
    done = subprocess.run(
        [sys.executable, "-m", "nlpkernel", *arguments],
        cwd=HERE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"nlpkernel {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def take(step: Step, settings: Sequence[str]) -> tuple[float, dict[str, Any]]:
    """Train and evaluate: seconds of the training, and what `nlpkernel evaluate --json` says."""
    plan = f"{step.example}/{step.plan}"
    options = [option for each in (*step.settings, *settings) for option in ("--set", each)]
    if step.tokenizer:
        out = f"data/{step.tokenizer}.tokenizer.json"
        nlpkernel("tokenizer", "train", plan, "--out", out, "--overwrite")
    begin = time.monotonic()
    nlpkernel("run", "-q", plan, "--overwrite", *options)
    seconds = time.monotonic() - begin
    found: dict[str, Any] = json.loads(nlpkernel("evaluate", f"runs/{step.run}", "--json"))
    return seconds, found


def say(line: str) -> None:
    """Write a line at once, for whoever waits."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Take the steps in turn, and print a line for each."""
    names = sorted({step.example for step in STEPS})
    parser = argparse.ArgumentParser(description="Train and evaluate the examples.")
    parser.add_argument("examples", nargs="*", metavar="EXAMPLE", help=f"some of: {', '.join(names)}")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every plan")
    args = parser.parse_args()
    if set(args.examples) - set(names):
        parser.error(f"the examples are {', '.join(names)}")
    subprocess.run([sys.executable, str(HERE / "data.py")], check=True)
    say("| example | run | samples held out | metrics | seconds |")
    say("| --- | --- | --- | --- | --- |")
    for step in STEPS:
        if args.examples and step.example not in args.examples:
            continue
        seconds, found = take(step, args.set)
        run = step.run + (f" ({step.note})" if step.note else "")
        metrics = ", ".join(f"{name} {found['metrics'][name]:.3f}" for name in step.metrics)
        say(f"| {step.example} | {run} | {found['samples']:,} | {metrics} | {seconds:.0f} |")


if __name__ == "__main__":
    main()
