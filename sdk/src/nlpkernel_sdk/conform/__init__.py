"""The conformance kit: what every plugin has to hold, asked of one.

In a test: `test_conformance = conformance("nlpkernel-plugin-mine")`. On the command line: `nlpkernel conform
nlpkernel-plugin-mine`. What an author has to say beside is in pyproject.toml, see docs/authoring.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

__all__ = ["conformance"]


def conformance(
    distribution: str,
    *,
    levels: Sequence[Literal["static", "behaviour", "distributed", "cost"]] = ("static", "behaviour"),
    components: Mapping[str, Mapping[str, Any]] | None = None,
    known: Mapping[str, str] | None = None,
    at_least: int | None = None,
) -> Callable[..., None]:
    """A test function for pytest with a case for each check that applies.

    components: tables with `settings`, `plan`, `sample` by "point.name"; known: failures that are known, with a reason;
    at_least: how many checks have to be run. Each is laid over [tool.nlpkernel.conform] of the pyproject.toml at or
    above the test's file. Raise UsageError where the distribution is not installed, or something named is not there.
    """
    import attrs
    import pytest

    from nlpkernel_sdk.conform.runner import cases, judged, quarters, strangers
    from nlpkernel_sdk.conform.subject import Config, Subject

    caller = inspect.stack()[1].filename
    config = Config.read(Path(caller).parent)
    config = attrs.evolve(
        config,
        components={**config.components, **(components or {})},
        known={**config.known, **(known or {})},
        at_least=config.at_least if at_least is None else at_least,
    )
    subject = Subject(distribution, config)
    chosen = cases(subject, levels)
    ran: list[str] = []
    home: list[Path] = []

    @pytest.mark.parametrize("case", [*chosen, None], ids=[*(case.name for case in chosen), "floor"])
    def test(case: Any, record_property: Callable[[str, object], None], tmp_path_factory: Any) -> None:
        if case is None:
            wrong = strangers(subject, chosen, whole=False)
            assert not wrong, wrong[0]
            # A run of some cases alone says nothing of how many there are.
            if len(ran) == len(chosen):
                number = sum(status != "skipped" for status in ran)
                assert number >= config.at_least, (
                    f"{number} checks were run, and at least {config.at_least} were to be"
                )
            return
        if not home:
            # Runs that several checks look at stay for all of them.
            home.append(tmp_path_factory.mktemp("conform"))
        with quarters(home[0]):
            outcome = judged(case.run(), subject)
        ran.append(outcome.status)
        record_property("nlpkernel_conform", f"{subject.distribution} {outcome.status}")
        if outcome.status == "failed":
            pytest.fail(f"{outcome.case}: {outcome.said}\n({outcome.reason})", pytrace=False)
        if outcome.status == "skipped":
            pytest.skip(outcome.said)
        if outcome.status == "known":
            pytest.xfail(outcome.said)

    made: Callable[..., None] = test
    return made
