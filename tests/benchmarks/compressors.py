"""What compressors of gradients send, what they do to the loss, and on which links they pay.

    python tests/benchmarks/compressors.py loss [--text FILE ...] [--steps 200] [--json]
    python tests/benchmarks/compressors.py link [--rates 100 300 1000 3000] [--blocks 10] [--json]

`loss`: a small language model on two workers, trained for so many steps with each compressor: bytes that a worker sends
in a step, as the run says them, and the loss on what is held out. The text is the standard library's sources, or FILE.

`link`: two workers in two network namespaces, joined by a pair of virtual interfaces that `tc tbf` holds to a rate
(Mbit/s; 0: as it is) in both directions. Arms are run in turns, block by block: steps without any exchange, with DDP's
own, and with each compressor; and the exchange alone. Each ratio is of the times of one turn. The link below which a
compressor pays is given as the run says it, from what it measures on each of these links, and as it is found between
the rates where the ratio crosses 1: in exchanges alone, which is what the run predicts, and in whole steps, where the
backward pass hides some. `hidden` is the share of the time of an exchange alone that a step with it does not take
longer than one without. Needs root, for the namespaces.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import shlex
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from compressors_link import ARMS

WORKER = Path(__file__).parent / "compressors_link.py"
#: Addresses of the two ends of the link.
ADDRESSES = ("10.254.77.1", "10.254.77.2")
COMPRESSORS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "fp16": {"use": "fp16"},
    "bf16": {"use": "bf16"},
    "int8": {"use": "int8"},
    "topk 0.1": {"use": "topk", "share": 0.1},
    "topk 0.01": {"use": "topk", "share": 0.01},
    "topk 0.001": {"use": "topk", "share": 0.001},
    "powersgd 1": {"use": "powersgd", "rank": 1},
    "powersgd 4": {"use": "powersgd", "rank": 4},
    "powersgd 16": {"use": "powersgd", "rank": 16},
}


def plan(name: str, texts: Sequence[Path], steps: int, seed: int) -> dict[str, Any]:
    """A small language model on two workers."""
    communicator: dict[str, Any] = {"use": "torchdist", "workers": 2}
    if COMPRESSORS[name] is not None:
        communicator["compressor"] = COMPRESSORS[name]
    return {
        "name": re.sub(r"\W", "-", f"{name}-{seed}"),
        "train": {"seed": seed, "steps": steps, "batch": 32, "micro": 16, "clip": 1.0, "threads": 1},
        "data": {
            "use": "text",
            "paths": [str(path) for path in texts],
            "window": 64,
            "sampling": "random",
            "split": "tail",
            "validation": 0.02,
            "tokenizer": "bytes",
        },
        "model": {"use": "gpt", "layers": 4, "heads": 4, "width": 128, "bias": False},
        "optimizer": {"use": "adamw", "lr": 1e-3, "schedule": {"use": "cosine", "warmup": 20}},
        "communicator": communicator,
        "monitor": [{"use": "jsonl"}],
    }


def losses(texts: Sequence[Path], steps: int, seeds: int) -> Iterator[dict[str, Any]]:
    """A row for each compressor."""
    plain = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for name in COMPRESSORS:
            found, said = [], ""
            for seed in range(seeds):
                content = plan(name, texts, steps, seed)
                path = Path(folder) / f"{content['name']}.json"
                path.write_text(json.dumps(content))
                command = [sys.executable, "-m", "nlpkernel", "run", str(path)]
                subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
                run = Path(folder) / "runs" / content["name"]
                found.append(json.loads((run / "report.json").read_text())["metrics"]["validation/loss"])
                said = (run / "events.jsonl").read_text()
            sizes = re.search(r"sends ([\d,]+) bytes a step instead of ([\d,]+)", said)
            sent, bare = (int(each.replace(",", "")) for each in sizes.groups()) if sizes else (None, None)
            loss = statistics.mean(found)
            plain = plain or loss
            yield {
                "compressor": name,
                "bytes": sent,
                "plain_bytes": bare,
                "loss": loss,
                "least": min(found),
                "most": max(found),
                "over_plain": loss / plain,
            }


class Link:
    """Two namespaces and the pair of interfaces between them."""

    def __init__(self) -> None:
        self.names = [f"nlpk{os.getpid()}{end}" for end in "ab"]

    def open(self) -> None:
        """Make them."""
        for name in self.names:
            _run(f"ip netns add {name}")
        first, second = self.names
        _run(f"ip link add veth0 netns {first} type veth peer name veth0 netns {second}")
        for name, address in zip(self.names, ADDRESSES, strict=True):
            for command in (f"addr add {address}/24 dev veth0", "link set veth0 up", "link set lo up"):
                _run(f"ip -n {name} {command}")

    def shape(self, rate: int) -> None:
        """Hold both directions to so many Mbit/s."""
        for name in self.names:
            subprocess.run(
                ["ip", "netns", "exec", name, "tc", "qdisc", "del", "dev", "veth0", "root"],
                check=False,
                stderr=subprocess.DEVNULL,
            )
            if rate:
                # What may go at once has to be what goes within a tick of the clock, at least.
                burst = max(64_000, rate * 1_000_000 // 8 // 250 * 2)
                _run(
                    f"ip netns exec {name} tc qdisc add dev veth0 root tbf rate {rate}mbit burst {burst} latency 100ms"
                )

    def close(self) -> None:
        """Take them away; the interfaces go with them."""
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def _run(command: str) -> None:
    subprocess.run(shlex.split(command), check=True)


@contextmanager
def workers(link: Link) -> Iterator[list[subprocess.Popen[str]]]:
    """One in each namespace."""
    started: list[subprocess.Popen[str]] = []
    try:
        for rank, name in enumerate(link.names):
            command = ["ip", "netns", "exec", name, sys.executable, str(WORKER), str(rank), ADDRESSES[0]]
            environment = os.environ | {"GLOO_SOCKET_IFNAME": "veth0", "OMP_NUM_THREADS": "1"}
            started.append(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
                )
            )
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def ask(started: Sequence[subprocess.Popen[str]], **asked: Any) -> dict[str, Any]:
    """Send both the same line; the answer of the first."""
    for process in started:
        assert process.stdin is not None
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
    answers = []
    for process in started:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit("a worker has ended; what it said is above")
        answers.append(json.loads(line))
    return answers[0]


def links(rates: Sequence[int], blocks: int, seconds: float) -> Iterator[dict[str, Any]]:
    """A row for each arm and rate, then one for each compressor."""
    crossing: dict[str, list[tuple[float, float, float]]] = {}
    predicted: dict[str, list[float]] = {}
    with ExitStack() as stack:
        link = Link()
        stack.callback(link.close)
        link.open()
        both = stack.enter_context(workers(link))
        for rate in rates:
            link.shape(rate)
            answer = ask(both, blocks=blocks, seconds=seconds)
            times: dict[str, list[float]] = answer["times"]
            carried = answer["told"]["bf16"]["link"] * 8 / 1e6
            for arm in ARMS:
                ratios = [a / b for a, b in zip(times[arm], times["ddp"], strict=True)]
                row = {
                    "rate": rate,
                    "carries": carried,
                    "arm": arm,
                    "ms": statistics.median(times[arm]) * 1e3,
                    "ratio": statistics.median(ratios),
                    "low": interval(ratios)[0],
                    "high": interval(ratios)[1],
                }
                if arm in answer["told"]:
                    told = answer["told"][arm]
                    row |= {"sent": told["sent"], "plain": told["plain"], "limit": told["limit"] * 8 / 1e6}
                    row["pays"] = told["link"] < told["limit"]
                    bare = [a / b for a, b in zip(times[f"{arm} alone"], times["ddp alone"], strict=True)]
                    row |= {"alone": statistics.median(bare), "alone_interval": interval(bare)}
                    crossing.setdefault(arm, []).append((carried, row["alone"], row["ratio"]))
                    predicted.setdefault(arm, []).append(row["limit"])
                if f"{arm} alone" in times:
                    alone = times[f"{arm} alone"]
                    row |= hidden(times[arm], times["silent"], alone)
                yield row
    for arm, points in crossing.items():
        yield {
            "arm": arm,
            "told": [min(predicted[arm]), max(predicted[arm])],
            "found": cross([(carried, alone) for carried, alone, _ in points]),
            "found_in_steps": cross([(carried, step) for carried, _, step in points]),
        }


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Of the median, at 95 %: between two of the ordered values (binomial)."""
    ordered, count = sorted(values), len(values)
    low = 0
    while low + 1 < count / 2 and sum(math.comb(count, i) for i in range(low + 2)) / 2**count < 0.025:
        low += 1
    return ordered[low], ordered[count - 1 - low]


