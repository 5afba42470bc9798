"""The council of the workers, over real sockets; and who is blamed."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from nlpkernel.supervise.channel import Frames, frame, packed
from nlpkernel.supervise.heartbeat import Limits
from nlpkernel_torchdist import council, network, seat
from nlpkernel_torchdist.blame import Cause, Seen, blame
from nlpkernel_torchdist.council import Council
from nlpkernel_torchdist.launchers import Place
from nlpkernel_torchdist.siblings import is_sibling, is_stopped

from .launching import until

linux = pytest.mark.skipif(sys.platform != "linux", reason="what is left is looked for in /proc")


class Visitor:
    """Somebody who speaks to the council."""

    def __init__(self, port: int) -> None:
        self.sock = network.connect(network.LOOPBACK, port, 5.0)
        self.sock.settimeout(10.0)
        self._frames, self._sent = Frames(), 0
        self._heard: list[tuple[str, dict[str, Any]]] = []

    def say(self, kind: str, **body: Any) -> None:
        self.sock.sendall(frame(self._sent, kind, packed(body)))
        self._sent += 1

    def hello(self, rank: int, **other: Any) -> None:
        values = {"rank": rank, "world": 2, "run": "r", "token": "t", "host": "h", "pid": 1, "attempt": 0}
        self.say("hello", **{**values, **other})

    def beat(self, phase: str = "step", step: int = 1, moves: int = 1) -> None:
        self.say("beat", phase=phase, step=step, moves=moves)

    def hear(self, kind: str) -> dict[str, Any]:
        """The next message of a kind."""
        while True:
            for number, (heard, body) in enumerate(self._heard):
                if heard == kind:
                    del self._heard[: number + 1]
                    return body
            data = self.sock.recv(65536)
            assert data, f"the council ended before it said {kind!r}"
            self._heard += [(message.kind, dict(message.body)) for message in self._frames.feed(data)]

    def closed(self) -> bool:
        """Whether the council closes the connection, whatever it says before."""
        try:
            while self.sock.recv(65536):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            return False
        return True


class Room:
    """A council of two workers, and who visits it."""

    def __init__(self, port: int = 0, **changes: Any) -> None:
        listener = network.listen(network.LOOPBACK, port)
        self.port = listener.getsockname()[1]
        options: dict[str, Any] = {
            "run": "r",
            "world": 2,
            "limits": Limits(stall=None, silence=None),
            "interval": 0.05,
            "patience": 30.0,
            "token": "t",
        }
        self.council = Council(listener, **{**options, **changes})
        self.council.start()
        self.visitors: list[Visitor] = []

    def visit(self) -> Visitor:
        self.visitors.append(Visitor(self.port))
        return self.visitors[-1]

    def both(self) -> list[Visitor]:
        """Two workers that are welcome."""
        made = []
        for rank in range(2):
            made.append(self.visit())
            made[-1].hello(rank)
        for each in made:
            assert each.hear("welcome")["launch"] == self.council.launch
        return made

    def close(self) -> None:
        for each in self.visitors:
            each.sock.close()
        self.council.join(10.0)


@pytest.fixture
def room() -> Iterator[Room]:
    made = Room()
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[Room]:
    """One whose workers are there already."""
    made = Room()
    made.both()
    yield made
    made.close()


def test_all_are_welcome_once_all_are_there_with_the_highest_number_of_starts(room: Room) -> None:
    first, second = room.visit(), room.visit()
    second.hello(1, attempt=3)
    first.hello(0)
    for each in (first, second):
        assert each.hear("welcome")["attempt"] == 3


def test_a_worker_does_not_take_anybody_for_the_council(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a dead start has left its address, somebody else may listen by now, who says nothing."""
    monkeypatch.setattr(seat, "_AT_ONCE", 0.1)
    place = Place(launcher="torchrun", rank=1, world=2, host="h", port=1)
    options: dict[str, Any] = {"run": "r", "token": "t", "address": network.LOOPBACK, "council": None}
    limits = Limits(stall=None, silence=None)
    with network.listen(network.LOOPBACK) as other:
        sock = network.connect(network.LOOPBACK, other.getsockname()[1], 1.0)
        with pytest.raises(ConnectionError, match="there is no council"):
            seat.JoinedPost(sock, place, limits=limits, interval=1.0, patience=60.0, **options)


