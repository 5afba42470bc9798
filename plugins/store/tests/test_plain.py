from __future__ import annotations

import enum
import math
from collections import OrderedDict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.errors import CheckpointError
from nlpkernel_store.plain import decode, encode

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(2**70), max_value=2**70)
    | st.floats()
    | st.text(st.characters(codec=None))
    | st.binary()
)
keys = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2).map(tuple), max_leaves=3)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)


def identical(left, right):
    if type(left) is not type(right):
        return False
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(identical, left, right))
    if isinstance(left, dict):
        return identical(list(left), list(right)) and identical(list(left.values()), list(right.values()))
    if isinstance(left, float):
        return math.copysign(1, left) == math.copysign(1, right) and (
            left == right or (math.isnan(left) and math.isnan(right))
        )
    return left == right


@given(values)
def test_a_plain_value_comes_back_with_its_types_and_order(value):
    assert identical(decode(encode(value, "x")), value)


@pytest.mark.parametrize(
    "value",
    [
        2**63 - 1,
        2**63,
        2**64 - 1,
        2**64,
        -(2**63),
        -(2**63) - 1,
        10**400,
        -(10**400),
        "\ud800",
        -0.0,
        (),
        ((), [()]),
        {1: "a", "1": "b", (1, 2): None, b"1": True},
    ],
)
def test_edges_come_back(value):
    assert identical(decode(encode(value, "x")), value)


class Colour(enum.IntEnum):
    RED = 1


class Text(str):
    pass


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.float64(1.0), "numpy.float64"),
        (np.int64(1), "numpy.int64"),
        (Colour.RED, "Colour"),
        (Text("x"), "Text"),
        (OrderedDict(), "collections.OrderedDict"),
        ({1}, "builtins.set"),
        (bytearray(b"x"), "builtins.bytearray"),
        (1j, "builtins.complex"),
        (torch.zeros(1), "torch.Tensor"),
        (object(), "builtins.object"),
    ],
)
def test_any_other_type_is_refused_by_name_and_place(value, kind):
    with pytest.raises(CheckpointError) as caught:
        encode({"groups": [{"betas": (0.9, value)}]}, "optimizer/state")
    message = str(caught.value)
    assert "STO001" in message
    assert "optimizer/state['groups'][0]['betas'][1] cannot be stored" in message
    assert kind in message


def test_a_key_of_another_type_is_refused_too():
    with pytest.raises(CheckpointError, match=r"x\[<Colour.RED: 1>\] cannot be stored"):
        encode({Colour.RED: 1}, "x")


def test_a_value_that_holds_itself_is_refused():
    endless: list = []
    endless.append(endless)
    with pytest.raises(CheckpointError, match="nested deeper than 200"):
        encode(endless, "x")


@pytest.mark.parametrize("kind", [list, tuple])
def test_the_deepest_allowed_nesting_comes_back(kind):
    value = kind()
    for _ in range(199):
        value = kind([value])
    assert identical(decode(encode(value, "x")), value)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x01\x02", b"\xc7\x01\x63x", b"\x91"])
def test_bytes_that_are_none_of_ours_raise_value_error(data):
    with pytest.raises(ValueError):
        decode(data)
