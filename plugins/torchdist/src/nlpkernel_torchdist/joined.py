"""Joining workers that another launcher started: where they meet, and what each gets for a post."""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import sys
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from nlpkernel.errors import NlpkernelError, TrainingError, UsageError, fail
from nlpkernel.supervise.heartbeat import INTERVAL, Limits
from nlpkernel.supervise.post import Post, Restart
from nlpkernel_torchdist import network
from nlpkernel_torchdist.codes import OWNER
from nlpkernel_torchdist.council import Council
from nlpkernel_torchdist.launchers import Place
from nlpkernel_torchdist.seat import JoinedPost, Rejected
from nlpkernel_torchdist.secret import VARIABLE, Secret

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel_torchdist.component import TorchDist

#: Beats that the first worker hears in a second at most: beyond as many workers each beats more rarely.
_BEATS = 500
#: Seconds between two tries to reach the first worker.
_SOON, _LATER = 0.05, 0.5
#: Seconds for one of them, and until somebody who waits says for whom.
_TRY, _LONG = 5.0, 10.0
_PR_SET_PDEATHSIG = 1
_log = logging.getLogger("nlpkernel.torchdist")

#: The posts of this process by their word; the group that is opened for one finds it here.
_posts: weakref.WeakValueDictionary[str, JoinedPost] = weakref.WeakValueDictionary()


class _Where(NamedTuple):
    """Where the first worker keeps the council, and what it has to be told."""

    address: str
    port: int
    token: str = ""


def post_of(launch: str) -> JoinedPost | None:
    """The post of this process in the start with this word, if it joined it."""
    return _posts.get(launch)


def join(settings: TorchDist, run: Run, place: Place) -> Post:
    """Meet the workers that the launcher started. Raise UsageError where that is not allowed or not possible, and
    TrainingError where others do not come."""
    _tie(place)
    if place.world == 1:
        alone = Post()
        if place.attempt:
            reason = f"started again by {place.launcher}"
            alone.restart = Restart(number=place.attempt, since=1, reason=reason)
        return alone
    address = _address(settings, place)
    interval = max(INTERVAL, place.world / _BEATS)
    stall = run.train.stall
    limits = Limits.of(None if stall == "never" else stall, interval)
    board = _Board(place, run.name, settings.timeout) if place.agent else None
    council = where = None
    secret = Secret(run.folder)
    if place.rank == 0:
        token = secrets.token_hex(16) if board is not None else _made(secret)
        listener = network.listen(address, 0 if board is not None else place.port)
        where = _Where(address, int(listener.getsockname()[1]), token)
        council = Council(
            listener,
            run=run.name,
            world=place.world,
            limits=limits,
            interval=interval,
            patience=settings.timeout,
            token=token,
            ended=secret.drop,
        )
        council.start()
        if board is not None:
            board.publish(where)

    def find() -> _Where | None:
        if council is not None:
            return where
        if board is not None:
            return board.read()
        # Each time: the name of a pod means another address once that is started again.
        host = address if place.one_machine else network.resolve(place.host)
        return _Where(host, place.port, secret.read())

    def sit(where: _Where) -> JoinedPost:
        if council is not None and council.cause is not None:
            # Another worker came first, and the council has ended for it.
            raise Rejected(council.cause.text, again=False)
        sock = network.connect(where.address, where.port, _TRY)
        return JoinedPost(
            sock,
            place,
            run=run.name,
            token=where.token,
            address=where.address,
            limits=limits,
            interval=interval,
            patience=settings.timeout,
            council=council,
        )

    post = _seated(find, sit, place, settings.timeout)
    _posts[post.launch] = post
    return post


def _made(secret: Secret) -> str:
    try:
        return secret.make()
    except OSError as error:
        raise fail(
            TrainingError,
            "TDI003",
            f"the word that the workers share cannot be written: {error}",
            owner=OWNER,
            hint=f"the folder of runs has to be writable, or {VARIABLE} set to the same on all workers",
        ) from error


def _seated(
    find: Callable[[], _Where | None],
    sit: Callable[[_Where], JoinedPost],
    place: Place,
    timeout: float,
) -> JoinedPost:
    """A seat in the council of this start, once there is one. That of a start which is about to end takes no worker for
    the second time, so it is not taken for this one's."""
    start = time.monotonic()
    pause, why, told = _SOON, "it has not said where it is", False
    while True:
        try:
            where = find()
            if where is not None:
                why = f"at {where.address}, port {where.port}"
                return sit(where)
        except Rejected as refused:
            if not refused.again:
                raise fail(UsageError, "TDI020", str(refused), owner=OWNER, hint=_HINT) from refused
            why = str(refused)
        except OSError as error:
            why = f"{why.partition(': ')[0]}: {error.strerror or error}"
        waited = time.monotonic() - start
        if waited > _LONG and not told:
            told = True
            _log.warning("worker %d waits for worker 0: %s", place.rank, why)
        if waited > timeout:
            message = f"worker {place.rank} did not meet worker 0 within {timeout:g} s: {why}"
            raise fail(TrainingError, "TDI003", message, owner=OWNER, hint=_HINT)
        time.sleep(pause)
        pause = min(2 * pause, _LATER)


