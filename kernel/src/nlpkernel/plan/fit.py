"""Whether the parts of a plan fit together, as far as their settings alone can say. Light: no torch."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from nlpkernel.errors import PlanError, Problem
from nlpkernel.hookspecs.everywhere import Facts
from nlpkernel.plugins.hooks import Hooks

if TYPE_CHECKING:
    from nlpkernel.plan.plan import Composition, Plan


def estimate(plan: Plan) -> Facts:
    """What the components say of size, threaded through all of them in plan order; but not of those that another one
    names as its `elsewhere`: they are on no worker."""
    composition = plan.compose()
    elsewhere = {
        f"{placed.address}.{name}"
        for placed in composition.placed
        for name in getattr(placed.component, "elsewhere", ())
    }
    train = composition.train
    need = getattr(composition.slot("optimizer").component, "need", "whole_tensor")
    facts: Facts = _hooks(composition, elsewhere).transform(
        "estimate", Facts(micro=train.rows, batch=train.batch, need=need)
    )
    return facts


def check_fit(plan: Plan, facts: Facts | None = None) -> None:
    """Raise PlanError (NK113) with every setting that does not go with the rest of the plan, each at its place."""
    composition = plan.compose()
    if not any(hasattr(placed.component, "misfits") for placed in composition.placed):
        return
    facts = facts or estimate(plan)
    hooks = _hooks(composition)
    nodes = dict(plan.filled.walk())
    problems = []
    for placed in composition.placed:
        if not hasattr(placed.component, "misfits"):
            continue
        for setting, message in hooks.ask(placed.component, "misfits", facts=facts):
            node = nodes.get(f"{placed.address}.{setting}")
            problems.append(
                Problem(
                    code="NK113",
                    message=f"{placed.address}: {message}",
                    place=node.place if node else None,
                    owner=placed.found.owner,
                )
            )
    if problems:
        raise PlanError(problems)


def _hooks(composition: Composition, but: Collection[str] = ()) -> Hooks:
    hooks = Hooks()
    for placed in composition.placed:
        if placed.address in but:
            continue
        hooks.register(placed.component, placed.address, placed.found.owner)
    return hooks