def test_a_word_of_the_first_worker_reaches_all(room: Room) -> None:
    first, second = room.both()
    first.say("said", what="folder", word="resume")
    assert second.hear("word") == {"what": "folder", "word": "resume"}


@pytest.mark.parametrize(
    ("hello", "reason", "again"),
    [
        ({"token": "x"}, "the council of another start", True),
        ({"run": "other"}, "the council of another start, of the run 'r'", True),
        ({"rank": 7}, "the council of another start", True),
        ({"rank": 0}, "worker 0 of this start has come already as process 1 on h", True),
        ({"world": 3}, "worker 1 is told that there are 3 workers, and worker 0 that there are 2", False),
    ],
)
def test_who_does_not_belong_is_told_why(room: Room, hello: dict[str, Any], reason: str, again: bool) -> None:
    room.visit().hello(0)
    stranger = room.visit()
    stranger.hello(**{"rank": 1, **hello})
    answer = stranger.hear("reject")
    assert reason in answer["reason"]
    assert answer["again"] is again
    assert stranger.closed()


@given(some.binary(min_size=1, max_size=200))
@settings(max_examples=60, deadline=None)
def test_what_is_no_message_disturbs_nobody(shared: Room, data: bytes) -> None:
    """The connection is closed, and the workers are heard as before."""
    room = shared
    stranger = Visitor(room.port)
    stranger.sock.sendall(data)
    stranger.sock.shutdown(socket.SHUT_WR)
    assert stranger.closed()
    stranger.sock.close()
    room.visitors[0].say("said", what="w", word="v")
    assert room.visitors[1].hear("word") == {"what": "w", "word": "v"}


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
        b"\xff\xff\xff\x7f" + b"\xc6\xff\xff\xff\xff",
        frame(0, "beat", packed({"phase": "step"})),
        frame(0, "hello", packed({"rank": "one"})),
        frame(0, "hello", packed({"rank": 0, "world": 2, "run": "r"})),
    ],
    ids=["pickle", "gigabytes", "beat-of-nobody", "no-number", "half-a-hello"],
)
def test_who_says_nonsense_is_shown_the_door(room: Room, data: bytes) -> None:
    workers = room.both()
    stranger = room.visit()
    stranger.sock.sendall(data)
    assert stranger.closed()
    workers[0].say("said", what="w", word="v")
    assert workers[1].hear("word")["word"] == "v"


def test_nonsense_of_a_worker_is_its_end(room: Room) -> None:
    first, second = room.both()
    second.say("beat", phase="step")
    assert first.hear("abort")["ranks"] == [1]


def test_who_says_nothing_does_not_fill_the_room(room: Room) -> None:
    """Beyond so many strangers nobody else is let in, and the workers are not disturbed."""
    first, second = room.both()
    silent = [room.visit() for _ in range(80)]
    until(lambda: any(_is_closed(each) for each in silent), "the first that is turned away", 5.0)
    first.say("said", what="w", word="v")
    assert second.hear("word")["word"] == "v"


def _is_closed(visitor: Visitor) -> bool:
    visitor.sock.setblocking(False)
    try:
        return visitor.sock.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_all_stop_after_the_same_step_which_nobody_has_begun(room: Room) -> None:
    first, second = room.both()
    for each in (first, second):
        each.say("started", step=0)
        each.beat(step=7)
    second.say("ask", signal=15)
    asked = [each.hear("propose") for each in (first, second)]
    assert asked[0] == asked[1]
    assert asked[0]["step"] > 7
    first.say("answer", round=asked[0]["round"], step=30, late=True)
    asked = [each.hear("propose") for each in (first, second)]
    assert asked[0]["step"] > 30
    for each in (first, second):
        each.say("answer", round=asked[0]["round"], step=30, late=False)
    told = {tuple(sorted(each.hear("stop").items())) for each in (first, second)}
    assert told == {(("signal", 15), ("step", asked[0]["step"]))}


