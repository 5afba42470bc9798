"""Who is at fault where a run of several workers does not get on, and how that is told. Light."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs

#: Innermost frames of a worker that waits for others: in a collective, or in a backward, where gradients are exchanged.
_WAITS = re.compile(r"torch/(distributed/|autograd/graph\.py)|/nlpkernel/supervise/control\.py")
#: Characters of a traceback that travel.
LONGEST = 12_000


def workers(ranks: Sequence[int]) -> str:
    """Some of them, as a message calls them."""
    return f"worker{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


@attrs.frozen(kw_only=True)
class Cause:
    """Why a run cannot go on. ranks: who is at fault. error: the code. text: a line. trace: the traceback of the worker
    that failed. exit_code: what the others end with."""

    error: str
    text: str
    ranks: tuple[int, ...] = ()
    trace: str = ""
    exit_code: int = 1

    def body(self) -> dict[str, Any]:
        """As it is sent."""
        return attrs.asdict(self)

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Cause:
        """As it was sent. Raise TypeError where it is none."""
        return cls(**{**body, "ranks": tuple(body["ranks"])})

    @classmethod
    def told(cls, rank: int, where: str, body: Mapping[str, Any]) -> Cause:
        """A worker told of its own failure."""
        return cls(
            error="TDI023",
            text=f"worker {rank} failed {where}: {str(body['text'])[:2000]}",
            ranks=(rank,),
            trace=str(body["trace"])[-LONGEST:],
            exit_code=(int(body["exit_code"]) & 255) or 1,
        )

    @classmethod
    def gone(cls, rank: int, where: str, signal: int | None) -> Cause:
        """A connection ended without a word; `signal`: for which all were about to stop."""
        return cls(
            error="TDI022",
            text=f"worker {rank} was lost {where}: it ended without a word (killed, or its machine is gone)",
            ranks=(rank,),
            exit_code=1 if signal is None else 128 + signal,
        )

    @classmethod
    def absent(cls, ranks: Sequence[int], seconds: float) -> Cause:
        """Workers did not come."""
        text = f"{workers(ranks)} did not come within {seconds:g} s"
        return cls(error="TDI003", text=text, ranks=tuple(ranks))

    @classmethod
    def wrong(cls, text: str) -> Cause:
        """The launcher told the workers different things."""
        return cls(error="TDI020", text=text, exit_code=2)


@attrs.frozen(kw_only=True)
class Seen:
    """A worker as it is seen when somebody is looked for. still, silent: seconds since it got on, and since its last
    beat; quiet: seconds without a beat after which it is not merely late. place: where its main thread is."""

    rank: int
    where: str
    still: float
    silent: float
    quiet: float
    place: str | None = None
    stopped: bool = False
    sibling: bool = False
    pid: int = 0

    @property
    def is_silent(self) -> bool:
        """Whether its beats are missing."""
        return self.stopped or self.silent > self.quiet

    @property
    def waits(self) -> bool:
        """Whether it waits for others, as far as its stack tells."""
        return self.place is not None and _WAITS.search(self.place.replace("\\", "/")) is not None


def blame(wrong: str, first: int, seen: Collection[Seen]) -> Cause:
    """Who it is. wrong: "silent" or "stuck", what `first` was found to be. One that is silent holds up all others, so
    it comes first; then those that do not wait for anybody; otherwise nobody can say, and all are named."""
    silent = [each for each in seen if each.is_silent]
    if silent or wrong == "silent":
        named = silent or [each for each in seen if each.rank == first]
        return Cause(
            error="TDI024",
            text="; ".join(_silent(each) for each in named),
            ranks=tuple(each.rank for each in named),
        )
    busy = [each for each in seen if not each.waits]
    named = busy if busy and len(busy) < len(seen) else list(seen)
    rest = "; the others wait for it" if len(named) == 1 and len(seen) > 1 else ""
    return Cause(
        error="TDI025",
        text="; ".join(_stuck(each) for each in named) + rest,
        ranks=tuple(each.rank for each in named),
    )


def _silent(each: Seen) -> str:
    state = "; it is stopped (SIGSTOP or a debugger)" if each.stopped else ""
    at = f"; it is at {each.place}" if each.place else ""
    return f"worker {each.rank} is silent {each.where}: no beat for {each.silent:.0f} s{state}{at}"


def _stuck(each: Seen) -> str:
    at = f"; it is at {each.place}" if each.place else ""
    return f"worker {each.rank} is stuck {each.where}: it has not got on for {each.still:.0f} s{at}"
