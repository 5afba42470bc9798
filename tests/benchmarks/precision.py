"""What a step costs in each number format on this device: forward and backward of small language models, in turns.

    python tests/benchmarks/precision.py [--widths 128 256 512] [--batch 8 128] [--vocabulary 2048]
        [--device cpu] [--threads 1] [--repeats 15] [--json]

The model is `gpt` of nlpkernel-plugin-transformer with 4 blocks and 4 heads; the rows are the formats of
nlpkernel-plugin-precision. `ratio` is the median time over that of fp32. `enter` is the time to enter and leave the
format's context once. On a shared machine compare the ratios, not the milliseconds.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
import timeit
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F

from nlpkernel.context import Run
from nlpkernel.engine.group import whole
from nlpkernel.engine.materialise import allocate, fill
from nlpkernel.plan.train import Train
from nlpkernel_precision.component import Bf16, Fp16, Fp32
from nlpkernel_transformer.build import build
from nlpkernel_transformer.component import Gpt

FORMATS: dict[str, tuple[type, dict[str, str]]] = {
    "fp32": (Fp32, {}),
    "bf16": (Bf16, {}),
    "bf16 pure": (Bf16, {"parameters": "bf16"}),
    "fp16": (Fp16, {}),
}


class Step:
    """One format: its model, its context, and a forward and backward with the same tokens each time."""

    def __init__(self, run: Run, name: str, width: int, vocabulary: int, rows: int, window: int) -> None:
        kind, settings = FORMATS[name]
        self.precision = run.ask(kind(**settings), "create_precision", run=run)
        with torch.device("meta"):
            model = build(Gpt(layers=4, heads=4, width=width).shape(vocabulary, window))
        self.module = model.module
        allocate(self.module, run.device, self.precision.parameter)
        fill(model, whole(self.module), seed=0)
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(vocabulary, (rows, window), generator=generator).to(run.device)

    def time(self) -> float:
        """Seconds of one forward and backward."""
        start = perf_counter()
        with self.precision.autocast():
            logits = self.module(tokens=self.tokens).logits
            loss = F.cross_entropy(logits.flatten(0, 1).float(), self.tokens.flatten())
        self.precision.scale(loss).backward()
        if self.tokens.device.type != "cpu":
            torch.accelerator.synchronize()
        self.module.zero_grad(set_to_none=True)
        return perf_counter() - start

    def enter(self) -> float:
        """Microseconds to enter and leave the context once."""

        def once() -> None:
            with self.precision.autocast():
                pass

        return min(timeit.repeat(once, number=2000, repeat=5)) / 2000 * 1e6


def measure(
    device: torch.device, widths: list[int], vocabulary: int, rows: int, window: int, repeats: int
) -> list[dict[str, Any]]:
    """All formats in turns, for each width; the first two turns warm up and are not counted."""
    table = []
    with tempfile.TemporaryDirectory() as folder:
        run = Run(name="benchmark", folder=Path(folder), cache=Path(folder), train=Train(), device=device)
        for width in widths:
            steps = {name: Step(run, name, width, vocabulary, rows, window) for name in FORMATS}
            times: dict[str, list[float]] = {name: [] for name in steps}
            for turn in range(repeats + 2):
                for name, step in steps.items():
                    seconds = step.time()
                    if turn >= 2:
                        times[name].append(seconds)
            base = statistics.median(times["fp32"])
            for name, seconds in times.items():
                median = statistics.median(seconds)
                table.append(
                    {
                        "width": width,
                        "format": name,
                        "median_ms": round(1000 * median, 1),
                        "min_ms": round(1000 * min(seconds), 1),
                        "ratio": round(median / base, 2),
                        "enter_us": round(steps[name].enter(), 2),
                    }
                )
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 256, 512])
    parser.add_argument("--batch", type=int, nargs=2, default=[8, 128], metavar=("ROWS", "TOKENS"))
    parser.add_argument("--vocabulary", type=int, default=2048)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, help="threads of torch (default: torch's own choice)")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    table = measure(torch.device(args.device), args.widths, args.vocabulary, *args.batch, args.repeats)
    if args.json:
        for row in table:
            print(json.dumps(row))
        return
    able = [name for name in ("amx_bf16", "avx512_bf16", "bf16") if torch.cpu.get_capabilities().get(name)]
    print(f"{Path(sys.executable).name} {shlex.join(sys.argv)}")
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads; this CPU has {' '.join(able) or 'no bf16'}"
    )
    rows, window = args.batch
    print(f"{rows} rows of {window} tokens, vocabulary {args.vocabulary}, 4 blocks; forward and backward")
    print(f"{'width':>5}  {'format':10}  {'median ms':>9}  {'min ms':>7}  {'ratio':>5}  {'enter us':>8}")
    for row in table:
        print(
            f"{row['width']:5}  {row['format']:10}  {row['median_ms']:9}  {row['min_ms']:7}  {row['ratio']:5}  "
            f"{row['enter_us']:8}"
        )


if __name__ == "__main__":
    main()
