"""Components: a class whose fields are its settings, and whose hook methods are what it does.

A component is the whole plugin: there is no second schema. `component` makes an attrs class that is keyword-only
and compared by identity (pluggy takes two equal objects for one). This module stays light: it is imported by
every plugin, so it must not pull in torch or numpy.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import (
    Any,
    Literal,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import attrs
import pluggy

_C = TypeVar("_C", bound=type)

#: Key of our facts in the metadata of an attrs field.
METADATA = "nlpkernel"
#: Attribute of a component class that holds its named sets of defaults.
PRESETS = "__nlpkernel_presets__"
#: Attribute that marks a class as a component (True) or a plain group of settings (False).
MARK = "__nlpkernel_component__"

#: Marks a method as the answer to a hook of the same name. See `nlpkernel.hookspecs`.
hookimpl = pluggy.HookimplMarker("nlpkernel")

Unit = Literal["bytes", "seconds", "count"]


@attrs.frozen(kw_only=True)
class Setting:
    """What is known of one setting beside its type: its range, unit, help, and the extension point it opens."""

    help: str = ""
    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None
    min_length: int | None = None
    unit: Unit | None = None
    secret: bool = False
    point: str | None = None
    many: bool = False


def setting(
    *,
    default: Any = attrs.NOTHING,
    factory: Callable[[], Any] | None = None,
    help: str = "",
    gt: float | None = None,
    ge: float | None = None,
    lt: float | None = None,
    le: float | None = None,
    min_length: int | None = None,
    unit: Unit | None = None,
    secret: bool = False,
) -> Any:
    """One setting of a component.

    `gt`, `ge`, `lt`, `le` bound a number, or each number of a list or tuple. `min_length` bounds text and lists.
    `unit` lets the plan write `"200MB"` (bytes), `"5m"` (seconds) or `"300M"` (count); the field then holds the
    number. A `secret` must be given as an environment reference (`"${NAME}"`) and is never written down.
    Types: bool, int, float, str, Path, Literal[...], `T | None`, list[T], tuple[T, ...], tuple[T, U], dict[str, T],
    and classes made with `settings`. In a table of such a class the plan may leave out what `default` gives.
    """
    facts = Setting(help=help, gt=gt, ge=ge, lt=lt, le=le, min_length=min_length, unit=unit, secret=secret)
    return _field(facts, default, factory)


def extension(
    point: str,
    *,
    default: str | Mapping[str, Any] | object | None = attrs.NOTHING,
    many: bool = False,
    help: str = "",
) -> Any:
    """A setting that holds another component, chosen in the plan with `use`.

    `point` is the name of the extension point (`"tokenizer"`, `"schedule"`, ...), and so of the entry-point group
    `nlpkernel.<point>.v1`. `default` is a component's name, a table with `use`, or None. With `many` the plan
    holds an array of tables and the field a list of components (empty by default).
    """
    if many and default is attrs.NOTHING:
        default = ()
    return _field(Setting(help=help, point=point, many=many), default, None)


def _field(facts: Setting, default: Any, factory: Callable[[], Any] | None) -> Any:
    if factory is not None:
        return attrs.field(factory=factory, metadata={METADATA: facts})
    if isinstance(default, (dict, list)):
        return attrs.field(factory=lambda: type(default)(default), metadata={METADATA: facts})
    return attrs.field(default=default, metadata={METADATA: facts})


@overload
def component(cls: _C, /) -> _C: ...


@overload
def component(*, presets: Mapping[str, Mapping[str, Any]]) -> Callable[[_C], _C]: ...


@dataclass_transform(
    kw_only_default=True, eq_default=False, field_specifiers=(setting, extension, attrs.field)
)
def component(cls: Any = None, /, *, presets: Mapping[str, Mapping[str, Any]] | None = None) -> Any:
    """Make a class a component: its annotated fields are settings, its `@hookimpl` methods answer hooks.

    `presets` are named sets of defaults; a component that has them declares a setting `preset`. What a preset
    gives stands between the field's own default and what the plan writes.
    A method `check_settings(self)` may yield pairs (setting, message) about settings that do not go together;
    each becomes a problem at that setting's place in the plan.
    Raise TypeError for a setting `use`, which is reserved, and for presets that name no setting.
    """

    def make(klass: Any) -> Any:
        made = attrs.define(klass, kw_only=True, eq=False, slots=False, auto_attribs=True)
        names = {field.name for field in attrs.fields(made)}
        if "use" in names:
            raise TypeError(f"{klass.__name__}: a setting cannot be named 'use', which names the component")
        if presets and "preset" not in names:
            raise TypeError(f"{klass.__name__} has presets and no setting 'preset' to choose one by")
        for preset, values in (presets or {}).items():
            for name in values.keys() - (names - {"preset"}):
                raise TypeError(
                    f"{klass.__name__}: the preset {preset!r} gives {name!r}, which is no setting"
                )
        setattr(made, MARK, True)
        setattr(made, PRESETS, dict(presets or {}))
        return made

    return make if cls is None else make(cls)


@dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(setting, extension, attrs.field)
)
def settings(cls: _C) -> _C:
    """Make a class a named group of settings: a table inside a component, compared by value."""
    made = attrs.frozen(cls, kw_only=True, auto_attribs=True)
    setattr(made, MARK, False)
    setattr(made, PRESETS, {})
    return made


def is_component(cls: object) -> bool:
    """Tell whether `cls` is itself made with `component`: a plain subclass of one would lose its settings."""
    return isinstance(cls, type) and bool(vars(cls).get(MARK, False))


def is_settings(cls: object) -> bool:
    """Tell whether `cls` is made with `settings` or `component`."""
    return isinstance(cls, type) and MARK in vars(cls)


@attrs.frozen
class FieldFacts:
    """One setting of a class, with its type resolved and its own facts."""

    name: str
    type: Any
    default: Any
    facts: Setting

    @property
    def required(self) -> bool:
        """Whether the plan must write this setting."""
        return self.default is attrs.NOTHING


def fields_of(cls: type) -> Sequence[FieldFacts]:
    """The settings of a component or settings class, in the order of its source.

    Private and `init=False` fields hold what a component remembers while it runs; they are no settings. Raise TypeError
    for a type that does not resolve, or that no plan can write.
    """
    return [
        FieldFacts(
            name=field.name,
            type=Any if _facts(field).point else _type(field, cls),
            default=_default(field),
            facts=_facts(field),
        )
        for field in attrs.fields(cls)
        if field.init and not field.name.startswith("_")
    ]


def _facts(field: attrs.Attribute[Any]) -> Setting:
    return field.metadata.get(METADATA, Setting())  # type: ignore[no-any-return]


def _default(field: attrs.Attribute[Any]) -> Any:
    # attrs types the default as the value; a factory stands there as an object of its own.
    default: Any = field.default
    return default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]


def _type(field: attrs.Attribute[Any], cls: type) -> Any:
    kind = field.type
    if isinstance(kind, str):
        # The class that wrote the annotation knows the names in it; a subclass may live in another module.
        owner = next(base for base in cls.__mro__ if field.name in vars(base).get("__annotations__", {}))
        # One annotation at a time: that of another setting may name what is only there for type checkers.
        alone = types.SimpleNamespace(__annotations__={field.name: kind})
        try:
            kind = get_type_hints(alone, vars(sys.modules[owner.__module__]))[field.name]
        except Exception as error:
            raise TypeError(
                f"{cls.__qualname__}.{field.name}: the type {field.type!r} cannot be resolved ({error}); "
                "a setting's type must be importable at run time, not only under TYPE_CHECKING"
            ) from error
    if not _writable(kind):
        raise TypeError(f"{cls.__qualname__}.{field.name}: no plan can write the type {field.type}")
    return kind


def _writable(kind: Any) -> bool:
    """Whether a plan can write a value of this type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_settings(kind):
        fields_of(kind)  # Says itself what is wrong.
        return True
    if origin in (Union, types.UnionType, list, tuple):
        return all(_writable(each) for each in arguments if each is not Ellipsis)
    if origin is dict:
        return arguments[0] is str and _writable(arguments[1])
    return origin is Literal or kind in (Any, bool, int, float, str, Path, types.NoneType)
