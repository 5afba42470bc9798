"""What an update costs: each optimizer of nlpkernel-plugin-optim against the memory floor, in turns.

    python tests/benchmarks/optimizers.py [--millions 6] [--threads 1] [--repeats 15] [--json]

The floor of an optimizer is the bytes that it must read and write, at the bandwidth of a copy of such a size in the
same run, the fastest of all. Muon's floor says nothing of its matrix products, which are its cost. Times are CPU time
of the process, so that other processes disturb them less; on a shared machine compare the ratios, not the milliseconds.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

import torch

from nlpkernel.context import Run
from nlpkernel.hookspecs.model import ParameterGroup
from nlpkernel.plan.train import Train
from nlpkernel_optim.component import Adafactor, AdamW, Lion, Muon, Sgd

WIDTH = 256
#: Settings, and how often each parameter, gradient or moment of a full-size tensor is read or written once.
ROWS: dict[str, tuple[type, dict[str, Any], int]] = {
    "adamw": (AdamW, {}, 7),
    "adamw, not fused": (AdamW, {"fused": "off"}, 7),
    "sgd": (Sgd, {}, 5),
    "lion": (Lion, {}, 5),
    "adafactor": (Adafactor, {}, 3),
    "muon": (Muon, {}, 5),
}


def groups(millions: float) -> list[ParameterGroup]:
    """Parameters like those of a small transformer: an embedding, and blocks of four matrices and six vectors."""
    block = [(3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)]
    vectors = [(WIDTH,)] * 6
    count = max(1, round(millions * 1e6 / (12 * WIDTH**2)))
    matrices = [torch.nn.Parameter(torch.randn(shape) * 0.02) for _ in range(count) for shape in block]
    small = [torch.nn.Parameter(torch.zeros(shape)) for _ in range(count) for shape in vectors]
    made = []
    for tensors, tag in ((matrices, "mlp"), (small, "norm")):
        names = [f"{tag}.{index}" for index in range(len(tensors))]
        made.append(ParameterGroup(names=names, tensors=tensors, decay=tag == "mlp", tags=frozenset({tag})))
    return made


def measure(millions: float, repeats: int) -> list[dict[str, Any]]:
    """All optimizers in turns; the first two turns make their state and are not counted."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(name="benchmark", folder=Path(folder), cache=Path(folder), train=Train())
        made = {}
        for name, (kind, settings, _) in ROWS.items():
            own = groups(millions)
            for group in own:
                for tensor in group.tensors:
                    tensor.grad = torch.randn_like(tensor)
            made[name] = run.ask(kind(lr=1e-4, **settings), "create_optimizer", run=run, groups=own)
            if getattr(made[name], "_step_supports_amp_scaling", False):
                made[name].found_inf = torch.tensor(0.0)
    count = sum(p.numel() for group in made["adamw"].param_groups for p in group["params"])
    source, target = torch.ones(count), torch.ones(count)
    times: dict[str, list[float]] = {name: [] for name in ROWS}
    copies: list[float] = []
    for turn in range(repeats + 2):
        for _ in range(5):
            start = process_time()
            target.copy_(source)
            copies.append(process_time() - start)
        for name, optimizer in made.items():
            start = process_time()
            optimizer.step()
            spent = process_time() - start
            if turn >= 2:
                times[name].append(spent)
    # The fastest: what the machine can, with warm page tables.
    copy = min(copies)
    base = statistics.median(times["adamw"])
    return [
        {
            "optimizer": name,
            "median_ms": round(1000 * statistics.median(seconds), 2),
            "min_ms": round(1000 * min(seconds), 2),
            "of_adamw": round(statistics.median(seconds) / base, 2),
            # A copy reads and writes each number once.
            "of_floor": round(statistics.median(seconds) / (copy * ROWS[name][2] / 2), 1),
            "parameters": count,
        }
        for name, seconds in times.items()
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--millions", type=float, default=6, help="parameters")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    table = measure(args.millions, args.repeats)
    if args.json:
        for row in table:
            print(json.dumps(row))
        return
    print(f"{Path(sys.executable).name} {shlex.join(sys.argv)}")
    print(
        f"torch {torch.__version__}, {args.threads} threads, {table[0]['parameters']:,} parameters, CPU time"
    )
    print(f"{'optimizer':18}  {'median ms':>9}  {'min ms':>7}  {'of adamw':>8}  {'of floor':>8}")
    for row in table:
        print(
            f"{row['optimizer']:18}  {row['median_ms']:9}  {row['min_ms']:7}  {row['of_adamw']:8}  {row['of_floor']:8}"
        )


if __name__ == "__main__":
    main()
