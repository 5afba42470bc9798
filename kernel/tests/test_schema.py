"""The JSON Schema of plans: it is one, and it refuses nothing that `check` accepts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nlpkernel.errors import NlpkernelError, PlanError
from nlpkernel.plan import Plan
from nlpkernel.plan.schema import plan_schema
from nlpkernel.plugins.catalog import Catalog
from nlpkernel.plugins.scan import Offer

if TYPE_CHECKING:
    from conftest import Shop

COMPONENTS = '''
from __future__ import annotations
from pathlib import Path
from typing import Any, Literal
from nlpkernel import component, extension, hookimpl, setting, settings


@settings
class Keep:
    last: int = setting(ge=1, help="versions to keep")
    best: int | None = setting(default=None, ge=0)
    ways: tuple[Literal["a", "b"], ...] = setting(default=())


@component
class Constant:
    """A schedule."""

    warmup: int = setting(default=0, ge=0, unit="count")

    @hookimpl
    def create_schedule(self): ...


@component(presets={"small": {"width": 2, "keep": {"best": 1}}, "large": {"width": 9}})
class Optimizer:
    """An optimizer.

    With a second paragraph.
    """

    preset: str | None = setting(default=None, help="a size")
    width: int = setting(ge=1, lt=10, help="the width")
    lr: float = setting(default=0.1, gt=0, le=1)
    size: int = setting(default=1, unit="bytes", ge=0)
    text: str = setting(default="abc", min_length=2)
    flag: bool = setting(default=False)
    way: Literal["up", 1, True] = setting(default="up")
    pair: tuple[int, float] = setting(default=(1, 2.0), ge=0)
    some: list[int | str] = setting(default=["a"], min_length=1)
    table: dict[str, list[float]] = setting(factory=dict)
    where: Path | None = setting(default=None)
    keep: Keep = setting(default=Keep(last=3))
    other: Keep = setting(default=Keep(last=4))
    also: Keep | None = setting(default=None)
    anything: Any = setting(default=None)
    schedule: Any = extension("schedule", default="constant", help="the rate")
    optional: Any = extension("schedule", default=None)
    several: Any = extension("schedule", many=True)

    @hookimpl
    def create_optimizer(self): ...


@component
class Data:
    """Data."""

    @hookimpl
    def open_data(self): ...

    @hookimpl
    def open_codec(self): ...


@component
class Model:
    """A model."""

    @hookimpl
    def create_model(self): ...
'''


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """Components under plain names, and one that cannot be loaded."""
    folder = tmp_path_factory.mktemp("schema")
    (folder / "schema_components.py").write_text(COMPONENTS, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        __import__("schema_components")
    offers = [
        Offer(point, 1, name, f"{module}:{cls}", distribution, "1.0", "")
        for point, name, module, cls, distribution in (
            ("data", "rows", "schema_components", "Data", "acme"),
            ("model", "net", "schema_components", "Model", "acme"),
            ("optimizer", "own", "schema_components", "Optimizer", "acme"),
            ("schedule", "constant", "schema_components", "Constant", "acme"),
            ("schedule", "twice", "schema_components", "Constant", "acme"),
            ("schedule", "twice", "schema_components", "Constant", "other"),
            ("optimizer", "broken", "module_that_is_not_there", "X", "acme"),
            ("communicator", "single", "nlpkernel.builtin.single", "Single", "nlpkernel"),
            ("precision", "plain", "nlpkernel.builtin.single", "Plain", "nlpkernel"),
            ("policy", "budget", "nlpkernel.builtin.policies", "Budget", "nlpkernel"),
        )
    ]
    return Catalog(offers)


@pytest.fixture(scope="module")
def schema(catalog: Catalog) -> dict[str, Any]:
    return plan_schema(catalog)[0]


@pytest.fixture(scope="module")
def validator(schema: dict[str, Any]) -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_what_cannot_be_loaded_is_left_out_and_told(catalog: Catalog) -> None:
    schema, problems = plan_schema(catalog)
    assert sorted(problem.code for problem in problems) == ["NK052", "NK107"]
    names = schema["$defs"]["optimizer"]["anyOf"][0]["enum"]
    assert names == ["own"]


def test_an_editor_finds_help_defaults_and_ranges(schema: dict[str, Any]) -> None:
    json.dumps(schema, allow_nan=False)
    own = schema["$defs"]["optimizer"]["anyOf"][1]
    assert own["description"] == "An optimizer."
    assert own["required"] == ["use"]
    properties = own["properties"]
    assert properties["width"]["description"] == "the width"
    assert properties["width"]["anyOf"][0] == {"type": "integer", "minimum": 1, "exclusiveMaximum": 10}
    assert properties["lr"]["default"] == 0.1
    assert properties["preset"]["anyOf"][0] == {"enum": ["small", "large"]}
    assert properties["keep"]["default"] == {"last": 3, "best": None, "ways": []}
    assert "required" not in properties["keep"]["anyOf"][0]
    assert properties["also"]["anyOf"][0]["required"] == ["last"]
    assert schema["properties"]["monitor"]["description"]
    assert schema["properties"]["train"]["anyOf"][0]["properties"]["steps"]["description"]


# Values that are near enough to right ones to be either.
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 12)
    | st.floats(-2, 2)
    | st.sampled_from(
        ["", "a", "abc", "up", "3", "10k", "200MB", "1.5", "constant", "twice", "acme:twice", "small"]
    )
    | st.sampled_from(["${SET}", "${SET:-x}", "a ${SET}", "$${SET}", "zzz"])
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["last", "best", "ways", "use", "warmup", "x"]), inner, max_size=3)
    ),
    max_leaves=5,
)
_RIGHT: dict[str, st.SearchStrategy[Any]] = {
    "preset": st.sampled_from(["small", "large", None]),
    "width": st.integers(1, 9),
    "lr": st.floats(0.1, 1) | st.just(1),
    "size": st.integers(0) | st.just("2MB"),
    "text": st.text(min_size=2, max_size=3),
    "way": st.sampled_from(["up", 1, True]),
    "pair": st.tuples(st.integers(0, 3), st.floats(0, 3)).map(list),
    "some": st.lists(st.integers() | st.just("x"), min_size=1, max_size=2),
    "table": st.dictionaries(
        st.text(max_size=2), st.lists(st.integers(0, 2) | st.just(0.5), max_size=2), max_size=2
    ),
    "keep": st.fixed_dictionaries(
        {}, optional={"last": st.integers(1, 3), "best": st.none() | st.integers(0, 2)}
    ),
    "other": st.fixed_dictionaries({}, optional={"best": st.none() | st.integers(0, 2)}),
    "also": st.none() | st.just({"last": 2, "ways": ["a", "b"]}),
    "schedule": st.sampled_from(["constant", "acme:constant", {"use": "constant", "warmup": "3k"}]),
    "optional": st.none() | st.just({"use": "acme:twice", "warmup": 2}),
    "several": st.lists(st.sampled_from(["constant", {"use": "${SCHEDULE}"}]), max_size=2),
    "nobody": st.none(),
}


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    """Settings of the optimizer: mostly right ones, one or none replaced by anything."""
    names = draw(st.sets(st.sampled_from(sorted(set(_RIGHT) - {"nobody"})), max_size=5))
    table = {name: draw(_RIGHT[name]) for name in sorted(names)}
    if draw(st.booleans()):
        table[draw(st.sampled_from(sorted({*_RIGHT, "flag", "where", "anything"})))] = draw(_VALUES)
    return {"use": "own", "width": 3, **table}


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables())
def test_what_structuring_accepts_validates_and_what_the_schema_refuses_is_refused(
    catalog: Catalog, validator: jsonschema.Draft202012Validator, table: dict[str, Any]
) -> None:
    values = {"data": "rows", "model": {"use": "net"}, "train": {"steps": 1}, "optimizer": table}
    errors = [error.message for error in validator.iter_errors(values)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SET", "3")
        patch.setenv("SCHEDULE", "constant")
        try:
            plan = Plan.of(values, catalog=catalog)
        except PlanError:
            return
    assert errors == []
    # What comes out filled is a plan too.
    from nlpkernel.plan.plan import written

    assert list(validator.iter_errors(written(plan.filled))) == []


@pytest.mark.parametrize(
    "section",
    [
        {"optimizer": {"use": "own", "widht": 3}},
        {"optimizer": {"use": "own", "width": 0}},
        {"optimizer": {"use": "own", "width": "3"}},
        {"optimizer": {"use": "own", "width": 2.5}},
        {"optimizer": {"use": "own", "lr": True}},
        {"optimizer": {"use": "own", "lr": "fast"}},
        {"optimizer": {"use": "own", "preset": "tiny"}},
        {"optimizer": {"use": "own", "pair": [1]}},
        {"optimizer": {"use": "own", "pair": [1, 2, 3]}},
        {"optimizer": {"use": "own", "some": []}},
        {"optimizer": {"use": "own", "also": {}}},
        {"optimizer": {"use": "own", "keep": {"lst": 1}}},
        {"optimizer": {"use": "own", "schedule": {"use": "constant", "warmpu": 1}}},
        {"optimizer": {"use": "own", "schedule": "linear"}},
        {"optimizer": {"use": "broken"}},
        {"optimizer": {}},
        {"optimizer": "adamw"},
        {"optimizer": 3},
        {"train": {"steps": 0}},
        {"train": {"stesp": 1}},
        {"train": {"policy": {"use": "budget"}}},
        {"monitor": {"use": "x"}},
        {"optimzier": {"use": "own"}},
        {"name": 3},
    ],
    ids=str,
)
def test_the_schema_refuses_a_mistake_as_check_does(
    catalog: Catalog, validator: jsonschema.Draft202012Validator, section: dict[str, Any]
) -> None:
    right = {"data": "rows", "model": "net", "train": {"steps": 1}, "optimizer": {"use": "own", "width": 3}}
    assert validator.is_valid(right)
    assert Plan.of(right, catalog=catalog)
    assert not validator.is_valid({**right, **section})
    with pytest.raises(NlpkernelError):
        Plan.of({**right, **section}, catalog=catalog)


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ({"optimizer": {"use": "own", "width": 3, **table}}, value)
        for table, value in (
            ({"lr": "${SET}"}, "0.5"),
            ({"flag": "${SET}"}, "true"),
            ({"way": "${SET:-up}"}, "1"),
            ({"pair": "${SET}"}, "[1, 2]"),
            ({"pair": [1, "${SET}"]}, "2.5"),
            ({"table": {"a": ["${SET}"]}}, "2.5"),
            ({"keep": "${SET}"}, "{ last = 2 }"),
            ({"preset": "${SET}"}, "small"),
            ({"text": "${SET}"}, "abc"),
            ({"schedule": "${SET}"}, "constant"),
            ({"several": "${SET}"}, '["constant"]'),
        )
    ]
    + [({"train": "${SET}"}, "{ steps = 2 }"), ({"monitor": "${SET}"}, "[]"), ({"data": "${SET}"}, "rows")],
    ids=str,
)
def test_any_value_may_come_from_the_environment(
    catalog: Catalog,
    validator: jsonschema.Draft202012Validator,
    monkeypatch: pytest.MonkeyPatch,
    section: dict[str, Any],
    value: str,
) -> None:
    monkeypatch.setenv("SET", value)
    right = {"data": "rows", "model": "net", "train": {"steps": 1}, "optimizer": {"use": "own", "width": 3}}
    assert Plan.of({**right, **section}, catalog=catalog)
    assert [error.message for error in validator.iter_errors({**right, **section})] == []


def test_a_component_from_elsewhere_is_let_through(
    shop: Shop, validator: jsonschema.Draft202012Validator
) -> None:
    for data in (
        "./own.py:Data",
        {"use": "./own.py:Data", "rows": 3},
        {"use": "acme:rows"},
        "acme:rows",
        "${DATA}",
    ):
        assert validator.is_valid({"data": data})


def test_the_command_prints_the_schema_of_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    from nlpkernel.cli import main

    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert {"extends", "train", "data", "monitor"} <= schema["properties"].keys()
    names = schema["$defs"]["policy"]["anyOf"][0]["enum"]
    assert {"budget", "early-stopping", "non-finite"} <= set(names)
