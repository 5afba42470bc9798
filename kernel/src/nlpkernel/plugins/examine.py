"""What doctor asks of entry points inside the process that may import them."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import attrs

from nlpkernel.errors import NlpkernelError, PluginError, Problem, fail
from nlpkernel.plugins.catalog import Catalog, owner, where
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
            try:
                service(offer)
            except PluginError as error:
                problems += error.problems
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


def service(offer: Offer) -> Any:
    """What an entry point for codes, a command or a starter plan holds. Raise PluginError where it holds no such
    thing, or fails in any other way."""
    module, _, attribute = offer.target.partition(":")
    try:
        value: Any = importlib.import_module(module)
        for part in attribute.split(".") if attribute else ():
            value = getattr(value, part)
    except (Exception, SystemExit) as error:
        wrong = f"cannot be loaded: {type(error).__name__}: {error}{where(error)}"
        raise _unserviceable(offer, wrong) from error
    wrong = _unfit(offer.point, value)
    if wrong:
        raise _unserviceable(offer, wrong)
    return value


def _unserviceable(offer: Offer, wrong: str) -> NlpkernelError:
    who = owner(offer.name, offer.distribution, offer.release)
    return fail(PluginError, "NK040", f"the {offer.point} entry point {offer.target!r} {wrong}", owner=who)


def _unfit(point: str, value: Any) -> str:
    kind = type(value).__name__
    if point == "codes" and not isinstance(value, dict):
        return f"is no table of codes but of type {kind}"
    if point == "starter" and not isinstance(value, str):
        return f"is no text of a plan but of type {kind}"
    if point == "command":
        if not isinstance(value, ModuleType):
            return f"is of type {kind}, and a command is a whole module"
        missing = [name for name in ("HELP", "arguments", "execute") if not hasattr(value, name)]
        if missing:
            return f"is no command: it has no {' and no '.join(missing)}"
    return ""
