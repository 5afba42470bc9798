"""A model whose layers are cut among the workers of the tensor axis, by the roles in its anatomy.

torch's `parallelize_module` puts DTensors in the place of the parameters and the exchanges around the layers. A DTensor
believes that its local tensor is one contiguous share; which elements of the whole it really has is what
`parallelize` returns, and who fills it goes by that. Outside of the cut layers all tensors are plain, and the same on
all workers of the axis; so they must draw the same random numbers. DTensor's own random streams are not touched: no
random operation ever gets a DTensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
from torch import nn
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from nlpkernel.errors import PlanError, PluginError, Problem, fail
from nlpkernel.state import Piece, Sharded
from nlpkernel_torchdist.codes import OWNER
from nlpkernel_torchdist.pieces import share

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh

    from nlpkernel.hookspecs.model import Anatomy, ParameterFacts

#: Roles of weight and bias of a layer that can be cut, by the layer's class, and the dimension of the weight.
_COLUMN, _ROW, _HEAD, _TABLE = "column", "row", "head", "table"
_LINEAR = {
    ("column", "column"): _COLUMN,
    ("column", None): _COLUMN,
    ("row", "replicate"): _ROW,
    ("row", None): _ROW,
    ("vocab", "vocab"): _HEAD,
    ("vocab", "column"): _HEAD,
    ("vocab", None): _HEAD,
}


@attrs.frozen
class _Cut:
    """How one parameter is cut: along which dimension, in which parts, each for itself."""

    shape: tuple[int, ...]
    dimension: int
    parts: tuple[int, ...]


def parallelize(module: nn.Module, anatomy: Anatomy, mesh: DeviceMesh) -> dict[str, Sharded]:
    """Cut the parameters of a module on the meta device over a mesh of one dimension.

    Parameters that the module does not have (a pipeline has taken them) are passed over. Returns for each parameter
    that is cut, by the name that `named_parameters` gives, which pieces of the whole this worker's local tensor
    consists of, in this order. A parameter that is not cut stays as it is, or becomes a DTensor whose local tensor is
    the whole (the bias of a layer that is cut by rows). Tied parameters stay one.

    Raise PlanError (TDI030) for a role that cannot be honoured, and (TDI005) where a length does not divide by the size
    of the axis: each part of a fused parameter must, so that a worker has an equal share of each; the vocabulary need
    not, but every worker must have some of it.
    """
    facts = _facts(module, anatomy)
    plan = {
        path: kind
        for path, layer in module.named_modules()
        if (kind := _kind_of(path, layer, facts)) is not None
    }
    cuts = _cuts(module, facts, plan)
    size, rank = mesh.size(), mesh.get_local_rank()
    _check(cuts, size)
    ties = list(_ties(module))
    for path, kind in plan.items():
        # No values yet, so nothing is sent: `src_data_rank` is None.
        parallelize_module(module.get_submodule(path), mesh, _style(kind), src_data_rank=None)
    for (first, name), *others in ties:
        parameter = first._parameters[name]
        for layer, other in others:
            layer._parameters[other] = parameter
    return {name: _pieces(cut, rank, size) for name, cut in cuts.items()}


def whole_outputs(outputs: Any) -> Any:
    """Outputs of a model without DTensors, which are gathered. What follows must be computed from them by all workers
    of the tensor axis alike; then each of them has the whole gradient, and keeps its share."""
    if not isinstance(outputs, tuple) or not any(isinstance(each, DTensor) for each in outputs):
        return outputs
    whole = [
        each.full_tensor(grad_placements=[Replicate()]) if isinstance(each, DTensor) else each
        for each in outputs
    ]
    return type(outputs)(*whole) if hasattr(outputs, "_fields") else type(outputs)(whole)


def local_gradient(parameter: Tensor) -> Tensor | None:
    """The gradient of what this worker holds of a parameter, as a plain tensor; None where there is none.

    DTensor gives an untied embedding's gradient whole on each worker; here it is the worker's share, a view of that.
    """
    grad = parameter.grad
    if not isinstance(grad, DTensor):
        return grad
    if isinstance(parameter, DTensor) and grad.placements != parameter.placements:
        grad = grad.redistribute(placements=parameter.placements)
    plain: Tensor = grad.to_local()
    return plain


def set_local_gradient(parameter: Tensor, local: Tensor) -> None:
    """Make a plain tensor, of the shape that `local_gradient` gives, the gradient of a parameter."""
    parameter.grad = (
        DTensor.from_local(
            local,
            parameter.device_mesh,
            parameter.placements,
            run_check=False,
            shape=parameter.shape,
            stride=parameter.stride(),
        )
        if isinstance(parameter, DTensor)
        else local
    )


def _facts(module: nn.Module, anatomy: Anatomy) -> dict[str, ParameterFacts]:
    """The facts of every parameter, under all names that it has."""
    first = {id(parameter): name for name, parameter in module.named_parameters()}
    facts: dict[str, ParameterFacts] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        known = anatomy.parameters.get(first[id(parameter)]) or anatomy.parameters.get(name)
        if known is None:
            raise fail(
                PluginError,
                "TDI030",
                f"the model's anatomy says nothing of {name}",
                hint="whoever adds parameters describes them in `Anatomy.parameters`",
            )
        facts[name] = known
    return facts


def _kind_of(path: str, layer: nn.Module, facts: Mapping[str, ParameterFacts]) -> str | None:
    """How one layer is cut; None: not at all."""
    dot = f"{path}." if path else ""
    roles = {name: facts[dot + name].role for name, each in layer._parameters.items() if each is not None}
    if all(role == "replicate" for role in roles.values()):
        return None
    kind: str | None = None
    if roles.keys() <= {"weight", "bias"} and "weight" in roles:
        if isinstance(layer, nn.Linear):
            kind = _LINEAR.get((roles["weight"], roles.get("bias")))
        elif isinstance(layer, nn.Embedding) and roles["weight"] == "vocab":
            kind = _TABLE
    if kind is None:
        told = ", ".join(f"{dot}{name} ({role})" for name, role in roles.items())
        raise fail(
            PlanError,
            "TDI030",
            f"a layer of class {type(layer).__name__} cannot be cut by these roles: {told}",
            owner=OWNER,
            hint="leave `tensor` out, or give the parameters other roles in the model's anatomy",
        )
    return kind


def _style(kind: str) -> ParallelStyle:
    if kind == _COLUMN:
        return ColwiseParallel()
    if kind == _HEAD:
        return ColwiseParallel(output_layouts=Replicate())
    return RowwiseParallel(input_layouts=Replicate() if kind == _TABLE else None)


def _cuts(module: nn.Module, facts: Mapping[str, ParameterFacts], plan: Mapping[str, str]) -> dict[str, _Cut]:
    """By the names that `named_parameters` gives."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    found: dict[str, _Cut] = {}
    for path, kind in plan.items():
        for name, parameter in module.get_submodule(path)._parameters.items():
            if parameter is not None and not (kind == _ROW and name == "bias"):
                found[names[id(parameter)]] = _cut(parameter, facts[f"{path}.{name}"], kind)
    return found


