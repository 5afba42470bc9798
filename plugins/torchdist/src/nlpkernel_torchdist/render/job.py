"""What is to be rendered: a plan, its workers on their machines, and what each of them needs. Light."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from nlpkernel.errors import NlpkernelError, UsageError, fail
from nlpkernel.plan import Plan
from nlpkernel_torchdist.codes import OWNER
from nlpkernel_torchdist.component import TorchDist

#: What an option is where it is not given.
DEFAULTS: Mapping[str, Any] = {
    "time": "24:00:00",
    "lead": 120,
    "claim": "nlpkernel",
    "mount": "/work",
    "cpus": 4,
}
#: Where the first worker listens, unless the launcher chooses.
PORT = 29500
#: Restarts of a plan that keeps versions.
_RESTARTS = 3
_MEMORY = re.compile(r"([1-9][0-9]*)([KMGT]i?)")


@attrs.frozen(kw_only=True)
class Job:
    """One rendering. planned: workers of the plan. per_node: workers of each machine. words: the command of each of
    them. written_by: the command that rendered this. notes: what an operator has to see to. options: those of the
    launcher.
    """

    name: str
    planned: int
    nodes: int
    per_node: int
    restarts: int
    words: tuple[str, ...]
    written_by: tuple[str, ...]
    notes: tuple[str, ...]
    options: Mapping[str, Any]

    @property
    def workers(self) -> int:
        """In all."""
        return self.nodes * self.per_node

    @property
    def label(self) -> str:
        """The name as a DNS label, with room for the number of a pod."""
        plain = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")
        return (plain if plain[:1].isalpha() else f"run-{plain}")[:50].strip("-")

    def option(self, name: str) -> Any:
        """An option as it was given, or its default."""
        return self.options.get(name, DEFAULTS.get(name))

    def memory(self, workers: int) -> str | None:
        """The memory of so many workers, where it was given."""
        given = self.option("memory")
        if given is None:
            return None
        number, unit = _MEMORY.fullmatch(given).groups()  # type: ignore[union-attr] # The command has checked it.
        return f"{int(number) * workers}{unit}"

    def head(self) -> list[str]:
        """The first comment lines."""
        made = " ".join(map(shlex.quote, self.written_by))
        return [f"# Written by `nlpkernel {made}`.", *(f"# {note}" for note in self.notes)]

    @classmethod
    def of(
        cls,
        plan: Plan,
        *,
        kind: str,
        path: str,
        overrides: Sequence[str],
        runs: str,
        nodes: int,
        workers: int | None,
        restarts: int | None,
        given: Mapping[str, Any],
        words: Sequence[str],
    ) -> Job:
        """Check whether the plan can run there. Raise UsageError (TDI026, TDI004) or PlanError (TDI001) where not."""
        composition = plan.compose()
        settings = composition.slot("communicator").component
        if not isinstance(settings, TorchDist):
            raise _cannot(
                "the plan's communicator is not torchdist, so it does not join workers that another launcher starts",
                getattr(settings, "rendered", 'write use = "torchdist" in [communicator]'),
            )
        number = workers or settings.workers
        settings.layout(number)
        per_node, rest = divmod(number, nodes)
        if rest:
            raise _cannot(
                f"{number} workers do not divide among {nodes} machines",
                "change --nodes, or --workers to a multiple",
            )
        if nodes > 1 and not settings.trusted_network:
            raise fail(
                UsageError,
                "TDI004",
                f"{nodes} machines exchange what is neither encrypted nor authenticated",
                owner=OWNER,
                hint="where nobody else can reach their network, write trusted_network = true in [communicator]",
            )
        if _MEMORY.fullmatch(given.get("memory", "1G")) is None:
            raise _cannot(f"--memory {given['memory']} is no number of bytes", "write it as 32G or 32Gi")
        stored = composition.has("checkpoint")
        if restarts and not stored:
            raise _cannot(
                "without [checkpoint] a restart has nothing to continue from",
                "add that section, or --restarts 0",
            )
        gpus = 0 if settings.on_cpus else 1
        return cls(
            name=plan.name,
            planned=settings.workers,
            nodes=nodes,
            per_node=per_node,
            restarts=restarts if restarts is not None else _RESTARTS if stored else 0,
            words=_command(path, overrides, runs, stored=stored),
            written_by=tuple(words),
            notes=tuple(_notes(kind, runs, nodes, stored=stored, number=number, plan=settings.workers)),
            options={"gpus": gpus, **given},
        )


def _command(path: str, overrides: Sequence[str], runs: str, *, stored: bool) -> tuple[str, ...]:
    sets = [word for each in overrides for word in ("--set", each)]
    other = [] if runs == "runs" else ["--runs", runs]
    return ("nlpkernel", "run", path, *sets, *other, *(["--continue"] if stored else []))


def _notes(kind: str, runs: str, nodes: int, *, stored: bool, number: int, plan: int) -> list[str]:
    notes = []
    if number != plan:
        notes.append(f"The plan says {plan} workers; {number} are started, which counts.")
    if nodes > 1:
        notes.append(
            f"{runs}/, the plan and its data have to be on a file system that all {nodes} machines share."
        )
        notes.append(
            "What they exchange is neither encrypted nor authenticated: their network has to be their own."
        )
    if not stored:
        notes.append("The plan has no [checkpoint]: a run that is interrupted is lost.")
    if kind == "ray":
        notes.append("It needs nlpkernel-plugin-ray on the machines of the cluster.")
    return notes


def _cannot(message: str, hint: str) -> NlpkernelError:
    return fail(UsageError, "TDI026", message, owner=OWNER, hint=hint)
