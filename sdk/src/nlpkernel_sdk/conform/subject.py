"""What is looked at: a distribution, and each component that it offers."""

from __future__ import annotations

import ast
import atexit
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs

from nlpkernel.components import PRESETS, FieldFacts, fields_of
from nlpkernel.errors import Problem, UsageError, fail
from nlpkernel.plan import Plan
from nlpkernel.plugins.catalog import Catalog, Found
from nlpkernel.plugins.hooks import problems_of
from nlpkernel.plugins.scan import SERVICES, Offer, headers, normalise
from nlpkernel_sdk.conform.around import ADDRESSES, around
from nlpkernel_sdk.conform.checks import NotApplicable

_KEYS = {"settings", "plan", "sample"}
#: Seconds that a script may take to make files.
_PREPARED = 300
_TABLE_KEYS = {"at-least", "known", "components", "prepare"}


@attrs.frozen(kw_only=True)
class Config:
    """What an author says: settings that a component must be given, sections of the plan around it, a sample file for
    readers, by "point.name"; known failures, check to reason; how many checks are run at least. base: the folder that
    relative paths start from; where the author has a script that prepares files, the one that it filled."""

    components: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    known: Mapping[str, str] = attrs.field(factory=dict)
    at_least: int = 1
    base: Path = attrs.field(factory=Path.cwd)

    @classmethod
    def read(cls, start: Path) -> Config:
        """The table [tool.nlpkernel.conform] of the nearest pyproject.toml at or above a folder; nothing where there
        is none. Its script `prepare` is run. Raise UsageError: SDK011 for keys that mean nothing, SDK016 where the
        script fails."""
        for folder in (start, *start.parents):
            file = folder / "pyproject.toml"
            if not file.is_file():
                continue
            table = tomllib.loads(file.read_text("utf-8")).get("tool", {}).get("nlpkernel", {}).get("conform")
            if table is None:
                return cls(base=folder)
            strangers = sorted(table.keys() - _TABLE_KEYS)
            if strangers:
                message = f"[tool.nlpkernel.conform] has no key {strangers[0]!r}"
                raise fail(UsageError, "SDK011", message, hint=f"it has {', '.join(sorted(_TABLE_KEYS))}")
            return cls(
                components=table.get("components", {}),
                known=table.get("known", {}),
                at_least=table.get("at-least", 1),
                base=_prepared(folder / table["prepare"]) if "prepare" in table else folder,
            )
        return cls(base=start)


def _prepared(script: Path) -> Path:
    """A folder that an author's script has filled, gone when this process ends. A process of its own runs the script,
    so that nothing which it imports or changes is seen by the checks."""
    folder = tempfile.mkdtemp(prefix="nlpkernel-conform-files-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = [sys.executable, str(script), folder]
    message = ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PREPARED, check=False)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["without a word"]
            message = f"{script} ends with exit code {done.returncode}: {last[0]}"
    except subprocess.TimeoutExpired:
        message = f"{script} does not end within {_PREPARED} seconds"
    if message:
        raise fail(UsageError, "SDK016", message, hint="run it by itself, with the path of an empty folder")
    return Path(folder)