def hidden(
    steps: Sequence[float], silent: Sequence[float], alone: Sequence[float]
) -> dict[str, float | list[float]]:
    """The share of an exchange that its step does not show, from medians; and 95 % of what turns drawn anew give."""
    turns = list(zip(steps, silent, alone, strict=True))

    def share(drawn: Sequence[tuple[float, float, float]]) -> float:
        step, bare, exchange = (statistics.median(each) for each in zip(*drawn, strict=True))
        return 1 - (step - bare) / exchange

    draws = random.Random(0)
    found = sorted(share(draws.choices(turns, k=len(turns))) for _ in range(1000))
    return {"hidden": share(turns), "hidden_interval": [found[25], found[974]]}


def cross(points: Sequence[tuple[float, float]]) -> str:
    """Where the ratio crosses 1, between two rates on a logarithmic scale."""
    points = sorted(points)
    for (slow, below), (fast, above) in pairwise(points):
        if below < 1 <= above:
            part = (1 - below) / (above - below)
            return f"{slow * (fast / slow) ** part:,.0f}"
    return f"above {points[-1][0]:,.0f}" if points[-1][1] < 1 else f"below {points[0][0]:,.0f}"


def show(row: dict[str, Any]) -> str:
    """A row for people."""
    if "compressor" in row:
        bytes = (
            "" if row["bytes"] is None else f"{row['bytes']:>12,} {row['bytes'] / row['plain_bytes']:7.2%}"
        )
        return (
            f"{row['compressor']:<12} {bytes:>20}  loss {row['loss']:.4f} ({row['least']:.4f} to {row['most']:.4f})"
            f"  {row['over_plain']:.3f} of none"
        )
    if "found" in row:
        low, high = row["told"]
        return (
            f"{row['arm']:<10} pays below: told {low:,.0f} to {high:,.0f} Mbit/s, found {row['found']} in exchanges "
            f"alone, {row['found_in_steps']} in steps"
        )
    share = ""
    if "hidden" in row:
        low, high = row["hidden_interval"]
        share = f"  hidden {row['hidden']:.2f} ({low:.2f} to {high:.2f})"
    sent = ""
    if "sent" in row:
        low, high = row["alone_interval"]
        sent = (
            f"  sends {row['sent'] / row['plain']:6.2%}  alone {row['alone']:.3f} ({low:.3f} to {high:.3f})"
            f"  told: {'pays' if row['pays'] else 'does not'}"
        )
    rate = f"{row['rate']:,} Mbit/s" if row["rate"] else "unshaped"
    return (
        f"{rate:>12} ({row['carries']:6,.0f})  {row['arm']:<10} {row['ms']:8.1f} ms  ratio {row['ratio']:6.3f} "
        f"({row['low']:.3f} to {row['high']:.3f}){sent}{share}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["loss", "link"])
    parser.add_argument("--text", type=Path, nargs="*", help="files to train on, with `loss`")
    parser.add_argument("--steps", type=int, default=200, help="of each run, with `loss`")
    parser.add_argument("--seeds", type=int, default=2, help="runs of each, with `loss`")
    parser.add_argument("--rates", type=int, nargs="*", default=[100, 300, 1000, 3000, 0], help="with `link`")
    parser.add_argument("--blocks", type=int, default=10, help="turns, with `link`")
    parser.add_argument("--seconds", type=float, default=0.5, help="of a block, about, with `link`")
    parser.add_argument("--json", action="store_true", help="one object a row")
    args = parser.parse_args()
    if args.what == "link" and os.geteuid():
        parser.error("namespaces need root")
    library = Path(sysconfig.get_paths()["stdlib"])
    texts = args.text or sorted(library.glob("*.py"))
    rows = (
        losses([path.resolve() for path in texts], args.steps, args.seeds)
        if args.what == "loss"
        else links(args.rates, args.blocks, args.seconds)
    )
    if not args.json:
        print("$", shlex.join(["python", *sys.argv]), flush=True)
    for row in rows:
        print(json.dumps(row) if args.json else show(row), flush=True)


if __name__ == "__main__":
    main()
