"""`nlpkernel compare`: whether one trained model is better than another."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from nlpkernel.cli.output import count, say, table, write_json
from nlpkernel.errors import UsageError, fail
from nlpkernel_tasks.codes import OWNER
from nlpkernel_tasks.commands.options import model_options, open_run

HELP = """Compare two trained models on the same samples, with a paired bootstrap: the difference of each metric, the
interval in which it lies in 95 of 100 draws, and p, the chance of such a difference where there is none."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("first", help="the run's folder: runs/NAME, or runs/latest")
    parser.add_argument("second", help="that of the other run")
    parser.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="FILE",
        help="may be given several times; left out: the validation split of each plan, which have to be the same",
    )
    parser.add_argument(
        "--draws", type=int, default=1000, metavar="N", help="how often samples are drawn (1000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the draws (0)")
    parser.add_argument("--json", action="store_true", help="for machines")
    model_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Try both, compare, show."""
    from nlpkernel_tasks.bootstrap import compare
    from nlpkernel_tasks.trying import evaluated

    if args.draws < 100:
        raise fail(
            UsageError, "TSK010", "--draws is fewer than 100, of which no interval can be told", owner=OWNER
        )
    runs = (args.first, args.second)
    opened = [open_run(args, run) for run in runs]
    if opened[0].task.name != opened[1].task.name:
        names = " and ".join(repr(each.task.name) for each in opened)
        raise fail(UsageError, "TSK010", f"the runs have different tasks: {names}", owner=OWNER)
    if opened[0].info.labels != opened[1].info.labels:
        raise fail(UsageError, "TSK010", "the runs know different labels", owner=OWNER)
    tried = [evaluated(each, each.unseen(args.data)) for each in opened]
    _same(tried[0].names, tried[1].names)
    if not tried[0].counts:
        message = f"the task {opened[0].task.name!r} counts nothing of single samples"
        raise fail(UsageError, "TSK010", message, owner=OWNER)
    found = compare(tried[0].counts, tried[1].counts, opened[0].task.value, args.draws, args.seed)
    if args.json:
        each = [difference._asdict() for difference in found]
        write_json({"runs": list(runs), "samples": len(tried[0].names), "draws": args.draws, "metrics": each})
        return 0
    say(f"{count(len(tried[0].names), 'sample')}, {args.draws} draws")
    say()
    rows = [
        (
            each.metric,
            f"{each.first:.4f}",
            f"{each.second:.4f}",
            f"{each.second - each.first:+.4f}",
            f"{each.low:+.4f} to {each.high:+.4f}",
            f"{each.chance:.3f}" if each.chance else f"< {2 / args.draws:g}",
        )
        for each in found
    ]
    table([("metric", "first", "second", "difference", "95%", "p"), *rows], head=True)
    return 0


def _same(first: Sequence[str], second: Sequence[str]) -> None:
    if first == second:
        return
    at = next(
        (n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )
    shown = [each[at] if at < len(each) else "none" for each in (first, second)]
    raise fail(
        UsageError,
        "TSK010",
        f"the runs have different samples: number {at + 1} is {shown[0]} in the one and {shown[1]} in the other",
        owner=OWNER,
        hint="name the files for both: --data held.jsonl; other windows or tokenizers may divide texts otherwise",
    )
