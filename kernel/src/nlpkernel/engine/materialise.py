"""From structure to values: allocate a model that is on the meta device, and fill it by name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from nlpkernel.hookspecs.model import Model


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


def fill(model: Model, tensors: Iterable[tuple[str, Tensor]], seed: int) -> None:
    """Initialise parameters and buffers of an allocated model.

    Values are drawn in float32 on the CPU and copied, so that they do not depend on the device.
    """
    with torch.no_grad():
        for name, tensor in tensors:
            if tensor.device.type == "cpu" and tensor.dtype == torch.float32:
                model.initialise(name, tensor, generator_for(seed, name))
            else:
                kind = torch.float32 if tensor.is_floating_point() else tensor.dtype
                values = torch.empty(tensor.shape, dtype=kind)
                model.initialise(name, values, generator_for(seed, name))
                tensor.copy_(values)
