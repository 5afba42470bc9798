"""How the parameters are divided among the shards. Light: no torch.

All workers and shards compute it alike from the list of parameters. A shard's space is a row of bytes in which each of
its stretches begins at a multiple of `ALIGN`; a gradient travels as ranges of that space.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

#: Bytes: a cache line, and more than any number takes.
ALIGN = 64


@attrs.frozen
class Parameter:
    """A parameter that is trained. dtype: its name on the wire; itemsize: bytes of an element."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    itemsize: int

    @property
    def elements(self) -> int:
        """How many it has."""
        number = 1
        for length in self.shape:
            number *= length
        return number


@attrs.frozen
class Stretch:
    """Elements `start` to `stop` of parameter number `parameter`, flattened, at byte `at` of the shard's space."""

    parameter: int
    start: int
    stop: int
    at: int

    @property
    def elements(self) -> int:
        """How many."""
        return self.stop - self.start


@attrs.frozen
class Equals:
    """So many workers that each have the whole model, as `nlpkernel.engine.owed` wants it."""

    data: int
    tensor: int = 1
    pipe: int = 1

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where a worker stands."""
        return {"pipe": 0, "data": rank, "tensor": 0}


@attrs.frozen
class Space:
    """What lies on one shard."""

    stretches: tuple[Stretch, ...]
    bytes: int

    def chunks(self, size: int) -> int:
        """Into how many pieces of `size` bytes it is cut."""
        return -(-self.bytes // size)


def divide(parameters: Sequence[Parameter], shards: int, *, whole: bool) -> tuple[Space, ...]:
    """The spaces of the shards. Elements are divided evenly, in their order; `whole`: no parameter is cut, and the
    largest ones are placed first, each where there is most room."""
    if whole and shards > 1:
        return _packed(parameters, shards)
    total = sum(each.elements * each.itemsize for each in parameters)
    cuts: list[list[tuple[int, int, int]]] = [[] for _ in range(shards)]
    shard = passed = 0
    for number, each in enumerate(parameters):
        grain = max(1, ALIGN // each.itemsize)
        start = 0
        while start < each.elements:
            room = (total * (shard + 1)) // shards - passed
            stop = each.elements
            if shard < shards - 1 and (stop - start) * each.itemsize > room:
                stop = min(stop, start + max(0, room) // each.itemsize // grain * grain)
            if stop > start:
                cuts[shard].append((number, start, stop))
                passed += (stop - start) * each.itemsize
            if stop < each.elements:
                shard += 1
            start = stop
    return tuple(_space(parameters, each) for each in cuts)


def _packed(parameters: Sequence[Parameter], shards: int) -> tuple[Space, ...]:
    held: list[list[int]] = [[] for _ in range(shards)]
    load = [0] * shards
    order = sorted(range(len(parameters)), key=lambda number: (-_bytes(parameters[number]), number))
    for number in order:
        shard = min(range(shards), key=lambda each: (load[each], each))
        held[shard].append(number)
        load[shard] += _bytes(parameters[number])
    return tuple(
        _space(parameters, [(number, 0, parameters[number].elements) for number in sorted(each)])
        for each in held
    )


def _space(parameters: Sequence[Parameter], cuts: Sequence[tuple[int, int, int]]) -> Space:
    at, stretches = 0, []
    for number, start, stop in cuts:
        stretches.append(Stretch(number, start, stop, at))
        at += -(-(stop - start) * parameters[number].itemsize // ALIGN) * ALIGN
    return Space(tuple(stretches), at)


def _bytes(parameter: Parameter) -> int:
    return parameter.elements * parameter.itemsize
