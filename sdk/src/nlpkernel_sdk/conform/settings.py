"""Static checks of a component's settings, through written plans."""

from __future__ import annotations

import json
import tempfile
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from nlpkernel.components import PRESETS, FieldFacts, is_settings
from nlpkernel.errors import NlpkernelError, Problem
from nlpkernel.plan import Plan
from nlpkernel.plan.schema import plan_schema
from nlpkernel.plan.writer import write_toml
from nlpkernel.plugins.catalog import Catalog
from nlpkernel_sdk.conform.checks import NotApplicable, check, refuse
from nlpkernel_sdk.conform.subject import Part
from nlpkernel_sdk.light import without_help

#: Parts of names of settings that hold what nobody may read.
_SECRET = ("password", "passphrase", "secret", "api_key", "apikey", "access_key", "auth_token")

#: What the kernel says of a default that its own setting does not allow.
OWN_FAULT = "what the component has by itself"


def written(part: Part, within: str, /, **more: Any) -> tuple[Path, list[str]]:
    """A plan of the component as a file, and its lines."""
    path = Path(within) / "plan.toml"
    text = write_toml(_plain(part.values(**more)))
    path.write_text(text, encoding="utf-8")
    return path, text.splitlines()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items() if each is not None}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def problems(part: Part, path: Path) -> list[Problem]:
    """What is wrong with a plan in a file."""
    try:
        Plan.load(path, catalog=part.subject.catalog)
    except NlpkernelError as error:
        return list(error.problems)
    return []


@check("static.settings-help", "`plugins show` and the reference tell what a setting is")
def _settings_help(part: Part) -> None:
    refuse(f"the setting {name!r} has no help" for name in without_help(part.cls))


@check("static.settings-typed", "only what has a type is checked before a run")
def _settings_typed(part: Part) -> None:
    refuse(
        f"the setting {field.name!r} takes anything: give it a type"
        for field in part.fields
        if field.type is Any and not field.facts.point
    )


@check("static.secrets", "what is no secret is written into plans, locks and versions")
def _secrets(part: Part) -> None:
    refuse(
        f"the setting {field.name!r} is not marked as secret"
        for field in part.fields
        if not field.facts.secret and any(word in field.name.lower() for word in _SECRET)
    )


@check("static.defaults", "a default that the plan may not write is a trap")
def _defaults(part: Part) -> None:
    given = part.config.get("settings", {})
    own = {
        field.name: field.default
        for field in part.fields
        if _can_be_written(field) and field.name not in given
    }
    with tempfile.TemporaryDirectory() as folder:
        path, _ = written(part, folder, **own)
        before = problems(part, written(part, folder)[0])
        refuse(str(each) for each in before if OWN_FAULT in str(each))
        written(part, folder, **own)
        known = {each.message for each in before}
        refuse(str(each) for each in problems(part, path) if each.message not in known)


def _can_be_written(field: FieldFacts) -> bool:
    simple = isinstance(field.default, (bool, int, float, str, tuple, list))
    return simple and not field.facts.point and not field.facts.secret and field.name != "preset"


@check("static.presets", "a preset that does not load is found by the user who picks it")
def _presets(part: Part) -> None:
    presets = getattr(part.cls, PRESETS, {})
    if not presets:
        raise NotApplicable("it has no presets")
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for name in presets:
            path, _ = written(part, folder, preset=name)
            wrong += [f"preset {name!r}: {problem}" for problem in problems(part, path)]
    refuse(wrong)


@check("static.unknown-setting", "a misspelt setting must not be ignored")
def _unknown_setting(part: Part) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, lines = written(part, folder, no_such_setting=1)
        if not any(_there(problem, lines, "no_such_setting", path) for problem in problems(part, path)):
            refuse(["a plan with the setting 'no_such_setting' is taken as it is"])


@check("static.bad-settings", "every wrong value is found before a run, with file, line and column")
def _bad_settings(part: Part) -> str:
    part.table()
    bad = {
        field.name: list(bad_values(field))
        for field in part.fields
        if not field.facts.point and not field.facts.secret and field.name != "preset"
    }
    wrong, number = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(max(map(len, bad.values()), default=0)):
            values = {name: own[turn] for name, own in bad.items() if turn < len(own)}
            path, lines = written(part, folder, **values)
            found = problems(part, path)
            number += len(values)
            wrong += [
                f"{name} = {json.dumps(value)} is taken, or refused without its place"
                for name, value in values.items()
                if not any(_there(problem, lines, name, path) for problem in found)
            ]
    refuse(wrong)
    return f"{number} bad values"


def _there(problem: Problem, lines: list[str], name: str, path: Path) -> bool:
    place = problem.place
    if place is None or place.file != str(path) or not 1 <= place.line <= len(lines) or place.column < 1:
        return False
    return name in lines[place.line - 1] and name in problem.message


