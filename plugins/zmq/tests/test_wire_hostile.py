"""Frames from somebody who means no good: an answer within microseconds, no memory, no other exception."""

from __future__ import annotations

import gc
import pickle
import random
import struct
import tracemalloc
from collections.abc import Iterator

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel_zmq.wire.frames import LARGEST_HEADER, MAGIC, MAJOR, BadFrame, decode, encode
from nlpkernel_zmq.wire.messages import Kind, Message, pack, unpack

from .parts.wire import CLASSES, example

CODES = {"magic", "version", "truncated", "too-big", "header", "kind", "field"}


def framed(
    header: bytes, kind: int = Kind.BEGUN, major: int = MAJOR, flags: int = 0, magic: bytes = MAGIC
) -> bytes:
    return struct.pack("<4sBBHI", magic, major, kind, flags, len(header)) + header


def code_of(frame: bytes) -> str:
    """The code that a frame is refused with; empty if it is a message."""
    try:
        message = unpack(frame)
    except BadFrame as error:
        code, reason = error.code, error.reason
    else:
        assert isinstance(message, Message)
        return ""
    assert code in CODES
    assert len(reason) < 400
    return code


VALID = [pack(example(cls)) for cls in CLASSES]
PLAIN = {"round": 1, "shard": 2}
BEGUN = msgpack.packb(PLAIN)


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("something was unpickled",))