def test_nobody_is_asked_to_stop_before_all_have_begun(room: Room) -> None:
    first, second = room.both()
    second.say("started", step=0)
    second.say("ask", signal=15)
    second.say("said", what="w", word="v")
    assert first.hear("word")["word"] == "v", "nothing came before it"
    first.say("started", step=0)
    assert first.hear("propose")["step"] > 0


def test_the_failure_of_one_is_told_once_and_noted(room: Room) -> None:
    first, second = room.both()
    second.beat(step=9)
    second.say("failed", text="ValueError: no", trace="Traceback...", exit_code=1)
    told = Cause.of(first.hear("abort"))
    assert told.text == "worker 1 failed in step 9: ValueError: no"
    assert (told.error, told.trace, told.ranks) == ("TDI023", "Traceback...", (1,))
    assert second.hear("noted") == {}
    first.say("failed", text="ConnectionError: gone", trace="", exit_code=1)
    assert first.hear("noted") == {}
    assert room.council.cause is not None
    assert room.council.cause.ranks == (1,), "what came of it is not the cause"


def test_a_connection_that_ends_without_a_word_is_a_worker_lost_and_one_with_a_word_is_not(
    room: Room,
) -> None:
    first, second = room.both()
    second.beat(phase="evaluate", step=4)
    second.hear("beat")
    second.sock.close()
    told = Cause.of(first.hear("abort"))
    assert (told.error, told.exit_code) == ("TDI022", 1)
    assert told.text.startswith("worker 1 was lost ")
    other = Room()
    try:
        first, second = other.both()
        second.say("bye")
        second.sock.close()
        first.say("bye")
        assert first.hear("over") == {}
        other.council.join(5.0)
        assert other.council.cause is None
    finally:
        other.close()


def test_a_silent_worker_is_found_though_all_stand_still() -> None:
    room = Room(limits=Limits(stall=0.6, silence=None))
    try:
        first, second = room.both()
        first.beat(step=3)
        second.beat(step=3)
        start = time.monotonic()
        until(lambda: _beats_until_asked(first), "the question", 5.0)
        first.say("at", place="torch/distributed/distributed_c10d.py:1 in all_reduce")
        told = Cause.of(first.hear("abort"))
        assert time.monotonic() - start < 5.0
        assert told.error == "TDI024"
        assert told.text.startswith("worker 1 is silent in step 3: no beat for ")
    finally:
        room.close()


def test_a_worker_that_gets_on_again_while_it_is_asked_for_is_not_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(council, "_ANSWER", 0.3)
    room = Room(limits=Limits(stall=0.6, silence=None))
    try:
        first, second = room.both()
        for each in (first, second):
            each.beat(step=3)
        until(lambda: _beats_until_asked(first), "the question", 5.0)
        for each in (first, second):
            each.beat(step=4, moves=2)
            each.say("at", place="/y/data.py:3 in read")
        end = time.monotonic() + 0.5
        moves = 3
        while time.monotonic() < end:
            for each in (first, second):
                each.beat(step=4, moves=moves)
            moves += 1
            time.sleep(0.05)
        assert room.council.cause is None
        # And is asked again when it stands still for good.
        until(lambda: _beats_until_asked(first), "the question", 5.0)
        assert Cause.of(first.hear("abort")).error == "TDI024"
    finally:
        room.close()


