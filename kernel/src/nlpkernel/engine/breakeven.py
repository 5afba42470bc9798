"""Whether a compressor pays on a link."""

from __future__ import annotations

import math

import attrs


@attrs.frozen(kw_only=True)
class BreakEven:
    """What was found. plain, sent: bytes that a worker sends in a step without and with the compressor. seconds: what
    an exchange with it takes in a step beyond the time of its bytes: to encode, to add up, to decode. link: bytes in a
    second that a worker sends in an exchange without it. verb: what a worker does with the bytes."""

    name: str
    plain: float
    sent: float
    seconds: float
    link: float
    verb: str = "sends"

    @property
    def limit(self) -> float:
        """The link, in bytes a second, below which it saves more time than it takes, where neither is hidden behind
        other work."""
        if self.sent >= self.plain:
            return 0.0
        return (self.plain - self.sent) / self.seconds if self.seconds > 0 else math.inf

    @property
    def pays(self) -> bool:
        """Whether this link is below."""
        return self.link < self.limit

    def __str__(self) -> str:
        sizes = (
            f"compressor {self.name}: a worker {self.verb} {self.sent:,.0f} bytes a step instead of {self.plain:,.0f} "
            f"({self.sent / self.plain:.1%})"
        )
        if self.limit == 0:
            return f"{sizes}: among so many workers it never pays"
        if self.limit == math.inf:
            return f"{sizes}; it takes no more time than that saves on any link, and pays"
        outcome = "it pays" if self.pays else "it slows the run down"
        return (
            f"{sizes}; to encode, add up and decode takes {self.seconds * 1e3:.3g} ms more, so it pays on links below "
            f"{_gigabits(self.limit)}, and this one carries {_gigabits(self.link)}: {outcome}"
        )


def _gigabits(rate: float) -> str:
    return f"{rate * 8 / 1e9:.2g} Gbit/s"
