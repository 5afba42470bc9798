"""The group of workers, seen from one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import attrs
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from nlpkernel.engine.group import (
    finish,
    global_norm,
    named_gradients,
    run_microbatch,
    shares_of,
    trainable,
    update,
    whole,
)
from nlpkernel.engine.materialise import allocate
from nlpkernel.errors import TrainingError, fail
from nlpkernel.hookspecs.communicator import Axis, Held, Requirements, Update, Work
from nlpkernel.state import Leaf, Replicated, Sharded
from nlpkernel_torchdist import exchange
from nlpkernel_torchdist.agreement import agree
from nlpkernel_torchdist.component import OWNER
from nlpkernel_torchdist.pieces import rows, share
from nlpkernel_torchdist.replicas import Replicas
from nlpkernel_torchdist.shards import Shards, Slices, settle, shard
from nlpkernel_torchdist.sync import Alone, Reduced, Sync

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.data import Batch
    from nlpkernel.hookspecs.model import Anatomy, ParameterGroup
    from nlpkernel.hookspecs.task import Counts
    from nlpkernel_torchdist.component import TorchDist
    from nlpkernel_torchdist.layout import Layout

#: Seconds that a worker whose exchange failed leaves to whoever sees which other one is gone.
_PATIENCE = 3.0


class TorchGroup:
    """See `nlpkernel.hookspecs.communicator.Group`.

    mesh has the dimensions "pipe", "data" and "tensor". Every parameter is stepped as a plain tensor: of one that torch
    holds as a DTensor it is the local part.
    """

    def __init__(
        self,
        settings: TorchDist,
        run: Run,
        layout: Layout,
        mesh: DeviceMesh,
        store: dist.Store,
        device: torch.device,
    ) -> None:
        self.rank, self.world, self.device = run.rank, run.world, device
        self.stream = layout.stream(run.rank)
        self._settings, self._run, self._layout, self._mesh, self._store = settings, run, layout, mesh, store
        at = layout.coordinates(run.rank)
        self.axes: Mapping[str, Axis] = {
            name: Axis(at.get(name, 0), layout.size(name), mesh[name] if name in at else None)
            for name in ("data", "tensor", "pipe", "expert")
        }
        self._data, self._tensor, self._pipe = (self.axes[name] for name in ("data", "tensor", "pipe"))
        self.requires = Requirements(fixed_shapes=layout.pipe > 1)
        #: Loss terms and counts are told by one worker of each data share: the first along tensor, the last along pipe.
        self._tells = self._tensor.rank == 0 and self._pipe.rank == self._pipe.size - 1
        self._groups = _Groups(layout, run.rank, sharded=settings.shard > 1)
        self._sync: Sync | None = None
        self._slices: Slices | None = None
        self._cut: Mapping[str, Sharded] = {}
        # The parameter that a plain local tensor is a part of.
        self._parts: list[tuple[Tensor, nn.Parameter]] = []
        self._counted: list[Tensor] = []
        self._rounds = 0
        self._zero = torch.zeros((), device=device)

    # -- coming together ----------------------------------------------------------------------------------------------

    def agree(self, fingerprint: Mapping[str, str]) -> None:
        """Compare over the store, where a mismatch neither hangs nor aborts."""
        agree(self._store, self.rank, self.world, fingerprint, self._settings.timeout)

    def share(self, value: Any) -> Any:
        """One broadcast."""
        with self._exchanging():
            return exchange.share(value)

    def barrier(self) -> None:
        """Wait for all workers."""
        with self._exchanging():
            dist.barrier()

    def close(self) -> None:
        """Leave torch's process group."""
        if dist.is_initialized():
            dist.destroy_process_group()

    # -- the model ----------------------------------------------------------------------------------------------------

    def distribute(
        self,
        module: nn.Module,
        anatomy: Anatomy,
        finish_block: Callable[[nn.Module], nn.Module],
        dtype: torch.dtype,
    ) -> nn.Module:
        """Cut along tensor, finish the blocks, divide along data, allocate, wrap."""
        settings = self._settings
        finish(module, anatomy.blocks, finish_block)
        several = self._data.size > 1
        sharded = settings.shard > 1 and several
        if sharded:
            root = shard(
                module,
                anatomy.blocks,
                self._mesh["data"],
                parameters=settings.shard == 3,
                offload=settings.offload,
            )
        allocate(module, torch.device("cpu") if settings.offload else self.device, dtype)
        if sharded:
            settle(module)
            self._sync = Shards(root, every=settings.reduce == "microbatch")
        elif several:
            self._sync = Replicas(module, self._groups.data)
        else:
            self._sync = Alone(module)
        return module

    def held(self, module: nn.Module) -> Sequence[Held]:
        """Parameters as plain tensors, with the pieces of the whole that they are."""
        return [self._held(each) for each in whole(module)]

    def _held(self, each: Held) -> Held:
        tensor = each.tensor
        if not isinstance(tensor, DTensor):
            return each
        assert isinstance(tensor, nn.Parameter)
        with torch.no_grad():
            local = tensor.to_local()
        part = nn.Parameter(local.detach(), requires_grad=tensor.requires_grad)
        if tensor.requires_grad:
            self._parts.append((part, tensor))
        kind = self._cut.get(each.name, Replicated())
        start, stop = share(tensor.shape[0], self._data.rank, self._data.size)
        return attrs.evolve(
            each, tensor=part, kind=rows(kind, tensor.shape, start, stop), first=self._data.rank == 0
        )

    def trained(self, held: Sequence[Held]) -> Sequence[Held]:
        """What has elements here. In stage 1, this worker's part."""
        trained = trainable(held)
        self._counted = [each.tensor for each in trained]
        if self._settings.shard == 1 and self._data.size > 1:
            whole_tensors = self._run.optimizer_need == "whole_tensor"
            self._slices = Slices(self._groups.data, whole=whole_tensors)
            return self._slices.settle(trained)
        if self._run.optimizer_need == "whole_tensor" and any(
            isinstance(each.kind, Sharded) for each in trained
        ):
            raise fail(
                TrainingError,
                "TDI006",
                f"the optimizer needs whole tensors, and shard {self._settings.shard} with tensor "
                f"{self._tensor.size} gives each worker pieces",
                owner=OWNER,
                hint="use shard 0 or 1 without tensor, or an optimizer that works element by element",
            )
        return [each for each in trained if each.tensor.numel()]

    def create_optimizer(
        self,
        make: Callable[[Sequence[ParameterGroup]], torch.optim.Optimizer],
        groups: Sequence[ParameterGroup],
    ) -> torch.optim.Optimizer:
        """Make the optimizer here, of what this worker steps."""
        return make(groups)

    # -- a window -----------------------------------------------------------------------------------------------------

    def assign(self, step: int, count: int) -> Sequence[int]:
        """Every so many-th micro-batch. With `truncate`, those that do not divide are nobody's."""
        size = self._data.size
        if self._settings.uneven == "truncate":
            self._rounds = count // size
            if left := count - self._rounds * size:
                self._run.count(
                    "communicator torchdist", "micro-batches left out, which did not divide", left
                )
        else:
            self._rounds = -(-count // size)
        return range(self._data.rank, min(count, self._rounds * size), size)

    def total(self, weights: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
        """Sums on the host, of what is anybody's."""
        if self._settings.uneven == "truncate":
            weights = weights[: len(weights) // self._data.size * self._data.size] or [
                dict.fromkeys(weights[0], 0.0)
            ]
        return {name: sum(each[name] for each in weights) for name in weights[0]}

    def run_window(
        self, work: Work, step: int, mine: Sequence[int], totals: Mapping[str, float]
    ) -> Mapping[str, Tensor]:
        """As many micro-batches on every worker: who has none left repeats one that counts nothing."""
        sync = self._sync_for(work)
        shares = shares_of(totals, sync.factor)
        nothing = dict.fromkeys(totals, 0.0)
        sums: dict[str, Tensor] = {}
        with self._exchanging():
            for number in range(self._rounds):
                counts = number < len(mine)
                with sync.microbatch(last=number == self._rounds - 1):
                    run_microbatch(
                        work,
                        sync.model,
                        self.device,
                        step,
                        mine[number] if counts else 0,
                        shares if counts else nothing,
                        sums if counts else {},
                        telling=True,
                    )
            if work.gradients_local is not None:
                work.gradients_local(named_gradients(work))
            sync.finish()
        told = sums if self._tells else {}
        return {name: told.get(name, self._zero) for name in totals}

    def update(self, work: Work, number: int, sums: Mapping[str, Tensor]) -> Update:
        """The plain update, of gradients that every worker finds the same norm of."""
        for part, parameter in self._parts:
            gradient = parameter.grad
            part.grad = gradient.to_local() if isinstance(gradient, DTensor) else None
        slices = self._slices
        with self._exchanging():
            done = update(
                work,
                number,
                {},  # What is not finite in them is in the gradients.
                norm_of=None if self._groups.norm is None else self._norm,
                step=None if slices is None else lambda: slices.step(work.optimizer),
            )
        for _, parameter in self._parts:
            parameter.grad = None
        return done

    def _norm(self, gradients: list[Tensor]) -> Tensor:
        counted = [tensor.grad for tensor in self._counted if tensor.grad is not None]
        square = global_norm(counted).square() if counted else self._zero.clone()
        dist.all_reduce(square, group=self._groups.norm)
        return square.sqrt()

    def _sync_for(self, work: Work) -> Sync:
        assert self._sync is not None, "the model was distributed"
        if work.gradients_local is not None and isinstance(self._sync, Replicas):
            # Whoever wants this worker's own gradients has to see them before they are added up.
            self._sync = Reduced(
                work.model, lambda: [gradient for _, gradient in named_gradients(work)], self._groups.data
            )
        return self._sync

    # -- evaluation ---------------------------------------------------------------------------------------------------

    def spread(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, bool]]:
        """A round at a time: one batch for each data worker, the first one again for those who have none."""
        rest = iter(batches)
        while held := list(islice(rest, self._data.size)):
            counts = self._data.rank < len(held)
            yield held[self._data.rank if counts else 0], counts and self._tells

    def forward(self, work: Work, inputs: Mapping[str, Any]) -> Any:
        """A forward of the model as it stands."""
        with self._exchanging(), work.precision.autocast():
            return work.model(**inputs)

    def merge(self, counts: Counts) -> Counts:
        """One exchange for each type of numbers."""
        with self._exchanging():
            return exchange.merge(counts)

    # -- state --------------------------------------------------------------------------------------------------------

    def state(self) -> Mapping[str, Leaf]:
        """Nothing is remembered from one window to the next."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to take up."""

    # -- when others are gone -----------------------------------------------------------------------------------------

    def _exchanging(self) -> _Exchanging:
        return _EXCHANGING


class _Exchanging:
    """What torch says of an exchange that failed, in our words. Where another worker is gone, that one is the news, so
    this one waits a moment for whoever sees it."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or not isinstance(error, RuntimeError) or not _is_of_exchange(error):
            return
        time.sleep(_PATIENCE)
        reason = str(error).partition("\n")[0]
        raise fail(
            TrainingError,
            "TDI007",
            f"an exchange between workers failed: {reason}",
            owner=OWNER,
            hint="the log says whether another worker ended before; `--restarts N` begins again by itself",
        ) from error


_EXCHANGING = _Exchanging()
_WORDS = (
    "gloo",
    "NCCL",
    "ncclSystemError",
    "Connection closed",
    "Connection reset",
    "ProcessGroup",
    "Timed out waiting",
)


def _is_of_exchange(error: RuntimeError) -> bool:
    text = str(error)
    return isinstance(error, dist.DistError) or any(word in text for word in _WORDS)


class _Groups:
    """Groups of workers that exchange something, made on all workers in the same order.

    data: those that have the same parameters or divide them. norm: those among which the gradients of one model are
    divided, or None where each has all of them.
    """

    def __init__(self, layout: Layout, rank: int, *, sharded: bool) -> None:
        self.data = _group(layout, rank, "data")
        axes = [name for name in ("pipe", "data", "tensor") if layout.size(name) > 1]
        apart = [name for name in axes if sharded or name != "data"]
        self.norm = _group(layout, rank, *apart) if apart else None


def _group(layout: Layout, rank: int, *axes: str) -> dist.ProcessGroup:
    mine = None
    for ranks in layout.lines(*axes):
        made = dist.new_group(list(ranks))
        if rank in ranks:
            mine = made
    assert mine is not None, "every worker is in one of the lines"
    return mine
