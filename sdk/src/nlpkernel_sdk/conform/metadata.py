"""Static checks of a distribution: what its metadata say, and what its sources must not do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from nlpkernel.errors import PluginError
from nlpkernel.hookspecs import POINTS
from nlpkernel.plugins.catalog import Found
from nlpkernel.plugins.examine import service
from nlpkernel.plugins.inspect import points_of
from nlpkernel.plugins.requires import unmet
from nlpkernel.plugins.scan import SERVICES, distributions
from nlpkernel_sdk.conform.checks import NotApplicable, check, refuse
from nlpkernel_sdk.conform.subject import Subject
from nlpkernel_sdk.light import faults_of_codes

_ENTRY = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@check("static.name", "users find plugins by the name nlpkernel-plugin-*", whole=True)
def _name(subject: Subject) -> None:
    name = subject.distribution
    if not name.startswith("nlpkernel-"):
        refuse([f"the distribution is called {name!r}: call it nlpkernel-plugin-NAME"])


@check("static.kernel-bound", "pip must not put it beside a kernel that it was not written for", whole=True)
def _kernel_bound(subject: Subject) -> None:
    required = subject.fields("requires-dist")["requires-dist"]
    ours = [each for each in required if re.match(r"nlpkernel(\[[\w,]+\])?\s*([><=~!].*)?(;.*)?$", each)]
    if not ours:
        refuse(["it does not require nlpkernel: add nlpkernel>=... to its dependencies"])
    if not any(re.search(r"(>=|~=|==)\s*\d", each) for each in ours):
        refuse([f"its requirement {ours[0]!r} has no lower bound"])


@check("static.python-bound", "pip must not install it on a Python that it does not run on", whole=True)
def _python_bound(subject: Subject) -> None:
    if not subject.fields("requires-python")["requires-python"]:
        refuse(["its metadata have no Requires-Python: add requires-python to [project]"])


@check("static.license", "nobody may use what has no license", whole=True)
def _license(subject: Subject) -> None:
    found = subject.fields("license", "license-expression", "classifier")
    if not (found["license"] or found["license-expression"]) and not any(
        each.startswith("License ::") for each in found["classifier"]
    ):
        refuse(["its metadata name no license: add license to [project]"])


@check("static.summary", "a listing shows one line of each distribution", whole=True)
def _summary(subject: Subject) -> None:
    if not subject.fields("summary")["summary"]:
        refuse(["its metadata have no Summary: add description to [project]"])


@check("static.readme", "its page on an index is its README", whole=True)
def _readme(subject: Subject) -> None:
    text = (subject.location / "METADATA").read_text("utf-8")
    _, _, body = text.partition("\n\n")
    if len(body.strip()) < 40:
        refuse(["its README is missing, or has no sentence: add readme to [project]"])


@check("static.typed", "whoever builds on it wants its types", whole=True)
def _typed(subject: Subject) -> None:
    refuse(
        f"the package {name} has no py.typed"
        for name, place in subject.packages.items()
        if place.is_dir() and not (place / "py.typed").is_file()
    )


@check("static.group", "a kernel refuses components for another version of a contract", whole=True)
def _group(subject: Subject) -> None:
    wrong = []
    for offer in subject.offers:
        if offer.point in SERVICES:
            continue
        wanted = POINTS[offer.point].version if offer.point in POINTS else 1
        others = {
            other.version
            for other in subject.offers
            if (other.point, other.name) == (offer.point, offer.name)
        }
        if wanted not in others:
            message = f"{offer.name!r} is offered for version {offer.version} of {offer.point!r}"
            wrong.append(f"{message}, and the kernel has {wanted}")
    refuse(wrong)


@check("static.point", "a component for a point that nobody opens can never be named", whole=True)
def _point(subject: Subject) -> None:
    opened = {*POINTS, *SERVICES}
    for part in subject.parts:
        if isinstance(part.resolved, Found):
            opened |= points_of(part.resolved.cls)
    refuse(
        f"{part.offer.name!r} is offered for {part.point!r}, which neither the kernel nor this distribution opens"
        for part in subject.parts
        if part.point not in opened
        and not any(
            other.point == part.point and other.distribution != subject.distribution
            for other in subject.catalog.offers
        )
    )


@check("static.entry-names", "names are typed by hand, and two that are alike are an error", whole=True)
def _entry_names(subject: Subject) -> None:
    wrong = [
        f"{part.name}: a name is lower-case words with hyphens"
        for part in subject.parts
        if not _ENTRY.fullmatch(part.offer.name)
    ]
    seen = [(part.point, part.offer.name, part.offer.version) for part in subject.parts]
    wrong += [f"{a[0]}.{a[1]} is offered twice" for a, b in pairwise(sorted(seen)) if a == b]
    refuse(wrong)


@check("static.unique", "two distributions with one name make a plan ambiguous", whole=True)
def _unique(subject: Subject) -> None:
    refuse(
        f"{offer.distribution} offers {offer.point}.{offer.name} too"
        for offer in subject.catalog.offers
        if offer.distribution != subject.distribution and offer.point != "codes"
        for own in subject.offers
        if (own.point, own.name) == (offer.point, offer.name)
    )


@check("static.requirements", "what it requires has to be there", whole=True)
def _requirements(subject: Subject) -> None:
    refuse(
        f"it requires {each.requirement}, which is {'not installed' if each.installed is None else each.installed}"
        for each in unmet(str(subject.location), distributions())
    )


@check(
    "static.services",
    "a command or a table of codes that does not load fails when a user needs it",
    whole=True,
)
def _services(subject: Subject) -> None:
    wrong = []
    for offer in subject.offers:
        if offer.point in SERVICES:
            try:
                service(offer)
            except PluginError as error:
                wrong += [problem.message for problem in error.problems]
    refuse(wrong)


@check("static.codes-explained", "`nlpkernel explain` tells a user what to do next", whole=True)
def _codes_explained(subject: Subject) -> None:
    wrong = []
    for prefix, table, package in _tables(subject):
        strange = [code for code in table if not re.fullmatch(rf"{prefix}\d{{3}}", code)]
        wrong += [f"{code}: a code is {prefix} and three digits" for code in strange]
        if not strange and table:
            module = __import__(package)
            wrong += faults_of_codes(module, table, least=1)
    raised = {code for tree in subject.sources.values() for code in _raised(tree)}
    explained = {code for _, table, _ in _tables(subject) for code in table}
    ours = {offer.name for offer in subject.catalog.offers if offer.point == "codes"} - {
        offer.name for offer in subject.offers if offer.point == "codes"
    }
    own = sorted(code for code in raised - explained if code[:-3] not in ours)
    wrong += [
        f"{code} is raised and not explained"
        for code in own
        if f"{code} is used and not explained" not in wrong
    ]
    refuse(wrong)


@check("static.codes-own", "a code means one thing in every installation", whole=True)
def _codes_own(subject: Subject) -> None:
    tables = [offer for offer in subject.offers if offer.point == "codes"]
    if not tables:
        raise NotApplicable("it has no codes")
    refuse(
        f"{other.distribution} has codes that begin with {offer.name} too"
        for offer in tables
        for other in subject.catalog.offers
        if other.point == "codes" and other.name == offer.name and other.distribution != subject.distribution
    )


def _tables(subject: Subject) -> Iterator[tuple[str, dict[str, tuple[str, str]], str]]:
    for offer in subject.offers:
        if offer.point == "codes":
            try:
                yield offer.name, service(offer), offer.target.partition(".")[0]
            except PluginError:
                continue  # static.services says so


def _raised(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "fail":
            code = node.args[1] if len(node.args) > 1 else None
            if isinstance(code, ast.Constant) and isinstance(code.value, str):
                yield code.value


def at(path: Path, node: ast.AST) -> str:
    """A place in a source, as messages name it."""
    return f"{path}:{getattr(node, 'lineno', 0)}"
