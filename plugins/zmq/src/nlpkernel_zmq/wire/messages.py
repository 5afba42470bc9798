"""The messages of NLPK/1: one frozen class each, its fields as the annotations say, its kind as a number.

`pack` and `unpack` check every field strictly; keys that a class does not know are ignored, so that a later
release may add some. Where a class has `PAYLOAD`, none or one more frame follows with the numbers of a tensor.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any, ClassVar, Final, TypeVar, get_type_hints

import attrs

from nlpkernel_zmq.wire.fields import Check, Index, OneOf, Plain, Real, Wide, Wrong, checker, words
from nlpkernel_zmq.wire.frames import LARGEST_HEADER, BadFrame, decode, encode

__all__ = ["Kind", "Message", "pack", "table", "unpack"]


class Kind(IntEnum):
    """The number of each message in the preamble. A number is never used for another message."""

    HELLO = 1
    WELCOME = 2
    REJECT = 3
    MEET = 4
    MET = 5
    PING = 6
    PONG = 7
    ABORT = 8
    LEAVE = 9
    LEASE = 10
    READY = 11
    COMMIT = 12
    PUT = 13
    BEGIN = 14
    BEGUN = 15
    PUSH = 16
    END = 17
    RELEASE = 18
    PARAMS = 19
    FETCH = 20
    STATE = 21
    NACK = 22
    ENLIST = 23
    CLAIM = 24
    CLAIMED = 25
    HOLD = 26
    HELD = 27
    KEEP = 28


class Message:
    """What all messages have."""

    __slots__ = ()

    KIND: ClassVar[Kind]
    WAY: ClassVar[str] = ""
    """Who says it to whom."""
    PAYLOAD: ClassVar[bool] = False
    """Whether a frame with numbers may follow."""


_M = TypeVar("_M", bound=type[Message])

_CLASSES: Final[dict[int, type[Message]]] = {}
_FIELDS: Final[dict[type[Message], tuple[tuple[str, Check, Check, bool], ...]]] = {}


def _message(cls: _M) -> _M:
    """Registers a message under its kind."""
    if cls.KIND in _CLASSES:
        raise TypeError(f"{cls.__name__} has the kind of {_CLASSES[cls.KIND].__name__}")
    _CLASSES[cls.KIND] = cls
    return cls


def _plan(cls: type[Message]) -> tuple[tuple[str, Check, Check, bool], ...]:
    """Name, checker of what comes and of what goes, and whether it has to be there, of each field of a class."""
    plan = _FIELDS.get(cls)
    if plan is None:
        hints = get_type_hints(cls, include_extras=True)
        plan = tuple(
            (
                field.name,
                checker(hints[field.name]),
                checker(hints[field.name], ours=True),
                field.default is attrs.NOTHING,
            )
            for field in attrs.fields(cls)  # type: ignore[arg-type]
        )
        _FIELDS[cls] = plan
    return plan


def pack(message: Message, *, limit: int = LARGEST_HEADER) -> bytes:
    """The frame of a message. Raises `BadFrame` where `unpack` would refuse it, or beyond `limit` bytes."""
    cls = type(message)
    header: dict[str, Any] = {}
    for name, _, check, _ in _plan(cls):
        try:
            header[name] = check(getattr(message, name))
        except Wrong as wrong:
            raise BadFrame("field", f"{cls.__name__}.{name} {wrong}") from None
    return encode(cls.KIND, header, limit=limit)


def unpack(frame: bytes | memoryview, *, limit: int = LARGEST_HEADER) -> Message:
    """The message of a frame. Raises `BadFrame`, and nothing else, for what is not one."""
    kind, header = decode(frame, limit=limit)
    cls = _CLASSES.get(kind)
    if cls is None:
        raise BadFrame("kind", f"no message has the kind {kind}")
    values: dict[str, Any] = {}
    for name, check, _, required in _plan(cls):
        if name in header:
            try:
                values[name] = check(header[name])
            except Wrong as wrong:
                raise BadFrame("field", f"{cls.__name__}.{name} {wrong}") from None
        elif required:
            raise BadFrame("field", f"{cls.__name__}.{name} is missing")
    return cls(**values)


def table() -> str:
    """All messages as rows of a Markdown table, for the documentation."""
    rows = ["| kind | message | from, to | fields | meaning |", "| --- | --- | --- | --- | --- |"]
    for kind, cls in sorted(_CLASSES.items()):
        hints = get_type_hints(cls, include_extras=True)
        fields = "<br>".join(
            f"`{field.name}`: {words(hints[field.name])}" + _default(field.default)
            for field in attrs.fields(cls)  # type: ignore[arg-type]
        )
        meaning = " ".join((cls.__doc__ or "").split())
        payload = " **+ payload**" if cls.PAYLOAD else ""
        rows.append(f"| {int(kind)} | `{cls.__name__}`{payload} | {cls.WAY} | {fields} | {meaning} |")
    return "\n".join(rows) + "\n"


def _default(value: object) -> str:
    if value is attrs.NOTHING:
        return ""
    if isinstance(value, attrs.Factory):  # type: ignore[arg-type]
        return " = nothing"
    shown = {"": '""', b"": "no bytes", None: "nil", True: "true", False: "false"}
    return f" = {shown[value] if isinstance(value, str | bytes | bool) or value is None else value}"


def _ordered(message: Message, start: int, stop: int) -> None:
    if stop < start:
        raise BadFrame("field", f"{type(message).__name__}.stop is {stop}, before start, {start}")


@_message
@attrs.frozen(kw_only=True)
class Hello(Message):
    """A process presents itself: the first message of every connection. `run` is the word of this start of the run,
    `number` its number among those of its role, `incarnation` a random number of this start of the process, `release`
    that of the plugin, `host` a word that is the same for processes that can share memory, and `arena` where the memory
    is that it shares. `took_part`: it is in the run already, and its connection was cut; `late`: it came into it later
    than the others. A "pulse" is a second connection of a worker, for its beats; a "reader" has no part in the run, and
    reads parameters.
    """

    KIND = Kind.HELLO
    WAY = "any to coordinator and shards"

    run: str
    role: Annotated[str, OneOf(("worker", "shard", "pulse", "reader"))]
    number: int
    incarnation: Wide
    release: str
    host: str
    arena: Plain | None = None
    took_part: bool = False
    late: bool = False


@_message
@attrs.frozen(kw_only=True)
class Welcome(Message):
    """The answer to a Hello that is let in. Of the coordinator: epoch and members, and the endpoints of all shards. Of
    a shard: the update to go on with. `began`: whether the run goes on already. `generation` rises with each start of
    the server, `beat` is the seconds between two beats.
    """

    KIND = Kind.WELCOME
    WAY = "coordinator and shards to any"

    generation: int
    beat: float
    epoch: int = 0
    members: tuple[int, ...] = ()
    servers: tuple[str, ...] = ()
    round: int = 0
    began: bool = False


@_message
@attrs.frozen(kw_only=True)
class Reject(Message):
    """The answer to a Hello that is not let in, or to a frame that cannot be read: a code, and text for
    people. The connection is of no more use. "lost": what a shard has to have again nobody has any more.
    """

    KIND = Kind.REJECT
    WAY = "coordinator and shards to any"

    code: str
    text: str


@_message
@attrs.frozen(kw_only=True)
class Meet(Message):
    """Waits under `key` for all workers; the payload is a word for them."""

    KIND = Kind.MEET
    WAY = "worker to coordinator"
    PAYLOAD = True

    key: str


@_message
@attrs.frozen(kw_only=True)
class Met(Message):
    """All are there: the payload is their words in the order of `members`, each of so many bytes."""

    KIND = Kind.MET
    WAY = "coordinator to worker"
    PAYLOAD = True

    key: str
    members: tuple[int, ...]
    sizes: tuple[int, ...]


@_message
@attrs.frozen(kw_only=True)
class Ping(Message):
    """A beat of the training loop: where it is, and how often it moved so far."""

    KIND = Kind.PING
    WAY = "worker to coordinator"

    phase: str
    step: int
    moves: int


@_message
@attrs.frozen(kw_only=True)
class Pong(Message):
    """The answer to a beat. Of the coordinator: the members of the run, and those of them that came into it later.
    `missing` are the processes ("worker 1") without which whoever asks has to wait, as far as they are known.
    """

    KIND = Kind.PONG
    WAY = "coordinator and shards to worker"

    epoch: int = 0
    members: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    missing: tuple[str, ...] = ()


@_message
@attrs.frozen(kw_only=True)
class Abort(Message):
    """The run ends with an error, which `worker` met."""

    KIND = Kind.ABORT
    WAY = "any to any"

    text: str
    worker: int


@_message
@attrs.frozen(kw_only=True)
class Leave(Message):
    """The sender has done its part, and will not be missed; `early`: it goes before the end, and others are to do its
    shares. Of the coordinator: the run is over.
    """

    KIND = Kind.LEAVE
    WAY = "worker to coordinator and shards, coordinator to worker"

    early: bool = False


@_message
@attrs.frozen(kw_only=True)
class Lease(Message):
    """A share of a round goes to this worker, since its owner is gone. Of a round that is over: a shard that was
    started again has to have it again.
    """

    KIND = Kind.LEASE
    WAY = "coordinator to worker"

    round: int
    share: int


@_message
@attrs.frozen(kw_only=True)
class Ready(Message):
    """All shares of a round are whole on this shard: the sum of the squares of its gradients, which is a number unless
    `finite` is false. Updates before number `durable` it will not ask for again. `number` is that of the round, where
    the shard knows it (-1: it does not): after the coordinator was started again.
    """

    KIND = Kind.READY
    WAY = "shard to coordinator"

    round: int
    square: Real
    finite: bool
    shard: int
    durable: int
    number: Index = -1


@_message
@attrs.frozen(kw_only=True)
class Commit(Message):
    """All shards are ready: which update this round is, the norm over all of them, whether it is applied (`finite`),
    and the epoch and the owners of the shares of the next round. No shard will ask for an update before number `least`
    again. `generation` is the coordinator's: of one that is gone it counts no more.
    """

    KIND = Kind.COMMIT
    WAY = "coordinator to shard"

    round: int
    number: int
    norm: Real
    finite: bool
    epoch: int
    owners: tuple[int, ...]
    least: int
    generation: int


@_message
@attrs.frozen(kw_only=True)
class Put(Message):
    """Bytes `start` to `stop` of the `total` of `what` ("schema", "parameters", "optimizer", and "reference": the
    parameters as workers have them, where differences from them travel), in the payload or in shared memory, where the
    whole begins at `place`. They come in order; one that starts at 0 begins anew.
    """

    KIND = Kind.PUT
    WAY = "worker to shard"
    PAYLOAD = True

    what: str
    start: int
    stop: int
    total: int
    place: Index = -1

    def __attrs_post_init__(self) -> None:
        _ordered(self, self.start, self.stop)


@_message
@attrs.frozen(kw_only=True)
class Begin(Message):
    """All of `what` has been put. After the schema the shard knows what is trained. After "state" training begins with
    `round` and the window `step`: so many updates have been made, and a snapshot is due every so many rounds (0:
    never).
    """

    KIND = Kind.BEGIN
    WAY = "worker to shard"

    what: Annotated[str, OneOf(("schema", "state"))]
    round: int = 0
    step: int = 0
    updates: int = 0
    every: int = 1


@_message
@attrs.frozen(kw_only=True)
class Begun(Message):
    """The shard is ready for the first push of the round."""

    KIND = Kind.BEGUN
    WAY = "shard to worker"

    round: int
    shard: int


@_message
@attrs.frozen(kw_only=True)
class Push(Message):
    """Bytes `start` to `stop` of the shard's space of a share, one of `of`, of a round: one piece of the gradient, in
    the payload or in shared memory, where the space begins at `place`. `codec` says what made the payload smaller.
    """

    KIND = Kind.PUSH
    WAY = "worker to shard"
    PAYLOAD = True

    round: int
    share: int
    of: int
    start: int
    stop: int
    codec: str = ""
    place: Index = -1

    def __attrs_post_init__(self) -> None:
        _ordered(self, self.start, self.stop)


@_message
@attrs.frozen(kw_only=True)
class End(Message):
    """All pieces of a share have been pushed, or there is nothing in it (`empty`). `step` is the window that it is of,
    `absent` are the numbers of parameters without a gradient, `scale` is what the gradient is multiplied by, `factor`
    is that of the learning rate (that of share 0 counts), and `sums` are the terms of the loss. `reply` is the byte of
    the sender's shared memory at which it wants the parameters.
    """

    KIND = Kind.END
    WAY = "worker to shard"

    round: int
    share: int
    of: int
    step: int
    empty: bool = False
    absent: tuple[int, ...] = ()
    factor: float = 1.0
    scale: float = 1.0
    sums: Plain = attrs.field(factory=dict)
    reply: Index = -1


@_message
@attrs.frozen(kw_only=True)
class Release(Message):
    """A round is over: which update it was, of which window (`step`), whether it was applied, the norm before clipping,
    the terms of the loss summed over all shares (the first shard's), and the epoch and the owners of the shares of the
    next round. Updates before number `durable` need not be sent again (-1: nothing that is sent is kept safe). The
    parameters follow as Params, or lie in the shared memory `arena`, or where the worker wanted them (`placed`).
    """

    KIND = Kind.RELEASE
    WAY = "shard to worker"

    round: int
    number: int
    step: int
    applied: bool
    norm: Real
    epoch: int
    owners: tuple[int, ...]
    shard: int
    durable: Index
    sums: Plain = attrs.field(factory=dict)
    arena: Plain | None = None
    placed: bool = False


@_message
@attrs.frozen(kw_only=True)
class Params(Message):
    """Bytes `start` to `stop` of the shard's space of parameters after a round. With a `codec` the payload is what it
    made of the difference from what the worker has after round `base` (-1: as the run begins), which is to be added."""

    KIND = Kind.PARAMS
    WAY = "shard to worker"
    PAYLOAD = True

    round: int
    start: int
    stop: int
    codec: str = ""
    base: Index = -1

    def __attrs_post_init__(self) -> None:
        _ordered(self, self.start, self.stop)


@_message
@attrs.frozen(kw_only=True)
class Fetch(Message):
    """Asks for the optimizer's state, or the parameters, as they are before update number `round` (-1: now). A reader
    asks for the parameters after `step` windows, and the answer waits until there are so many; or for what is trained
    ("schema"), and where the shard is.
    """

    KIND = Kind.FETCH
    WAY = "worker and reader to shard"

    what: Annotated[str, OneOf(("optimizer", "parameters", "schema"))]
    round: Index
    step: Index = -1


@_message
@attrs.frozen(kw_only=True)
class State(Message):
    """Bytes `start` to `stop` of the `total` of what was fetched. To a reader: after `step` windows and `updates`
    updates (-1: not said).
    """

    KIND = Kind.STATE
    WAY = "shard to worker and reader"
    PAYLOAD = True

    what: str
    start: int
    stop: int
    total: int
    step: Index = -1
    updates: Index = -1

    def __attrs_post_init__(self) -> None:
        _ordered(self, self.start, self.stop)


@_message
@attrs.frozen(kw_only=True)
class Nack(Message):
    """A message did not count. "hello": nobody is known on this connection; say hello. "early": the shard is at
    `round`, and what came before is to be sent again. "past": the parameters that a reader asks for are no more; there
    have been `round` windows.
    """

    KIND = Kind.NACK
    WAY = "coordinator and shards to any"

    code: Annotated[str, OneOf(("hello", "early", "past"))]
    text: str
    round: Index = -1
    share: Index = -1


@_message
@attrs.frozen(kw_only=True)
class Enlist(Message):
    """A worker that came into a run which goes on is ready to own a share of the next round."""

    KIND = Kind.ENLIST
    WAY = "worker to coordinator"


@_message
@attrs.frozen(kw_only=True)
class Claim(Message):
    """Without rounds of all workers: asks for a window before `end` to compute. Or says that it has the window `held`
    already (-1: it asks), which a coordinator that was started again does not know."""

    KIND = Kind.CLAIM
    WAY = "worker to coordinator"

    end: int = 0
    held: Index = -1


@_message
@attrs.frozen(kw_only=True)
class Claimed(Message):
    """The window that the worker is to compute; -1: none is left."""

    KIND = Kind.CLAIMED
    WAY = "coordinator to worker"

    window: Index


@_message
@attrs.frozen(kw_only=True)
class Hold(Message):
    """The first worker wants that no window is given out until it says otherwise. `begin` is the first window of the
    run (-1: it has begun)."""

    KIND = Kind.HOLD
    WAY = "worker to coordinator"

    hold: bool
    begin: Index = -1


@_message
@attrs.frozen(kw_only=True)
class Held(Message):
    """Nothing is under way: all windows before `next` have been decided on, by updates before number `number`."""

    KIND = Kind.HELD
    WAY = "coordinator to worker"

    next: int
    number: int


@_message
@attrs.frozen(kw_only=True)
class Keep(Message):
    """A worker is gone that could send again what led to updates before number `number`: a snapshot is due once they
    have been made."""

    KIND = Kind.KEEP
    WAY = "coordinator to shard"

    number: int
