"""Runs the checks that apply to a distribution."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from unittest import mock

import attrs

from nlpkernel.errors import UsageError, fail
from nlpkernel.hookspecs import POINTS
from nlpkernel_sdk.conform.checks import LEVELS, REGISTRY, Check, Level, NonconformingError, NotApplicable
from nlpkernel_sdk.conform.outcome import Outcome, Verdict
from nlpkernel_sdk.conform.subject import Part, Subject

#: The modules of checks by level. Those that need torch are imported when their level is asked for.
_MODULES: dict[Level, tuple[str, ...]] = {
    "static": ("metadata", "sources", "light", "component", "settings"),
    "behaviour": ("behaviour", "manners", "training", "models", "text", "systems"),
    "distributed": ("distributed",),
    "cost": ("cost",),
}


@attrs.frozen(eq=False)
class Case:
    """A check of a component, or of the distribution (then `part` is None)."""

    check: Check
    subject: Subject
    part: Part | None

    @property
    def name(self) -> str:
        """ "check[component]"."""
        return f"{self.check.id}[{self.part.name}]" if self.part else self.check.id

    def run(self) -> Outcome:
        """Ask it."""
        started = time.perf_counter()
        status, said = "passed", ""
        try:
            said = self.check.function(self.part or self.subject) or ""
        except NonconformingError as error:
            status, said = "failed", str(error)
        except NotApplicable as error:
            status, said = "skipped", str(error)
        except Exception as error:  # noqa: BLE001 - a component may fail in any way; the check says how
            status, said = "failed", f"{type(error).__name__}: {error}"
        return Outcome(
            case=self.name,
            check=self.check.id,
            component=self.part.name if self.part else "",
            level=self.check.level,
            status=status,  # type: ignore[arg-type]
            said=said,
            reason=self.check.reason,
            seconds=time.perf_counter() - started,
        )


def cases(subject: Subject, levels: Sequence[Level] = LEVELS[:2]) -> list[Case]:
    """Every check of these levels that applies to the distribution, in order."""
    for level in levels:
        for module in _MODULES[level]:
            import_module(f"nlpkernel_sdk.conform.{module}")
    order = [name for level in levels for name in _MODULES[level]]
    chosen = [check for check in REGISTRY.values() if check.level in levels]
    chosen.sort(key=lambda check: order.index(check.function.__module__.rpartition(".")[2]))
    made = []
    for check in chosen:
        if check.whole:
            made.append(Case(check, subject, None))
            continue
        parts = (
            subject.parts
            if check.level == "static"
            else [part for part in subject.parts if part.point in POINTS]
        )
        made += [
            Case(check, subject, part) for part in parts if not check.points or part.point in check.points
        ]
    return made


def strangers(subject: Subject, chosen: Sequence[Case], *, whole: bool) -> list[str]:
    """Known failures that name no check. Where not all levels are run (`whole`), those of others are left alone."""
    names = {case.name for case in chosen}
    levels = {case.check.level for case in chosen}
    return [
        f"the known failure {name!r} is no check of this distribution"
        for name in subject.config.known
        if name not in names and (whole or name.partition(".")[0] in levels)
    ]


def judged(outcome: Outcome, subject: Subject) -> Outcome:
    """An outcome in the light of the known failures: one that fails as it is known to is known, and one that does not
    fail is a failure."""
    reason = subject.config.known.get(outcome.case)
    if reason is None:
        return outcome
    if not reason.strip():
        return attrs.evolve(outcome, status="failed", said="it is listed as known without a reason")
    if outcome.status == "failed":
        return attrs.evolve(outcome, status="known", said=f"{reason}: {outcome.said}")
    said = f"it is listed as a known failure ({reason}) and {outcome.status}: take it out of the list"
    return attrs.evolve(outcome, status="failed", said=said)


def conform(subject: Subject, levels: Sequence[Level] = LEVELS[:2]) -> Verdict:
    """Run them all."""
    chosen = cases(subject, levels)
    with quarters():
        outcomes = [judged(case.run(), subject) for case in chosen]
    verdict = Verdict(distribution=subject.distribution, release=subject.release, outcomes=outcomes)
    wrong = strangers(subject, chosen, whole=tuple(levels) == LEVELS)
    floor = subject.config.at_least
    if verdict.ran < floor:
        wrong.append(f"{verdict.ran} checks were run, and at least {floor} were to be")
    return attrs.evolve(verdict, wrong=wrong)


def raise_for(verdict: Verdict) -> None:
    """Raise UsageError (SDK012, SDK013, SDK014) where a distribution does not conform."""
    for text in verdict.wrong:
        raise fail(UsageError, "SDK013" if "at least" in text else "SDK012", text)
    failed = [each for each in verdict.outcomes if each.status == "failed"]
    if failed:
        raise fail(
            UsageError, "SDK014", f"{verdict.distribution} fails {len(failed)} checks", hint=failed[0].case
        )


@contextmanager
def quarters(folder: Path | None = None) -> Iterator[Path]:
    """A folder for the runs of the checks, `folder` or one that is gone again; the cache of runs is in it too."""
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nlpkernel-conform-")))
        stack.enter_context(mock.patch.dict(os.environ, NLPKERNEL_CACHE=str(folder / "cache")))
        yield folder
