"""From a plan to supervised processes: which ones the communicator wants, and the commands that they run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from nlpkernel import runs
from nlpkernel.context import Run
from nlpkernel.errors import PluginError, UsageError, fail
from nlpkernel.hookspecs.communicator import ProcessSpec
from nlpkernel.plan import Plan
from nlpkernel.plugins.hooks import Hooks
from nlpkernel.supervise.heartbeat import Limits
from nlpkernel.supervise.restarts import Restarts
from nlpkernel.supervise.supervisor import CommandOf, Supervisor

#: The log of a supervised run, in its folder `logs`.
LOG = "run.log"


def wanted(plan: Plan, folder: Path) -> tuple[ProcessSpec, ...]:
    """The processes that the plan's communicator wants; none where it makes do with this one. Raise PluginError where
    they do not fit together."""
    composition = plan.compose()
    placed = composition.slot("communicator")
    if not hasattr(placed.component, "launch"):
        return ()
    hooks = Hooks()
    hooks.register(placed.component, placed.address, placed.found.owner)
    run = Run(name=plan.name, folder=folder, cache=runs.cache_folder(), train=composition.train, hooks=hooks)
    specs = tuple(hooks.ask(placed.component, "launch", run=run))
    ranks = sorted(spec.rank for spec in specs if spec.rank is not None)
    names = {spec.name for spec in specs}
    if specs and (ranks != list(range(len(ranks))) or not ranks or len(names) < len(specs)):
        listed = ", ".join(f"{spec.name} (rank {spec.rank})" for spec in specs)
        message = f"the processes that it wants do not fit together: {listed}"
        raise fail(PluginError, "NK605", message, owner=placed.found.owner)
    serving = [spec.name for spec in specs if spec.rank is None and spec.command is None]
    if serving and not hasattr(placed.component, "serve"):
        message = f"it wants {', '.join(serving)}, without a rank and a command, and has no hook `serve`"
        raise fail(PluginError, "NK605", message, owner=placed.found.owner)
    return specs


def supervise(
    plan: Plan,
    folder: Path,
    specs: Sequence[ProcessSpec],
    words: Sequence[str],
    *,
    restarts: int,
    say: Callable[[str], None],
    new: bool,
    overwrite: bool = False,
    flags: Sequence[str] = (),
) -> int:
    """Run `specs` (one worker where there are none) for the run in `folder` to their end; returns the exit code.

    words: the command line, which the first start repeats. flags: options that later starts get too. new: a run that
    has no folder yet, rather than one that is resumed. Raise UsageError where the run is in use, TrainingError where a
    process was lost and there are no restarts left.
    """
    if os.name != "posix":
        message = "processes cannot be supervised on this system"
        raise fail(UsageError, "NK604", message, hint="run one process, without --restarts")
    if new:
        runs.create(folder, overwrite=overwrite)
    # The workers claim the run as well; this claim holds while there is none, too.
    with runs.watch(folder):
        if new:
            runs.still_new(folder)
            runs.write(folder / runs.PLAN, plan.text())
        stall = plan.train.stall
        supervisor = Supervisor(
            specs or (ProcessSpec(name="worker-0", rank=0),),
            commands(folder, words, flags, new=new),
            log=folder / runs.LOGS / LOG,
            restarts=Restarts(restarts),
            limits=Limits.of(None if stall == "never" else stall),
            say=say,
        )
        try:
            return supervisor.run()
        finally:
            last = supervisor.last
            told = last is not None and (last.kind in ("refused", "interrupted") or last.own)
            if new and told and not supervisor.opened:
                # As without a supervisor: what could not be opened does not stand in the way of the next try.
                runs.remove(folder)
                runs.put_back(folder)


def commands(folder: Path, words: Sequence[str], flags: Sequence[str], *, new: bool) -> CommandOf:
    """The first start is what the user asked for. Later ones resume; those of `resume --from VERSION` from that version
    until another is saved."""
    here = sys.path[:1] in ([""], [os.getcwd()])
    # A file beside the user must not be imported where it was not before.
    python = [sys.executable, *([] if here else ["-P"]), "-m", "nlpkernel"]

    def command(number: int, saved: bool) -> Sequence[str]:
        first = number == 0 if new else not saved
        return [*python, *words] if first else [*python, "resume", str(folder), *flags]

    return command
