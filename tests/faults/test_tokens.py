"""Every push of a worker is applied once, whatever befalls the servers, the connections and the disk: token tests.

FAULTS_KILLS scales the number of runs (15 where it is 30, 100 at 200); FAULTS_SEED draws them. A failure names the
command that repeats it.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import zmq

from nlpkernel_zmq.wire import messages as m

from .parts.hostile import hello, messages, truncated
from .test_kills import NUMBER, SEED
from .tokens import Faults, Tokens

RUNS = NUMBER // 2

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")


@pytest.fixture
def tokens() -> Iterator[Callable[..., Tokens]]:
    """Make a run; what it leaves is ended and removed."""
    made: list[Tokens] = []

    def make(**values: Any) -> Tokens:
        made.append(Tokens(**values))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("number", range(RUNS))
def test_case_22_every_push_counts_once_whatever_befalls_the_servers(
    number: int, tokens: Callable[..., Tokens], request: pytest.FixtureRequest
) -> None:
    faults = Faults(SEED, number)
    run = tokens(**faults.values)
    try:
        faults.befall(run)
    except AssertionError as error:
        again = f"FAULTS_SEED={SEED} FAULTS_KILLS={NUMBER} python -m pytest '{request.node.nodeid}'"
        raise AssertionError(f"{error}\nagain: {again}\n{run.report()}") from error


@pytest.mark.skipif(NUMBER < 200, reason="it takes half a minute; `make faults` runs it")
def test_a_shard_of_more_pieces_than_any_queue_holds(tokens: Callable[..., Tokens]) -> None:
    run = tokens(rounds=2, payload="frames", last=4_300_000, fetch=2, momentum=0.5, proxied=False)
    try:
        run.start()
        run.finish()
    except AssertionError as error:
        raise AssertionError(f"{error}\n{run.report()}") from error


def test_case_k2_a_real_disk_without_room_for_a_snapshot(tokens: Callable[..., Tokens]) -> None:
    run = tokens(rounds=150, proxied=False)
    disk, log = run.folder / "run", run.folder / "server-0.log"

    def mount(*options: str) -> subprocess.CompletedProcess[str]:
        words = ["mount", "-t", "tmpfs", "-o", ",".join(options), "none", str(disk)]
        return subprocess.run(words, capture_output=True, text=True)

    # One snapshot takes some 50 KB; the next one has to lie beside it for a moment.
    done = mount("size=80k")
    if done.returncode:
        pytest.skip(f"only root may mount: {done.stderr.strip()}")
    try:
        run.start()
        assert run.wait(lambda: log.exists() and "cannot write a snapshot (No space left" in log.read_text())
        before = run.round()
        assert run.wait(lambda: run.round() > before + 5)
        assert mount("remount", "size=400k").returncode == 0
        assert run.wait(lambda: "writes snapshots again" in log.read_text())
        run.kill(0)
        run.finish()
    except AssertionError as error:
        raise AssertionError(f"{error}\n{run.report()}") from error
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_case_k2_a_server_that_is_lost_while_its_disk_is_full_ends_the_run_with_what_happened(
    tokens: Callable[..., Tokens],
) -> None:
    # So many gradients are kept that no worker has dropped what it would have to send again.
    run = tokens(rounds=100_000, slots=60, proxied=False, timeout=600.0)
    log = run.folder / "server-0.log"
    try:
        run.start()
        assert run.wait(lambda: run.round() >= 1)
        (run.folder / "full-0").touch()
        assert run.wait(lambda: "cannot write a snapshot" in log.read_text())
        before = run.round()
        assert run.wait(lambda: run.round() > before + 3)
        run.kill(0)
        assert not run.wait(lambda: False, 120.0)
        told = [(run.folder / f"worker-{number}.log").read_text() for number in range(2)]
        assert any("ZPS003" in each and "server 0 came back at update" in each for each in told)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{run.report()}") from error


# -- strangers -----------------------------------------------------------------------------------------------


def resident(pid: int) -> int:
    """Bytes that a process has in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Stranger:
    """Connections to all sockets of a run, made anew now and then."""

    def __init__(self, run: Tokens) -> None:
        self._run, self._context = run, zmq.Context()
        self._made: list[zmq.Socket[bytes]] = []
        self.connect()

    def connect(self) -> None:
        """New connections, which nobody knows."""
        for each in self._made:
            each.close(0)
        self._made = []
        for name in ("control", "shard-0"):
            made = self._context.socket(zmq.DEALER)
            made.setsockopt(zmq.SNDHWM, 100)
            made.connect(f"ipc://{self._run.sockets / name}")
            self._made.append(made)

    def say(self, number: int, frames: list[bytes]) -> None:
        """Send on one of them, and let go of what has come."""
        made = self._made[number % len(self._made)]
        assert made.poll(20_000, zmq.POLLOUT), "the server takes nothing any more"
        made.send_multipart(frames)
        while made.poll(0):
            made.recv_multipart()

    def asks(self) -> None:
        """Whether it is answered, once all of it is through."""
        self.connect()
        for each in self._made:
            each.send(m.pack(m.Ping(phase="", step=0, moves=0)))
            assert each.poll(20_000), "no answer"

    def close(self) -> None:
        """No more."""
        for each in self._made:
            each.close(0)
        self._context.term()