class Subject:
    """A distribution that is installed. Raise UsageError (SDK010, SDK011)."""

    def __init__(self, distribution: str, config: Config, catalog: Catalog | None = None) -> None:
        self.catalog = catalog or Catalog()
        self.distribution, self.config = normalise(distribution), config
        self.offers = [offer for offer in self.catalog.offers if offer.distribution == self.distribution]
        if not self.offers:
            message = f"no installed distribution {distribution!r} offers anything"
            raise fail(
                UsageError, "SDK010", message, hint="install it; `nlpkernel plugins` lists what is there"
            )
        # What importing a component here may change is not what a clean process starts from.
        self._environment = dict(os.environ)
        components = [offer for offer in self.offers if offer.point not in SERVICES]
        self.parts = [Part(self, offer) for offer in components]
        names = {part.name for part in self.parts}
        for name, table in config.components.items():
            strangers = sorted(table.keys() - _KEYS)
            if name not in names or strangers:
                what = f"of {name!r} has no key {strangers[0]!r}" if strangers else f"names {name!r}"
                hint = f"there is {', '.join(sorted(_KEYS if strangers else names))}"
                raise fail(UsageError, "SDK011", f"the table for the conformance kit {what}", hint=hint)

    @property
    def release(self) -> str:
        """Its version."""
        return self.offers[0].release

    @property
    def location(self) -> Path:
        """Its metadata folder."""
        return Path(self.offers[0].location)

    def fields(self, *names: str) -> dict[str, list[str]]:
        """Fields of its metadata, in lower case."""
        return headers(str(self.location), names)

    @cached_property
    def packages(self) -> dict[str, Path]:
        """The top packages, or modules, that its entry points lead to, and where they lie."""
        found = {}
        for offer in self.offers:
            top = offer.target.partition(":")[0].partition(".")[0]
            spec = importlib.util.find_spec(top)
            if spec is not None and spec.origin is not None:
                origin = Path(spec.origin)
                found[top] = origin.parent if origin.name == "__init__.py" else origin
        return found

    @cached_property
    def sources(self) -> dict[Path, ast.Module]:
        """Every module of its packages, parsed. One that is no Python is left out: importing it says so."""
        parsed = {}
        for place in self.packages.values():
            for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
                try:
                    parsed[path] = ast.parse(path.read_text("utf-8"))
                except (SyntaxError, UnicodeDecodeError):
                    continue
        return parsed

    @cached_property
    def probed(self) -> Mapping[str, Any]:
        """What a clean process saw when it imported the components, and checked plans of them."""
        plans = {}
        for part in self.parts:
            try:
                plans[part.name] = [part.values(), str(self.config.base)]
            except NotApplicable:
                continue
        request = {
            "path": sys.path,
            "modules": sorted({part.offer.target.partition(":")[0] for part in self.parts}),
            "plans": plans,
        }
        code = "from nlpkernel_sdk.conform.probe import main; main()"
        child = subprocess.run(
            [sys.executable, "-P", "-c", f"import sys; sys.path[:] = {sys.path!r}; {code}"],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=120,
            env=self._environment,
            check=False,
        )
        try:
            answer: Mapping[str, Any] = json.loads(child.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            last = child.stderr.strip().splitlines()[-1:] or ["without a word"]
            return {"died": f"exit code {child.returncode}: {last[0]}"}
        return answer


class Part:
    """One component of the distribution."""

    def __init__(self, subject: Subject, offer: Offer) -> None:
        self.subject, self.offer, self.point = subject, offer, offer.point
        self.name = f"{offer.point}.{offer.name}"
        self.config = subject.config.components.get(self.name, {})
        #: Results that several checks share, by name.
        self.shared: dict[str, Any] = {}

    @property
    def use(self) -> str:
        """What a plan writes to mean this component and no other."""
        return f"{self.subject.distribution}:{self.offer.name}"

    @cached_property
    def resolved(self) -> Found | Problem:
        """The class, or why there is none."""
        return self.subject.catalog.resolve(self.point, self.use, base=None, place=None)

    @property
    def cls(self) -> type:
        """The class. Raise NotApplicable where it does not load, which a check of its own says."""
        if isinstance(self.resolved, Problem):
            raise NotApplicable("it does not load: see static.loads")
        return self.resolved.cls

    @property
    def fields(self) -> Sequence[FieldFacts]:
        """Its settings."""
        return fields_of(self.cls)

    @property
    def required(self) -> list[str]:
        """Settings that a plan must write and that the author gives no value for."""
        given = {**self.first_preset, **self._usual, **self.config.get("settings", {})}
        return [field.name for field in self.fields if field.required and field.name not in given]

    @property
    def first_preset(self) -> Mapping[str, Any]:
        """What the smallest way to name a component with presets gives: the first of them."""
        presets = getattr(self.cls, PRESETS, {})
        return next(iter(presets.values()), {})

    @property
    def _usual(self) -> Mapping[str, Any]:
        """A rate that goes with a tiny plan, for an optimizer that needs one."""
        needs = any(field.name == "lr" and field.required for field in self.fields)
        return {"lr": 0.01} if self.point == "optimizer" and needs else {}

    def table(self, **more: Any) -> dict[str, Any]:
        """The table of a plan that names it. Raise NotApplicable where the author has to give settings."""
        if isinstance(self.resolved, Found) and problems_of(self.resolved, None):
            raise NotApplicable("no plan can name it: see static.hooks-*")
        if self.required:
            raise NotApplicable(
                f"it needs {', '.join(self.required)}: give them in "
                f'[tool.nlpkernel.conform.components."{self.name}"] as settings'
            )
        first = {"preset": next(iter(vars(self.cls)[PRESETS]))} if self.first_preset else {}
        return {"use": self.use, **first, **self._usual, **self.config.get("settings", {}), **more}

    @property
    def address(self) -> str:
        """Where its table stands in `values`."""
        return ADDRESSES.get(self.point, "monitor[0]" if self.point == "monitor" else self.point)

    def found(self, plan: Plan) -> Any:
        """Its instance in a plan around it: at its address, or elsewhere in a plan of the author's."""
        placed = plan.compose().placed
        at = [each.component for each in placed if each.address == self.address]
        return (at or [each.component for each in placed if type(each.component) is self.cls])[0]

    def values(self, *, train: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """A tiny plan around it, as values; `more` are settings of the component. Raise NotApplicable for a point whose
        parent nobody here knows."""
        return around(self, self.table(**more), dict(train or {}))
