"""What the kernel adds to a step: main-thread CPU time of a run against plain loops, in turns.

    python tests/benchmarks/overhead.py [--steps 200] [--turns 12] [--processes 7] [--peers] [--json]

`plain` does the same torch operations as a run (summed loss over a total, global norm, clip, a guard against what is
not finite that fused AdamW honours, losses and norms kept and read at the log interval), written down as one would
by hand. `naive` is the loop of a tutorial: mean loss, backward, clip, step, the loss read at the interval. `kernel` is
a run with the monitors console and jsonl and the checkpoint store, where they are installed (they are listed). All
see the same batches, laid out before.

One turn is a block of steps of each arm, and `over_us` the median of the differences to `plain` within a turn, which a
busy machine disturbs least. Where things lie in memory differs from process to process and moves these differences by
more than they are, so all is measured in several processes, one after the other: a row gives the median of theirs, and
the least and the most. Budget (issue 2): 25 us a step and 10 us for each extra micro-batch over `plain`, 90 us over
`naive`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from peers import Peer, peers
from torch import Tensor, nn

from nlpkernel import Plan, component, hookimpl, setting
from nlpkernel.cli.output import table
from nlpkernel.engine.api import Loop
from nlpkernel.hookspecs.data import DataInfo, Microbatch, SplitInfo
from nlpkernel.hookspecs.model import Anatomy, Model, Outputs, ParameterFacts
from nlpkernel.hookspecs.task import Term
from nlpkernel.plugins.catalog import Catalog

WIDTH, HIDDEN, ROWS, WINDOWS = 16, 32, 8, 64
LOG_EVERY, CLIP, RATE = 20, 1.0, 1e-4
#: Micro-batches of a step. The first two rows of a budget are their difference.
ACCUMULATION = (1, 5)


def batches() -> list[dict[str, Tensor]]:
    """What all arms train on: `WINDOWS` micro-batches of `ROWS` rows."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(WINDOWS, ROWS, WIDTH, generator=generator)
    return [{"x": each, "y": each.sum(1)} for each in x]


class Network(nn.Module):
    """Two layers: as little work as makes sense."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(WIDTH, HIDDEN)
        self.head = nn.Linear(HIDDEN, 1)

    def forward(self, x: Tensor) -> Outputs:
        """One number a row."""
        return Outputs(logits=self.head(torch.tanh(self.body(x))))


class LaidData:
    """Batches that are there already: data costs both arms a look-up."""

    def __init__(self, accumulation: int) -> None:
        self._batches = batches()
        self._count = accumulation
        self._window = [Microbatch(ROWS, ROWS * WIDTH, {"loss": float(ROWS)})] * accumulation
        self.task: Any = Squares()
        self.info = DataInfo(
            task="squares",
            vocabulary=1,
            window=WIDTH,
            fingerprint="laid",
            splits={"train": SplitInfo(samples=WINDOWS * ROWS)},
        )
        self.codec: Any = None

    def steps(self, *, epochs: float | None = None, tokens: int | None = None) -> int:
        """Windows of an epoch."""
        return WINDOWS // self._count

    def epoch(self, step: int) -> float:
        """Passes."""
        return step * self._count / WINDOWS

    def window(self, step: int) -> Sequence[Microbatch]:
        """Always the same sizes."""
        return self._window

    def microbatch(self, step: int, index: int) -> Mapping[str, Tensor]:
        """A look-up."""
        return self._batches[(step * self._count + index) % WINDOWS]

    def names(self, step: int, index: int) -> Sequence[str]:
        """Numbers."""
        return [str(step)]

    def evaluation(self, split: str) -> Iterator[Mapping[str, Tensor]]:
        """Nothing is evaluated."""
        return iter(())

    def samples(self, split: str, count: int) -> Sequence[str]:
        """Nothing to show."""
        return []

    def artifacts(self) -> Mapping[str, bytes]:
        """Nothing to keep."""
        return {}

    def state(self) -> Mapping[str, Any]:
        """Nothing to keep."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to take up."""

    def close(self) -> None:
        """Nothing to let go of."""


