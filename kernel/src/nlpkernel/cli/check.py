"""`nlpkernel check`: every mistake of a plan at once, without torch; then the plan filled, and what it will need."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nlpkernel.cli.options import plan_options
from nlpkernel.cli.output import say, write_json
from nlpkernel.words import size

if TYPE_CHECKING:
    from nlpkernel.hookspecs.everywhere import Facts

HELP = "Find every mistake in a plan, and show it filled: each setting with where its value came from."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    plan_options(parser)
    parser.add_argument(
        "--data", action="store_true", help="open the data too: sizes, lengths, first samples, steps"
    )
    parser.add_argument("--json", action="store_true", help="for machines")


def execute(args: argparse.Namespace) -> int:
    """Check; a plan with mistakes raises PlanError."""
    from nlpkernel.plan import Plan
    from nlpkernel.plan.fit import check_fit, estimate

    plan = Plan.load(args.plan, args.overrides)
    facts = estimate(plan)
    check_fit(plan, facts)
    looked = None
    if args.data:
        from nlpkernel.engine.looking import look_at_data

        looked = look_at_data(plan)
    if args.json:
        import attrs

        from nlpkernel.plan.plan import written

        write_json(
            {
                "plan": written(plan.filled),
                "origins": {path: node.origin for path, node in plan.filled.walk() if not node.is_table},
                "estimate": attrs.asdict(facts),
                "data": looked.plain() if looked else None,
            }
        )
        return 0
    if not args.quiet:
        say(plan.text(origins=True).rstrip())
        say()
        for line in describe(facts):
            say(line)
        if looked:
            say(looked.text())
        say(f"{args.plan}: no mistakes")
    return 0


def describe(facts: Facts) -> list[str]:
    """The estimate in lines."""
    lines = []
    if facts.parameters is None:
        lines.append("parameters   not known before the data is read (`check --data`)")
    else:
        lines.append(f"parameters   {facts.parameters:,}")
    parts = {
        "weights": facts.parameter_bytes,
        "gradients": facts.gradient_bytes,
        "optimizer": facts.optimizer_bytes,
        "activations": facts.activation_bytes,
    }
    known = {name: number for name, number in parts.items() if number is not None}
    if known:
        detail = ", ".join(f"{name} {size(number)}" for name, number in known.items())
        word = "about" if len(known) == len(parts) else "at least"
        lines.append(f"memory       {word} {size(sum(known.values()))} ({detail})")
    return [*lines, *(f"note         {note}" for note in facts.notes)]
