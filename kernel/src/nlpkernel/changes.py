"""What is not as it was when a version was made or a lock was written, and whether a run may go on in spite of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from nlpkernel.errors import Problem, UsageError
from nlpkernel.hookspecs import POINTS
from nlpkernel.plan.compare import differences
from nlpkernel.plan.train import FREE

#: What was found in the environment, in the words of a message. A change of the others is of the plan's making.
_ENVIRONMENT = ("kernel", "torch", "python", "platform", "threads")
#: These change no number that a run computes, or only by rounding.
_HARMLESS = ("python", "platform", "world")
#: A setting of a policy, which says when a run ends; which policy it is has a say in its state.
_POLICY = re.compile(r"train\.policy\[\d+\]\.(?!use$).+")


@attrs.frozen(kw_only=True)
class Change:
    """One thing that is not as it was. `name` is what `--allow` takes. `free`: it changes no number of the run, or only
    by rounding."""

    name: str
    text: str
    free: bool = False

    def under(self, names: Iterable[str]) -> bool:
        """Whether one of `names` names it, or the section that it is in."""
        return any(below(self.name, name) for name in names)


def below(address: str, name: str) -> bool:
    """Whether `address` is `name` or inside it: `optimizer.schedule.warmup` is inside `optimizer`."""
    return address == name or address.startswith((f"{name}.", f"{name}["))


def changes(
    plan: str, lock: Mapping[str, Any], plan_now: str, lock_now: Mapping[str, Any]
) -> Sequence[Change]:
    """Everything that differs between then and now: filled plans as text, locks as `Lock.plain` gives them."""
    return [
        *_settings(plan, plan_now),
        *_components(lock["activated"]["components"], lock_now["activated"]["components"]),
        *_facts(lock["activated"], lock_now["activated"], _ENVIRONMENT),
        *_facts(lock["opened"], lock_now["opened"], lock_now["opened"]),
    ]


def refuse(found: Sequence[Change], allow: Sequence[str], code: str, then: str) -> None:
    """Raise UsageError naming every change that is neither free nor allowed, and every name in `allow` that names
    none."""
    problems = [
        Problem(
            code=code, message=f"{change.text} {then}", hint=f"--allow {change.name} goes on in spite of it"
        )
        for change in found
        if not change.free and not change.under(allow)
    ]
    problems += [
        Problem(
            code=code,
            message=f"nothing under {name!r} has changed",
            hint="leave out that --allow, or see `nlpkernel plan diff`",
        )
        for name in allow
        if not any(change.under([name]) for change in found)
    ]
    if problems:
        raise UsageError(problems)


def _settings(plan: str, plan_now: str) -> Iterable[Change]:
    for path, before, now in differences(plan, plan_now):
        was = "was not there" if before is None else f"was {before!r}"
        yield Change(
            name=path,
            text=f"{path} {was} and is {'left out' if now is None else repr(now)}",
            free=_is_free(path),
        )


def _is_free(path: str) -> bool:
    # The innermost slot or extension point counts: a compressor is no matter of the layout. The last name is a
    # setting's.
    points = [name for name in re.split(r"[.\[\]]+", path)[:-1] if name in POINTS]
    return (
        path == "name"
        or (bool(points) and POINTS[points[-1]].free)
        or any(below(path, f"train.{name}") for name in FREE)
        or _POLICY.fullmatch(path) is not None
    )


def _components(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> Iterable[Change]:
    """Of components that are in both plans: whose release or sources are others, a line for each distribution."""
    left = {each["address"]: each for each in before}
    said: dict[tuple[str, str], list[str]] = {}
    for each in now:
        was = left.get(each["address"])
        # Another component at this address is a change of the plan, and told as one.
        if was is None or was["use"] != each["use"]:
            continue
        name = each["distribution"]
        if was["distribution"] != name:
            what = f"{each['use']} was of {was['distribution']} and is of {name}"
        elif was["release"] != each["release"]:
            what = f"{name} was release {was['release']} and is {each['release']}"
        elif was["content"] != each["content"]:
            what = f"{name} {each['release']} has other sources"
        else:
            continue
        said.setdefault((name, what), []).append(each["address"])
    for (name, what), addresses in said.items():
        yield Change(
            name=name,
            text=f"{what} (used by {', '.join(addresses)})",
            free=all(_is_free(address) for address in addresses),
        )


def _facts(before: Mapping[str, Any], now: Mapping[str, Any], names: Iterable[str]) -> Iterable[Change]:
    for name in names:
        if before[name] == now[name]:
            continue
        text = f"{name} was {before[name]} and is {now[name]}"
        if name == "data":
            text = "the content of the data is another"
        elif name == "schema":
            text = "names, shapes or types of the model's parameters are others"
        yield Change(name=name, text=text, free=name in _HARMLESS)
