"""A shard's part of the model: parameters, the sum of their gradients, and the optimizer that steps them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

from nlpkernel.hookspecs.model import ParameterGroup
from nlpkernel_zmq.layout import ALIGN, Parameter, Space, divide
from nlpkernel_zmq.machines.sequencer import Told
from nlpkernel_zmq.memory import Memory
from nlpkernel_zmq.regions import views_in
from nlpkernel_zmq.wire.frames import BadFrame
from nlpkernel_zmq.wire.tensors import dtype_of

#: Makes the optimizer of the plan.
MakeOptimizer = Callable[[Sequence[ParameterGroup]], torch.optim.Optimizer]


@attrs.frozen
class Schema:
    """What is trained, as the first worker says it. groups: names, decay and tags of each group of the optimizer."""

    parameters: tuple[Parameter, ...]
    groups: tuple[tuple[tuple[str, ...], bool, frozenset[str]], ...]
    shards: int
    whole: bool
    clip: float | None
    chunk: int

    def plain(self) -> dict[str, Any]:
        """As it travels."""
        return {
            "parameters": [[p.name, list(p.shape), p.dtype, p.itemsize] for p in self.parameters],
            "groups": [[list(names), decay, sorted(tags)] for names, decay, tags in self.groups],
            "shards": self.shards,
            "whole": self.whole,
            "clip": self.clip,
            "chunk": self.chunk,
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Schema:
        """Raise BadFrame where it makes no sense."""
        try:
            parameters = tuple(
                Parameter(str(name), tuple(map(int, shape)), str(dtype), dtype_of(dtype).itemsize)
                for name, shape, dtype, _ in plain["parameters"]
            )
            if any(length < 0 for each in parameters for length in each.shape):
                raise BadFrame("field", "a parameter has a negative size")
            groups = tuple(
                (tuple(names), bool(decay), frozenset(tags)) for names, decay, tags in plain["groups"]
            )
            if int(plain["chunk"]) < 1 or not 0 < int(plain["shards"]) <= 65536:
                raise BadFrame("field", "pieces without a byte, or no shards, or too many")
            clip = plain["clip"]
            return cls(
                parameters,
                groups,
                int(plain["shards"]),
                bool(plain["whole"]),
                None if clip is None else float(clip),
                int(plain["chunk"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadFrame("field", f"what is trained cannot be read: {error}") from error

    def spaces(self) -> tuple[Space, ...]:
        """What lies on each shard."""
        return divide(self.parameters, self.shards, whole=self.whole)


class ShardModel:
    """See the module. `memory` holds the parameters, and is shared where workers of this machine read it."""

    def __init__(self, schema: Schema, shard: int, memory: Memory, make: MakeOptimizer) -> None:
        self.schema = schema
        self.space = schema.spaces()[shard]
        self.memory = memory
        kinds = [dtype_of(each.dtype) for each in schema.parameters]
        views = views_in(memory.tensor, self.space, kinds)
        self._sum = torch.zeros(self.space.bytes, dtype=torch.uint8)
        sums = views_in(self._sum, self.space, kinds)
        self.names = [schema.parameters[each.parameter].name for each in self.space.stretches]
        self.parameters: list[Tensor] = []
        self._gradients: list[Tensor] = []
        for stretch, view, total in zip(self.space.stretches, views, sums, strict=True):
            parameter = schema.parameters[stretch.parameter]
            shape = parameter.shape if stretch.elements == parameter.elements else (stretch.elements,)
            self.parameters.append(view.view(shape).requires_grad_())
            self._gradients.append(total.view(shape))
        self._ranges = self._typed_ranges(kinds)
        self._norms: list[list[Tensor | None]] = [[] for _ in self._ranges]
        #: The numbers of all parameters.
        self.everything = set(range(len(schema.parameters)))
        by_name = dict(zip(self.names, self.parameters, strict=True))
        self.optimizer = make(
            [
                ParameterGroup(
                    names=[name for name in names if name in by_name],
                    tensors=[by_name[name] for name in names if name in by_name],
                    decay=decay,
                    tags=tags,
                )
                for names, decay, tags in schema.groups
            ]
        )

    # -- a round ----------------------------------------------------------------------------------------------------

    def add(self, chunk: int, pieces: Sequence[Tensor]) -> None:
        """Add up one piece of all shares, in their order: the bytes of each."""
        low = chunk * self.schema.chunk
        self._norms[chunk] = []
        for start, stop, kind in self._ranges[chunk]:
            total = self._sum[start:stop].view(kind)
            parts = [piece[start - low : stop - low].view(kind) for piece in pieces]
            if not parts:
                total.zero_()
            elif len(parts) == 1:
                total.copy_(parts[0])
            else:
                torch.add(parts[0], parts[1], out=total)
                for part in parts[2:]:
                    total += part
            # While it is in the cache.
            wide = kind if kind.is_complex or kind is torch.float64 else torch.float32
            self._norms[chunk].append(torch.linalg.vector_norm(total, dtype=wide).double() if parts else None)

    def tell(self, absent: set[int], scale: float) -> Told:
        """The norm of what was added up, once the loss scale is taken off. absent: parameters that no share has a
        gradient of."""
        for number, (parameter, total) in enumerate(zip(self.parameters, self._gradients, strict=True)):
            gone = self.space.stretches[number].parameter in absent
            parameter.grad = None if gone else total
        gradients = self._present()
        if scale != 1.0 and gradients:
            torch._foreach_mul_(gradients, 1.0 / scale)
        norms = [norm for chunk in self._norms for norm in chunk if norm is not None]
        norm = float(torch.linalg.vector_norm(torch.stack(norms))) / scale if norms else 0.0
        return Told(square=norm * norm, finite=norm - norm == 0)

    def step(self, norm: float, factor: float) -> None:
        """Clip by the norm of all shards together, and step. The arithmetic is that of `nlpkernel.engine.group`."""
        gradients = self._present()
        if self.schema.clip is not None and gradients:
            limit = torch.tensor(self.schema.clip) / (torch.tensor(norm, dtype=torch.float32) + 1e-6)
            torch._foreach_mul_(gradients, limit.clamp(max=1.0))
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        if gradients:
            self.optimizer.step()

    def _present(self) -> list[Tensor]:
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    # -- state ------------------------------------------------------------------------------------------------------

    def groups(self) -> list[dict[str, Any]]:
        """Plain values of each group of the optimizer."""
        return [
            {key: value for key, value in group.items() if key not in ("params", "names") and _plain(value)}
            for group in self.optimizer.param_groups
        ]

    def take_groups(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Take up such values. Raise BadFrame where there are more or fewer groups."""
        own = self.optimizer.param_groups
        if len(groups) != len(own):
            raise BadFrame("field", f"{len(groups)} groups of the optimizer, and {len(own)} here")
        for group, values in zip(own, groups, strict=True):
            group.update((key, _untupled(group.get(key), value)) for key, value in values.items())

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The optimizer's state by "key/name": tensors, and plain values."""
        tensors: dict[str, Tensor] = {}
        plain: dict[str, Any] = {}
        for name, parameter in zip(self.names, self.parameters, strict=True):
            for key, value in self.optimizer.state.get(parameter, {}).items():
                into = tensors if isinstance(value, Tensor) else plain
                into[f"{key}/{name}"] = value
        return tensors, plain

    def take_state(self, *states: Mapping[str, Any]) -> None:
        """Take up such values. Raise BadFrame where one belongs to no parameter here."""
        own = dict(zip(self.names, self.parameters, strict=True))
        self.optimizer.state.clear()
        for state in states:
            for path, value in state.items():
                key, _, name = path.partition("/")
                if name not in own:
                    raise BadFrame("field", f"optimizer state of {name!r}, which is not on this shard")
                self.optimizer.state[own[name]][key] = value

    def _typed_ranges(self, kinds: Sequence[torch.dtype]) -> list[list[tuple[int, int, torch.dtype]]]:
        """By piece, ranges of bytes of one type."""
        made: list[list[tuple[int, int, torch.dtype]]] = []
        edges: list[tuple[int, int, torch.dtype]] = []
        for stretch in self.space.stretches:
            kind = kinds[stretch.parameter]
            end = stretch.at + -(-stretch.elements * kind.itemsize // ALIGN) * ALIGN
            if edges and edges[-1][2] == kind and edges[-1][1] == stretch.at:
                edges[-1] = (edges[-1][0], end, kind)
            else:
                edges.append((stretch.at, end, kind))
        for chunk in range(self.space.chunks(self.schema.chunk)):
            low = chunk * self.schema.chunk
            high = min(low + self.schema.chunk, self.space.bytes)
            made.append(
                [
                    (max(low, start), min(high, stop), kind)
                    for start, stop, kind in edges
                    if max(low, start) < min(high, stop)
                ]
            )
        return made


def _plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    return isinstance(value, (type(None), bool, int, float, str))


def _untupled(before: Any, value: Any) -> Any:
    """What travelled as a list and was a tuple is one again."""
    return tuple(value) if isinstance(before, tuple) and isinstance(value, list) else value