def test_it_is_said_for_whom_is_waited(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Long before nobody waits any more: one that cannot read its plan does not know whom to tell."""
    monkeypatch.setattr(council, "_LONG", 0.1)
    room = Room(world=3)
    try:
        room.visit().hello(1, world=3)
        until(lambda: "worker 0 waits for worker" in caplog.text, "the word", 5.0)
        assert "worker 0 waits for workers 0, 2" in caplog.text
    finally:
        room.council._ends_at = 0.0
        room.close()


@linux
def test_200_councils_begin_and_end_and_leave_nothing() -> None:
    """Threads, descriptors and ports: what one start leaves, a hundred restarts would leave a hundred times."""
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    port = 0
    for _ in range(200):
        room = Room() if not port else Room(port=port)
        first, second = room.both()
        for each in (second, first):
            each.say("bye")
        room.council.join(5.0)
        assert room.council.cause is None
        for each in room.visitors:
            each.sock.close()
        port = room.port
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) <= descriptors


@linux
def test_stores_are_kept_and_left_without_a_trace() -> None:
    """A few: torch asks for the name of 127.0.0.1 each time, for which a server of names may take seconds."""
    meeting = pytest.importorskip("nlpkernel_torchdist.meeting")
    threads = descriptors = 0
    for number in range(10):
        store, _ = meeting.keep(network.LOOPBACK, 60.0)
        store.set("number", str(number))
        assert store.get("number") == str(number).encode()
        del store
        if number == 0:
            threads, descriptors = (len(os.listdir(f"/proc/self/{each}")) for each in ("task", "fd"))
    assert len(os.listdir("/proc/self/task")) <= threads
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def _beats_until_asked(visitor: Visitor) -> bool:
    visitor.beat(step=3)
    visitor.sock.settimeout(0.05)
    try:
        visitor.hear("where")
    except TimeoutError:
        return False
    finally:
        visitor.sock.settimeout(10.0)
    return True


# -- who is blamed --------------------------------------------------------------------------------------------------


def seen(rank: int, place: str | None = "", **other: Any) -> Seen:
    values = {"where": "in step 5", "still": 60.0, "silent": 0.5, "quiet": 3.0}
    return Seen(rank=rank, place=place, **{**values, **other})


_REDUCE = "/x/torch/distributed/distributed_c10d.py:7 in all_reduce"
_BACKWARD = "/x/torch/autograd/graph.py:9 in _engine_run_backward"


@pytest.mark.parametrize(
    ("wrong", "first", "workers", "error", "text"),
    [
        (
            "stuck",
            0,
            [seen(0, _REDUCE), seen(1, "/y/data.py:3 in read"), seen(2, _BACKWARD)],
            "TDI025",
            "worker 1 is stuck in step 5: it has not got on for 60 s; it is at /y/data.py:3 in read; the others wait "
            "for it",
        ),
        # Nobody can say who it is: all are named.
        (
            "stuck",
            0,
            [seen(0, _REDUCE), seen(1, _BACKWARD)],
            "TDI025",
            f"worker 0 is stuck in step 5: it has not got on for 60 s; it is at {_REDUCE}; worker 1 is stuck in step "
            f"5: it has not got on for 60 s; it is at {_BACKWARD}",
        ),
        # One whose beats are missing holds up the others, whatever they are at.
        (
            "stuck",
            0,
            [seen(0, "/y/data.py:3 in read"), seen(1, None, silent=8.0, stopped=True)],
            "TDI024",
            "worker 1 is silent in step 5: no beat for 8 s; it is stopped (SIGSTOP or a debugger)",
        ),
        (
            "silent",
            1,
            [seen(0, _REDUCE), seen(1, None, silent=2.0)],
            "TDI024",
            "worker 1 is silent in step 5",
        ),
    ],
)
def test_who_is_at_fault_is_named(wrong: str, first: int, workers: list[Seen], error: str, text: str) -> None:
    cause = blame(wrong, first, workers)
    assert cause.error == error
    assert cause.text.startswith(text)
    assert Cause.of(cause.body()) == cause


def test_only_a_process_of_the_same_parent_is_sent_a_signal() -> None:
    assert is_sibling(os.getpid())
    assert not is_sibling(1)
    assert not is_sibling(2**22 - 1), "one that is not there"
    assert not is_stopped(os.getpid())
