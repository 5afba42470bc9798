"""The hooks of a run: pluggy registers and checks signatures, and we walk the implementations ourselves.

Walking them here is what lets an error say whose call failed, and a trace say how long each took. The policy for a
failure follows from the kind of the hook, never from the place that asks.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import attrs
import pluggy

from nlpkernel.errors import ComponentFailure, NlpkernelError, Place, Problem
from nlpkernel.events import ObserverDetached
from nlpkernel.hookspecs import KIND, MODULES, PATIENCE, POINTS, everywhere
from nlpkernel.plugins.catalog import Found
from nlpkernel.plugins.suggest import hint

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.everywhere import Decision

_log = logging.getLogger("nlpkernel.hooks")

#: Told of a call for as long as it lasts: whom (component and distribution), and what (a hook, or an event's class).
Watch = Callable[[str, str], AbstractContextManager[None]]

#: Every hook spec by name.
SPECS: dict[str, Callable[..., Any]] = {
    name: value
    for module in MODULES
    for name, value in vars(module).items()
    if callable(value) and hasattr(value, KIND)
}
_EVERYWHERE = frozenset(name for name in vars(everywhere) if name in SPECS)


def arguments_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Argument names of a hook spec or implementation, without `self`."""
    return tuple(name for name in inspect.signature(function).parameters if name != "self")


def problems_of(found: Found, place: Place | None) -> list[Problem]:
    """Everything that is wrong with the hooks of a component class, before any instance is made."""

    def problem(code: str, message: str, hint: str | None = None) -> Problem:
        return Problem(code=code, message=message, place=place, owner=found.owner, hint=hint)

    problems: list[Problem] = []
    point = POINTS.get(found.point)
    allowed = _EVERYWHERE | ({*point.must, *point.may} if point else set())
    for name in dir(found.cls):
        method = getattr(found.cls, name, None)
        options = getattr(method, "nlpkernel_impl", None)
        if not callable(method) or (options is None and name not in allowed):
            continue
        if options is None:
            tip = "put @hookimpl above the method, or give it another name"
            problems.append(problem("NK057", f"{name!r} is the name of a hook and not marked as one", tip))
            continue
        if name not in SPECS:
            problems.append(problem("NK054", f"there is no hook {name!r}", hint(name, allowed)))
        elif name not in allowed:
            problems.append(
                problem("NK054", f"the hook {name!r} is not asked of a component for {found.point!r}")
            )
        else:
            known = arguments_of(SPECS[name])
            problems += [
                problem("NK055", f"the hook {name!r} has no argument {argument!r}", hint(argument, known))
                for argument in arguments_of(method)
                if argument not in known
            ]
        problems += [
            problem("NK058", f"the hook {name!r} uses pluggy's {option!r}, which this kernel does not honour")
            for option in ("wrapper", "hookwrapper", "tryfirst", "trylast", "optionalhook", "specname")
            if options.get(option)
        ]
    problems += [
        problem("NK057", f"a component for {found.point!r} must implement {name!r}")
        for name in (point.must if point else ())
        if not callable(getattr(found.cls, name, None))
    ]
    return problems


def conflicts(components: Iterable[tuple[object, str]]) -> list[Problem]:
    """A problem for each hook that one component alone may own and several implement; each comes with its owner."""
    owners: dict[str, list[str]] = {}
    for component, owner in components:
        for name in _EVERYWHERE:
            if getattr(SPECS[name], KIND) == "pick" and hasattr(component, name):
                owners.setdefault(name, []).append(owner)
    return [
        Problem(
            code="NK059",
            message=f"the hook {name!r} can have one owner, and has {' and '.join(several)}",
            hint="leave one of them out of the plan",
        )
        for name, several in owners.items()
        if len(several) > 1
    ]


@attrs.define(slots=True)
class Bound:
    """One implementation of a hook: called with all arguments of the spec, it passes on those it takes."""

    function: Callable[..., Any]
    names: tuple[str, ...]
    owner: str
    failures: int = 0

    def __call__(self, arguments: dict[str, Any]) -> Any:
        """Call it with those of `arguments` that it takes."""
        return self.function(**{name: arguments[name] for name in self.names})


