"""Tensor leaves to one safetensors file and back.

The file is an ordinary one: other tools read the weights from it under the leaves' paths. What safetensors
does not express is kept beside it: leaves that are one tensor (tied weights) are written once and come back
as one tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
import torch
from safetensors import SafetensorError, TensorSpec, safe_open, serialize_file
from torch import Tensor

from nlpkernel_folder.plain import refuse


@attrs.frozen(kw_only=True)
class Tensors:
    """Tensors ready to be written.

    specs: what safetensors writes, by name. names: leaf path to the name under which its values stand,
    which is another leaf's path where the two are one tensor. alive: the memory that the specs point into.
    """

    specs: Mapping[str, TensorSpec]
    names: Mapping[str, str]
    alive: tuple[Tensor, ...]

    @property
    def total(self) -> int:
        """Size of all values, without the header of the file."""
        return sum(spec.data_len for spec in self.specs.values())

    def write(self, path: Path) -> None:
        """Write the file. Raise SafetensorError or OSError where that fails."""
        serialize_file(dict(self.specs), path)


def prepare(leaves: Iterable[tuple[str, Tensor]]) -> Tensors:
    """Bring tensors to the host as dense, contiguous memory; those that are there already are not copied.

    Raise CheckpointError (FLD001) naming the leaf for a tensor that a file cannot hold: on the meta device,
    sparse, quantized, of a subclass, or of a type that safetensors does not know.
    """
    specs: dict[str, TensorSpec] = {}
    names: dict[str, str] = {}
    alive: list[Tensor] = []
    seen: dict[Any, str] = {}
    for path, value in leaves:
        if type(value) not in (Tensor, torch.nn.Parameter):
            raise refuse(
                path, f"it is a tensor subclass, {type(value).__module__}.{type(value).__qualname__}"
            )
        if value.layout != torch.strided or value.device.type == "meta" or path == "__metadata__":
            raise refuse(path, f"a file holds no tensor of layout {value.layout} on device {value.device}")
        tensor = value.detach()
        names[path] = seen.setdefault(_identity(tensor, path), path)
        if names[path] != path:
            continue
        host = tensor.resolve_conj().resolve_neg().to("cpu").contiguous()
        try:
            specs[path] = TensorSpec(
                dtype=str(host.dtype).removeprefix("torch."),
                shape=list(host.shape),
                data_ptr=host.data_ptr(),
                data_len=host.nbytes,
            )
        except SafetensorError as error:
            raise refuse(path, f"safetensors does not know {host.dtype}") from error
        alive.append(host)
    return Tensors(specs=specs, names=names, alive=tuple(alive))


def read(path: Path, names: Mapping[str, str]) -> dict[str, Tensor]:
    """The tensors of a file by leaf path, on the host, as private mappings of the file: pages are read when
    they are touched, and a second copy never exists. Raise SafetensorError where the file is none, or lacks
    a name.
    """
    with safe_open(path, framework="pt", device="cpu") as file:
        found = {name: file.get_tensor(name) for name in dict.fromkeys(names.values())}
    return {leaf: found[name] for leaf, name in names.items()}


def _identity(tensor: Tensor, path: str) -> Any:
    # Tensors without elements share the null address without being tied.
    if not tensor.numel():
        return path
    storage = tensor.untyped_storage().data_ptr()
    place = (str(tensor.device), storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
    return (*place, tensor.dtype, tensor.is_conj(), tensor.is_neg())
