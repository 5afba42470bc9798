"""Opening a run: from a plan to a session that stands before its first step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from nlpkernel import lock as locks
from nlpkernel.bus import Bus
from nlpkernel.context import Run
from nlpkernel.engine.environment import seed_all, stream_seed
from nlpkernel.engine.making import optimizer_maker, schedule_maker
from nlpkernel.engine.materialise import fill
from nlpkernel.engine.naming import Names, group_parameters
from nlpkernel.engine.session import Session
from nlpkernel.errors import ComponentFailure, NlpkernelError, fail
from nlpkernel.events import Event, StepCompleted
from nlpkernel.hookspecs.communicator import Work
from nlpkernel.hookspecs.model import Model
from nlpkernel.plan import Composition, Plan
from nlpkernel.plugins.hooks import Hooks
from nlpkernel.runs import cache_folder
from nlpkernel.state import Stateful

if TYPE_CHECKING:
    from nlpkernel.hookspecs.checkpoint import Store
    from nlpkernel.hookspecs.communicator import Group
    from nlpkernel.hookspecs.data import Data
    from nlpkernel.plugins.hooks import Watch
    from nlpkernel.supervise.post import Post


_log = logging.getLogger("nlpkernel.engine")


def activate(plan: Plan, folder: Path) -> tuple[Run, Hooks, Composition]:
    """Fresh components, registered in plan order; nothing is opened yet."""
    composition = plan.compose()
    hooks = Hooks(strict=composition.train.strict)
    for placed in composition.placed:
        hooks.register(placed.component, placed.address, placed.found.owner)
    run = Run(
        name=plan.name,
        folder=folder,
        cache=cache_folder(),
        train=composition.train,
        bus=Bus(strict=composition.train.strict),
        hooks=hooks,
    )
    return run, hooks, composition


def prepared(
    plan: Plan, folder: Path, post: Post | None, *, quiet: bool = False, rehearsal: bool = False
) -> tuple[Run, Hooks, Composition]:
    """As `activate`, with what the process knows of itself."""
    run, hooks, composition = activate(plan, folder)
    run.quiet, run.rehearsal = quiet, rehearsal
    run.optimizer_need = getattr(composition.slot("optimizer").component, "need", run.optimizer_need)
    if post is not None:
        run.rank, run.world, run.process = post.rank, post.world, post.name
        run.launch, run.pulse = post.launch, post.pulse
    return run, hooks, composition


@contextmanager
def reading(run: Run, hooks: Hooks, composition: Composition) -> Iterator[Store]:
    """The versions of a run that is not run here, to be read beside whoever writes them."""
    component = composition.slot("checkpoint").component
    store: Store = hooks.ask(component, "open_store", run=run, folder=run.folder, write=False)
    try:
        yield store
    finally:
        store.close()


def open_session(
    plan: Plan,
    folder: Path,
    stack: ExitStack,
    listen: Callable[[Event], None] | None = None,
    *,
    quiet: bool = False,
    post: Post | None = None,
    rehearsal: bool = False,
    watch: Watch | None = None,
) -> Session:
    """Open everything in the order in which it is needed; `stack` closes it in reverse, whatever happens.

    `listen` is told every event, as if it were the last monitor of the plan. `post` says which of the run's processes
    this is. `rehearsal`: nothing is to be left outside `folder`. `watch` is told of every call of a component.
    """
    run, hooks, composition = prepared(plan, folder, post, quiet=quiet, rehearsal=rehearsal)
    hooks.watch = run.bus.watch = watch
    close_components_at_exit(stack, hooks, run)
    for placed in composition.placed:
        run.bus.owner = placed.found.owner
        if hasattr(placed.component, "subscribe"):
            hooks.ask(placed.component, "subscribe", run=run, bus=run.bus)
    if listen is not None:
        run.bus.owner = "the caller"
        run.bus.on(Event, listen)
    if post is not None and post.hearing:
        run.bus.owner = "the supervisor"
        run.bus.on(Event, post.hears, but=(StepCompleted,))
    run.bus.freeze()
    activated = locks.activate(plan.text(), composition.placed)

    def ask(slot: str, hook: str, **arguments: Any) -> Any:
        return hooks.ask(composition.slot(slot).component, hook, run=run, **arguments)

    def close_after(slot: str, part: Group | Data | Store) -> None:
        _at_exit(stack, composition.slot(slot).found.owner, part.close)

    group: Group = ask("communicator", "open_group")
    close_after("communicator", group)
    run.group, run.rank, run.world, run.device = group, group.rank, group.world, group.device
    seed_all(stream_seed(run.seed, group.stream))
    precision = ask("precision", "create_precision")
    data: Data = ask("data", "open_data")
    close_after("data", data)
    run.data = data
    with torch.device("meta"):
        model: Model = ask("model", "create_model", info=data.info)
        model = hooks.transform("transform_model", model, run=run)
    run.model = model
    names = Names.of(model.module)
    schema = locks.schema_text(
        {name: (tuple(p.shape), str(p.dtype)) for name, p in model.module.named_parameters()}
    )
    opened = locks.Opened(
        data=data.info.fingerprint,
        schema=locks.digest(schema),
        world=group.world,
        device=str(group.device),
    )
    lock = locks.Lock(activated=activated, opened=opened)
    group.agree({**activated.fingerprint(), "plan": plan.text(), "data": opened.data, "schema": schema})
    module = group.distribute(
        model.module, model.anatomy, model.finish_block or (lambda block: block), precision.parameter
    )
    held = group.held(module)
    fill(model, held, run.seed)
    module.train()
    trained = group.trained(held)
    optimizer = group.create_optimizer(
        optimizer_maker(run, hooks, composition), group_parameters(model.anatomy, names.trained, trained)
    )
    train = run.train
    length = train.steps or data.steps(epochs=train.epochs, tokens=train.tokens)
    schedule = schedule_maker(run, hooks, composition)(length)
    # A stream cannot go back to a window that is found out later.
    latch = not precision.scaled and train.on_nan != "skip" and not data.state()
    work = Work(
        data=data,
        task=data.task,
        model=module,
        named=[(each.name, each.tensor) for each in held if each.tensor.requires_grad],
        precision=precision,
        optimizer=optimizer,
        schedule=schedule,
        clip=train.clip,
        latch=latch,
        deferred=latch and bool(getattr(optimizer, "_step_supports_amp_scaling", False)),
    )
    _ask_in_steps(work, hooks, run)
    store: Store | None = None
    if composition.has("checkpoint"):
        store = ask("checkpoint", "open_store", folder=folder, write=True)
        close_after("checkpoint", store)
    return Session(
        plan=plan,
        run=run,
        hooks=hooks,
        group=group,
        data=data,
        work=work,
        held=held,
        trained=trained,
        names=names,
        store=store,
        lock=lock,
        stateful=_stateful(composition, hooks, run),
        length=length,
    )


def _ask_in_steps(work: Work, hooks: Hooks, run: Run) -> None:
    """Fill in the hooks of the hot loop that somebody implements; the others stay None and are never asked."""
    if hooks.pick("backward") is not None:
        work.backward = lambda loss, sums: hooks.collect("backward", run=run, loss=loss, sums=sums)
    if hooks.bound("gradients_ready"):
        work.gradients_local = lambda named: hooks.observe(
            "gradients_ready", run=run, named=named, stage="local"
        )
        work.gradients_global = lambda named: hooks.observe(
            "gradients_ready", run=run, named=named, stage="global"
        )


def _stateful(composition: Composition, hooks: Hooks, run: Run) -> Mapping[str, Stateful]:
    return {
        placed.address: hooks.ask(placed.component, "component_state", run=run)
        for placed in composition.placed
        if hasattr(type(placed.component), "component_state")
    }


def _at_exit(stack: ExitStack, owner: str, close: Callable[[], object]) -> None:
    """Close a part when the run ends. Where the run has failed already, a failure to close is logged and hides
    nothing."""

    def leave(kind: object, error: BaseException | None, trace: object) -> None:
        try:
            close()
        except Exception as failure:
            if error is None and isinstance(failure, NlpkernelError):
                raise
            message = f"close failed: {type(failure).__name__}: {failure}"
            if error is None:
                raise fail(ComponentFailure, "NK060", message, owner=owner) from failure
            _log.warning("%s: %s", owner, message, exc_info=failure)

    stack.push(leave)


def close_components_at_exit(stack: ExitStack, hooks: Hooks, run: Run) -> None:
    """Ask every component to close when `stack` is left."""
    _at_exit(stack, "the kernel", lambda: _close_components(hooks, run))


def _close_components(hooks: Hooks, run: Run) -> None:
    errors = hooks.close(run=run)
    if errors:
        raise type(errors[0])([problem for error in errors for problem in error.problems]) from errors[0]
