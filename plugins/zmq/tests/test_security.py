"""Who comes in from another machine: keys, the numbers that they are bound to, and what listens where."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import attrs
import pytest
import zmq

from nlpkernel.errors import UsageError
from nlpkernel_zmq import sockets
from nlpkernel_zmq.memory import host
from nlpkernel_zmq.release import RELEASE
from nlpkernel_zmq.security import places
from nlpkernel_zmq.security.keys import Pair, ServerKeys, Ticket, worker_file
from nlpkernel_zmq.security.knocking import check, knock
from nlpkernel_zmq.wire import messages as m

from .parts.machines import Site, ended, until

#: The address that the runs here name: not the one that everything else uses.
ADDRESS = "127.0.0.3"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A run that waits for a worker."""
    made = Site(tmp_path_factory.mktemp("guarded"))
    made.plan("waits", servers=2, listen=ADDRESS, local=1)
    made.run("waits")
    until(lambda: "worker 1 is to join" in made.log("waits"), "the run to say what to type")
    until((made.servers("waits") / "shard-1.endpoint").exists, "the second server to listen")
    yield made
    made.close()


def hello(ticket: Ticket, **changes: object) -> m.Hello:
    said = m.Hello(
        run=ticket.run, role="worker", number=ticket.worker, incarnation=7, release=RELEASE, host=host()
    )
    return attrs.evolve(said, **changes)


