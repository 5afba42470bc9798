"""The stages of a model that this worker has, and the windows and forwards that run through all of them.

What goes forth and back in a window is the business of `torch.distributed.pipelining`. It is told all shapes, so that
it sends none of its pickled descriptions; they are found by one forward without gradient through all stages, whenever
a window has micro-batches of new shapes. All workers of a pipe build the same micro-batches, and only hidden states and
their gradients travel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs
import torch
import torch.distributed as dist
from torch import Tensor, nn

from nlpkernel.engine.group import batch_on, count
from nlpkernel.errors import TrainingError, fail
from nlpkernel.hookspecs.model import Outputs
from nlpkernel_torchdist.codes import OWNER
from nlpkernel_torchdist.gates import Gates, StandIns
from nlpkernel_torchdist.schedules import Order, Place, Schedules, Shapes, Signature
from nlpkernel_torchdist.stages import divide
from nlpkernel_torchdist.tensor import local_gradient, set_local_gradient, whole_outputs
from nlpkernel_torchdist.wire import WIDTH, describe, empty, receive_numbers, send_numbers, spread

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from nlpkernel.hookspecs.communicator import Work
    from nlpkernel.hookspecs.data import Batch
    from nlpkernel.hookspecs.model import Anatomy


@attrs.frozen(eq=False)
class _Window:
    """The micro-batches of one window. Those without any share only fill it up."""

    work: Work
    batches: Sequence[Batch]
    inputs: Sequence[dict[str, Any]]
    shares: Sequence[Mapping[str, float]]
    sums: dict[str, Tensor]


class Pipeline:
    """One worker's part of a pipeline.

    axis_rank, axis_size: among the workers of `process_group`, which are those of one pipe in order. Worker r has
    stage r; in the interleaved schedule also stage r + axis_size and so on, `virtual` in all.

    Use, in this order: `cut` on the meta device; cut further what is left, wrap, and give it memory (what `cut` took
    out is no parameter or buffer of the module any more, so that nothing allocates it); `settle`; then windows.
    """

    def __init__(
        self,
        axis_rank: int,
        axis_size: int,
        process_group: ProcessGroup | None,
        device: torch.device,
        schedule: Order,
        virtual: int = 1,
    ) -> None:
        self.rank, self.size, self.group, self.device = axis_rank, axis_size, process_group, device
        self.count = axis_size * (virtual if schedule == "interleaved" else 1)
        #: The stages of this worker.
        self.mine = range(axis_rank, self.count, axis_size)
        self._standins = StandIns()
        self._schedules = Schedules(
            schedule, Place(axis_size, self.count, self.mine, process_group, device), self._round
        )
        self._window: _Window | None = None

    def cut(self, module: nn.Module, anatomy: Anatomy) -> None:
        """Divide a module on the meta device into stages, and take out of it what this worker does not need.

        A tied parameter stays on every worker that has a stage of one of its names, under all of them. Buffers outside
        of the blocks stay on all. Raise PlanError (TDI005) where there are fewer blocks than stages.
        """
        stages = self._stages = divide(module, anatomy, self.count)
        self._gates = Gates(stages)
        #: Paths of this worker's blocks.
        self.blocks = tuple(
            path
            for path, stage in zip(stages.blocks, stages.stage_of, strict=True)
            if stage % self.size == self.rank
        )
        self._holders = {
            name: frozenset(stage % self.size for stage in needed)
            for name, needed in stages.parameters.items()
        }
        #: Parameters of this worker that others have too, by the names that `named_parameters` gives.
        self.tied = tuple(
            name
            for name, _ in module.named_parameters()
            if len(self._holders[name]) > 1 and self.rank in self._holders[name]
        )
        for path, layer in list(module.named_modules()):
            dot = f"{path}." if path else ""
            for name in [*layer._parameters, *layer._buffers]:
                known = dot + name in stages.parameters or dot + name in stages.buffers
                if known and not self.owns(dot + name):
                    self._standins.replace(layer, name)

    def owns(self, name: str) -> bool:
        """Whether this worker has a parameter or buffer."""
        holders = self._holders.get(name)
        if holders is not None:
            return self.rank in holders
        stage = self._stages.buffers[name]
        return stage is None or stage % self.size == self.rank

    def saves(self, name: str) -> bool:
        """Whether it is this worker that saves it, and counts it in the global norm."""
        return self._stages.savers[name] % self.size == self.rank

    def settle(self, module: nn.Module) -> None:
        """After memory was given, and blocks were finished and wrapped: make the module run this worker's stages."""
        kinds = [each.dtype for each in module.parameters() if each.is_floating_point()]
        self._standins.settle(self.device, kinds[0] if kinds else torch.float32)
        self._gates.install(module)

    def run_window(
        self,
        work: Work,
        step: int,
        rounds: Sequence[tuple[int, Mapping[str, float]]],
        sums: dict[str, Tensor],
    ) -> None:
        """Forward and backward of the micro-batches of a window: (index, what one unit of each term counts).

        Fills the gradients of this worker's parameters; on the last stage `sums` gets the summed terms, detached. A
        term that is not finite makes the gradients of all stages not finite. A micro-batch of which nothing counts adds
        nothing to `sums`; where the schedule needs more than there are, the first is repeated so.

        Raise TrainingError (TDI040) for a model that cannot be cut, (TDI041) for micro-batches of different shapes, and
        (TDI042) where a component replaces the backward pass.
        """
        if work.backward is not None:
            raise fail(
                TrainingError,
                "TDI042",
                "a component replaces the backward pass of each micro-batch, which a pipeline runs in pieces",
                owner=OWNER,
                hint="leave `pipeline` out, or that component",
            )
        if not rounds:
            return
        batches = [batch_on(work, self.device, step, index) for index, _ in rounds]
        inputs = [dict(work.task.inputs(batch)) for batch in batches]
        signature = _alike([_signature(each) for each in inputs], [index for index, _ in rounds])
        shares = [share for _, share in rounds]
        more = self._schedules.length(len(rounds)) - len(rounds)
        batches += batches[:1] * more
        inputs += inputs[:1] * more
        shares += [dict.fromkeys(shares[0], 0.0)] * more
        self._window = _Window(work, batches, inputs, shares, sums)
        try:
            self._schedules.run(signature, len(batches), lambda: self._probe(work, inputs[0]))
        finally:
            self._window = None

    def forward(self, work: Work, inputs: Mapping[str, Any]) -> Any:
        """A forward without gradient; the outputs are those of the last stage on every worker. Logits travel as they
        are; where the model gives hidden states and the head's weight, both travel, and the weight is not kept."""
        outputs: Any = None
        with torch.no_grad():
            for stage in self.mine:
                received = None
                if stage:
                    received = empty(self._hear(stage), self.device)
                    dist.recv(received, group=self.group, group_src=(stage - 1) % self.size)
                with work.precision.autocast():
                    outputs = self._gates.run(work.model, stage, received, dict(inputs))
                if stage < self.count - 1:
                    hidden = _sendable(outputs)
                    self._tell(stage, hidden)
                    dist.send(hidden, group=self.group, group_dst=(stage + 1) % self.size)
            last = (self.count - 1) % self.size
            outputs = whole_outputs(outputs) if self.rank == last else Outputs()
            return Outputs(*spread(outputs, len(Outputs._fields), last, self.group, self.device))

    def exchange_ties(self, module: nn.Module) -> None:
        """Sum the gradients of tied parameters over the workers that have them, alike on each. All workers of the pipe
        ask it at the same point."""
        parameters = dict(module.named_parameters())
        for name in self.tied:
            parameter = parameters[name]
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            given = local_gradient(parameter)
            assert given is not None
            mine = given.contiguous()
            found = {self.rank: mine}
            exchanges = []
            for other in sorted(self._holders[name] - {self.rank}):
                found[other] = torch.empty_like(mine)
                exchanges += [
                    dist.P2POp(dist.isend, mine, group=self.group, group_peer=other),
                    dist.P2POp(dist.irecv, found[other], group=self.group, group_peer=other),
                ]
            for each in dist.batch_isend_irecv(exchanges):
                each.wait()
            # In the order of the workers, so that all find the same.
            first, second, *others = (found[rank] for rank in sorted(found))
            total = first + second
            for gradient in others:
                total += gradient
            set_local_gradient(parameter, total)

    def _probe(self, work: Work, inputs: dict[str, Any]) -> Shapes:
        """What each stage of this worker receives and sends, by a forward of one micro-batch through all stages. Only
        descriptions travel; random numbers are put back."""
        found: Shapes = {}
        for stage in self.mine:
            received, given = None, [0] * WIDTH
            if stage:
                given = self._hear(stage)
                blank = empty(given, self.device)
                # Something that no normalisation divides by zero.
                ramp = torch.linspace(-1, 1, max(1, blank.numel()), device=self.device)[: blank.numel()]
                received = blank.copy_(ramp.view(blank.shape))
            with self._unseen(), work.precision.autocast():
                outputs = self._gates.run(work.model, stage, received, inputs, probing=True)
            sent = [0] * WIDTH
            if stage < self.count - 1:
                sent = self._tell(stage, outputs)
            found[stage] = given, sent
        return found

    @contextmanager
    def _unseen(self) -> Iterator[None]:
        """Without gradient, and without a trace in the random generators."""
        kind = self.device.type
        devices = [] if kind == "cpu" else [self.device]
        with torch.no_grad(), torch.random.fork_rng(devices, device_type="cuda" if kind == "cpu" else kind):
            yield

    def _tell(self, stage: int, hidden: Tensor) -> list[int]:
        """Tell the next stage what the blocks return, and what it will receive."""
        description = describe(hidden)
        result = self._gates.result
        assert result is not None
        send_numbers([*result, *description], (stage + 1) % self.size, self.group, self.device)
        return description

    def _hear(self, stage: int) -> list[int]:
        """What the stage before tells."""
        kind, length, *description = receive_numbers(
            2 + WIDTH, (stage - 1) % self.size, self.group, self.device
        )
        self._gates.result = kind, length
        return description

    def _round(self, stage: int, received: Tensor | None, place: int) -> Tensor:
        """Forward of one stage for one micro-batch of the window: the hidden state that leaves it, or the loss."""
        window = self._window
        assert window is not None
        work, batch = window.work, window.batches[place]
        with work.precision.autocast():
            outputs = self._gates.run(work.model, stage, received, window.inputs[place])
            if stage < self.count - 1:
                return _sendable(outputs)
            terms = work.task.loss(whole_outputs(outputs), batch)
        shares = window.shares[place]
        sums = window.sums if any(shares.values()) else {}
        values, seeds = count(terms, shares, self.device, sums, telling=True)
        if not values:
            return torch.zeros((), device=self.device, requires_grad=True)
        loss = torch.stack([value * seed for value, seed in zip(values, seeds, strict=True)]).sum()
        return work.precision.scale(loss) if work.precision.scaled else loss


def _sendable(hidden: Tensor) -> Tensor:
    # What the tensor axis gives may be a promise of a tensor; a copy of it is the tensor.
    return (hidden if type(hidden) is Tensor else hidden.clone()).contiguous()


def _signature(inputs: Mapping[str, Any]) -> Signature:
    return tuple(
        (name, tuple(each.shape), each.dtype) for name, each in inputs.items() if isinstance(each, Tensor)
    )


def _alike(signatures: Sequence[Signature], indices: Sequence[int]) -> Signature:
    first = signatures[0]
    for index, other in zip(indices, signatures, strict=True):
        if other != first:
            raise fail(
                TrainingError,
                "TDI041",
                f"micro-batches {indices[0]} and {index} of a window differ: {_told(first)}, and {_told(other)}",
                owner=OWNER,
                hint="the data must pad all micro-batches to one shape",
            )
    return first


def _told(signature: Signature) -> str:
    return ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape, _ in signature)
