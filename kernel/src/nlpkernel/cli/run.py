"""`nlpkernel run`: train a plan; `--dry-run` says what it would cost."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from nlpkernel import runs
from nlpkernel.cli.options import plan_options, restart_options, supervised
from nlpkernel.cli.output import say
from nlpkernel.errors import UsageError, fail

if TYPE_CHECKING:
    from nlpkernel.engine.api import Loop

HELP = "Train. The run gets the folder runs/NAME; a signal ends it after its step, saved."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    plan_options(parser)
    parser.add_argument(
        "--runs", default="runs", metavar="FOLDER", help="where run folders are (default: runs)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing run of this name")
    parser.add_argument(
        "--continue",
        action="store_true",
        dest="continues",
        help="where a run of this name exists, resume it: for launchers that repeat a command after a pre-emption",
    )
    parser.add_argument(
        "--locked",
        nargs="?",
        const="",
        metavar="FILE",
        help="refuse to run unless everything is as this lock says (default: the plan's path with the ending .lock)",
    )
    restart_options(parser)
    parser.add_argument(
        "--profile-plugins",
        action="store_true",
        help="at the end, show which share of the time went to which plugin; also written to profile.json in the run's "
        "folder",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="two steps, one evaluation, one save, in a folder that is removed; then the cost of the full run",
    )


def execute(args: argparse.Namespace) -> int:
    """Train to the end."""
    from nlpkernel.plan import Plan

    plan = Plan.load(args.plan, args.overrides)
    if args.dry_run:
        _alone(args)
        from nlpkernel.engine.rehearsal import rehearse

        say(rehearse(plan, quiet=args.quiet).text())
        return 0
    if args.continues and args.overwrite:
        raise fail(
            UsageError, "NK313", "--continue does not go with --overwrite", hint="leave out one of them"
        )
    if args.profile_plugins and args.restarts:
        raise fail(
            UsageError,
            "NK313",
            "--profile-plugins does not go with --restarts: a run that is started again is another process",
            hint="leave out one of them",
        )
    folder = Path(args.runs) / plan.name
    begins = not (args.continues and (folder / runs.PLAN).is_file())
    locked = None
    if args.locked is not None:
        from nlpkernel.cli.lock import beside
        from nlpkernel.lock import Locked

        locked = Locked.read(Path(args.locked) if args.locked else beside(args.plan))
    code = supervised(args, plan, folder, new=begins, overwrite=args.overwrite)
    if code is not None:
        return code
    from nlpkernel.engine.api import Loop

    loop = Loop(
        plan,
        folder,
        overwrite=args.overwrite,
        continues=args.continues,
        locked=locked,
        quiet=args.quiet,
    )
    return _profiled(loop) if args.profile_plugins else finish(loop)


def _alone(args: argparse.Namespace) -> None:
    """A dry run makes no run folder and starts no process: options that ask for more are not ignored in silence."""
    given = {
        "--locked": args.locked is not None,
        "--restarts": args.restarts,
        "--overwrite": args.overwrite,
        "--continue": args.continues,
        "--profile-plugins": args.profile_plugins,
    }
    asked = [option for option, is_given in given.items() if is_given]
    if asked:
        raise fail(
            UsageError,
            "NK313",
            f"--dry-run does not go with {', '.join(asked)}",
            hint="leave out one of them",
        )


def _profiled(loop: Loop) -> int:
    """As `finish`, watched; what was found is shown and written, however the run ended."""
    from nlpkernel.events import Event, RunStarted
    from nlpkernel.watching.profile import Profile

    profile = Profile()

    def listen(event: Event) -> None:
        if isinstance(event, RunStarted) and loop.leads and loop.session is not None:
            profile.begin(loop.session)

    loop.listen = listen
    try:
        return finish(loop)
    finally:
        profile.end()
        if loop.session is not None and loop.leads:
            profile.write(loop.folder / runs.PROFILE)
            say(profile.text())


def finish(loop: Loop) -> int:
    """Take a run to its end and print its report; 128 + signal where a signal ended it."""
    for _ in loop.steps():
        pass
    if loop.leads and not loop.quiet:
        say(loop.report().text())
    return 0 if loop.signal is None else 128 + loop.signal