def answers(endpoint: str, message: m.Message, ticket: Ticket | None, seconds: float) -> list[m.Message]:
    """What comes within so many seconds, or at once where something does."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    asked = sockets.dealer(context, endpoint, 1 << 20, ticket)
    told: list[m.Message] = []
    deadline = time.monotonic() + seconds
    said = False
    try:
        while not told and time.monotonic() < deadline:
            if not said and asked.poll(50, zmq.POLLOUT):
                asked.send(m.pack(message))
                said = True
            if asked.poll(50):
                told.append(m.unpack(asked.recv_multipart()[0]))
    finally:
        asked.close(0)
        context.term()
    return told


def test_the_keys_are_for_this_user_alone_and_no_log_or_command_has_them(site: Site) -> None:
    folder = site.servers("waits") / "keys"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == ["reader", "servers", "worker-1"]
    secrets = set()
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        secrets.add(json.loads(file.read_text())["own"]["secret"])
    assert len(secrets) == 3
    logs = "".join(path.read_text() for path in (site.root / "runs/waits/logs").iterdir())
    assert site.endpoint("waits") in logs
    processes = re.findall(r"started as process (\d+)", logs)
    assert len(processes) == 3
    for process, name in product(processes, ("cmdline", "environ")):
        logs += Path("/proc", process, name).read_text(errors="replace")
    shown = [secret in logs for secret in secrets]
    assert not any(shown)


def test_only_the_named_address_is_listened_at(site: Site) -> None:
    named = int.from_bytes(socket.inet_aton(ADDRESS), "little")
    ours = {
        int(site.endpoint("waits", name).rpartition(":")[2]) for name in ("control", "shard-0", "shard-1")
    }
    assert len(ours) == 3
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            words = line.split()
            address, port = words[1].split(":")
            if words[3] == "0A" and int(port, 16) in ours:
                found[int(port, 16)] = int(address, 16)
    assert found == dict.fromkeys(ours, named)


def test_case_13_who_has_no_keys_or_other_keys_gets_nothing_and_an_honest_worker_is_let_in(
    site: Site, tmp_path: Path
) -> None:
    honest = Ticket.read(site.keys("waits"))
    strangers = {
        "no keys": None,
        "keys that nobody knows": attrs.evolve(honest, own=Pair.make()),
        "the key of another server": attrs.evolve(honest, server=Pair.make().public),
    }
    for socket_name in ("control", "shard-1"):
        endpoint = site.endpoint("waits", socket_name)
        for what, ticket in strangers.items():
            assert answers(endpoint, hello(honest), ticket, 0.5) == [], what
        told = answers(endpoint, m.Ping(phase="", step=0, moves=0), honest, 10)
        assert [type(each) for each in told] == [m.Nack], "honest keys are let in, and say hello"
    endpoint = site.endpoint("waits")
    for what in list(strangers)[1:]:
        ticket = strangers[what]
        assert ticket is not None
        begun = time.monotonic()
        with pytest.raises(UsageError) as caught:
            knock(endpoint, ticket)
        assert caught.value.problems[0].code == "ZPS012", what
        assert endpoint in str(caught.value)
        assert time.monotonic() - begun < 9
    knock(endpoint, honest)
    path = tmp_path / "other"
    ServerKeys.take(tmp_path / "keys", honest.run, [1])
    worker_file(tmp_path / "keys", 1).rename(path)
    code, told = ended(site.join("waits", path))
    assert (code, "ZPS012" in told, "Traceback" in told) == (2, True, False), told


@pytest.mark.parametrize(("role", "number"), [("worker", 0), ("pulse", 0), ("shard", 1), ("worker", 5)])
def test_case_14_a_key_is_that_of_one_worker_and_of_nobody_else(site: Site, role: str, number: int) -> None:
    ticket = Ticket.read(site.keys("waits"))
    for name in ("control", "shard-1"):
        told = answers(site.endpoint("waits", name), hello(ticket, role=role, number=number), ticket, 10)
        assert [type(each) for each in told] == [m.Reject]
        assert isinstance(told[0], m.Reject)
        assert told[0].code == "key"
        assert "worker 1" in told[0].text
        assert f"{role} {number}" in told[0].text


def test_a_worker_of_this_run_is_not_of_another(site: Site) -> None:
    ticket = Ticket.read(site.keys("waits"))
    told = answers(site.endpoint("waits"), hello(ticket, run="another"), ticket, 10)
    assert isinstance(told[0], m.Reject)
    assert told[0].code == "run"


def test_keys_that_others_may_read_are_refused(tmp_path: Path) -> None:
    ServerKeys.take(tmp_path / "keys", "run", [1])
    path = worker_file(tmp_path / "keys", 1)
    assert Ticket.read(path).worker == 1
    path.chmod(0o640)
    with pytest.raises(UsageError, match="others may read the keys"):
        Ticket.read(path)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"run": "a", "worker": "x"}', "\x00\xff"])
def test_a_file_without_keys_is_named_and_not_repeated(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(UsageError) as caught:
        Ticket.read(path)
    assert str(path) in str(caught.value)


def test_keys_live_through_starts_of_one_supervisor_and_no_longer(tmp_path: Path) -> None:
    first = ServerKeys.take(tmp_path / "keys", "one", [1, 2])
    assert not first.again
    again = ServerKeys.take(tmp_path / "keys", "one", [1, 2])
    assert again == attrs.evolve(first, again=True)
    assert first.own.secret not in repr(first)
    other = ServerKeys.take(tmp_path / "keys", "two", [1])
    assert (other.again, other.own == first.own) == (False, False)
    assert not worker_file(tmp_path / "keys", 2).exists()


def test_a_port_that_is_taken_is_named_with_who_listens_there() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made = context.socket(zmq.ROUTER)
    try:
        with socket.socket() as other:
            other.bind((ADDRESS, 0))
            other.listen()
            port = other.getsockname()[1]
            with pytest.raises(UsageError) as caught:
                places.bind(made, ADDRESS, port)
        told = str(caught.value)
        assert f"port {port} of {ADDRESS} is in use: process {os.getpid()} " in told
        assert places.bind(made, ADDRESS, port) == port
    finally:
        made.close(0)
        context.term()


def test_an_interface_stands_for_its_address() -> None:
    assert places.address_of("lo") == "127.0.0.1"
    assert places.address_of("::1") == "::1"
    with pytest.raises(UsageError, match="no interface of this machine"):
        places.address_of("nothing0")


@pytest.mark.parametrize(
    "endpoint", ["tcp://host", "host:1", "ipc:///x", "tcp://*:1", "tcp://a:0", "tcp://a:99999"]
)
def test_what_is_no_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(UsageError, match="is no endpoint"):
        check(endpoint)


def test_where_nobody_listens_it_is_said_soon() -> None:
    with socket.socket() as free:
        free.bind((ADDRESS, 0))
        endpoint = f"tcp://{ADDRESS}:{free.getsockname()[1]}"
        ticket = Ticket(run="run", worker=1, server=Pair.make().public, own=Pair.make())
        with pytest.raises(UsageError, match=f"nobody listens at {endpoint}"):
            knock(endpoint, ticket, patience=0.5)
