"""Frames over a socket: whatever is cut, lost or damaged on the way, the receiver knows what it missed."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel.supervise.channel import LARGEST, BadFrame, Frames, Message, Sender, frame, packed, receive

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
BODIES = st.lists(st.dictionaries(st.text(max_size=8), PLAIN, max_size=4), max_size=8)


class Line:
    """A sender, and who reads what it sends once `read` is called."""

    def __init__(self, waiting: int = 10_000) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.sender = Sender(self.theirs, waiting=waiting)
        self.arrived: list[Message] = []
        self.reader = threading.Thread(target=lambda: self.arrived.extend(receive(self.ours)))

    def read(self) -> list[Message]:
        """Everything that was sent."""
        self.reader.start()
        self.sender.close(20.0)
        self.theirs.shutdown(socket.SHUT_WR)
        self.reader.join(20)
        return self.arrived


@pytest.fixture
def line() -> Iterator[Callable[..., Line]]:
    made: list[Line] = []

    def make(**options: int) -> Line:
        made.append(Line(**options))
        return made[-1]

    yield make
    for each in made:
        each.ours.close()
        each.theirs.close()


@settings(max_examples=40, deadline=None)
@given(BODIES, st.data())
def test_messages_survive_however_their_bytes_are_cut(bodies, data):
    stream = b"".join(frame(number, "event", packed(body)) for number, body in enumerate(bodies))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    frames, arrived = Frames(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        arrived += frames.feed(stream[start:end])
    assert [(each.number, each.kind, each.body) for each in arrived] == [
        (number, "event", body) for number, body in enumerate(bodies)
    ]
    assert frames.missing == 0


@given(st.lists(st.booleans(), max_size=50))
def test_every_message_that_does_not_arrive_is_counted_at_the_next_that_does(kept):
    frames, expected = Frames(), 0
    for number, keep in enumerate(kept):
        if not keep:
            expected += 1
            continue
        (message,) = frames.feed(frame(number, "log", packed({})))
        assert message.missing == expected
        expected = 0
    assert frames.missing == kept.count(False) - expected


@given(st.binary(min_size=1, max_size=60))
def test_bytes_that_are_no_message_are_refused_or_waited_for_and_nothing_else(noise):
    frames = Frames()
    try:
        for message in frames.feed(noise):
            assert isinstance(message.body, dict)
    except BadFrame:
        pass


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xff\xff\xff",
        (LARGEST + 1).to_bytes(4, "little"),
        b"\x01\x00\x00\x00\xc1",
        b"\x01\x00\x00\x00\x90",
        b"\x05\x00\x00\x00\x93\xa1a\xa1b\x80",
        b"\x05\x00\x00\x00\xdd\xff\xff\xff\xff",
    ],
    ids=["length", "length-by-one", "no-msgpack", "no-triple", "no-number", "claims-2^32-items"],
)
def test_a_damaged_frame_is_refused_before_anything_is_made_of_it(content):
    with pytest.raises(BadFrame):
        list(Frames().feed(content))


def test_a_number_that_was_there_before_is_refused():
    frames = Frames()
    list(frames.feed(frame(3, "beat", packed({}))))
    with pytest.raises(BadFrame, match="message 3 after 3"):
        list(frames.feed(frame(3, "beat", packed({}))))


def test_who_sends_never_waits_for_a_reader_that_does_not_read(line):
    it = line(waiting=100)
    start = time.monotonic()
    for number in range(5000):
        it.sender.send("event", {"number": number, "text": "x" * 1000})
    assert time.monotonic() - start < 2.0, "the socket holds a few hundred of them"
    # What was dropped behind the last one that was sent, only a later one can tell.
    it.sender.send("last", {}, must=True)
    arrived = it.read()
    assert arrived[-1].kind == "last"
    assert 100 < len(arrived) < 1000
    assert len(arrived) + sum(message.missing for message in arrived) == 5001
    told = [message.body["number"] for message in arrived[:-1]]
    assert told == sorted(told)


def test_messages_of_several_threads_come_in_the_order_of_their_numbers(line):
    it = line()
    threads = [
        threading.Thread(target=lambda: [it.sender.send("event", {}) for _ in range(300)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [message.number for message in it.read()] == list(range(1200))


def test_what_cannot_be_sent_is_counted_like_what_is_lost(line):
    it = line()
    circle: dict[str, object] = {}
    circle["self"] = circle
    for body in ({"long": "x" * LARGEST}, circle, {"good": 2**70}):
        it.sender.send("event", body)
    (message,) = it.read()
    assert (message.number, message.missing, message.body) == (2, 2, {"good": "<int>"})


def test_a_foreign_value_travels_as_the_name_of_its_class_and_is_not_looked_at(line):
    class Device:
        def __repr__(self) -> str:
            raise AssertionError("that would wait for the device")

    it = line()
    it.sender.send("event", {"value": Device(), "lone": "\udc80"})
    (message,) = it.read()
    assert message.body == {"value": "<Device>", "lone": "\\udc80"}


def test_a_signal_handler_may_send_in_the_middle_of_a_send(line):
    it = line()
    before = signal.signal(signal.SIGUSR1, lambda number, stack: it.sender.send("handler", {}))
    try:
        for _ in range(200):
            signal.raise_signal(signal.SIGUSR1)
            it.sender.send("loop", {})
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(it.read()) == 400


def test_a_reader_that_went_away_stops_nobody(line):
    it = line()
    it.ours.close()
    for _ in range(100):
        it.sender.send("event", {})
    it.sender.close()
