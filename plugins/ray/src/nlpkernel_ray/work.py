"""What the workers are to do: the command of each, and the files of the plan that travel to them. Light."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from nlpkernel.errors import NlpkernelError, PlanError, UsageError, fail
from nlpkernel.plan import Plan
from nlpkernel_ray.codes import OWNER


@attrs.frozen(kw_only=True)
class Work:
    """A plan on its way to workers. words: the command line of each after `nlpkernel`. files: path to content. folder:
    where the command is called. runs: the folder of runs, which they share."""

    name: str
    words: tuple[str, ...]
    files: Mapping[str, bytes]
    folder: str
    runs: str

    @classmethod
    def of(
        cls, plan: Plan, overrides: Sequence[str], runs: str, *, stored: bool, flags: Sequence[str] = ()
    ) -> Work:
        """The work of a plan that was loaded from a file. `stored`: it keeps versions, from which it continues."""
        assert plan.path is not None
        path = plan.path.absolute()
        where = str(Path(runs).absolute())
        sets = [word for each in overrides for word in ("--set", each)]
        words = ("run", str(path), *sets, "--runs", where, *(["--continue"] if stored else []), *flags)
        # Relative paths in overrides start from the working folder, all others from the plan's.
        folder = os.getcwd() if overrides else str(path.parent)
        return cls(name=plan.name, words=words, files=sources(path), folder=folder, runs=where)


def sources(path: Path) -> dict[str, bytes]:
    """A plan's file and all that it extends, by their paths. Raise OSError where one is gone meanwhile."""
    from nlpkernel.plan.environment import fill
    from nlpkernel.plan.files import read_file

    found: dict[str, bytes] = {}
    todo = [path]
    while todo:
        each = Path(os.path.normpath(todo.pop()))
        if str(each) in found:
            continue
        found[str(each)] = each.read_bytes()
        root, _ = read_file(each)
        fill(root, os.environ)
        extends = root.value.get("extends")
        if extends is not None:
            bases = extends.value if isinstance(extends.value, list) else [extends]
            todo += [each.parent / base.value for base in bases]
    return found


def planned(plan: Plan) -> int:
    """The number of workers that the plan itself says."""
    node = dict(plan.filled.walk()).get("communicator.workers")
    return node.value if node is not None and isinstance(node.value, int) else 1


def for_cpus(plan: Plan) -> bool:
    """Whether the plan says that its workers use no GPU."""
    return bool(getattr(plan.compose().slot("communicator").component, "on_cpus", False))


def trusts(plan: Plan) -> bool:
    """Whether the plan says that nobody else can reach the network of its workers."""
    return bool(getattr(plan.compose().slot("communicator").component, "trusted_network", False))


def numbers(plan: Plan, overrides: Sequence[str], least: int, most: int) -> list[int]:
    """Numbers of workers from `most` down to `least` that the plan can be laid out for. Raise UsageError (RAY003) where
    its workers do not join each other, and the plan's own error where there is no such number."""
    from nlpkernel.plan.fit import check_fit

    if most > 1 and not hasattr(plan.compose().slot("communicator").component, "join"):
        raise fail(
            UsageError,
            "RAY003",
            f"{most} workers cannot join each other with the plan's communicator",
            owner=OWNER,
            hint='write use = "torchdist" in [communicator], or --workers 1',
        )
    own = planned(plan)
    found: list[int] = []
    wrong: NlpkernelError | None = None
    for number in range(most, least - 1, -1):
        try:
            given = [] if number == own else [f"communicator.workers={number}"]
            check_fit(plan if not given else Plan.load(str(plan.path), [*overrides, *given]))
            found.append(number)
        except PlanError as error:
            wrong = wrong or error
    if not found:
        assert wrong is not None
        raise wrong
    return found
