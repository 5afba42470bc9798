"""`nlpkernel render`: write what starts a plan under another launcher."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from nlpkernel import runs
from nlpkernel.cli.options import plan_options
from nlpkernel.errors import NlpkernelError, UsageError, fail
from nlpkernel_torchdist.codes import OWNER
from nlpkernel_torchdist.render import kubernetes, ray, slurm, torchrun
from nlpkernel_torchdist.render.job import DEFAULTS, Job

HELP = """Write the script or manifest that starts a plan's workers under torchrun, Slurm, Kubernetes or Ray. It is
printed, or written to a file; nothing is started. Starting it again continues the run from its newest version."""

#: What writes for a launcher, and the options that have a meaning there beside those for all.
_KINDS: dict[str, tuple[Callable[[Job], str], frozenset[str]]] = {
    "torchrun": (torchrun.script, frozenset({"endpoint"})),
    "slurm": (
        slurm.script,
        frozenset({"time", "partition", "account", "cpus", "gpus", "memory", "lead"}),
    ),
    "kubernetes": (
        kubernetes.manifest,
        frozenset({"image", "claim", "mount", "namespace", "cpus", "gpus", "memory"}),
    ),
    "ray": (ray.script, frozenset({"cpus", "gpus", "address"})),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options. Those of one launcher have no default here, so that one which is given in vain is noticed."""
    plan_options(parser)
    parser.add_argument("--for", required=True, choices=sorted(_KINDS), dest="kind", help="which launcher")
    parser.add_argument("--output", metavar="FILE", help="write there (default: print it)")
    parser.add_argument(
        "--runs", default="runs", metavar="FOLDER", help="where run folders are there (default: runs)"
    )
    parser.add_argument("--nodes", type=_positive, default=1, metavar="N", help="machines (default: 1)")
    parser.add_argument(
        "--workers", type=_positive, metavar="N", help="workers in all (default: those of the plan)"
    )
    parser.add_argument(
        "--restarts",
        type=_whole,
        metavar="N",
        help="how often it starts the workers again where they fail (default: 3, and 0 without [checkpoint])",
    )
    parser.add_argument("--endpoint", metavar="HOST:PORT", help="torchrun: where its machines meet")
    parser.add_argument("--time", help=f"Slurm: the longest time (default: {DEFAULTS['time']})")
    parser.add_argument("--partition", help="Slurm: the partition")
    parser.add_argument("--account", help="Slurm: the account")
    parser.add_argument(
        "--lead",
        type=_positive,
        metavar="SECONDS",
        help=f"Slurm: how long before its time is up a job saves and ends (default: {DEFAULTS['lead']})",
    )
    parser.add_argument(
        "--image", help="Kubernetes: the image that has nlpkernel and the plugins of the plan"
    )
    parser.add_argument(
        "--claim",
        help=f"Kubernetes: the claim of the volume with plan and runs (default: {DEFAULTS['claim']})",
    )
    parser.add_argument(
        "--mount", metavar="PATH", help=f"Kubernetes: where that is mounted (default: {DEFAULTS['mount']})"
    )
    parser.add_argument("--namespace", help="Kubernetes: the namespace")
    parser.add_argument(
        "--address", help="Ray: the address of the cluster's dashboard (default: $RAY_ADDRESS)"
    )
    parser.add_argument("--cpus", type=_positive, metavar="N", help="cores of each worker")
    parser.add_argument(
        "--gpus",
        type=_whole,
        metavar="N",
        help="GPUs of each worker (default: 1, and 0 where the plan is for CPUs)",
    )
    parser.add_argument("--memory", help="memory of each worker: 32G, 32Gi")


def execute(args: argparse.Namespace) -> int:
    """Write it."""
    from nlpkernel.plan import Plan

    write, taken = _KINDS[args.kind]
    own = frozenset().union(*(names for _, names in _KINDS.values()))
    given = {name: getattr(args, name) for name in sorted(own) if getattr(args, name) is not None}
    if vain := sorted(given.keys() - taken):
        options = ", ".join(f"--{name}" for name in vain)
        raise _wrong(
            f"{options} {'has' if len(vain) == 1 else 'have'} no meaning for {args.kind}", "leave it out"
        )
    plan = Plan.load(args.plan, args.overrides)
    job = Job.of(
        plan,
        kind=args.kind,
        path=args.plan,
        overrides=args.overrides,
        runs=args.runs,
        nodes=args.nodes,
        workers=args.workers,
        restarts=args.restarts,
        given=given,
        words=args.words,
    )
    text = write(job)
    if args.output is None:
        sys.stdout.write(text)
    else:
        runs.write(Path(args.output), text)
    return 0


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


def _wrong(message: str, hint: str) -> NlpkernelError:
    return fail(UsageError, "TDI026", message, owner=OWNER, hint=hint)
