"""The model as this worker holds it: cut along pipe and tensor, divided along data, with memory for what is its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from nlpkernel.engine.group import finish, trainable, whole
from nlpkernel.engine.materialise import allocate
from nlpkernel.engine.owed import Books
from nlpkernel.errors import PlanError, fail
from nlpkernel.hookspecs.communicator import Axis, Held
from nlpkernel.state import Kind, Replicated, Sharded
from nlpkernel_torchdist import shards
from nlpkernel_torchdist.component import OWNER
from nlpkernel_torchdist.pieces import rows, share
from nlpkernel_torchdist.replicas import Replicas
from nlpkernel_torchdist.sync import Alone, Reduced, Sync
from nlpkernel_torchdist.tensor import local_gradient, parallelize, whole_outputs

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from nlpkernel.hookspecs.model import Anatomy
    from nlpkernel_torchdist.component import TorchDist
    from nlpkernel_torchdist.compress.reduction import Reduction
    from nlpkernel_torchdist.layout import Layout
    from nlpkernel_torchdist.pipeline import Pipeline


class Placement:
    """Cuts a model, and knows afterwards who has what.

    Every parameter is filled, stepped and saved as a plain tensor; of one that torch holds as a DTensor it is the local
    part. `sync` adds up gradients over the data workers; `pipeline` is there where there are several stages; `slices`
    where each data worker steps a part (stage 1 of ZeRO).
    """

    sync: Sync
    pipeline: Pipeline | None = None
    slices: shards.Slices | None = None

    def __init__(
        self,
        settings: TorchDist,
        axes: Mapping[str, Axis],
        mesh: DeviceMesh,
        data_group: dist.ProcessGroup,
        device: torch.device,
        reduction: Reduction | None = None,
        tell_missing: Callable[[Sequence[str]], object] = lambda missing: None,
    ) -> None:
        """`tell_missing`: is told of parameters without a gradient in the first window."""
        self._tell_missing = tell_missing
        self._settings, self._mesh, self._group, self._device = settings, mesh, data_group, device
        self._data, self._tensor, self._pipe = (axes[name] for name in ("data", "tensor", "pipe"))
        self._reduction = reduction
        self._sharded = settings.shard > 1 and self._data.size > 1
        self._cut: Mapping[str, Sharded] = {}
        self._held: Sequence[Held] = ()
        # Plain tensors that are the local part of a parameter.
        self._parts: list[tuple[Tensor, nn.Parameter]] = []
        #: Tensors whose gradients this worker counts in the global norm, each of them on one worker alone.
        self.counted: list[Tensor] = []

    def distribute(
        self,
        module: nn.Module,
        anatomy: Anatomy,
        finish_block: Callable[[nn.Module], nn.Module],
        dtype: torch.dtype,
    ) -> nn.Module:
        """Cut, finish the blocks, divide, allocate, wrap."""
        settings, blocks = self._settings, anatomy.blocks
        if self._pipe.size > 1:
            # It brings torch's compiler with it, which takes seconds to import.
            from nlpkernel_torchdist.pipeline import Pipeline

            group = self._mesh.get_group("pipe")
            self.pipeline = Pipeline(
                self._pipe.rank, self._pipe.size, group, self._device, settings.schedule, settings.virtual
            )
            self.pipeline.cut(module, anatomy)
            blocks = self.pipeline.blocks
        if self._tensor.size > 1:
            self._cut = parallelize(module, anatomy, self._mesh["tensor"])
        finish(module, blocks, finish_block)
        if self._sharded:
            root = shards.shard(
                module,
                blocks,
                self._mesh["data"],
                parameters=settings.shard == 3,
                offload=settings.offload,
                unused=settings.unused,
            )
        allocate(module, torch.device("cpu") if settings.offload else self._device, dtype)
        if self.pipeline is not None:
            self.pipeline.settle(module)
        called = self._called(module)
        if self._sharded:
            shards.settle(module)
            self.sync = shards.Shards(root, called, every=settings.reduce == "microbatch")
        elif self._data.size == 1:
            self.sync = Alone(called)
        elif self._tensor.size == self._pipe.size == 1 and not settings.unused:
            self.sync = Replicas(
                module, self._group, self._reduction, lambda missing: self._without(missing, module)
            )
        else:
            self.reduce_afterwards(module)
        return module

    def reduce_afterwards(self, module: nn.Module) -> Reduced:
        """Add up gradients once a window is through."""
        made = Reduced(self._called(module), self._trained, self._group, self._reduction, self._apart)
        self.sync = made
        return made

    def _without(self, missing: Sequence[str], module: nn.Module) -> Reduced:
        self._tell_missing(missing)
        return self.reduce_afterwards(module)

    def _called(self, module: nn.Module) -> Callable[..., Any]:
        if self._tensor.size == 1:
            return module
        return lambda **inputs: whole_outputs(module(**inputs))

    # -- who has what -------------------------------------------------------------------------------------------------

    def held(self, module: nn.Module) -> Sequence[Held]:
        """Parameters and buffers as plain tensors, with the pieces of the whole that they are."""
        self._held = [self._hold(each) for each in whole(module)]
        self.counted = [each.tensor for each in trainable(self._held) if self._alone(each.name)]
        return self._held

    def _hold(self, each: Held) -> Held:
        tensor = each.tensor
        if isinstance(tensor, DTensor):
            assert isinstance(tensor, nn.Parameter)
            with torch.no_grad():
                tensor = nn.Parameter(tensor.to_local().detach(), requires_grad=tensor.requires_grad)
            if tensor.requires_grad:
                self._parts.append((tensor, each.tensor))  # type: ignore[arg-type]
        kind = self._kind(each)
        if kind == Replicated():
            return attrs.evolve(each, tensor=tensor)
        first = self._alone(each.name) and self._tensor.rank == self._data.rank == 0
        saves = self._alone(each.name) and (self._sharded or self._data.rank == 0)
        return attrs.evolve(each, tensor=tensor, kind=kind, saves=saves, first=first)

    def _kind(self, each: Held) -> Kind:
        kind: Kind = self._cut.get(each.name, Replicated())
        if self._sharded and isinstance(each.tensor, DTensor):
            shape = tuple(each.tensor.shape)
            length = shape[0] if kind == Replicated() else _length(kind)
            return rows(kind, shape, *share(length, self._data.rank, self._data.size))
        if self.pipeline is not None and kind == Replicated():
            # The first worker, which saves what is the same on all, may not have it.
            return Sharded.whole(each.tensor.shape)
        return kind

    def _alone(self, name: str) -> bool:
        """Whether, of the workers that have a copy along tensor or pipe, this is the one that counts."""
        if self.pipeline is not None and not self.pipeline.saves(name):
            return False
        return self._tensor.rank == 0 or name in self._cut

    def trained(self, held: Sequence[Held], *, whole_tensors: bool) -> Sequence[Held]:
        """What has elements here; in stage 1, this worker's part. Raise PlanError (TDI006) where the optimizer needs
        whole tensors, and this worker has pieces."""
        trained = trainable(held)
        if whole_tensors and (self._sharded or self._cut):
            raise fail(
                PlanError,
                "TDI006",
                f"the optimizer needs whole tensors, and with shard = {self._settings.shard} and tensor = "
                f"{self._tensor.size} each worker has pieces",
                owner=OWNER,
                hint="use shard 0 or 1 without tensor, or an optimizer that works element by element",
            )
        if self._settings.shard != 1 or self._data.size == 1:
            return [each for each in trained if each.tensor.numel()]
        # A part is on one data worker alone, which saves it.
        apart = [
            attrs.evolve(
                each,
                saves=self._alone(each.name),
                first=self._alone(each.name) and self._tensor.rank == 0,
            )
            for each in trained
        ]
        self.slices = shards.Slices(self._group, whole=whole_tensors)
        mine = self.slices.settle(apart)
        for part, parameter in self._parts:
            # The parts were moved into buffers; `to_local` gives another object than the one that computes.
            parameter._local_tensor.data = part.data  # type: ignore[attr-defined]
        return mine

    def books(self, layout: Layout, rank: int) -> Books:
        """What it takes to keep the state of compressors."""
        trained = {each.name: each for each in trainable(self._held)}
        alone = frozenset(filter(self._alone, trained))
        return Books(layout, rank, trained, alone, frozenset(self._cut))

    # -- gradients ----------------------------------------------------------------------------------------------------

    def bind(self) -> None:
        """After backward: give the plain tensors their gradients."""
        for part, parameter in self._parts:
            part.grad = local_gradient(parameter)

    def release(self) -> None:
        """After the update: forget the gradients of the parameters that torch holds."""
        for _, parameter in self._parts:
            parameter.grad = None

    def expect_gradients(self) -> int:
        """Make known to a compressor what it will get; bytes of all of it."""
        if isinstance(self.sync, Reduced):
            self.sync.prepare()
        return sum(tensor.nbytes for _, tensor in self._trained())

    def _trained(self) -> Sequence[tuple[str, Tensor]]:
        return [(each.name, each.tensor) for each in trainable(self._held)]

    def _apart(self, name: str) -> str:
        """A compressor makes the same of copies along tensor or pipe where they travel with the same others."""
        if self.pipeline is not None and name in self.pipeline.tied:
            return name
        return "cut" if name in self._cut else ""


def _length(kind: Kind) -> int:
    """Rows of the local tensor that consists of these pieces."""
    assert isinstance(kind, Sharded)
    return max(piece.at[0] + piece.shape[0] for piece in kind.pieces)
