"""A process of a run that is no worker: it has no session, and is asked to serve until the workers are done."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from nlpkernel import runs
from nlpkernel.engine.environment import environment, log_file
from nlpkernel.engine.making import optimizer_maker, schedule_maker
from nlpkernel.engine.opening import close_components_at_exit, prepared
from nlpkernel.engine.signals import Dismissal
from nlpkernel.errors import PluginError, fail
from nlpkernel.events import Event, StepCompleted
from nlpkernel.plan import Plan
from nlpkernel.supervise.post import Post


def serve(plan: Plan, folder: Path, post: Post, *, quiet: bool = False, threads: int | None = None) -> None:
    """Ask the communicator to serve, until it has or the supervisor ends it. `threads`: as many as a run had that is
    continued. Raise what the communicator raises."""
    logs = folder / runs.LOGS
    with ExitStack() as stack, post.telling():
        stack.enter_context(log_file(logs / f"{post.label}.log"))
        stack.enter_context(post.manned(logs))
        stack.enter_context(environment(plan.train, threads))
        dismissal = stack.enter_context(Dismissal(post))
        run, hooks, composition = prepared(plan, folder, post, quiet=quiet)
        close_components_at_exit(stack, hooks, run)
        communicator = composition.slot("communicator")
        if not hasattr(communicator.component, "serve"):
            message = f"{post.name} is no worker, and its communicator has no hook `serve`"
            raise fail(PluginError, "NK605", message, owner=communicator.found.owner)
        run.bus.owner = "the supervisor"
        run.bus.on(Event, post.hears, but=(StepCompleted,))
        run.bus.freeze()
        work = partial(
            hooks.ask,
            communicator.component,
            "serve",
            run=run,
            make_optimizer=optimizer_maker(run, hooks, composition),
            make_schedule=schedule_maker(run, hooks, composition),
        )
        run.pulse.enter("serving")
        dismissal.until(work)
        run.pulse.enter("closing")
