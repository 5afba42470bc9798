"""From structure to values: allocate a model that is on the meta device, and fill it by name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from nlpkernel.hookspecs.communicator import Held
from nlpkernel.hookspecs.model import Model
from nlpkernel.state import Replicated, Sharded, local


def allocate(module: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    """Give every parameter and buffer memory on `device`, without values; floating parameters in `dtype`.

    Buffers keep the type that the model gave them: tables and running sums are no weights.

    `Module.to_empty` makes two tensors of a tied one; here a tensor that is held twice stays one.
    """
    made: dict[int, Tensor] = {}

    def fresh(tensor: Tensor) -> Tensor:
        if id(tensor) not in made:
            weight = isinstance(tensor, nn.Parameter) and tensor.is_floating_point()
            kind = dtype if weight else tensor.dtype
            empty = torch.empty_like(tensor, device=device, dtype=kind)
            made[id(tensor)] = (
                nn.Parameter(empty, requires_grad=tensor.requires_grad)
                if isinstance(tensor, nn.Parameter)
                else empty
            )
        return made[id(tensor)]

    for each in module.modules():
        for store in (each._parameters, each._buffers):
            for name, tensor in store.items():
                if tensor is not None:
                    store[name] = fresh(tensor)  # type: ignore[assignment]


def generator_for(seed: int, name: str) -> torch.Generator:
    """A generator that follows from the seed and a parameter's name: the same draws on any layout and in any order."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def fill(model: Model, held: Iterable[Held], seed: int) -> None:
    """Initialise parameters and buffers of an allocated model.

    Values are drawn in float32 on the CPU for the whole tensor, and copied, so that they depend neither on the device
    nor on the layout.
    """
    with torch.no_grad():
        for each in held:
            name, tensor, kind = each.name, each.tensor, each.kind
            generator = generator_for(seed, name)
            if tensor.device.type == "cpu" and tensor.dtype == torch.float32 and kind == Replicated():
                model.initialise(name, tensor, generator)
                continue
            shape = kind.shape if isinstance(kind, Sharded) else tensor.shape
            values = torch.empty(shape, dtype=torch.float32 if tensor.is_floating_point() else tensor.dtype)
            model.initialise(name, values, generator)
            tensor.copy_(local(values, kind))
