"""Messages: what goes in comes out, and what does not belong is refused by name."""

from __future__ import annotations

import ast
import math
import struct
from pathlib import Path

import attrs
import msgpack
import pytest
from hypothesis import given, settings

import nlpkernel_zmq.wire as wire
from nlpkernel_zmq.wire.frames import LARGEST_HEADER, MAGIC, MAJOR, PREAMBLE, BadFrame, decode, encode
from nlpkernel_zmq.wire.messages import (
    Begun,
    Commit,
    End,
    Hello,
    Kind,
    Meet,
    Met,
    Nack,
    Params,
    Push,
    Put,
    Release,
    State,
    Welcome,
    pack,
    table,
    unpack,
)

from .parts.wire import CLASSES, example, instances

HELLO = {
    "run": "r",
    "role": "worker",
    "number": 0,
    "incarnation": 2**64 - 1,
    "release": "0.1.0",
    "host": "h",
}


def refusal(call, *values):
    try:
        call(*values)
    except BadFrame as error:
        return error
    return None


def refused(call, *values, code="field", names="", **named):
    with pytest.raises(BadFrame) as caught:
        call(*values, **named)
    assert caught.value.code == code, caught.value
    assert names in caught.value.reason


def test_every_kind_has_one_class_with_its_name():
    assert [cls.KIND for cls in CLASSES] == list(Kind)
    assert [cls.__name__.upper() for cls in CLASSES] == [kind.name.replace("_", "") for kind in Kind]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_message_comes_back_as_it_went(cls):
    @settings(max_examples=25, deadline=None)
    @given(instances(cls))
    def check(message):
        frame = pack(message)
        assert unpack(frame) == message
        assert unpack(memoryview(frame)) == message
        assert pack(unpack(frame)) == frame

    check()


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_missing_key_is_named_and_an_unknown_one_ignored(cls):
    message = example(cls)
    kind, header = decode(pack(message))
    optional = {field.name for field in attrs.fields(cls) if field.default is not attrs.NOTHING}
    assert unpack(encode(kind, header | {"newer": [1, {"a": b"b"}]})) == message
    for name in header:
        rest = {key: value for key, value in header.items() if key != name}
        if name in optional:
            assert type(unpack(encode(kind, rest))) is cls
        else:
            refused(unpack, encode(kind, rest), names=f"{cls.__name__}.{name} is missing")


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_value_of_another_type_is_refused_by_the_name_of_its_field(cls):
    kind, header = decode(pack(example(cls)))
    strangers = [None, True, 1, -7, 2**64 - 1, 1.5, "1", b"1", [], [[]], {}, {"a": 1}, math.inf]
    for name, held in header.items():
        refusals = [refusal(unpack, encode(kind, header | {name: stranger})) for stranger in strangers]
        taken = refusals.count(None)
        for error in filter(None, refusals):
            assert error.code == "field"
            assert error.reason.startswith((f"{cls.__name__}.{name} ", f"{cls.__name__}.stop "))
        # Beside its own type, a field takes nothing but the nil that its annotation allows.
        assert taken <= 4, (name, held)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("number", "1"),
        ("number", True),
        ("number", 1.0),
        ("number", -1),
        ("number", 2**63),
        ("incarnation", -1),
        ("role", "admin"),
        ("run", b"r"),
        ("run", None),
        ("arena", [1]),
    ],
)
def test_nothing_is_converted(field, value):
    refused(unpack, encode(Kind.HELLO, HELLO | {field: value}), names=f"Hello.{field}")


def test_a_float_is_finite_unless_the_message_says_otherwise():
    commit, end = decode(pack(example(Commit)))[1], decode(pack(example(End)))[1]
    for value in (math.inf, -math.inf, math.nan):
        back = unpack(encode(Kind.COMMIT, commit | {"norm": value}))
        assert repr(back.norm) == repr(value)
        refused(unpack, encode(Kind.END, end | {"factor": value}), names="End.factor")
    refused(unpack, encode(Kind.END, end | {"factor": 1}), names="End.factor is a int")


def test_a_whole_number_of_ours_goes_as_a_float():
    commit = unpack(pack(attrs.evolve(example(Commit), norm=2)))
    end = unpack(pack(attrs.evolve(example(End), factor=1)))
    assert (type(commit.norm), type(end.factor)) == (float, float)
    assert (commit.norm, end.factor) == (2.0, 1.0)


