"""Frames that no honest peer sends, drawn from a seed."""

from __future__ import annotations

import os
import pickle
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack

from nlpkernel_zmq.release import RELEASE
from nlpkernel_zmq.wire import messages as m

_BIG = 2**40
_MOST = 2**63 - 1


class Harm:
    """A pickle that leaves a file where it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def hello(launch: str, number: int, **values: Any) -> m.Hello:
    """What a worker says first."""
    named = {
        "run": launch,
        "role": "worker",
        "number": number,
        "incarnation": 7,
        "release": RELEASE,
        "host": "x",
    }
    return m.Hello(**{**named, **values})


def absurd(launch: str) -> list[m.Message]:
    """Messages that can be packed, and that no worker of number 2 has any business to send."""
    other = "somebody-else"
    from nlpkernel_zmq.memory import host

    arenas: list[dict[str, Any]] = [
        {"pid": 1, "descriptor": 0, "bytes": 8},
        {"pid": os.getpid(), "descriptor": 0, "bytes": _BIG},
        {"pid": float("inf"), "descriptor": 3, "bytes": 8},
        {"pid": "../..", "descriptor": 3, "bytes": 8},
        {"pid": -1, "descriptor": -1, "bytes": -1},
        {"pid": 2**63, "descriptor": 2**63, "bytes": 2**63},
        {},
    ]
    push = {"round": _BIG, "share": 0, "of": 2, "start": 0, "stop": 4096}
    return [
        *(hello(launch, 2, host=host(), arena=arena) for arena in arenas),
        hello(launch, 3),
        hello(launch, _MOST),
        hello(launch, 1, role="shard"),
        hello(launch, 0, role="shard", incarnation=2**64 - 1),
        hello(other, 0),
        hello(launch, 0, release="0.0.0"),
        m.Put(what="schema", start=0, stop=4096, total=_BIG),
        m.Put(what="schema", start=0, stop=0, total=_BIG, place=_MOST),
        m.Put(what="optimizer", start=_BIG, stop=_BIG + 1, total=2 * _BIG),
        m.Put(what="no such thing", start=0, stop=1, total=1),
        m.Put(what="parameters", start=0, stop=64, total=64, place=0),
        m.Begin(what="state"),
        m.Begin(what="state", round=_MOST, updates=_MOST, every=_MOST),
        m.Begin(what="schema"),
        m.Begin(what="schema"),
        m.Push(**push),
        m.Push(**{**push, "share": _BIG}),
        m.Push(**{**push, "of": _BIG}),
        m.Push(**{**push, "of": 0}),
        m.Push(**{**push, "start": 1}),
        m.Push(**{**push, "start": _BIG, "stop": 2 * _BIG}),
        m.Push(**{**push, "stop": _MOST}),
        m.Push(**{**push, "place": _MOST}),
        m.Push(**push, codec="no such codec"),
        *(
            m.Push(round=round, share=share, of=of, start=start, stop=stop, place=place)
            for round in range(0, 3000, 97)
            for share, of, start, stop, place in (
                (0, _BIG, 0, 4096, -1),
                (_BIG, _BIG + 1, 0, 4096, -1),
                (2, 2, 0, 4096, -1),
                (0, 2, 0, 4095, -1),
                (0, 2, 4096, 8191, -1),
                (0, 2, 0, 4096, 0),
                (0, 2, 0, 4096, _MOST),
                (0, 2, _BIG // 4096 * 4096, _BIG // 4096 * 4096 + 4096, -1),
                # The honest size, and a payload of another one.
                (0, 2, 0, 4096, -1),
            )
        ),
        m.Fetch(what="parameters", round=_MOST),
        m.Fetch(what="optimizer", round=-1),
        m.Claim(end=_MOST),
        m.Claim(held=_MOST),
        m.Hold(hold=True),
        m.Held(next=0, number=0),
        m.Claimed(window=0),
        m.Meet(key=""),
        m.Meet(key="1" * 60000),
        m.Ping(phase="x" * 60000, step=_MOST, moves=_MOST),
        m.Leave(),
        m.Lease(round=0, share=0),
        m.Ready(round=0, square=float("nan"), finite=True, shard=_BIG, durable=_MOST),
        m.Ready(round=0, square=1e308, finite=False, shard=0, durable=0),
        m.Abort(text="all of you", worker=0),
        m.Begun(round=0, shard=0),
        m.Nack(code="early", text="", round=0),
        m.Nack(code="hello", text=""),
        m.Reject(code="fenced", text=""),
        m.Params(round=0, start=0, stop=_BIG),
        m.State(what="x", start=0, stop=1, total=_BIG),
        m.Met(key="1", members=(0, 1), sizes=(_BIG, _BIG)),
        m.Welcome(generation=_MOST, beat=1e-9, servers=("ipc:///dev/null",)),
    ]


def raw(draw: random.Random, mark: Path) -> Iterator[bytes]:
    """Bytes in the place of a header: of any kind, each in its turn."""
    preamble = struct.Struct("<4sBBHI")

    def frame(packed: bytes, kind: int = 16, length: int | None = None, magic: bytes = b"NLPK") -> bytes:
        return preamble.pack(magic, 1, kind, 0, len(packed) if length is None else length) + packed

    good = [m.pack(each) for each in absurd("somebody-else")]
    claims = [
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
    ]
    while True:
        source = draw.choice(good)
        yield draw.randbytes(draw.randrange(300))
        for _ in range(4):
            yield source[: draw.randrange(len(source))]
        flipped = bytearray(source)
        for _ in range(draw.randint(1, 4)):
            flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
        yield bytes(flipped)
        kind = draw.randrange(256)
        yield frame(draw.randbytes(draw.randrange(64)), kind)
        yield frame(draw.choice(claims), kind)
        yield frame(b"\x81\xa5round" + draw.choice(claims), kind)
        yield frame(b"\x91" * draw.randrange(1, 60000) + b"\xc0", kind)
        yield frame(b"\x81\xa5round" + b"\x81\xa1a" * 500 + b"\xc0", kind)
        yield frame(msgpack.packb(msgpack.ExtType(draw.randrange(128), b"x" * 9)), kind)
        yield frame(msgpack.packb(msgpack.Timestamp(1)), kind)
        yield frame(b"\x80", kind, length=2**32 - 1)
        yield frame(b"\x80" * draw.randrange(70000), kind)
        yield frame(msgpack.packb({"round": draw.choice([-1, 2**64 - 1, 1.5, "1", None, [], {}])}), kind)
        yield frame(source[12:], source[5], magic=draw.choice([b"NLPJ", b"PICK", b"\x80\x04\x95\0", b"HTTP"]))
        yield bytes([*source[:4], draw.randrange(2, 256), *source[5:]])
        yield pickle.dumps(Harm(mark), protocol=draw.randrange(6))
        yield frame(pickle.dumps(Harm(mark)), kind)
        yield b""


def messages(draw: random.Random, launch: str, mark: Path) -> Iterator[list[bytes]]:
    """Messages of any number of frames, for the other side of a connection."""
    made = [m.pack(each) for each in absurd(launch)]
    hello_ = m.pack(hello(launch, 2))
    bytes_ = raw(draw, mark)
    while True:
        first = draw.random()
        if first < 0.1:
            # Somebody whom they know, from here on.
            yield [hello_]
        elif first < 0.5:
            # Never the payload of an honest piece.
            payload = draw.choice([[], [], [b""], [draw.randbytes(draw.randrange(300))]])
            yield [draw.choice(made), *payload]
        elif first < 0.95:
            yield [next(bytes_)]
        else:
            yield [next(bytes_) for _ in range(draw.randint(2, 6))]


def truncated(launch: str) -> Iterator[list[bytes]]:
    """One of each, cut at every length."""
    seen = set()
    for message in absurd(launch):
        if type(message) not in seen:
            seen.add(type(message))
            whole = m.pack(message)
            for length in range(min(len(whole), 200)):
                yield [whole[:length]]
