"""The whole state of a run as one tree of typed leaves, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from nlpkernel.changes import below
from nlpkernel.engine.environment import load_random_state, random_state
from nlpkernel.errors import CheckpointError, fail
from nlpkernel.progress import Progress
from nlpkernel.state import Leaf, PerWorker, Snapshot, Stateful

if TYPE_CHECKING:
    from nlpkernel.engine.session import Session


#: Entries of a parameter group that say which of torch's kernels is used: of this device, not of the state.
_IMPLEMENTATION = frozenset({"fused", "foreach", "capturable"})


def capture(session: Session) -> Snapshot:
    """Everything that matters, between two steps."""
    run, group, work = session.run, session.group, session.work
    tree: dict[str, Leaf] = {}
    for name, leaf in group.model_state(work.model).items():
        tree[f"model/{name}"] = leaf
    tree |= _optimizer(work.optimizer, work.named)
    tree["optimizer/planned"] = Leaf(session.planned)
    for name, leaf in group.state().items():
        tree[f"group/{name}"] = leaf
    for part, stateful in parts_of(session).items():
        for name, value in stateful.state().items():
            tree[f"{part}/{name}"] = Leaf(value)
    for name, value in random_state(group.device).items():
        tree[f"random/{name}"] = Leaf(value, PerWorker(run.rank))
    tree["run/progress"] = Leaf(list(session.progress))
    tree["run/memory"] = Leaf(session.memory.state())
    tree["run/counts"] = Leaf([[*key, number] for key, number in sorted(run.counts.items())])
    return Snapshot(
        step=session.progress.step,
        tree=tree,
        artifacts=session.data.artifacts(),
        facts={
            "progress": session.progress._asdict(),
            "metrics": dict(session.memory.metrics),
            "main": list(session.memory.main),
            "plan": session.plan.text(),
            "lock": session.lock.plain(),
        },
    )


def restore(session: Session, snapshot: Snapshot, allow: Sequence[str] = ()) -> None:
    """Put a run where the snapshot was taken. Raise CheckpointError naming every part that does not fit. Of what is
    under an address in `allow`, left-over state is dropped, and missing state stays as it is."""
    work = session.work
    tree = snapshot.tree
    values = {path: leaf.value for path, leaf in tree.items()}
    parts = parts_of(session)
    known = {"model", "optimizer", "group", "random", "run"}
    replaced = _replaced(session, snapshot)
    found = {_head(path, parts) for path in values}
    unknown = found - known - parts.keys() | found & replaced
    strangers = sorted(part for part in unknown if not _allowed(part, allow))
    if strangers:
        raise fail(
            CheckpointError,
            "NK503",
            f"the version holds state of {', '.join(strangers)}, which this plan does not have",
            hint=f"resume with the plan that made it, or drop that state with --allow {_address(strangers[0])}",
        )
    missing = sorted(
        part
        for part, stateful in parts.items()
        if part not in found and stateful.state() and not _allowed(part, allow)
    )
    if missing:
        raise fail(
            CheckpointError,
            "NK503",
            f"the version holds no state of {', '.join(missing)}",
            hint=f"resume with the plan that made it, or begin that state anew with --allow {_address(missing[0])}",
        )
    session.group.load_model_state(work.model, _below(values, "model"))
    _load_optimizer(work.optimizer, work.named, _below(values, "optimizer"), session.planned)
    session.group.load_state(_below(values, "group"))
    for part, stateful in parts.items():
        state = _below(values, part)
        if not state or part in replaced:
            continue
        try:
            stateful.load_state(state)
        except Exception as error:
            message = f"the state of {part} does not fit: {type(error).__name__}: {error}"
            raise fail(CheckpointError, "NK504", message) from error
    load_random_state(_below(values, "random"), session.group.device)
    session.progress = session.run.progress = Progress(*values["run/progress"])
    session.memory.load_state(values["run/memory"])
    session.run.counts.clear()
    session.run.counts.update({(who, what): number for who, what, number in values["run/counts"]})


def parts_of(session: Session) -> dict[str, Stateful]:
    """Everything with a state of its own, by its place in the tree."""
    work = session.work
    parts: dict[str, Stateful] = {"precision": work.precision, "schedule": work.schedule, "data": work.data}
    for address, stateful in session.stateful.items():
        parts[f"component/{address}"] = stateful
    return parts


def _replaced(session: Session, snapshot: Snapshot) -> set[str]:
    """Components at whose address the version knows another one: its state is none of theirs."""
    now = {each.address: (each.use, each.distribution) for each in session.lock.activated.components}
    return {
        f"component/{each['address']}"
        for each in snapshot.facts["lock"]["activated"]["components"]
        if now.get(each["address"], ...) not in (..., (each["use"], each["distribution"]))
    }


def _address(part: str) -> str:
    """Where in the plan a part of the state stands."""
    return "optimizer.schedule" if part == "schedule" else part.removeprefix("component/")


def _allowed(part: str, allow: Sequence[str]) -> bool:
    return any(below(_address(part), name) for name in allow)


def _head(path: str, parts: Mapping[str, Stateful]) -> str:
    head, _, rest = path.partition("/")
    return f"component/{rest.partition('/')[0]}" if head == "component" else head


def _below(values: Mapping[str, Any], part: str) -> dict[str, Any]:
    return {path[len(part) + 1 :]: value for path, value in values.items() if path.startswith(f"{part}/")}


def _optimizer(optimizer: torch.optim.Optimizer, named: Any) -> dict[str, Leaf]:
    tree: dict[str, Leaf] = {}
    for name, parameter in named:
        for key, value in optimizer.state.get(parameter, {}).items():
            tree[f"optimizer/{name}/{key}"] = Leaf(value)
    tree["optimizer/groups"] = Leaf(plain_groups(optimizer))
    return tree


def plain_groups(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Plain values of each parameter group: rates, decays, counts."""
    return [
        {key: value for key, value in group.items() if key != "params" and _is_plain(value)}
        for group in optimizer.param_groups
    ]


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, (type(None), bool, int, float, str))


def _load_optimizer(
    optimizer: torch.optim.Optimizer,
    named: Any,
    values: Mapping[str, Any],
    planned: Sequence[Mapping[str, Any]],
) -> None:
    parameters = dict(named)
    groups = values["groups"]
    if len(groups) != len(optimizer.param_groups):
        raise fail(
            CheckpointError,
            "NK502",
            f"the version has {len(groups)} parameter groups and the optimizer {len(optimizer.param_groups)}",
        )
    own_device = {
        id(parameter): bool(group.get("fused") or group.get("capturable"))
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    for group, saved, before, now in zip(
        optimizer.param_groups, groups, values["planned"], planned, strict=True
    ):
        # What the plan says otherwise than before is taken from the plan, the rest from the version.
        group.update(
            (key, value)
            for key, value in saved.items()
            if key not in _IMPLEMENTATION and before.get(key) == now.get(key)
        )
    optimizer.state.clear()
    for path, value in values.items():
        if path in ("groups", "planned"):
            continue
        name, _, key = path.rpartition("/")
        if name not in parameters:
            raise fail(
                CheckpointError,
                "NK502",
                f"the version has optimizer state of {name!r}, which the model has not",
            )
        parameter = parameters[name]
        if isinstance(value, torch.Tensor):
            # torch keeps the step count on the CPU unless a kernel on the device counts it.
            stays = key == "step" and not own_device[id(parameter)]
            value = value.clone() if stays else value.to(parameter.device, copy=True)
        optimizer.state[parameter][key] = value
