"""The keys of a run with workers on other machines (CURVE, curvezmq.org): made once, kept in files of this user alone.

One file for the servers, and one for each worker that joins, which is copied to its machine. Nothing else has them: no
command line, no log and no environment variable. Light: zmq is imported where keys are made.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from nlpkernel.errors import UsageError, fail
from nlpkernel_zmq.codes import OWNER

#: The variable with the word that all starts of a run under one supervisor share: they have the same keys.
START = "NLPKERNEL_ZMQ_START"
#: In the place of a worker's number: who may read parameters, and nothing else.
READER = -1
#: Letters of a key as it is written (Z85, rfc.zeromq.org/spec/32).
_LETTERS = 40
#: Seconds in which the first server makes the keys.
_PATIENCE = 30.0


@attrs.frozen
class Pair:
    """A key pair, as it is written."""

    public: str
    secret: str = attrs.field(repr=False)

    @classmethod
    def make(cls) -> Pair:
        """A fresh one."""
        import zmq

        public, secret = zmq.curve_keypair()
        return cls(public.decode("ascii"), secret.decode("ascii"))


@attrs.frozen
class ServerKeys:
    """What the servers have. workers: public keys of the workers that may join, and that of readers. again: they were
    made at an earlier start under the same supervisor."""

    run: str
    own: Pair
    workers: Mapping[int, str]
    again: bool = False

    @classmethod
    def take(cls, folder: Path, run: str, workers: Iterable[int]) -> ServerKeys:
        """Those of `run`, which are made if they are not there."""
        found = cls._read(folder, run)
        if found is not None:
            return found
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        own, pairs = Pair.make(), {number: Pair.make() for number in (*workers, READER)}
        for number, pair in pairs.items():
            ticket = Ticket(run=run, worker=number, server=own.public, own=pair)
            _write(worker_file(folder, number), attrs.asdict(ticket))
        made = cls(run, own, {number: pair.public for number, pair in pairs.items()})
        # The last one: who finds it finds the others.
        _write(folder / "servers", {"run": run, "own": attrs.asdict(own), "workers": dict(made.workers)})
        return made

    @classmethod
    def wait(cls, folder: Path, run: str) -> ServerKeys:
        """Those that the first server makes. Raise UsageError (ZPS012) where it does not."""
        deadline = time.monotonic() + _PATIENCE
        while (found := cls._read(folder, run)) is None:
            if time.monotonic() > deadline:
                message = f"the first server made no keys in {str(folder)!r}"
                raise fail(UsageError, "ZPS012", message, owner=OWNER)
            time.sleep(0.05)
        return found

    @classmethod
    def _read(cls, folder: Path, run: str) -> ServerKeys | None:
        path = folder / "servers"
        if not path.exists():
            return None
        plain = _plain(path)
        if plain.get("run") != run:
            return None
        try:
            workers = {int(number): str(public) for number, public in plain["workers"].items()}
            return cls(run, _pair(plain["own"]), workers, again=True)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _no_keys(path) from error


@attrs.frozen(kw_only=True)
class Ticket:
    """What lets one worker in, or readers: the word of the run, its number, the servers' public key and its own
    keys."""

    run: str
    worker: int
    server: str
    own: Pair

    @classmethod
    def read(cls, path: Path) -> Ticket:
        """Raise UsageError (ZPS012) where it is none, or where others may read it."""
        plain = _plain(path)
        try:
            run, worker, server = str(plain["run"]), int(plain["worker"]), str(plain["server"])
            if len(server) != _LETTERS:
                raise ValueError("no key")
            return cls(run=run, worker=worker, server=server, own=_pair(plain["own"]))
        except (KeyError, TypeError, ValueError) as error:
            raise _no_keys(path) from error


def worker_file(folder: Path, number: int) -> Path:
    """Where the keys of one worker are, or those of readers."""
    return folder / ("reader" if number == READER else f"worker-{number}")


def _pair(plain: Mapping[str, Any]) -> Pair:
    pair = Pair(str(plain["public"]), str(plain["secret"]))
    if len(pair.public) != _LETTERS or len(pair.secret) != _LETTERS:
        raise ValueError("no key pair")
    return pair


def _plain(path: Path) -> dict[str, Any]:
    """What a file of keys holds. Raise UsageError (ZPS012) where it cannot be read, or others may read it."""
    try:
        with path.open(encoding="ascii") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                message = f"others may read the keys in {str(path)!r} (mode {mode:03o})"
                raise fail(UsageError, "ZPS012", message, owner=OWNER, hint=f"chmod 600 {path}")
            plain = json.load(file)
    except (OSError, ValueError) as error:
        raise _no_keys(path, str(error)) from error
    if not isinstance(plain, dict):
        raise _no_keys(path)
    return plain


def _no_keys(path: Path, why: str = "it has no keys of a run") -> Exception:
    # What the file holds is not repeated.
    return fail(UsageError, "ZPS012", f"the keys {str(path)!r} cannot be read: {why}", owner=OWNER)


def _write(path: Path, plain: Mapping[str, Any]) -> None:
    """Whole, and of this user alone from the first byte on."""
    fresh = path.with_name(f".{path.name}.new")
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        json.dump(plain, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
