"""Errors: what went wrong, where, whose it is, and what to do next.

Every error that a user can meet carries a stable code; `nlpkernel explain CODE` tells the rest. Messages say what
is wrong in one line; hints say what to do.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs


@attrs.frozen
class Place:
    """A position in a file: line and column count from 1. Line 0 means the file as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@attrs.frozen(kw_only=True)
class Problem:
    """One thing that is wrong, fit to be printed as one line."""

    code: str
    message: str
    place: Place | None = None
    owner: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        who = f" [{self.owner}]" if self.owner else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{where}{self.code} {self.message}{hint}{who}"


class NlpkernelError(Exception):
    """Base of all our errors. `problems` holds one or more located problems."""

    #: What the process exits with when this error ends it.
    exit_code = 1

    def __init__(self, problems: Problem | Sequence[Problem]) -> None:
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))

    def __reduce__(self) -> tuple[type[NlpkernelError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


class PlanError(NlpkernelError):
    """The plan is wrong; nothing has been started."""

    exit_code = 2


class PluginError(NlpkernelError):
    """A plugin cannot be found, loaded or activated; nothing has been started."""

    exit_code = 2


class UsageError(NlpkernelError):
    """A command was asked for something that does not exist or does not go together."""

    exit_code = 2


class DataError(NlpkernelError):
    """The data cannot be read, or is not what the plan says."""


class TrainingError(NlpkernelError):
    """Training had to end: a number that is none, a policy that says stop."""


class CheckpointError(NlpkernelError):
    """A version cannot be written, or does not load."""


class ComponentFailure(NlpkernelError):
    """A component raised; the cause is chained as `__cause__`."""


def fail(
    kind: type[NlpkernelError],
    code: str,
    message: str,
    *,
    place: Place | None = None,
    owner: str | None = None,
    hint: str | None = None,
) -> NlpkernelError:
    """Make an error of one problem: `raise fail(DataError, "NK301", "...", hint="...")`."""
    return kind(Problem(code=code, message=message, place=place, owner=owner, hint=hint))