class Squares:
    """Summed squared error."""

    name = "squares"
    main = ("loss", "min")

    def inputs(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The rows."""
        return {"x": batch["x"]}

    def loss(self, outputs: Outputs, batch: Mapping[str, Tensor]) -> Sequence[Term]:
        """One term."""
        assert outputs.logits is not None
        return [Term("loss", squares(outputs.logits, batch["y"]))]


def squares(logits: Tensor, y: Tensor) -> Tensor:
    """The loss of all arms."""
    return ((logits[:, 0] - y) ** 2).sum()


@component
class Laid:
    """The data of this benchmark."""

    accumulation: int = setting(help="micro-batches of a step")

    @hookimpl
    def open_data(self) -> LaidData:
        """Lay the batches out."""
        return LaidData(self.accumulation)

    @hookimpl
    def open_codec(self) -> None:
        """Nothing is ever decoded."""


@component
class Small:
    """The model of this benchmark."""

    @hookimpl
    def create_model(self) -> Model:
        """Two layers."""
        module = Network()
        facts = {name: ParameterFacts() for name, _ in module.named_parameters()}
        return Model(
            module=module,
            anatomy=Anatomy(blocks=("body",), embedding=None, head="head", parameters=facts),
            initialise=lambda name, tensor, generator: tensor.normal_(0, 0.1, generator=generator),
        )


@component
class Fused:
    """torch's fused AdamW at a constant rate."""

    @hookimpl
    def create_optimizer(self, groups: Sequence[Any]) -> torch.optim.Optimizer:
        """One group."""
        tables = [{"params": list(group.tensors), "names": list(group.names)} for group in groups]
        return torch.optim.AdamW(tables, lr=RATE, fused=True)


Step = Callable[[], object]


def network() -> Network:
    """Weights as any arm starts with."""
    torch.manual_seed(1)
    return Network()


def plain(accumulation: int) -> Iterator[None]:
    """The loop that does what a run does."""
    model, data = network(), batches()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    parameters = list(model.parameters())
    total = float(ROWS * accumulation)
    latch = torch.zeros(())
    kept: list[Tensor] = []
    step = 0
    while True:
        sums = None
        for index in range(accumulation):
            batch = data[(step * accumulation + index) % WINDOWS]
            loss = squares(model(batch["x"]).logits, batch["y"])
            (loss * (1.0 / total)).backward()
            value = loss.detach()
            sums = value if sums is None else sums + value
        assert sums is not None
        gradients = [each.grad for each in parameters]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        check = norm + sums
        latch = torch.maximum(latch, check - check != 0)
        torch._foreach_mul_(gradients, (CLIP / (norm + 1e-6)).clamp(max=1.0))
        optimizer.found_inf = latch
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        kept += (sums, norm, latch)
        step += 1
        if step % LOG_EVERY == 0:
            torch.stack(kept).tolist()
            kept = []
        yield


def naive(accumulation: int) -> Iterator[None]:
    """The loop of a tutorial."""
    model, data = network(), batches()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    step = 0
    while True:
        for index in range(accumulation):
            batch = data[(step * accumulation + index) % WINDOWS]
            loss = ((model(batch["x"]).logits[:, 0] - batch["y"]) ** 2).mean() / accumulation
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % LOG_EVERY == 0:
            loss.item()
        yield


def installed() -> dict[str, Any]:
    """Monitors and checkpoint of the run, those of the standard ones that are there."""
    offers = {(offer.point, offer.name) for offer in Catalog().offers}
    monitors = [{"use": name} for name in ("console", "jsonl") if ("monitor", name) in offers]
    sections: dict[str, Any] = {"monitor": monitors} if monitors else {}
    if ("checkpoint", "store") in offers:
        sections["checkpoint"] = {"use": "store"}
    return sections


def kernel(accumulation: int, folder: Path, steps: int) -> Iterator[object]:
    """A run, step by step."""
    here = Path(__file__).resolve()
    values = {
        "name": f"overhead-{accumulation}",
        "train": {
            "steps": steps,
            "batch": ROWS * accumulation,
            "micro": ROWS,
            "clip": CLIP,
            "log": {"every": LOG_EVERY},
            "threads": 1,
        },
        "data": {"use": f"{here}:Laid", "accumulation": accumulation},
        "model": {"use": f"{here}:Small"},
        "optimizer": {"use": f"{here}:Fused"},
        **installed(),
    }
    return Loop(Plan.of(values), folder / str(values["name"])).steps()


def measure(steps: int, turns: int, folder: Path, *, with_peers: bool) -> list[dict[str, object]]:
    """Blocks of all arms in turns; each arm goes on where its last block ended."""
    length = steps * (turns + 1) + 1
    arms: dict[tuple[str, int], Iterator[object]] = {}
    for accumulation in ACCUMULATION:
        arms["plain", accumulation] = plain(accumulation)
        arms["naive", accumulation] = naive(accumulation)
        arms["kernel", accumulation] = kernel(accumulation, folder, length)
    spent: dict[tuple[str, int], list[float]] = {key: [] for key in arms}
    others: dict[str, Peer] = peers(network, batches(), RATE, CLIP) if with_peers else {}
    theirs: dict[str, list[float]] = {name: [] for name in others}
    for turn in range(turns + 1):
        for key, arm in arms.items():
            start = time.thread_time()
            for _ in range(steps):
                next(arm)
            if turn:  # The first block warms up.
                spent[key].append(1e6 * (time.thread_time() - start) / steps)
        for name, peer in others.items() if turn else ():
            theirs[name].append(peer(steps, folder))
    for arm in arms.values():
        arm.close()  # type: ignore[attr-defined]

    def over(accumulation: int, base: str) -> float:
        pairs = zip(spent["kernel", accumulation], spent[base, accumulation], strict=True)
        return statistics.median(mine - other for mine, other in pairs)

    rows: list[dict[str, object]] = [
        {
            "row": f"{name}, {accumulation} micro-batch{'es' if accumulation > 1 else ''}",
            "us": round(statistics.median(times), 1),
            "over_us": round(over(accumulation, "plain"), 1) if name == "kernel" else None,
            "over_naive_us": round(over(accumulation, "naive"), 1) if name == "kernel" else None,
        }
        for (name, accumulation), times in spent.items()
    ]
    for name, times in theirs.items():
        row: dict[str, object] = {
            "row": name,
            "us": round(statistics.median(times), 1),
        }
        for key, base in (("over_us", "plain"), ("over_naive_us", "naive")):
            pairs = zip(times, spent[base, 1], strict=True)
            row[key] = round(statistics.median(mine - other for mine, other in pairs), 1)
        rows.append(row)
    few, many = ACCUMULATION
    extra = (over(many, "plain") - over(few, "plain")) / (many - few)
    rows.append({"row": "kernel, an extra micro-batch", "us": None, "over_us": round(extra, 1)})
    return rows


def gather(processes: int, options: list[str], *, peers: bool) -> list[dict[str, object]]:
    """The rows of several processes: of each figure the median, of `over_us` the range too."""
    command = [
        sys.executable,
        __file__,
        "--processes",
        "1",
        "--json",
        *options,
        *(["--peers"] if peers else []),
    ]
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(processes):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        for row in map(json.loads, done.stdout.splitlines()):
            found.setdefault(row["row"], []).append(row)
    rows: list[dict[str, object]] = []
    for name, same in found.items():
        row: dict[str, object] = {"row": name}
        for key in ("us", "over_us", "over_naive_us"):
            values = [each[key] for each in same if each.get(key) is not None]
            row[key] = round(statistics.median(values), 1) if values else None
        over = [each["over_us"] for each in same if each.get("over_us") is not None]
        rows.append({**row, "over_least": min(over, default=None), "over_most": max(over, default=None)})
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=200, help="steps of a block")
    parser.add_argument("--turns", type=int, default=12, help="blocks of each arm in a process")
    parser.add_argument("--processes", type=int, default=7, help="1: measure in this one")
    parser.add_argument(
        "--peers", action="store_true", help="other trainers too (requirements/benchmarks.txt)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    args = parser.parse_args()
    if args.processes > 1:
        rows = gather(
            args.processes, ["--steps", str(args.steps), "--turns", str(args.turns)], peers=args.peers
        )
    else:
        torch.set_num_threads(1)
        with (
            tempfile.TemporaryDirectory() as folder,
            open(os.devnull, "w") as nowhere,
            contextlib.redirect_stdout(nowhere),  # What the console writes is no part of the table.
        ):
            rows = measure(args.steps, args.turns, Path(folder), with_peers=args.peers)
    if args.json:
        for row in rows:
            print(json.dumps(row))
        return
    print(f"{Path(sys.executable).name} {shlex.join(sys.argv)}")
    print(
        f"main-thread CPU us a step, {args.processes} processes, {args.turns} turns of {args.steps} steps, "
        f"torch {torch.__version__}, one thread; the run has {json.dumps(installed())}"
    )
    keys = ("row", "us", "over_us", "over_naive_us", "over_least", "over_most")
    cells = [keys, *[tuple("" if row.get(key) is None else str(row[key]) for key in keys) for row in rows]]
    table(cells, head=True)


if __name__ == "__main__":
    main()