def test_what_the_other_side_would_refuse_is_not_sent():
    refused(pack, Nack(code="early", text="", round=-2), names="Nack.round")
    refused(pack, Nack(code="late", text=""), names="Nack.code")
    refused(pack, Begun(round=0, shard=2**63), names="Begun.shard")
    refused(pack, attrs.evolve(example(Release), applied=1), names="Release.applied")
    refused(pack, Meet(key="\ud800"), code="header")
    refused(pack, Meet(key="k" * LARGEST_HEADER), code="too-big")


@pytest.mark.parametrize("cls", [Put, Push, Params, State], ids=lambda cls: cls.__name__)
def test_a_range_does_not_end_before_it_starts(cls):
    kind, header = decode(pack(example(cls)))
    assert unpack(encode(kind, header | {"start": 5, "stop": 5})).stop == 5
    refused(unpack, encode(kind, header | {"start": 5, "stop": 4}), names=f"{cls.__name__}.stop")


def test_the_words_of_a_meeting_are_a_payload_that_a_header_need_not_hold():
    assert Meet.PAYLOAD
    assert Met.PAYLOAD
    sizes = (64 << 20,) * 3
    assert unpack(pack(Met(key="1", members=(0, 1, 2), sizes=sizes))).sizes == sizes


def test_the_messages_that_carry_numbers_or_words_are_these():
    assert {cls.__name__ for cls in CLASSES if cls.PAYLOAD} == {
        "Meet",
        "Met",
        "Put",
        "Push",
        "Params",
        "State",
    }


def hello(arena):
    return Hello(**HELLO, arena=arena)


def test_a_plain_map_holds_what_msgpack_gives_back():
    held = {"a": [1, -(2**63), 2**64 - 1, math.inf, None, True, {"b": b"c"}], "d": (1, 2)}
    assert unpack(pack(hello(held))).arena == held | {"d": [1, 2]}
    assert unpack(pack(hello(None))).arena is None
    for wrong in (
        {1: 2},
        {"a": {b"b": 1}},
        {"a": {1, 2}},
        {"a": 2**64},
        {"a": object()},
        {"a": bytearray(1)},
    ):
        refused(pack, hello(wrong), names="Hello.arena")


def test_a_plain_map_is_not_nested_without_end():
    deep = {}
    for _ in range(31):
        deep = {"a": deep}
    assert unpack(pack(hello(deep))).arena == deep
    refused(pack, hello({"a": deep}), names="Hello.arena is nested")
    refused(unpack, encode(Kind.HELLO, HELLO | {"arena": {"a": deep}}), names="Hello.arena is nested")


def test_a_release_may_say_that_nothing_is_kept_safe():
    assert unpack(pack(attrs.evolve(example(Release), durable=-1))).durable == -1
    refused(pack, attrs.evolve(example(Release), durable=-2), names="Release.durable")


def test_a_welcome_of_a_shard_leaves_out_what_only_the_coordinator_knows():
    back = unpack(encode(Kind.WELCOME, {"generation": 2, "beat": 0.5, "round": 7, "began": True}))
    assert back == Welcome(generation=2, beat=0.5, round=7, began=True)


def test_a_frame_is_these_bytes():
    frame = pack(Begun(round=300, shard=2))
    header = b"\x82\xa5round\xcd\x01\x2c\xa5shard\x02"
    assert frame == b"NLPK\x01\x0f\x00\x00" + len(header).to_bytes(4, "little") + header
    assert PREAMBLE == 12


def test_the_preamble_in_the_other_byte_order_is_refused():
    header = msgpack.packb({"round": 1, "shard": 2})
    refused(unpack, struct.pack(">4sBBHI", MAGIC, MAJOR, Kind.BEGUN, 0, len(header)) + header, code="too-big")
    assert unpack(struct.pack("<4sBBHI", MAGIC, MAJOR, Kind.BEGUN, 0, len(header)) + header).round == 1


def test_the_documentation_has_the_table_of_the_messages():
    text = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text()
    assert table() in text, "docs/protocol.md: put what `messages.table()` gives in the place of its table"
    assert text.count("\n| --- | --- | --- | --- | --- |\n") == 1


def test_nothing_here_unpickles_or_opens_a_socket():
    folder = Path(wire.__file__).parent
    names: dict[str, set[str]] = {}
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names.setdefault(path.name, set()).update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                names.setdefault(path.name, set()).add(node.module or "")
    assert "torch" in names["tensors.py"]
    for file, used in names.items():
        assert not used & {"zmq", "pickle", "marshal", "shelve", "dill", "cloudpickle"}, file
        assert file == "tensors.py" or "torch" not in used
    for path in folder.parent.rglob("*.py"):
        assert "pickle" not in path.read_text(), path