def bad_values(field: FieldFacts) -> Iterator[Any]:
    """Values that a plan must not give a setting: of another type, and beyond its bounds."""
    options = _options(field.type)
    if Any in options:
        return
    kinds = {get_origin(each) or each for each in options}
    if dict not in kinds and not any(map(is_settings, options)):
        yield {"no_such_key": {"at": "all"}}
    if not kinds & {str, Path, Literal} and field.facts.unit is None:
        yield "no such value"
    if Literal in kinds and not kinds & {str, Path}:
        yield "no-such-choice"
    numbers = kinds & {int, float}
    if numbers:
        facts, whole = field.facts, float not in kinds
        for bound, sign in ((facts.gt, 0), (facts.ge, -1), (facts.lt, 0), (facts.le, 1)):
            if bound is not None:
                beyond = bound + sign * max(1.0, abs(bound))
                yield int(beyond) if whole else float(beyond)
    if numbers == {int} and not kinds & {str, Path, Literal}:
        yield 0.5
    if kinds == {bool}:
        yield 3
    if field.facts.min_length and str in kinds:
        yield ""
    if field.facts.min_length and kinds & {list, tuple}:
        yield []


def _options(kind: Any) -> list[Any]:
    if get_origin(kind) in (Union, types.UnionType):
        return [each for option in get_args(kind) for each in _options(option) if each is not type(None)]
    return [kind]


@check("static.check-settings", "settings that do not go together are named where they stand")
def _check_settings(part: Part) -> str:
    if not hasattr(part.cls, "check_settings"):
        raise NotApplicable("it has no check_settings")
    known = {field.name for field in part.fields}
    try:
        plan = Plan.of(part.values(), base=part.subject.config.base, catalog=part.subject.catalog)
    except NlpkernelError as error:
        raise NotApplicable("its tiny plan is refused: see static.checks") from error
    own = part.found(plan)
    given = {name: getattr(own, name) for name in known}
    wrong, number = set(), 0
    for values in _variants(part.fields, given):
        number += 1
        try:
            answers = list(part.cls(**values).check_settings() or ())
        except Exception as error:  # noqa: BLE001 - it may fail in any way; it is named
            wrong.add(f"check_settings raises {type(error).__name__}: {error}")
            continue
        for answer in answers:
            if not (isinstance(answer, tuple) and len(answer) == 2 and answer[0] in known and answer[1]):
                wrong.add(f"check_settings yields {answer!r}, which is no (setting, message)")
    refuse(sorted(wrong))
    return f"{number} variants of its settings"


def _variants(fields: Sequence[FieldFacts], given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The settings as given, and with one of them another one that its type and bounds allow."""
    yield dict(given)
    for field in fields:
        for value in _others(field):
            yield {**given, field.name: value}


def _others(field: FieldFacts) -> Iterator[Any]:
    facts = field.facts
    for kind in _options(field.type):
        if kind is bool:
            yield from (True, False)
        elif get_origin(kind) is Literal:
            yield from get_args(kind)
        elif kind in (int, float) and not facts.point:
            yield from (kind(each) for each in (facts.ge, facts.le) if each is not None)


def _named(value: Any) -> Iterator[str]:
    """Every component that a plan names by a bare name."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            if key == "use" or isinstance(each, str):
                yield str(each)
            else:
                yield from _named(each)
    elif isinstance(value, list):
        for each in value:
            yield from _named(each)


@check("static.schema", "editors complete and check plans by the JSON Schema")
def _schema(part: Part) -> str:
    part.table()
    values = json.loads(json.dumps(_plain(part.values()), default=str))
    # The plan around it may name components of others.
    named = set(_named(values))
    houses = {part.subject.distribution, "nlpkernel", "nlpkernel-sdk"}
    houses |= {offer.distribution for offer in part.subject.catalog.offers if offer.name in named}
    schemas = part.subject.__dict__.setdefault("schemas", {})
    shared = schemas.get(frozenset(houses))
    if shared is None:
        offers = [offer for offer in part.subject.catalog.offers if offer.distribution in houses]
        shared = schemas[frozenset(houses)] = plan_schema(Catalog(offers))
    schema, wrong = shared
    refuse(str(problem) for problem in wrong if part.offer.name in str(problem.owner))
    json.dumps(schema)
    try:
        import jsonschema  # type: ignore[import-untyped]
    except ImportError:
        return "jsonschema is not installed: only written"
    # The schema knows a component of a named distribution as anything; here its own settings are to be looked at.
    text = json.dumps(values).replace(f'"{part.use}"', json.dumps(part.offer.name))
    refuse(
        f"{'.'.join(map(str, error.absolute_path))}: {error.message[:100]}"
        for error in jsonschema.Draft202012Validator(schema).iter_errors(json.loads(text))
    )
    return "a plan of it is valid"
