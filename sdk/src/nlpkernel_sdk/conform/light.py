"""Static checks of the light floor, by what a clean process saw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nlpkernel_sdk.conform.checks import NotApplicable, check, refuse
from nlpkernel_sdk.conform.subject import Part, Subject


def _modules(subject: Subject) -> Mapping[str, Mapping[str, Any]]:
    if "died" in subject.probed:
        raise NotApplicable("the process that imports it died: see static.import-alone")
    found: Mapping[str, Mapping[str, Any]] = subject.probed["modules"]
    return found


def _lines(subject: Subject, tell: Callable[[str, Mapping[str, Any]], Iterator[str]]) -> list[str]:
    return [line for module, facts in _modules(subject).items() for line in tell(module, facts)]


@check("static.import-alone", "a component that does not import alone does not import at all", whole=True)
def _import_alone(subject: Subject) -> None:
    if "died" in subject.probed:
        refuse([f"the process that imports it ends: {subject.probed['died']}"])
    refuse(
        f"importing {module}: {facts['error']}"
        for module, facts in _modules(subject).items()
        if facts["error"]
    )


@check("static.light-import", "listing and checking must not pay for heavy libraries", whole=True)
def _light_import(subject: Subject) -> None:
    refuse(
        _lines(
            subject,
            lambda module, facts: (f"{module} imports {name} ({where})" for name, where in facts["heavy"]),
        )
    )


@check("static.quiet-import", "whoever lists plugins wants to see plugins", whole=True)
def _quiet_import(subject: Subject) -> None:
    refuse(
        f"importing {module} prints {facts['said'].strip()[:60]!r}"
        for module, facts in _modules(subject).items()
        if facts["said"].strip() and not facts["error"]
    )


@check(
    "static.inert-import",
    "a plugin that no plan names changes nothing, and so does importing one",
    whole=True,
)
def _inert_import(subject: Subject) -> None:
    refuse(
        f"importing {module} changes {what}"
        for module, facts in _modules(subject).items()
        for what in facts["changed"]
        # A heavy library changes much; that it is imported is said by static.light-import.
        if not facts["heavy"]
    )


def _planned(part: Part) -> Mapping[str, Any]:
    part.table()
    part.values()
    _modules(part.subject)
    found: Mapping[str, Any] = part.subject.probed["plans"][part.name]
    return found


@check("static.check-light", "`nlpkernel check` must work, and fast, where torch does not")
def _check_light(part: Part) -> None:
    facts = _planned(part)
    refuse(f"checking a plan of it imports {name} ({where})" for name, where in facts["heavy"])


@check("static.checks", "a plan of it with nothing but what it must be given has to be right")
def _checks(part: Part) -> None:
    facts = _planned(part)
    if "what the component has by itself" in facts["error"]:
        raise NotApplicable("a default is wrong: see static.defaults")
    if facts["error"]:
        refuse([facts["error"].partition("\n")[0]])
