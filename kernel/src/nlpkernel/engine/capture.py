"""The whole state of a run as one tree of typed leaves, and back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch

from nlpkernel.changes import below
from nlpkernel.engine.environment import (
    generators_kept,
    load_random_state,
    random_state,
    seed_all,
    stream_seed,
)
from nlpkernel.errors import CheckpointError, fail
from nlpkernel.progress import Progress
from nlpkernel.state import (
    EXPORT,
    MODEL,
    Kind,
    Leaf,
    PerWorker,
    Replicated,
    Sharded,
    Snapshot,
    Spread,
    Stateful,
    local,
)

if TYPE_CHECKING:
    from nlpkernel.engine.session import Session
    from nlpkernel.hookspecs.communicator import Held


#: Entries of a parameter group that say which of torch's kernels is used: of this device, not of the state.
_IMPLEMENTATION = frozenset({"fused", "foreach", "capturable"})


def capture(session: Session) -> Snapshot:
    """Everything that matters, between two steps."""
    run, group, work = session.run, session.group, session.work
    group.gather(work)
    tree: dict[str, Leaf] = {}
    tree |= _model(session.held)
    tree |= _exported(session)
    tree |= _optimizer(work.optimizer, session.trained)
    tree["optimizer/planned"] = Leaf(session.planned)
    for name, leaf in group.state().items():
        tree[f"group/{name}"] = leaf
    for part, stateful in parts_of(session).items():
        for name, value in stateful.state().items():
            tree[f"{part}/{name}"] = Leaf(value)
    for name, value in {**random_state(group.device), "layout": _layout(session)}.items():
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
    tree = snapshot.tree
    values = {path: leaf.value for path, leaf in tree.items()}
    parts = parts_of(session)
    # Other weights than those of the training are made of the state again.
    known = {"model", "export", "optimizer", "group", "random", "run"}
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
    load_model(session.held, session.names.kept, _below(values, "model"))
    _load_optimizer(session, _below(values, "optimizer"))
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
    session.progress = session.run.progress = Progress(*values["run/progress"])
    _load_random(session, _below(values, "random"))
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


def _model(held: Iterable[Held]) -> dict[str, Leaf]:
    return {
        f"{MODEL}{each.name}": Leaf(each.tensor.detach(), each.kind)
        for each in held
        if each.kept and each.saves
    }


def _exported(session: Session) -> dict[str, Leaf]:
    """Copies of the weights that some component holds for use outside training; nothing where none does."""
    if not session.hooks.bound("weights_for"):
        return {}
    with generators_kept(), torch.no_grad(), ExitStack() as stack:
        for context in session.hooks.collect("weights_for", run=session.run, use="export"):
            stack.enter_context(context)
        return {
            # On the host: a device that the training fills has no room for another copy.
            path.replace(MODEL, EXPORT, 1): Leaf(leaf.value.to("cpu", copy=True), leaf.kind)
            for path, leaf in _model(session.held).items()
        }


def load_model(held: Iterable[Held], names: Collection[str], values: Mapping[str, Any]) -> None:
    """Copy the model's values in place, each worker what it holds of them; `names` are those of the whole model. Raise
    CheckpointError naming what is missing, extra or of another shape."""
    own = {each.name: each for each in held if each.kept}
    problems = [f"missing {name}" for name in set(names) - values.keys()]
    problems += [f"unexpected {name}" for name in values.keys() - set(names)]
    for name, each in own.items():
        shape = each.kind.shape if isinstance(each.kind, Sharded) else tuple(each.tensor.shape)
        if name in values and tuple(values[name].shape) != shape:
            saved = tuple(values[name].shape)
            problems.append(f"{name} has shape {saved} in the version and {shape} in the model")
    if problems:
        shown = "; ".join(sorted(problems)[:5]) + ("; ..." if len(problems) > 5 else "")
        raise fail(CheckpointError, "NK502", f"the version does not fit the model: {shown}")
    with torch.no_grad():
        for name, each in own.items():
            each.tensor.copy_(local(values[name], each.kind))


def _optimizer(optimizer: torch.optim.Optimizer, trained: Iterable[Held]) -> dict[str, Leaf]:
    tree: dict[str, Leaf] = {}
    for each in trained:
        if not each.saves:
            continue
        for key, value in optimizer.state.get(each.tensor, {}).items():
            kind = _kind_beside(each, value)
            if kind is not None:
                tree[f"optimizer/{each.name}/{key}"] = Leaf(value, kind)
    tree["optimizer/groups"] = Leaf(plain_groups(optimizer))
    return tree


def _kind_beside(each: Held, value: Any) -> Kind | None:
    """What a value of the optimizer's state is, from the parameter that it belongs to; None where another worker saves
    it."""
    if not isinstance(each.kind, Sharded):
        return each.kind
    if isinstance(value, torch.Tensor) and value.shape == each.tensor.shape:
        return each.kind
    if not each.first:
        return None
    # It belongs to the parameter as a whole: a number of steps.
    return Sharded.whole(value.shape if isinstance(value, torch.Tensor) else ())


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


def _load_optimizer(session: Session, values: Mapping[str, Any]) -> None:
    optimizer = session.work.optimizer
    own_device = {
        id(parameter): bool(group.get("fused") or group.get("capturable"))
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    _load_groups(optimizer, values, session.planned)
    optimizer.state.clear()
    by_name: dict[str, list[Held]] = {name: [] for name in session.names.trained}
    for each in session.trained:
        by_name[each.name].append(each)
    for path, value in values.items():
        if path in ("groups", "planned"):
            continue
        name, _, key = path.rpartition("/")
        if name not in by_name:
            raise fail(
                CheckpointError,
                "NK502",
                f"the version has optimizer state of {name!r}, which the model has not",
            )
        for each in by_name[name]:
            parameter, mine = each.tensor, value
            if isinstance(value, (torch.Tensor, Spread)):
                shape = each.kind.shape if isinstance(each.kind, Sharded) else parameter.shape
                mine = local(value, each.kind if tuple(value.shape) == tuple(shape) else Replicated())
                # torch keeps the step count on the CPU unless a kernel on the device counts it.
                stays = key == "step" and not own_device[id(parameter)]
                mine = mine.clone() if stays else mine.to(parameter.device, copy=True)
            optimizer.state[parameter][key] = mine


def _load_groups(
    optimizer: torch.optim.Optimizer, values: Mapping[str, Any], planned: Sequence[Mapping[str, Any]]
) -> None:
    groups = values["groups"]
    if len(groups) != len(optimizer.param_groups):
        raise fail(
            CheckpointError,
            "NK502",
            f"the version has {len(groups)} parameter groups and the optimizer {len(optimizer.param_groups)}",
        )
    for group, saved, before, now in zip(
        optimizer.param_groups, groups, values["planned"], planned, strict=True
    ):
        # What the plan says otherwise than before is taken from the plan, the rest from the version.
        group.update(
            (key, value)
            for key, value in saved.items()
            if key not in _IMPLEMENTATION and before.get(key) == now.get(key)
        )


def _layout(session: Session) -> list[int]:
    """What the draws of this worker depend on."""
    return [session.group.stream, session.group.world]


def _load_random(session: Session, values: dict[str, Any]) -> None:
    """Go on where this worker's generators were. In another layout there is nothing to go on with: then they begin
    anew, as a function of the seed, the worker's stream and the step."""
    if values.get("layout") == _layout(session):
        load_random_state(values, session.group.device)
    else:
        seed_all(stream_seed(session.run.seed, session.group.stream, session.progress.step))
