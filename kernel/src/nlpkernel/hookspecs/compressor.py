"""The extension point `compressor`: fewer bytes for what workers exchange, gradients above all.

Whoever exchanges (a communicator's buckets, the chunks of a parameter server, on the way up or down) makes an encoder
for each stretch that travels by itself. What an encoder leaves out of one exchange it owes to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import attrs

from nlpkernel.hookspecs._spec import Point, hook

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from nlpkernel.context import Run


@attrs.frozen
class Span:
    """Elements `start` to `stop` of a parameter, flattened, that this worker holds in the size `shape`."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int

    @classmethod
    def whole(cls, name: str, shape: Sequence[int]) -> Span:
        """All of a parameter."""
        count = 1
        for length in shape:
            count *= length
        return cls(name, tuple(shape), 0, count)

    @property
    def elements(self) -> int:
        """How many."""
        return self.stop - self.start


class Encoder(Protocol):
    """One stretch of the flat tensor that is exchanged, on one worker.

    `scale` is what the values are multiplied by this time (a loss scale, without dimensions), None: by 1. What is owed
    is kept without it. A value that is not finite makes a decoded one not finite too, on whoever decodes. Encoders of
    one compressor may work in several threads at once.
    """

    #: Bytes of what `encode` gives, a multiple of 4.
    bytes: int
    #: Bytes of what each of the `rounds` adds up; empty where the compressor is not `summable`.
    sums: tuple[int, ...]

    def encode(self, flat: Tensor, scale: Tensor | None = None) -> Tensor:
        """Encode `flat` and what is owed: bytes (torch.uint8), always as many. They are valid until the next call."""

    def decode(self, wire: Tensor, into: Tensor) -> None:
        """Add what an encoder of the same stretch, here or elsewhere, has encoded to the float32 tensor `into`. Keeps
        nothing. `wire` begins at a multiple of 4 bytes. Raise ValueError where it has another size or type."""

    def rounds(self, flat: Tensor, scale: Tensor | None = None) -> Iterator[Tensor]:
        """Instead of both, where the compressor is `summable`: tensors which the caller makes, one after the other, the
        sum over all workers, in place. When there are no more, `flat` holds the decoded sum."""


class Compressor(Protocol):
    """The encoders of one worker, and what they keep from one exchange to the next.

    name: for messages. summable: encoded values can be added up on their way, as an all-reduce does; otherwise
    everybody gets those of everybody else, decodes them, and adds up in the order of the workers. need: "whole_tensor"
    where a stretch has to hold whole parameters.
    """

    name: str
    summable: bool
    need: Literal["elementwise", "whole_tensor"]

    def encoder(self, spans: Sequence[Span], device: torch.device) -> Encoder:
        """An encoder for these, one after the other. What is owed to their parameters goes over to it: another encoder
        that had one of them must not be used any more. Memory is taken at the first `encode` or `rounds`."""

    def settle(self, bad: Tensor | bool) -> None:
        """After each update: was it left out (0 dimensions, not 0: yes)? Then everything is as it was before the
        exchanges of this window. A tensor is not read by the host."""

    def owed(self) -> Mapping[str, Tensor]:
        """By parameter, what this worker has not sent yet; only the sum over all workers has a meaning. Parameters that
        nothing is owed to may be missing. Between `settle` and the next exchange."""

    def factors(self) -> Mapping[str, Tensor]:
        """By parameter, what else is kept. With `rounds` it is the same on all workers."""

    def load(self, owed: Mapping[str, Tensor], factors: Mapping[str, Tensor]) -> None:
        """Take up what these gave; what is not among them begins anew. Raise ValueError for another shape of what is
        owed; factors of another shape begin anew."""


@hook("pick")
def create_compressor(run: Run) -> Compressor:  # type: ignore[empty-body]
    """Make the compressor of this worker. All workers make the same."""


POINT = Point(name="compressor", must=("create_compressor",), help="fewer bytes for what workers exchange")
