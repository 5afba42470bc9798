"""Who answers which hook of a plan, in the order in which they are asked. Light: nothing is opened."""

from __future__ import annotations

import attrs

from nlpkernel.hookspecs import KIND
from nlpkernel.plan import Plan
from nlpkernel.plugins.hooks import SPECS, Hooks


@attrs.frozen
class Answer:
    """A component that answers a hook: its address in the plan, and component and distribution."""

    address: str
    owner: str


@attrs.frozen
class Question:
    """A hook, how it is asked ("pick": one component alone; "transform": a value goes through all; "collect": each
    gives an answer; "observe": each is told), and who answers, first to last."""

    hook: str
    kind: str
    answers: tuple[Answer, ...]


def order(plan: Plan) -> tuple[Question, ...]:
    """Every hook that some component of the plan answers, in the order of the specifications."""
    composition = plan.compose()
    hooks = Hooks()
    for placed in composition.placed:
        hooks.register(placed.component, placed.address, placed.found.owner)
    addresses = {id(placed.component): placed.address for placed in composition.placed}
    return tuple(
        Question(
            name,
            getattr(spec, KIND),
            tuple(
                Answer(addresses[id(getattr(bound.function, "__self__", None))], bound.owner)
                for bound in hooks.bound(name)
            ),
        )
        for name, spec in SPECS.items()
        if hooks.bound(name)
    )
