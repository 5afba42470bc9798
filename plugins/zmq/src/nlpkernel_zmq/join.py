"""`nlpkernel join`: a worker of a run that goes on at another machine. Light."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from nlpkernel import runs
from nlpkernel.cli.options import plan_options
from nlpkernel.errors import NlpkernelError, UsageError, fail
from nlpkernel.supervise.post import Post
from nlpkernel_zmq.codes import OWNER
from nlpkernel_zmq.component import SERVED, ZmqPs
from nlpkernel_zmq.security.keys import Ticket

HELP = """Compute as a worker of a run on another machine, whose plan has communicator.listen. The run says what to
type; the plan is the same file, and its data are here under the same paths."""


class JoinedPost(Post):
    """The post of such a worker: nobody supervises it, and it leaves versions and meetings to the others."""

    def __init__(self, rank: int, world: int, launch: str) -> None:
        super().__init__()
        self.rank, self.world, self.launch = rank, world, launch
        self.name = f"worker-{rank}"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    parser.add_argument("endpoint", metavar="tcp://HOST:PORT", help="where the servers listen")
    plan_options(parser)
    parser.add_argument(
        "--keys",
        required=True,
        metavar="FILE",
        help="this worker's keys, copied from .servers/keys of the run",
    )
    parser.add_argument("--worker", type=int, metavar="N", help="its number (default: that of the keys)")
    parser.add_argument(
        "--runs", default="runs", metavar="FOLDER", help="where its logs go, in NAME-worker-N (default: runs)"
    )


def execute(args: argparse.Namespace) -> int:
    """Work until the run is over."""
    from nlpkernel.plan import Plan
    from nlpkernel_zmq.security.knocking import check, knock
    from nlpkernel_zmq.worker.way import JOINS, KEYS

    plan = Plan.load(args.plan, args.overrides)
    settings = plan.compose().slot("communicator").component
    if not isinstance(settings, ZmqPs):
        raise _wrong("the plan's communicator is not zmq-ps", "join with the plan of the run, as it is there")
    check(args.endpoint)
    ticket = Ticket.read(Path(args.keys))
    number = ticket.worker if args.worker is None else args.worker
    if not settings.here <= number < settings.workers:
        last = settings.workers - 1
        raise _wrong(
            f"worker {number} does not join: of {settings.workers} workers {settings.here} start beside the servers",
            f"numbers go from {settings.here} to {last}"
            if settings.here <= last
            else "set communicator.local",
        )
    knock(args.endpoint, ticket)
    os.environ[SERVED] = str(settings.servers)
    os.environ[JOINS], os.environ[KEYS] = args.endpoint, str(Path(args.keys).resolve())
    folder = Path(args.runs) / f"{plan.name}-worker-{number}"
    try:
        (folder / runs.LOGS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _wrong(f"the folder {str(folder)!r} cannot be made: {error.strerror}", "see --runs") from error

    from nlpkernel.engine.api import Loop

    loop = Loop(plan, folder, quiet=args.quiet, post=JoinedPost(number, settings.workers, ticket.run))
    for _ in loop.steps():
        pass
    return 0 if loop.signal is None else 128 + loop.signal


def _wrong(message: str, hint: str) -> NlpkernelError:
    return fail(UsageError, "ZPS012", message, owner=OWNER, hint=hint)
