"""`nlpkernel ray`: train a plan with its workers on a Ray cluster."""

from __future__ import annotations

import argparse
import os
import re
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from nlpkernel.cli.options import plan_options
from nlpkernel.errors import UsageError, fail
from nlpkernel_ray.codes import OWNER
from nlpkernel_ray.work import trusts

if TYPE_CHECKING:
    from nlpkernel.plan import Plan
    from nlpkernel_ray.raycluster import RayCluster

HELP = """Train, with the workers of the plan on a Ray cluster. The run's folder has to be on storage that all machines
share. A run of this name that exists is continued; a signal ends it after its step, saved."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    plan_options(parser)
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--address",
        metavar="ADDRESS",
        help="the cluster: auto, HOST:PORT, or ray://HOST:PORT (default: RAY_ADDRESS, or auto)",
    )
    where.add_argument(
        "--local", action="store_true", help="start a cluster on this machine for as long as the run takes"
    )
    parser.add_argument(
        "--workers",
        type=_range,
        metavar="N|MIN:MAX",
        help="workers in all; of a range, as many as there is room for at each start (default: those of the plan)",
    )
    parser.add_argument(
        "--cpus", type=_positive, default=1, metavar="N", help="cores of each worker (default: 1)"
    )
    parser.add_argument(
        "--gpus",
        type=_whole,
        metavar="N",
        help="GPUs of each worker (default: 1; 0 where the plan is for CPUs or the cluster has none)",
    )
    parser.add_argument(
        "--restarts",
        type=_whole,
        default=0,
        metavar="N",
        help="start the workers again from the newest version where one fails, at most N times (default: 0)",
    )
    parser.add_argument(
        "--wait",
        type=_seconds,
        default=300.0,
        metavar="SECONDS",
        help="how long to wait for room on the cluster, at each start (default: 300)",
    )
    parser.add_argument(
        "--runs",
        default="runs",
        metavar="FOLDER",
        help="where run folders are, on all machines (default: runs)",
    )


def execute(args: argparse.Namespace) -> int:
    """Train to the end."""
    from nlpkernel.plan import Plan
    from nlpkernel_ray.cluster import Needs
    from nlpkernel_ray.driver import Driver, collected
    from nlpkernel_ray.work import Work, for_cpus, numbers, planned

    plan = Plan.load(args.plan, args.overrides)
    least, most = args.workers or (planned(plan), planned(plan))
    allowed = numbers(plan, args.overrides, least, most)
    stored = plan.compose().has("checkpoint")
    if args.restarts and not stored:
        raise fail(
            UsageError,
            "RAY004",
            "without [checkpoint] a restart has nothing to continue from",
            owner=OWNER,
            hint="add that section, or --restarts 0",
        )
    flags = [*(["-q"] if args.quiet else []), *(["-v"] if args.verbose else [])]
    work = Work.of(plan, args.overrides, args.runs, stored=stored, flags=flags)
    with ExitStack() as stack:
        cluster = _cluster(args, plan, allowed[0], stack)
        gpus = args.gpus
        if gpus is None:
            gpus = 0 if for_cpus(plan) or not cluster.gpus() else 1
        driver = Driver(
            cluster=cluster,
            work=work,
            numbers=allowed,
            needs=Needs(args.cpus, gpus),
            restarts=args.restarts,
            patience=args.wait,
            signals=stack.enter_context(collected()),
            tell=_tell,
            echo=_echo,
        )
        return driver.run()


def _cluster(args: argparse.Namespace, plan: Plan, workers: int, stack: ExitStack) -> RayCluster:
    """Connected, until the stack is left. Raise UsageError (RAY001, RAY002, RAY010)."""
    address = args.address or os.environ.get("RAY_ADDRESS") or "auto"
    if not args.local and not _here(address) and not trusts(plan):
        raise fail(
            UsageError,
            "RAY010",
            f"the Ray cluster at {address!r} is another machine, and what Ray sends there is neither encrypted nor "
            "authenticated",
            owner=OWNER,
            hint="where nobody else can reach this network, write trusted_network = true in [communicator]",
        )
    if args.local:
        from nlpkernel_ray.sealed import sealed

        stack.enter_context(sealed())
    try:
        from nlpkernel_ray.raycluster import RayCluster
    except ImportError as error:
        raise fail(
            UsageError,
            "RAY001",
            f"Ray cannot be imported: {error}",
            owner=OWNER,
            hint="`pip install ray`, here and on all machines of the cluster",
        ) from error
    if args.local:
        cluster = RayCluster.start(workers * args.cpus)
    else:
        cluster = RayCluster.connect(address)
    stack.callback(cluster.close)
    return cluster


def _here(address: str) -> bool:
    """Whether an address is of this machine. `auto` is: what Ray itself has started here."""
    host = address.partition("://")[2] or address
    host = host.partition("/")[0].rpartition(":")[0] or host
    return host.strip("[]").lower() in ("auto", "local", "localhost", "::1") or host.startswith("127.")


def _tell(text: str) -> None:
    sys.stderr.write(f"nlpkernel: {text}\n")
    sys.stderr.flush()


def _echo(rank: int, stream: str, text: str) -> None:
    target = sys.stdout if stream == "out" else sys.stderr
    target.write(f"[worker-{rank}] {text}\n")
    target.flush()


def _range(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([1-9][0-9]*)(?::([1-9][0-9]*))?", text)
    if found is None:
        raise argparse.ArgumentTypeError("it is a number from 1 on, or two of them: MIN:MAX")
    least, most = int(found[1]), int(found[2] or found[1])
    if least > most:
        raise argparse.ArgumentTypeError(f"MIN {least} is more than MAX {most}")
    return least, most


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("it is 1 at least")
    return number


def _whole(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("it cannot be negative")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError("it is a number of seconds")
    return number
