"""`nlpkernel plugins order`, `trace` and `bisect`: what the plugins of a plan are asked, how long it takes, what they
change. Light until one of them is carried out."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from nlpkernel.cli.options import plan_options
from nlpkernel.cli.output import count, say, table, write_json

if TYPE_CHECKING:
    from nlpkernel.plan import Plan


def commands(parsers: Any) -> None:
    """Declare the sub-commands."""
    order = parsers.add_parser("order", help="which components answer which hook of a plan, first to last")
    plan_options(order)
    order.add_argument("--hook", metavar="NAME", help="only this one")
    trace = parsers.add_parser(
        "trace", help="run a plan's first steps, and show every hook and event as it comes, with its time"
    )
    plan_options(trace)
    trace.add_argument("--steps", type=_positive, default=2, metavar="N", help="how many steps (2)")
    bisect = parsers.add_parser(
        "bisect", help="leave out each observer in turn: which one changes the result, or the speed"
    )
    plan_options(bisect)
    bisect.add_argument("--steps", type=_positive, default=40, metavar="N", help="steps of each run (40)")
    bisect.add_argument("--turns", type=_positive, default=3, metavar="N", help="runs of each kind (3)")
    for parser in (order, trace, bisect):
        parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="write JSON")


def execute_order(args: argparse.Namespace) -> int:
    """Show who answers what. Raise UsageError for a hook that there is not."""
    import attrs

    from nlpkernel.errors import UsageError, fail
    from nlpkernel.plugins.hooks import SPECS
    from nlpkernel.plugins.suggest import hint
    from nlpkernel.watching.order import order

    if args.hook is not None and args.hook not in SPECS:
        raise fail(UsageError, "NK038", f"there is no hook {args.hook!r}", hint=hint(args.hook, SPECS))
    asked = [each for each in order(_plan(args)) if args.hook in (None, each.hook)]
    if args.json:
        write_json([attrs.asdict(each) for each in asked])
        return 0
    for question in asked:
        say(f"{question.hook} ({question.kind})")
        for number, answer in enumerate(question.answers, 1):
            say(f"  {number}. {answer.address}: {answer.owner}")
    if not asked:
        say(f"no component of the plan answers {args.hook}")
    return 0


def execute_trace(args: argparse.Namespace) -> int:
    """Run some steps, and show the calls."""
    import attrs

    from nlpkernel.watching.trace import trace

    calls = trace(_plan(args), args.steps, quiet=True)
    if args.json:
        write_json([attrs.asdict(call) for call in calls])
        return 0
    rows = [("at ms", "took ms", "what", "who")]
    phase = ""
    for call in calls:
        if call.phase != phase:
            phase = call.phase
            rows.append(("", "", f"-- {phase}", ""))
        rows.append(
            (
                f"{1e3 * call.start:9.2f}",
                f"{1e3 * call.seconds:9.3f}",
                "  " * call.depth + call.what,
                call.owner,
            )
        )
    table(rows, head=True)
    spent: dict[str, list[float]] = {}
    for call in calls:
        spent.setdefault(call.owner, []).append(call.own)
    say()
    totals = sorted(spent.items(), key=lambda each: -sum(each[1]))
    table(
        [
            ("own ms", "calls", "who"),
            *((f"{1e3 * sum(times):9.2f}", len(times), owner) for owner, times in totals),
        ],
        head=True,
    )
    return 0


def execute_bisect(args: argparse.Namespace) -> int:
    """Run the plan with and without each observer. The exit code is 1 where one changes the result."""
    import sys

    import attrs

    from nlpkernel.watching.bisect import bisect

    def tell(text: str) -> None:
        if not args.quiet:
            sys.stderr.write(f"nlpkernel: {text}\n")
            sys.stderr.flush()

    found = bisect(_plan(args), steps=args.steps, turns=args.turns, say=tell)
    guilty = [arm for arm in found.arms if arm.changes]
    failed = 1 if found.differs or guilty else 0
    if args.json:
        write_json(attrs.asdict(found))
        return failed
    rows = [("left out", "us a step", "least", "most", "the result", "who")]
    for arm in found.arms:
        if arm.error:
            rows.append((arm.address, "", "", "", f"does not run: {arm.error}", arm.owner))
            continue
        median, least, most = (f"{1e6 * value:+.0f}" for value in found.cost(arm))
        changed = f"is another: {', '.join(arm.changes)}" if arm.changes else "is the same"
        rows.append((arm.address, median, least, most, changed, arm.owner))
    table(rows, head=True)
    whole = 1e6 * sorted(found.whole.seconds)[len(found.whole.seconds) // 2]
    say(f"\nus a step: what each adds to one of {whole:.0f} us; of {count(found.steps, 'step')} in each run")
    if found.differs:
        say(f"two runs of the plan as it is differ already: {', '.join(found.differs)}")
    slow = [arm.owner for arm in found.arms if found.slows(arm)]
    say(f"slower in every turn, by a hundredth or more: {', '.join(slow) if slow else 'none'}")
    say(f"changes the result: {', '.join(arm.owner for arm in guilty) if guilty else 'none'}")
    return failed


def _plan(args: argparse.Namespace) -> Plan:
    from nlpkernel.plan import Plan

    return Plan.load(args.plan, args.overrides)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("it must be at least 1")
    return number
