"""The group of workers, seen from one of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import Store

from nlpkernel.engine.group import global_norm, named_gradients, run_microbatch, shares_of, update
from nlpkernel.engine.owed import total
from nlpkernel.errors import NlpkernelError, TrainingError, fail
from nlpkernel.hookspecs.communicator import Axis, Held, Requirements, Update, Work
from nlpkernel.state import Leaf
from nlpkernel_torchdist import exchange, meeting
from nlpkernel_torchdist.agreement import agree
from nlpkernel_torchdist.codes import OWNER
from nlpkernel_torchdist.compress.breakeven import measure
from nlpkernel_torchdist.compress.reduction import Reduction
from nlpkernel_torchdist.failures import EXCHANGING
from nlpkernel_torchdist.pace import Pace
from nlpkernel_torchdist.placement import Placement
from nlpkernel_torchdist.replicas import Replicas
from nlpkernel_torchdist.sync import Sync
from nlpkernel_torchdist.tensor import whole_outputs

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.data import Batch
    from nlpkernel.hookspecs.model import Anatomy, ParameterGroup
    from nlpkernel.hookspecs.task import Counts
    from nlpkernel_torchdist.component import TorchDist
    from nlpkernel_torchdist.layout import Layout

#: Parameters that a message names.
_SHOWN = 4


class TorchGroup:
    """See `nlpkernel.hookspecs.communicator.Group`. mesh has the dimensions "pipe", "data" and "tensor"."""

    def __init__(
        self,
        settings: TorchDist,
        run: Run,
        layout: Layout,
        mesh: DeviceMesh,
        store: Store,
        device: torch.device,
    ) -> None:
        self.rank, self.world, self.device = run.rank, run.world, device
        self.stream = layout.stream(run.rank)
        self.present: Collection[int] = range(run.world)
        self._settings, self._run, self._store, self._layout = settings, run, store, layout
        at = layout.coordinates(run.rank)
        self.axes: Mapping[str, Axis] = {
            name: Axis(at.get(name, 0), layout.size(name), mesh[name] if name in at else None)
            for name in ("data", "tensor", "pipe", "expert")
        }
        self._data, pipe = self.axes["data"], self.axes["pipe"]
        self.requires = Requirements(fixed_shapes=layout.pipe > 1)
        #: Loss terms and counts are told by one worker of each data share: the first along tensor, the last along pipe.
        self._tells = self.axes["tensor"].rank == 0 and pipe.rank == pipe.size - 1
        self._data_group = _group(layout, run.rank, "data")
        # Among whom the gradients of one model are divided; None where each has all of them.
        apart = [
            name
            for name in ("pipe", "data", "tensor")
            if layout.size(name) > 1 and (name != "data" or settings.shard > 1)
        ]
        self._norm_group = _group(layout, run.rank, *apart) if apart else None
        self._reduction: Reduction | None = None
        if settings.compressor is not None:
            compressor = run.ask(settings.compressor, "create_compressor")
            # Its exchanges go on beside others, so they have connections of their own.
            group = _group(layout, run.rank, "data")
            if self._data.size > 1:
                self._reduction = Reduction(compressor, group, device)
            else:
                run.notice("communicator torchdist", "there is one data worker, so nothing is compressed")
        self._placement = Placement(
            settings, self.axes, mesh, self._data_group, device, self._reduction, self._tell_missing
        )
        self._rounds = self._left = 0
        self._pace = Pace()
        self._zero = torch.zeros((), device=device)

    # -- coming together ----------------------------------------------------------------------------------------------

    def agree(self, fingerprint: Mapping[str, str]) -> None:
        """Compare over the store, where a mismatch neither hangs nor aborts."""
        agree(self._store, self.rank, self.world, fingerprint, self._settings.timeout)

    def share(self, value: Any) -> Any:
        """One broadcast."""
        with EXCHANGING:
            return exchange.share(value)

    def gather(self, work: Work) -> None:
        """Each worker holds what it saves."""

    def barrier(self) -> None:
        """Wait for all workers."""
        with EXCHANGING:
            dist.barrier()

    def close(self) -> None:
        """Leave torch's process group."""
        if self._reduction is not None:
            self._reduction.close()
        if dist.is_initialized():
            dist.destroy_process_group()
        if self.rank == 0:
            meeting.leave(self._run.folder, self._run.launch)

    # -- the model ----------------------------------------------------------------------------------------------------

    def distribute(
        self,
        module: nn.Module,
        anatomy: Anatomy,
        finish_block: Callable[[nn.Module], nn.Module],
        dtype: torch.dtype,
    ) -> nn.Module:
        """Cut, divide, allocate, wrap."""
        with EXCHANGING:
            return self._placement.distribute(module, anatomy, finish_block, dtype)

    def held(self, module: nn.Module) -> Sequence[Held]:
        """Parameters and buffers as plain tensors, with the pieces of the whole that they are."""
        return self._placement.held(module)

    def trained(self, held: Sequence[Held]) -> Sequence[Held]:
        """What has elements here; in stage 1, this worker's part."""
        trained = self._placement.trained(held, whole_tensors=self._run.optimizer_need == "whole_tensor")
        if self._reduction is not None:
            with EXCHANGING:
                self._tell_break_even(self._reduction)
        return trained

    def _tell_break_even(self, reduction: Reduction) -> None:
        fresh = self._run.ask(self._settings.compressor, "create_compressor")
        found = measure(reduction, fresh, self._placement.expect_gradients())
        if self.rank == 0 and found is not None:
            self._run.notice("communicator torchdist", str(found), level="info" if found.pays else "warning")

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
        self._rounds = count // size if self._settings.uneven == "truncate" else -(-count // size)
        self._left = max(0, count - self._rounds * size)
        return range(self._data.rank, min(count, self._rounds * size), size)

    def total(self, weights: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
        """Sums on the host, of what is anybody's."""
        if self._settings.uneven == "truncate":
            used = len(weights) // self._data.size * self._data.size
            weights = weights[:used] or [dict.fromkeys(weights[0], 0.0)]
        return {name: sum(each[name] for each in weights) for name in weights[0]}

    def run_window(
        self, work: Work, step: int, mine: Sequence[int], totals: Mapping[str, float]
    ) -> Mapping[str, Tensor]:
        """As many micro-batches on every worker: who has none left repeats one that counts nothing."""
        sync, placement = self._sync_for(work), self._placement
        if self._reduction is not None and work.precision.scaled:
            self._reduction.scale = work.precision.scale(torch.ones((), device=self.device))
        shares = shares_of(totals, sync.factor)
        rounds = [(index, shares) for index in mine]
        rounds += [(0, dict.fromkeys(totals, 0.0))] * (self._rounds - len(mine))
        sums: dict[str, Tensor] = {}
        self._run.count("communicator torchdist", "micro-batches left out, which did not divide", self._left)
        with EXCHANGING:
            if placement.pipeline is not None:
                self._pace.arrive()
                placement.pipeline.run_window(work, step, rounds, sums)
                placement.pipeline.exchange_ties(work.model)
            else:
                self._run_microbatches(work, sync, step, rounds, sums)
            placement.bind()
            if work.gradients_local is not None:
                work.gradients_local(named_gradients(work))
            sync.finish()
        told = sums if self._tells else {}
        return {name: told.get(name, self._zero) for name in totals}

    def _tell_missing(self, names: Sequence[str]) -> None:
        if self.rank == 0:
            self._run.notice(
                "communicator torchdist",
                f"the first window has given no gradient to {_named(names)} on some workers: from now on gradients "
                "are exchanged after the backward pass, not beside it",
                level="warning",
            )

    def _run_microbatches(
        self,
        work: Work,
        sync: Sync,
        step: int,
        rounds: Sequence[tuple[int, Mapping[str, float]]],
        sums: dict[str, Tensor],
    ) -> None:
        model = self._pace.timed(sync.model)
        for number, (index, shares) in enumerate(rounds, 1):
            counted = sums if any(shares.values()) else {}
            with sync.microbatch(last=number == len(rounds)):
                run_microbatch(work, model, self.device, step, index, shares, counted, telling=True)

    def update(self, work: Work, number: int, sums: Mapping[str, Tensor]) -> Update:
        """The plain update, of gradients that every worker finds the same norm of."""
        placement = self._placement
        slices = placement.slices
        norm_of: Callable[[list[Tensor]], Tensor] | None = None
        if self._norm_group is not None:
            norm_of = self._norm
        elif isinstance(placement.sync, Replicas):
            norm_of = partial(_norm_of_all, work)
        with EXCHANGING:
            done = update(
                work,
                number,
                {},  # A term that is not finite has made its gradient so, which all workers see.
                norm_of=norm_of,
                step=None if slices is None else lambda: slices.step(work.optimizer),
            )
        placement.release()
        self._pace.leave()
        if self._reduction is not None:
            self._reduction.compressor.settle(done.bad if done.applied is None else not done.applied)
        return done

    def _norm(self, gradients: list[Tensor]) -> Tensor:
        counted = [tensor.grad for tensor in self._placement.counted if tensor.grad is not None]
        square = global_norm(counted).square() if counted else self._zero.clone()
        dist.all_reduce(square, group=self._norm_group)
        return square.sqrt()

    def _sync_for(self, work: Work) -> Sync:
        if work.gradients_local is not None and isinstance(self._placement.sync, Replicas):
            # Whoever wants this worker's own gradients has to see them before they are added up.
            self._placement.reduce_afterwards(work.model)
        return self._placement.sync

    # -- evaluation ---------------------------------------------------------------------------------------------------

    def spread(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, bool]]:
        """A round at a time: one batch for each data worker, the first one again for those who have none."""
        rest = iter(batches)
        while held := list(islice(rest, self._data.size)):
            counts = self._data.rank < len(held)
            yield held[self._data.rank if counts else 0], counts and self._tells

    def forward(self, work: Work, inputs: Mapping[str, Any]) -> Any:
        """A forward of the model as it stands, through all stages; outputs are whole."""
        with EXCHANGING:
            if self._placement.pipeline is not None:
                return self._placement.pipeline.forward(work, inputs)
            with work.precision.autocast():
                return whole_outputs(work.model(**inputs))

    def merge(self, counts: Counts) -> Counts:
        """One exchange for each type of numbers; what each worker took of its own goes with it."""
        if not counts:
            return counts
        first = next(iter(counts.values()))
        kind = first.dtype if first.is_floating_point() else torch.float32
        own = [0.0] * self.world
        own[self.rank] = self._pace.take()
        pace = torch.tensor(own, dtype=kind, device=self.device)
        with EXCHANGING:
            merged = exchange.merge({**counts, "nlpkernel/pace": pace})
        slow = self._pace.judge(merged.pop("nlpkernel/pace").tolist())
        if slow is not None and self.rank == 0:
            self._run.notice("communicator torchdist", slow, level="warning")
        self._pace.rest()
        return merged

    # -- state --------------------------------------------------------------------------------------------------------

    def state(self) -> Mapping[str, Leaf]:
        """What a compressor keeps from one window to the next."""
        if self._reduction is None:
            return {}
        return dict(self._placement.books(self._layout, self.rank).leaves(self._reduction.compressor))

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take it up."""
        if self._reduction is not None:
            self._placement.books(self._layout, self.rank).take_up(self._reduction.compressor, state)
        elif total(state):
            self._run.notice(
                "communicator torchdist",
                "the version holds gradients that a compressor had not sent yet; there is none now, so they are lost",
                level="warning",
            )


def _norm_of_all(work: Work, gradients: list[Tensor]) -> Tensor:
    """The norm of whole copies. Raise TrainingError (TDI008) where a gradient is missing: DDP has not exchanged all of
    them then, and says nothing of it before its next forward."""
    if len(gradients) != len(work.named):
        raise _lacking(work)
    return global_norm(gradients)


def _lacking(work: Work) -> NlpkernelError:
    names = [name for name, tensor in work.named if tensor.grad is None]
    return fail(
        TrainingError,
        "TDI008",
        f"this window has given no gradient to {_named(names)}, which had one in the first window",
        owner=OWNER,
        hint="write unused = true in [communicator]",
    )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _group(layout: Layout, rank: int, *axes: str) -> dist.ProcessGroup:
    """The workers that differ from this one on these axes alone. Made on all workers in the same order."""
    mine: dist.ProcessGroup | None = None
    for ranks in layout.lines(*axes):
        made = dist.new_group(list(ranks))
        if rank in ranks:
            mine = made
    assert mine is not None, "every worker is in one of the lines"
    return mine
