"""Behaviour: a tiny plan of the component runs, again, further, and leaves nothing behind."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from nlpkernel.engine.capture import parts_of
from nlpkernel.engine.equality import states_differ
from nlpkernel.errors import TrainingError
from nlpkernel.events import Logged, ObserverDetached
from nlpkernel_sdk.conform.checks import NotApplicable, check, refuse
from nlpkernel_sdk.conform.running import (
    again,
    attempt,
    base,
    fresh,
    plan_of,
    run,
    steady,
    unequal,
    versions,
    words,
)
from nlpkernel_sdk.conform.subject import Part

#: Points whose components say nothing of numbers beyond rounding where a window is cut otherwise.
_CUT = (
    "data",
    "model",
    "optimizer",
    "precision",
    "task",
    "transform",
    "schedule",
    "communicator",
    "tokenizer",
)


@check("behaviour.runs", "a component that cannot run a few steps of a tiny plan is of no use")
def _runs(part: Part) -> None:
    told = attempt(part)
    if told.error is not None:
        refuse([words(told.error)])
    report = told.report
    assert report is not None, "a run that did not fail has a report"
    if report.status != "finished" and part.point != "policy":
        refuse([f"the run is {report.status}: {report.reason}"])


@check("behaviour.observes", "an observer that fails three times is detached, and then does nothing")
def _observes(part: Part) -> None:
    told = base(part)
    report = told.report
    assert report is not None, "`base` has one"
    detached = [event.error for event in told.events if isinstance(event, ObserverDetached)]
    refuse(dict.fromkeys([*report.detached, *detached]))


@check("behaviour.same-seed", "the same plan gives the same run, bit for bit")
def _same_seed(part: Part) -> None:
    first, second = base(part), again(part)
    if second.error is not None:
        refuse([f"the second run in one process fails: {words(second.error)}"])
    if first.losses != second.losses:
        refuse([f"losses of two runs differ: {_first(first.losses, second.losses)}"])
    refuse(unequal(versions(first), versions(second)))


@check("behaviour.resume", "a run that was killed goes on as if nothing had happened")
def _resume(part: Part) -> None:
    steady(part)
    whole = base(part)
    folder = fresh()
    before = run(part, part.values(), folder=folder, stop_at=3)
    after = run(part, part.values(), folder=folder, resume=True)
    for told in (before, after):
        if told.error is not None:
            refuse([words(told.error)])
    broken = before.losses + after.losses
    if broken != whole.losses:
        refuse([f"losses differ: {_first(whole.losses, broken)}"])
    refuse(unequal(versions(whole), versions(after)))


@check("behaviour.state-round-trip", "state that does not come back is found when a run is resumed wrongly")
def _state_round_trip(part: Part) -> None:
    base(part)
    wrong: dict[str, None] = {}

    def look(session: Any) -> None:
        for name, stateful in parts_of(session).items():
            saved = copy.deepcopy(dict(stateful.state()))
            wrong.update(dict.fromkeys(f"{name}: {each}" for each in _not_plain(saved)))
            try:
                stateful.load_state(copy.deepcopy(saved))
            except Exception as error:  # noqa: BLE001 - whatever it raises, its author has to see
                wrong[f"{name}: load_state raised {words(error)}"] = None
                continue
            what = states_differ(saved, stateful.state())
            if what:
                wrong[f"{name}: state gives another value after load_state: {what}"] = None

    run(part, part.values(), look=look)
    refuse(wrong)


def _not_plain(value: Any, path: str = "state") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            if not isinstance(key, (str, int)):
                yield f"{path} has the key {key!r}, which no version can hold"
            yield from _not_plain(each, f"{path}[{key!r}]")
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from _not_plain(each, f"{path}[{at}]")
    elif not (value is None or isinstance(value, (bool, int, float, str, bytes, torch.Tensor))):
        yield f"{path} is a {type(value).__name__}: state is plain data and tensors"


@check("behaviour.accumulation", "a window cut into other micro-batches is the same window", points=_CUT)
def _accumulation(part: Part) -> None:
    steady(part)
    placed = plan_of(part, part.values()).compose().placed
    names = {
        name
        for each in placed
        for name in vars(each.component)
        if "dropout" in name and getattr(each.component, name)
    }
    if names:
        raise NotApplicable(f"{', '.join(sorted(names))} draws otherwise in other micro-batches")
    train = {"batch": 8, "clip": None}
    whole = run(part, part.values(train={**train, "micro": 8}))
    cut = run(part, part.values(train={**train, "micro": 2}))
    for told in (whole, cut):
        if told.error is not None:
            raise NotApplicable(f"it does not run with these micro-batches: {words(told.error)}")
    # Of reduced precision two orders of a sum differ by a part in some hundreds.
    most = 2e-2 if part.point == "precision" else 2e-6
    pairs = [
        (a, b)
        for one, other in zip(whole.losses, cut.losses, strict=True)
        for a, b in zip(one, other, strict=True)
        if a is not None and b is not None
    ]
    worst = max((abs(a - b) / max(1.0, abs(a)) for a, b in pairs), default=0.0)
    if worst > most:
        refuse([f"losses differ by {worst:.2g} where a window is cut into other micro-batches"])


@check("behaviour.neutral", "who watches or stores changes no number", points=["monitor", "checkpoint"])
def _neutral(part: Part) -> None:
    steady(part)
    values = part.values()
    values.pop(part.point)
    without = run(part, values)
    if without.error is not None:
        raise NotApplicable(f"the plan without it fails: {words(without.error)}")
    if without.losses != base(part).losses:
        refuse([f"losses differ from those without it: {_first(without.losses, base(part).losses)}"])


@check("behaviour.failing-run", "a run that fails says so with its own error, and everything closes")
def _failing_run(part: Part) -> None:
    base(part)
    values = part.values()
    if values["data"].get("use") != "tiny":
        raise NotApplicable("its plan is of other data than that which can be poisoned")
    values["data"] = {**values["data"], "poisoned": list(range(64))}
    told = run(part, values, watched=True)
    if not isinstance(told.error, TrainingError):
        what = "ends well" if told.error is None else f"fails with {words(told.error)}"
        refuse([f"a run whose losses are NaN {what}, and not with the kernel's TrainingError"])
    left = {
        name: what
        for name, what in told.changed.items()
        if name in ("files", "threads", "children") and name not in again(part).changed
    }
    refuse(f"{name} after a failed run: {what}" for name, what in left.items())


@check("behaviour.unicode", "names and folders of people are in every script")
def _unicode(part: Part) -> None:
    base(part)
    folder = fresh() / "Läufe – 走り ☂"
    folder.mkdir()
    values = {**part.values(), "name": "größe-模型"}
    told = run(part, values, folder=folder)
    if told.error is not None:
        refuse([f"in {str(folder.name)!r}: {words(told.error)}"])


@check("behaviour.logs-progress", "steps, samples and tokens are counted", points=["data", "sampler"])
def _logs_progress(part: Part) -> None:
    logs = [event for event in base(part).events if isinstance(event, Logged)]
    refuse([f"a step has {event.samples} samples" for event in logs if event.samples <= 0])


def _first(left: list[Any], right: list[Any]) -> str:
    for at, (a, b) in enumerate(zip(left, right, strict=False), 1):
        if a != b:
            return f"log {at}: {a} and {b}"
    return f"{len(left)} and {len(right)} logs"