def test_case_15_16_hostile_frames_neither_stop_nor_swell_a_server_nor_count(
    tokens: Callable[..., Tokens], tmp_path: Path
) -> None:
    frames = 100 * (NUMBER if NUMBER < 200 else 1000)
    # Numbers 0 and 1 push; 2 is the stranger, whom they know once it has said hello.
    run = tokens(workers=3, pushing=2, rounds=NUMBER * 4, proxied=False, payload="frames")
    draw, mark = random.Random(f"{SEED} hostile"), tmp_path / "unpickled"
    try:
        run.start()
        assert run.wait((run.sockets / "shard-0").exists)
        stranger = Stranger(run)
        # The others wait for it at the beginning and at the end.
        for message in (
            hello(run.given.launch, 2),
            m.Meet(key="-1:1"),
            m.Meet(key=f"{run.given.rounds - 1}:1"),
        ):
            stranger.say(0, [m.pack(message)])
        assert run.wait(lambda: run.round() >= 1)
        before, warm = run.round(), 0
        hostile = chain(truncated(run.given.launch), messages(draw, run.given.launch, mark))
        for sent, message in enumerate(hostile, 1):
            stranger.say(draw.randrange(2), message)
            if sent % 500 == 0:
                stranger.connect()
            if sent % 200 == 0:
                run.tend()
            if sent == frames // 4:
                warm = resident(run.servers[0].pid)
            if sent == frames:
                break
        stranger.asks()
        assert resident(run.servers[0].pid) - warm < 8 << 20
        assert run.round() > before
        stranger.close()
        assert not mark.exists()
        run.finish()
        assert (run.folder / "server-0.log").stat().st_size < 1 << 16
    except AssertionError as error:
        raise AssertionError(f"{error}\n{run.report()}") from error


def test_case_7_a_server_that_may_not_open_as_many_files_as_its_workers_take_says_so(
    tokens: Callable[..., Tokens],
) -> None:
    run = tokens(workers=60, pushing=2, descriptors=64, proxied=False)
    run.start_servers()
    run.servers[0].join(20.0)
    assert run.servers[0].exitcode == 1
    told = (run.folder / "server-0.log").read_text()
    assert "ZPS010" in told
    assert "may need 362 file descriptors, and this process may open 64" in told
    assert "ulimit -n" in told


def test_case_7_strangers_that_take_all_descriptors_end_a_server_and_the_next_one_goes_on(
    tokens: Callable[..., Tokens],
) -> None:
    run = tokens(rounds=60, descriptors=80, proxied=False)
    # ZeroMQ aborts a process in which a connection to a unix socket gets no descriptor. What was pushed still counts
    # once.
    run.endings.add(-signal.SIGABRT)
    strangers = []
    try:
        run.start()
        assert run.wait(lambda: run.round() >= 1)
        first = run.servers[0].pid
        for _ in range(90):
            strangers.append(socket.socket(socket.AF_UNIX))
            with contextlib.suppress(OSError):
                strangers[-1].connect(str(run.sockets / "shard-0"))
        assert run.wait(lambda: run.servers[0].pid != first)
        run.finish()
    except AssertionError as error:
        raise AssertionError(f"{error}\n{run.report()}") from error
    finally:
        for each in strangers:
            each.close()


# -- nothing happens -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", [1, 2])
def test_nothing_is_left_of_a_run_to_which_nothing_happened(
    tokens: Callable[..., Tokens], servers: int
) -> None:
    run = tokens(rounds=5, servers=servers, proxied=False)
    run.start()
    # Asks for it.
    run.finish()
