"""Messages for tests: strategies made from the annotations, and one example of each kind."""

from __future__ import annotations

import types
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import attrs
from hypothesis import strategies as st

from nlpkernel_zmq.wire import messages
from nlpkernel_zmq.wire.fields import OneOf, Range, Unbound
from nlpkernel_zmq.wire.messages import Message

CLASSES = sorted(
    (
        value
        for value in vars(messages).values()
        if isinstance(value, type) and issubclass(value, Message) and value is not Message
    ),
    key=lambda cls: cls.KIND,
)

TEXT = st.text(max_size=8)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | TEXT
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Everything that an annotation allows, but for not-a-number, which is not equal to itself."""
    note = None
    if get_origin(hint) is Annotated:
        hint, note = get_args(hint)
    if isinstance(note, OneOf):
        return st.sampled_from(note.words)
    if isinstance(note, Range):
        return st.integers(note.low, note.high) | st.sampled_from([note.low, note.high])
    if hint is int:
        return st.integers(0, 2**63 - 1)
    if hint is float:
        return st.floats(allow_nan=False, allow_infinity=isinstance(note, Unbound))
    simple = {bool: st.booleans(), str: TEXT, bytes: st.binary(max_size=16)}
    if hint in simple:
        return simple[hint]
    inner = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return st.none() | values(inner[0])
    if get_origin(hint) is dict:
        return st.dictionaries(TEXT, PLAIN, max_size=3)
    assert get_origin(hint) is tuple
    if inner[1:] == (...,):
        return st.lists(values(inner[0]), max_size=4).map(tuple)
    return st.tuples(*(values(item) for item in inner))


@st.composite
def instances(draw: st.DrawFn, cls: type[Message]) -> Message:
    """A message of a class whose fields also fit together."""
    hints = get_type_hints(cls, include_extras=True)
    held = {field.name: draw(values(hints[field.name])) for field in attrs.fields(cls)}
    if "start" in held:
        held["start"], held["stop"] = sorted((held["start"], held["stop"]))
    return cls(**held)


def example(cls: type[Message]) -> Message:
    """One message of a class, always the same."""
    hints = get_type_hints(cls, include_extras=True)
    return cls(**{field.name: _example(hints[field.name]) for field in attrs.fields(cls)})


def _example(hint: Any) -> Any:
    note = None
    if get_origin(hint) is Annotated:
        hint, note = get_args(hint)
    if isinstance(note, OneOf):
        return note.words[0]
    plain = {"lr": 0.1, "betas": [0.9, 0.999], "name": "decay", "foreach": None, "fused": False}
    simple = {int: 3, float: 0.5, bool: True, str: "layers.0", bytes: b"\x00\x01\x02"}
    if hint in simple:
        return simple[hint]
    inner = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return _example(inner[0])
    if get_origin(hint) is dict:
        return plain
    return (_example(inner[0]),) * 3 if inner[1:] == (...,) else tuple(_example(item) for item in inner)