_HINT = "every worker needs a number of its own below one number of workers, and the address of the first one"


def _address(settings: TorchDist, place: Place) -> str:
    """Where the first worker listens. Raise UsageError (TDI004) where others could reach that and need not be trusted,
    TDI021 where the host is not known."""
    if place.one_machine:
        return network.LOOPBACK
    if network.means_this_machine(place.host):
        return _resolved(place, settings.timeout)
    host = _resolved(place, settings.timeout)
    if not settings.trusted_network:
        raise fail(
            UsageError,
            "TDI004",
            f"{place.launcher} started {place.world} workers on several machines (the first one is at {place.host}), "
            "and what they exchange is neither encrypted nor authenticated",
            owner=OWNER,
            hint="where nobody else can reach this network, write trusted_network = true in [communicator]",
        )
    loopback = network.is_loopback(host)
    if place.rank == 0 and settings.interface is not None and (place.agent or loopback):
        return network.address_of(settings.interface)
    if loopback:
        raise fail(
            UsageError,
            "TDI021",
            f"the host {place.host!r}, where {place.launcher} says that the first worker is, is {host} here, which no "
            "other machine reaches",
            owner=OWNER,
            hint="correct /etc/hosts, set MASTER_ADDR to an address, or name the first worker's `interface` in "
            "[communicator]; where all workers are on this machine, set MASTER_ADDR to 127.0.0.1",
        )
    if place.rank:
        return host
    if place.agent:
        try:
            # The store of the launcher may be on another machine than the first worker.
            return network.toward(host)
        except OSError as error:
            raise _unknown(place, error) from error
    if settings.interface is not None and host not in network.addresses(settings.interface):
        network.address_of(settings.interface)
        raise fail(
            UsageError,
            "TDI021",
            f"the first worker is to listen on {host}, which is no address of the interface {settings.interface!r}",
            owner=OWNER,
            hint=f"set MASTER_ADDR to {network.address_of(settings.interface)}, or leave `interface` out",
        )
    return host


def _resolved(place: Place, timeout: float) -> str:
    """The address of the host; a name may become known a while after its machine has started. Raise UsageError
    (TDI021)."""
    end = time.monotonic() + timeout
    while True:
        try:
            return network.resolve(place.host)
        except OSError as error:
            if time.monotonic() > end:
                raise _unknown(place, error) from error
        time.sleep(_LATER)


def _unknown(place: Place, error: OSError) -> NlpkernelError:
    return fail(
        UsageError,
        "TDI021",
        f"the host {place.host!r}, where {place.launcher} says that the first worker is, cannot be found: "
        f"{error.strerror or error}",
        owner=OWNER,
        hint="look at MASTER_ADDR: every worker has to know that name",
    )


class _Board:
    """torch's own store, which the launcher keeps: the place where the first worker says where it is. It outlives
    restarts, so what stands there may be of a start that is over, and whoever reads it tries it out."""

    def __init__(self, place: Place, run: str, timeout: float) -> None:
        from torch.distributed.distributed_c10d import PrefixStore

        from nlpkernel_torchdist.meeting import visit

        self._key, self._place = "address", place
        self._store = PrefixStore(f"nlpkernel/{run}", visit(place.host, place.port, timeout))

    def publish(self, where: _Where) -> None:
        """Say where this start is. Raise TrainingError (TDI003) where the store is gone."""
        try:
            self._store.set(self._key, json.dumps(where._asdict()))
        except RuntimeError as error:
            raise fail(TrainingError, "TDI003", self._gone(error), owner=OWNER) from error

    def read(self) -> _Where | None:
        """What was said last. Raise ConnectionError where the store is gone."""
        try:
            if not self._store.check([self._key]):
                return None
            return _Where(**json.loads(self._store.get(self._key)))
        except RuntimeError as error:  # torch's DistError is one.
            raise ConnectionError(self._gone(error)) from error

    def _gone(self, error: RuntimeError) -> str:
        where = f"the store of {self._place.launcher} at {self._place.host}:{self._place.port}"
        return f"{where} cannot be reached any more: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _tie(place: Place) -> None:
    """Let the system end this process when its launcher is gone (Linux): torchrun itself, killed, leaves its workers
    behind. Elsewhere the workers may rightly outlive the shell that started them."""
    if place.launcher not in ("torchrun", "Slurm", "Ray") or sys.platform != "linux":
        return
    import ctypes

    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # It was gone before.