class Hooks:
    """The components of one run, and every question asked of them.

    `watch` is told of every call.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.watch: Watch | None = None
        self.detached: list[tuple[str, str, str]] = []
        self._owners: dict[int, str] = {}
        self._bound: dict[str, list[Bound]] = {}
        self._manager = pluggy.PluginManager("nlpkernel")
        for module in MODULES:
            self._manager.add_hookspecs(module)

    def register(self, component: object, address: str, owner: str) -> None:
        """Add a component under its address in the plan. Its class was checked with `problems_of` before."""
        self._manager.register(component, name=address)
        self._owners[id(component)] = owner
        self._bound.clear()

    def owner(self, component: object) -> str:
        """Component and distribution, as messages name them."""
        return self._owners.get(id(component), type(component).__name__)

    def owned(self) -> Iterator[tuple[object, str]]:
        """Every component with its owner, in plan order."""
        for _, component in self._manager.list_name_plugin():
            if component is not None:
                yield component, self.owner(component)

    def owner_at(self, address: str) -> str | None:
        """Component and distribution of what is registered under an address in the plan."""
        component = self._manager.get_plugin(address)
        return None if component is None else self.owner(component)

    def bound(self, hook: str) -> list[Bound]:
        """The implementations of `hook` in plan order. The list is live: a detached observer leaves it."""
        known = self._bound.get(hook)
        if known is None:
            known = self._bound[hook] = [
                Bound(impl.function, arguments_of(impl.function), self.owner(impl.plugin))
                for impl in getattr(self._manager.hook, hook).get_hookimpls()
            ]
        return known

    def ask(self, component: object, hook: str, **arguments: Any) -> Any:
        """Ask one component; a failure names it. Raise TypeError where `arguments` lack one that it takes."""
        function = getattr(component, hook)
        bound = Bound(function, arguments_of(function), self.owner(component))
        lacking = [name for name in bound.names if name not in arguments]
        if lacking:
            raise TypeError(f"{hook} of {bound.owner} was asked without {' and '.join(lacking)}")
        return self._call(bound, hook, arguments)

    def pick(self, hook: str) -> Bound | None:
        """The one implementation of a hook that at most one component may own; a plan with two is refused."""
        bound = self.bound(hook)
        return bound[0] if bound else None

    def collect(self, hook: str, **arguments: Any) -> list[Any]:
        """All answers in plan order."""
        return [self._call(bound, hook, arguments) for bound in self.bound(hook)]

    def transform(self, hook: str, value: Any, **arguments: Any) -> Any:
        """Thread `value` through all implementations, in plan order."""
        first = arguments_of(SPECS[hook])[0]
        for bound in self.bound(hook):
            value = self._call(bound, hook, {**arguments, first: value})
            if value is None:
                raise self._failure(bound, hook, TypeError(f"it must return {first}, and returned nothing"))
        return value

    def observe(self, hook: str, **arguments: Any) -> None:
        """Tell all implementations. One that fails is named and counted; after three failures it is detached."""
        for bound in tuple(self.bound(hook)):
            try:
                self._call(bound, hook, arguments)
            except NlpkernelError as error:
                if self.strict:
                    raise
                self._failed(bound, hook, error, arguments["run"])

    def _failed(self, bound: Bound, hook: str, error: NlpkernelError, run: Run) -> None:
        bound.failures += 1
        _log.warning("step %d: %s", run.progress.step, error, exc_info=error.__cause__)
        if bound.failures < PATIENCE:
            return
        self.bound(hook).remove(bound)
        message = "; ".join(problem.message for problem in error.problems)
        self.detached.append((bound.owner, hook, message))
        _log.warning("%s is not asked %s any more", bound.owner, hook)
        run.bus.publish(ObserverDetached(time=time.time(), source=bound.owner, hook=hook, error=message))

    def decisions(
        self, run: Any, progress: Any, metrics: Mapping[str, float | None]
    ) -> list[tuple[str, Decision]]:
        """Answers to `decide` that want something, each with its owner."""
        arguments = {"run": run, "progress": progress, "metrics": metrics}
        answers: list[tuple[str, Decision]] = []
        for bound in self._bound.get("decide") or self.bound("decide"):
            if not metrics and bound.names == ("metrics",):
                continue
            try:
                answer = self._told(bound, "decide", arguments)
                if answer is not None and answer.action:
                    answers.append((bound.owner, answer))
            except Exception as error:
                raise self._failure(bound, "decide", error) from error
        return answers

    def close(self, **arguments: Any) -> list[NlpkernelError]:
        """Ask every component to close, in reverse plan order; a failure stops nobody else from closing."""
        errors: list[NlpkernelError] = []
        for bound in reversed(self.bound("close")):
            try:
                self._call(bound, "close", arguments)
            except NlpkernelError as error:
                errors.append(error)
        return errors

    def _call(self, bound: Bound, hook: str, arguments: dict[str, Any]) -> Any:
        try:
            return self._told(bound, hook, arguments)
        except Exception as error:
            raise self._failure(bound, hook, error) from error

    def _told(self, bound: Bound, hook: str, arguments: dict[str, Any]) -> Any:
        if self.watch is None:
            return bound(arguments)
        with self.watch(bound.owner, hook):
            return bound(arguments)

    def _failure(self, bound: Bound, hook: str, error: Exception) -> NlpkernelError:
        """The error as a user gets it: ours with its owner filled in, another's with hook, cause and owner."""
        owner = self._culprit(error) or bound.owner
        if isinstance(error, NlpkernelError):
            return type(error)(
                [
                    problem if problem.owner else attrs.evolve(problem, owner=owner)
                    for problem in error.problems
                ]
            )
        message = f"{hook} failed: {type(error).__name__}: {error}"
        return ComponentFailure(Problem(code="NK060", message=message, owner=owner))

    def _culprit(self, error: BaseException) -> str | None:
        """The innermost component on the way to the error: a nested one, when its parent was asked."""
        owner = None
        trace = error.__traceback__
        while trace is not None:
            owner = self._owners.get(id(trace.tb_frame.f_locals.get("self")), owner)
            trace = trace.tb_next
        return owner
