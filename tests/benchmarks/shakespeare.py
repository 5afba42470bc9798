"""A plan on tinyshakespeare: the yardstick of nanoGPT's README, and time against a plain loop with the same arithmetic.

The data is an argument: `input.txt` of karpathy/char-rnn, 1,115,394 characters. 4 layers, 4 heads, width 128, block 64,
batch 12, 2,000 steps, AdamW 1e-3 (0.9, 0.99), decay 0.1, cosine to 1e-4 after 100 steps, clip 1.0, characters.

Arms, interleaved in blocks of steps in one process:
  plain      the same module, batches, optimizer and guards in a loop of thirty lines
  kernel     the plan through the engine
  fast       the plan with what makes it faster (see FAST)
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import nlpkernel
from nlpkernel.engine.api import Loop
from nlpkernel.engine.session import Session

#: Settings of the arm `fast`, over the plan.
FAST: dict[str, Any] = {"precision": {"use": "bf16"}}


def values(path: Path, steps: int, name: str) -> dict[str, Any]:
    """The plan."""
    return {
        "name": name,
        "train": {"seed": 1337, "steps": steps, "batch": 12, "clip": 1.0, "log": {"every": 50}},
        "data": {
            "use": "text",
            "paths": [str(path)],
            "window": 64,
            "sampling": "random",
            "split": "tail",
            "tokenizer": "characters",
        },
        "model": {"use": "gpt", "layers": 4, "heads": 4, "width": 128, "bias": False, "dropout": 0.0},
        "optimizer": {
            "use": "adamw",
            "lr": 1e-3,
            "betas": [0.9, 0.99],
            "weight_decay": 0.1,
            "schedule": {"use": "cosine", "warmup": 100, "final": 0.1},
        },
        "precision": {"use": "fp32"},
    }


def plain_steps(session: Session) -> Iterator[None]:
    """The loop that a careful engineer would write, on the session's own parts."""
    work = session.work
    model, data, task, optimizer, schedule = work.model, work.data, work.task, work.optimizer, work.schedule
    parameters = [parameter for _, parameter in work.named]
    total_loss = torch.zeros(())
    step = 0
    while True:
        window = data.window(step)
        loss_sum = torch.zeros(())
        total = sum(each.weights["loss"] for each in window)
        for index in range(len(window)):
            batch = data.microbatch(step, index)
            loss = task.loss(model(**task.inputs(batch)), batch)[0].sum
            (loss / total).backward()
            loss_sum = loss_sum + loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.found_inf = (~torch.isfinite(norm + loss_sum)).float()
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * schedule.factor(step)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total_loss += loss_sum / total
        step += 1
        if step % 50 == 0:
            total_loss.item()
            total_loss.zero_()
        yield


def timed(steps: Iterator[Any], count: int) -> float:
    """Seconds a step over `count` steps."""
    start = time.perf_counter()
    for _ in range(count):
        next(steps)
    return (time.perf_counter() - start) / count


def compare(path: Path, folder: Path, blocks: int, steps: int) -> list[dict[str, Any]]:
    """Ratios of time per step to the plain loop, block by block."""
    arms: dict[str, Iterator[Any]] = {}
    loops = []
    length = blocks * steps + 20
    for arm, more in (("plain", {}), ("kernel", {}), ("fast", FAST)):
        table = values(path, length, arm)
        for key, section in more.items():
            table[key] = {**table.get(key, {}), **section}
        loop = Loop(nlpkernel.Plan.of(table), folder / arm)
        iterator = loop.steps()
        session = next(iterator)
        loops.append(iterator)
        arms[arm] = plain_steps(session) if arm == "plain" else iterator
        timed(arms[arm], 10)
    seconds: dict[str, list[float]] = {arm: [] for arm in arms}
    for _ in range(blocks):
        for arm, iterator in arms.items():
            seconds[arm].append(timed(iterator, steps))
    for iterator in loops:
        iterator.close()
    rows = []
    for arm, times in seconds.items():
        ratios = [a / b for a, b in zip(times, seconds["plain"], strict=True)]
        rows.append(
            {
                "arm": arm,
                "ms": statistics.median(times) * 1e3,
                "ratio": statistics.median(ratios),
                "least": min(ratios),
                "most": max(ratios),
            }
        )
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="tinyshakespeare's input.txt")
    parser.add_argument(
        "--steps", type=int, default=2000, help="steps of the training run; 0: only compare speed"
    )
    parser.add_argument("--blocks", type=int, default=15, help="blocks of the comparison; 0: none")
    parser.add_argument("--block", type=int, default=30, help="steps of a block")
    parser.add_argument("--json", action="store_true", help="one object a row")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        if args.steps:
            plan = nlpkernel.Plan.of(values(args.path, args.steps, "yardstick"))
            start = time.perf_counter()
            report = nlpkernel.run(plan, runs_folder=folder)
            rows.append(
                {
                    "arm": "yardstick",
                    "steps": report.progress.step,
                    "validation_loss": report.metrics["validation/loss"],
                    "seconds": time.perf_counter() - start,
                }
            )
        if args.blocks:
            rows += compare(args.path, Path(folder), args.blocks, args.block)
    if args.json:
        for row in rows:
            print(json.dumps(row))
        return
    print("$ python", " ".join(sys.argv))
    for row in rows:
        if row["arm"] == "yardstick":
            print(f"validation loss {row['validation_loss']:.4f} after {row['steps']} steps (yardstick 1.88)")
        else:
            print(
                f"{row['arm']:<8} {row['ms']:7.2f} ms a step, ratio to plain {row['ratio']:.3f}"
                f" ({row['least']:.3f} to {row['most']:.3f})"
            )


if __name__ == "__main__":
    main()