CLAIMS = [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"]
CLAIMS += [b"\xdc\xff\xff", b"\xde\xff\xff", b"\xda\xff\xff", b"\xc5\xff\xff", b"\xc9\xff\xff\xff\xff\x01"]


def hostile(seed: int) -> Iterator[bytes]:
    """Frames without end, half of them a valid one with some bits turned."""
    chance = random.Random(seed)
    while True:
        yield chance.randbytes(chance.randrange(0, 60))
        yield framed(chance.randbytes(chance.randrange(0, 60)), chance.randrange(0, max(Kind) + 8))
        yield framed(chance.choice(CLAIMS) + chance.randbytes(20), chance.randrange(1, max(Kind) + 1))
        yield framed(b"\x81\xa5round" + chance.choice(CLAIMS) + chance.randbytes(chance.randrange(20)))
        frame = chance.choice(VALID)
        yield frame[: chance.randrange(len(frame))]
        for _ in range(5):
            turned = bytearray(chance.choice(VALID))
            for _ in range(chance.choice((1, 1, 2, 5))):
                turned[chance.randrange(len(turned))] ^= 1 << chance.randrange(8)
            yield bytes(turned)


def test_a_hundred_thousand_hostile_frames_meet_nothing_but_an_answer():
    frames = hostile(2026)
    seen = dict.fromkeys([*sorted(CODES), ""], 0)
    for _ in range(100_000):
        seen[code_of(next(frames))] += 1
    assert min(seen.values()) > 100, seen


def test_hostile_frames_leave_no_memory_behind():
    """Not even cycles for the collector: each refusal is gone with its error."""
    frames = hostile(7)
    batch = [next(frames) for _ in range(3_000)]
    for frame in batch:
        code_of(frame)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for frame in batch:
            code_of(frame)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert after - before < 20_000
    assert peak - before < 200_000


@pytest.mark.parametrize("claim", CLAIMS, ids=bytes.hex)
@pytest.mark.parametrize("depth", [1, 1_000, 10_000])
@pytest.mark.parametrize("filled", [False, True])
def test_no_memory_is_taken_for_a_claimed_size(claim, depth, filled):
    """A thousand lists, one in another, of 65,535 items each would take half a gigabyte to begin with."""
    header = (b"\x81\xa5round" + claim * depth)[:LARGEST_HEADER]
    if filled:
        header = header.ljust(LARGEST_HEADER, b"\x00")
    frame = framed(header)
    assert code_of(frame) == "header"
    tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        code_of(frame)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - before < 6 * LARGEST_HEADER


def test_a_map_that_is_there_takes_a_bounded_multiple_of_its_bytes():
    header = b"\x81\xa5round\xdd" + (65_000).to_bytes(4, "big") + b"\x80" * 65_000
    tracemalloc.start()
    try:
        assert code_of(framed(header)) == "field"
        assert tracemalloc.get_traced_memory()[1] < 100 * LARGEST_HEADER
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("frame", VALID, ids=[cls.__name__ for cls in CLASSES])
def test_a_frame_that_ends_early_or_late_is_refused(frame):
    for size in range(len(frame)):
        assert code_of(frame[:size]) == "truncated"
    assert code_of(frame + b"\x00") == "header"
    assert code_of(frame + frame) == "header"


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"", "truncated"),
        (b"NLP", "truncated"),
        (b"NLX", "magic"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "magic"),
        (framed(BEGUN, magic=b"nlpk"), "magic"),
        (framed(BEGUN, major=0), "version"),
        (framed(BEGUN, major=2), "version"),
        (framed(b"not msgpack at all", major=2), "version"),
        (framed(BEGUN, flags=1), "version"),
        (framed(BEGUN, kind=0), "kind"),
        (framed(BEGUN, kind=max(Kind) + 1), "kind"),
        (framed(BEGUN, kind=255), "kind"),
        (framed(b""), "header"),
        (framed(b"\x90"), "header"),
        (framed(b"\xc0"), "header"),
        (framed(b"\xc1"), "header"),
        (framed(BEGUN + b"\x00"), "header"),
        (framed(b"\x81\x01\x02"), "header"),
        (framed(b"\x81\xc4\x05round\x02"), "header"),
        (framed(b"\x81\xa5round\x81\x01\x02"), "header"),
        (framed(b"\x81\xa5round\xa1\xff"), "header"),
        (framed(b"\x81\xa5round\xd4\x01\x00"), "header"),
        (framed(b"\x81\xa5round\xd6\xff\x00\x00\x00\x00"), "header"),
        (framed(b"\x81\xa5round\xc7\x00\x01"), "header"),
        (framed(b"\x81\xa1a" + b"\x91" * 5_000 + b"\x90"), "header"),
        (framed(b"\x80"), "field"),
        (struct.pack("<4sBBHI", MAGIC, MAJOR, Kind.BEGUN, 0, 2**32 - 1) + BEGUN, "too-big"),
        (framed(bytes(LARGEST_HEADER + 1)), "too-big"),
        (framed(BEGUN) + bytes(10 * LARGEST_HEADER), "too-big"),
    ],
)
def test_each_kind_of_damage_has_its_code(frame, code):
    assert code_of(frame) == code
    assert code_of(memoryview(frame)) == code


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_bytes_like_any_other(protocol):
    bomb = pickle.dumps(Bomb(), protocol=protocol)
    assert code_of(bomb) == "magic"
    for kind in Kind:
        assert code_of(framed(bomb, kind)) == "header"
        assert code_of(encode(kind, {"round": bomb})) in {"field", ""}


def test_a_frame_of_the_largest_size_is_read():
    filler = bytes(LARGEST_HEADER - len(msgpack.packb(PLAIN | {"x": b""})) - 1)
    frame = encode(Kind.BEGUN, PLAIN | {"x": filler})
    assert len(frame) == LARGEST_HEADER + 12
    assert code_of(frame) == ""


def test_a_memoryview_of_any_form_is_read_as_its_bytes():
    frame = framed(BEGUN)
    spaced = bytearray(2 * len(frame))
    spaced[::2] = frame
    assert decode(memoryview(spaced)[::2]) == (Kind.BEGUN, PLAIN)
    padded = encode(Kind.BEGUN, PLAIN | {"x": "y" * (-len(frame) % 4 + 1)})
    assert decode(memoryview(padded).cast("I") if len(padded) % 4 == 0 else padded)[1]["round"] == 1


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=100), st.integers(0, 255))
def test_any_header_is_read_or_refused(header, kind):
    code_of(framed(header, kind))
    code_of(header)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(0, 9), inner),
    max_leaves=10,
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(CLASSES), st.data())
def test_any_values_in_the_fields_are_read_or_refused(cls, data):
    names = [name for name in cls.__slots__ if not name.startswith("_")]
    header = msgpack.packb({name: data.draw(ANY) for name in names})
    code_of(framed(header, cls.KIND))
