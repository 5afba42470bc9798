"""What doctor asks of entry points inside the process that may import them."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import attrs

from nlpkernel.errors import Problem
from nlpkernel.plugins.catalog import Catalog, owner
from nlpkernel.plugins.hooks import problems_of
from nlpkernel.plugins.inspect import points_of
from nlpkernel.plugins.scan import SERVICES, Offer


def examine(offers: Iterable[Offer]) -> tuple[list[dict[str, Any]], set[str]]:
    """Load each offer. Gives what is wrong, as plain values, and the extension points that the components
    open."""
    problems: list[Problem] = []
    points: set[str] = set()
    for offer in offers:
        if offer.point in SERVICES:
            problems += _service(offer)
            continue
        found = Catalog([offer]).resolve(offer.point, offer.name, base=None, place=None)
        if isinstance(found, Problem):
            problems.append(found)
            continue
        problems += problems_of(found, None)
        try:
            points |= points_of(found.cls)
        except TypeError as error:
            problems.append(Problem(code="NK053", message=str(error), owner=found.owner))
    return [attrs.asdict(problem) for problem in problems], points


def _service(offer: Offer) -> list[Problem]:
    """What is wrong with an entry point that holds codes or a command."""
    who = owner(offer.name, offer.distribution, offer.release)
    module, _, attribute = offer.target.partition(":")
    try:
        value: Any = importlib.import_module(module)
        for part in attribute.split(".") if attribute else ():
            value = getattr(value, part)
    # Whatever a plugin does while it is imported is a finding.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        message = f"{offer.target!r} cannot be loaded: {type(error).__name__}: {error}"
        return [Problem(code="NK040", message=message, owner=who)]
    if offer.point == "codes" and not isinstance(value, dict):
        message = f"{offer.target!r} is no table of codes but a {type(value).__name__}"
        return [Problem(code="NK040", message=message, owner=who)]
    if offer.point == "command" and attribute:
        message = f"{offer.target!r} names a part of a module, and a command is a whole one"
        return [Problem(code="NK040", message=message, owner=who)]
    if offer.point == "command":
        missing = [name for name in ("HELP", "arguments", "execute") if not hasattr(value, name)]
        if missing:
            message = f"{offer.target!r} is no command: it has no {' and no '.join(missing)}"
            return [Problem(code="NK040", message=message, owner=who)]
    return []
