"""How a plan stands over what it extends."""

from __future__ import annotations

import attrs

from nlpkernel.plan.nodes import Node


def merged(below: Node, above: Node) -> Node:
    """`above` laid over `below`; neither is changed.

    Tables are merged key by key; anything else replaces what is below it. So does a table that has another `use`: the
    settings of one component mean nothing to another.
    """
    if not below.is_table or not above.is_table or other_component(below, above):
        return above
    value: dict[str, Node] = dict(below.value)
    for key, node in above.value.items():
        value[key] = merged(value[key], node) if key in value else node
    return attrs.evolve(above, value=value)


def other_component(below: Node, above: Node) -> bool:
    """Whether both tables say which component they are for, and say two things."""
    one, other = below.value.get("use"), above.value.get("use")
    return one is not None and other is not None and one.plain() != other.plain()