def _cut(parameter: Tensor, facts: ParameterFacts, kind: str) -> _Cut:
    dimension = 1 if kind == _ROW else 0
    shape = tuple(parameter.shape)
    return _Cut(shape, dimension, facts.parts or ((shape[dimension],) if kind in (_COLUMN, _ROW) else ()))


def _check(cuts: Mapping[str, _Cut], size: int) -> None:
    problems = []
    for name, cut in cuts.items():
        length = cut.shape[cut.dimension]
        if not cut.parts:
            start, stop = share(length, size - 1, size)
            if start < stop:
                continue
            told = f"{name} has {length} rows, and {size} workers cannot each have some in chunks of one size"
        elif sum(cut.parts) != length:
            told = f"{name} has {length} rows, and its parts in the anatomy are {_told(cut.parts)}"
        elif any(part % size for part in cut.parts):
            kind = "columns" if cut.dimension else "rows"
            told = f"{name} has {_told(cut.parts)} {kind}, which do not divide by {size}"
        else:
            continue
        problems.append(
            Problem(
                code="TDI005",
                message=told,
                owner=OWNER,
                hint="choose `tensor` so that it divides the number of heads and the widths",
            )
        )
    if problems:
        raise PlanError(problems)


def _told(parts: Sequence[int]) -> str:
    return " + ".join(map(str, parts))


def _ties(module: nn.Module) -> Iterator[list[tuple[nn.Module, str]]]:
    """Where each parameter that has several places is."""
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    for layer in module.modules():
        for name, parameter in layer._parameters.items():
            if parameter is not None:
                places.setdefault(id(parameter), []).append((layer, name))
    return (each for each in places.values() if len(each) > 1)


def _pieces(cut: _Cut, rank: int, size: int) -> Sharded:
    """What worker `rank` of the axis holds."""
    pieces = []
    at = offset = 0
    for part in cut.parts or (cut.shape[cut.dimension],):
        start, stop = share(part, rank, size)
        pieces.append(_box(cut, at, offset + start, stop - start))
        at += stop - start
        offset += part
    return Sharded(cut.shape, tuple(pieces))


def _box(cut: _Cut, at: int, offset: int, length: int) -> Piece:
    def along(value: int, elsewhere: Sequence[int]) -> tuple[int, ...]:
        return (*elsewhere[: cut.dimension], value, *elsewhere[cut.dimension + 1 :])

    zeros = (0,) * len(cut.shape)
    return Piece(along(at, zeros), along(offset, zeros), along(length, cut.shape))
