"""The slot `communicator`: the group of workers that run one plan together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import attrs

from nlpkernel.hookspecs._spec import Point, hook

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from nlpkernel.context import Run
    from nlpkernel.hookspecs.data import Batch, Data
    from nlpkernel.hookspecs.model import Anatomy, ParameterGroup
    from nlpkernel.hookspecs.optimizer import Schedule
    from nlpkernel.hookspecs.precision import Precision
    from nlpkernel.hookspecs.task import Counts, Task
    from nlpkernel.state import Kind, Leaf
    from nlpkernel.supervise.post import Post


@attrs.frozen
class Axis:
    """One dimension of the layout, seen from this worker. `handle` is the communicator's own."""

    rank: int = 0
    size: int = 1
    handle: Any = None


@attrs.frozen(kw_only=True)
class Requirements:
    """What a layout asks of the data, honoured by padding with weight 0.

    fixed_shapes: every micro-batch has the same shape. multiple: the number of micro-batches in a window is a multiple
    of this.
    """

    fixed_shapes: bool = False
    multiple: int = 1


@attrs.frozen(kw_only=True, eq=False)
class Held:
    """One parameter or buffer of the model as this worker holds it.

    tensor: plain, with memory of this worker; it is filled, has the gradient, is stepped and saved. kind: `Replicated`,
    or which pieces of the whole it is. kept: a version holds it (not so a buffer that can be made again). saves: this
    worker saves it, and no other saves the same pieces. first: of the workers that hold pieces of it, this one saves
    what belongs to it as a whole (the number of steps of its optimizer).
    """

    name: str
    tensor: Tensor
    kind: Kind
    kept: bool = True
    saves: bool = True
    first: bool = True


@attrs.define(kw_only=True)
class Work:
    """What a window and an update need, gathered once before the first step.

    named: what this worker holds of the trained parameters, by their names.

    The three hooks are None where nobody implements them, so that nothing is asked in vain. `latch`: a window that is
    not finite stops all later updates on the device until the host looks; otherwise each is skipped for itself.
    `deferred`: the optimizer honours `found_inf`, so that no step reads the device. `bad` is the latch. `left_out`:
    whether a window is not to be trained on at all; the engine does not run such a one.
    """

    data: Data
    task: Task
    model: nn.Module
    named: Sequence[tuple[str, Tensor]]
    precision: Precision
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    clip: float | None
    latch: bool
    deferred: bool
    bad: Tensor | None = None
    backward: Callable[[Tensor, Mapping[str, Tensor]], object] | None = None
    gradients_local: Callable[[Sequence[tuple[str, Tensor]]], object] | None = None
    gradients_global: Callable[[Sequence[tuple[str, Tensor]]], object] | None = None
    left_out: Callable[[int], bool] = lambda step: False


@attrs.frozen(kw_only=True)
class ProcessSpec:
    """A process that a communicator wants for a run; the kernel starts, watches and ends it.

    name: its own ("worker-0"), for messages and the log of the run. rank: the worker that it is, from 0 on; None for a
    process that is no worker (a server), which is ended once all workers are done. command: what it runs; None: this
    command line again, by which a worker trains and a server is asked `serve`. environment: what it gets beside ours.
    alone: its loss is not that of the others: it is started again by itself, within the same budget of restarts. A
    process finds rank, world and its name in its `Run`.
    """

    name: str
    rank: int | None = None
    command: tuple[str, ...] | None = None
    environment: Mapping[str, str] = attrs.field(factory=dict)
    alone: bool = False


class Update(NamedTuple):
    """What became of an update. `applied` is None while only the device knows; `norm` is the global norm before
    clipping, `bad` is 0 on the device where everything was finite and 1 where not (both without dimensions). `sums`
    are the terms of all workers, where the update tells them: then they are not merged; always or never. None of a
    window whose terms this worker does not know."""

    applied: bool | None
    norm: Tensor
    bad: Tensor
    sums: Mapping[str, Tensor] | None = None


class WorkersChanged(Exception):
    """Raised by `merge`: a worker whose counts are missing is gone. Count again: `spread` divides among those left."""


class Group(Protocol):
    """The workers of a run, seen from one of them. The engine speaks to this and knows no kind of parallelism."""

    rank: int
    world: int
    device: torch.device
    #: "data", "tensor", "pipe", "expert"
    axes: Mapping[str, Axis]
    requires: Requirements
    #: Which stream of random numbers this worker draws from (dropout): workers that compute the same share one.
    stream: int

    @property
    def present(self) -> Collection[int]:
        """The workers that have a part of what is saved now. Asked from any thread."""

    def agree(self, fingerprint: Mapping[str, str]) -> None:
        """Compare `fingerprint` on all workers before the first collective: texts of several lines (plan, plugins,
        versions, data, model schema) by what they say. Raise TrainingError naming the first line that differs, and the
        worker."""

    def share(self, value: Any) -> Any:
        """The first worker's `value`, plain data, on all of them. Asked of all at the same point."""

    def assign(self, step: int, count: int) -> Sequence[int]:
        """Which of the `count` micro-batches of a window are this worker's."""

    def distribute(
        self,
        module: nn.Module,
        anatomy: Anatomy,
        finish_block: Callable[[nn.Module], nn.Module],
        dtype: torch.dtype,
    ) -> nn.Module:
        """Cut, wrap and allocate a model that is on the meta device, its floating parameters in `dtype`; its values are
        filled afterwards.
        `finish_block` is applied to each block at the moment that the layout needs."""

    def held(self, module: nn.Module) -> Sequence[Held]:
        """Parameters and buffers of a distributed model as this worker holds them, tied ones once, in the order of
        `named_parameters` and `named_buffers`."""

    def trained(self, held: Sequence[Held]) -> Sequence[Held]:
        """What the optimizer of this worker steps: parameters of `held`, or pieces of them. Their gradients are there
        when it steps."""

    def create_optimizer(
        self,
        make: Callable[[Sequence[ParameterGroup]], torch.optim.Optimizer],
        groups: Sequence[ParameterGroup],
    ) -> torch.optim.Optimizer:
        """Make the optimizer where its state lives."""

    def total(self, weights: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
        """The weight of each loss term over all micro-batches of a window. No sync."""

    def run_window(
        self, work: Work, step: int, mine: Sequence[int], totals: Mapping[str, float]
    ) -> Mapping[str, Tensor]:
        """Forward and backward of my micro-batches; each term counts as its sum over the total. Returns the summed
        terms of this worker, on the device: those of all workers are what `merge` gives. The same terms in the same
        order on all."""

    def update(self, work: Work, number: int, sums: Mapping[str, Tensor]) -> Update:
        """Make the gradients global, unscale, clip by the global norm, set the rate for update `number` (applied ones
        before it), step unless something is not finite, and clear the gradients. All workers find the same."""

    def spread(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, bool]]:
        """This worker's share of evaluation batches, which all workers iterate alike. Where a layout needs a forward of
        everybody, a worker that has none left gets one again, marked False: it counts nothing."""

    def forward(self, work: Work, inputs: Mapping[str, Any]) -> Any:
        """A forward without gradient, for evaluation; outputs are whole on every worker."""

    def merge(self, counts: Counts) -> Counts:
        """Counts summed over all workers. All give the same names and shapes. Raise WorkersChanged."""

    def gather(self, work: Work) -> None:
        """Before the state is captured: bring to this worker what it saves and somebody else holds (an optimizer's
        state on servers). Asked of all at the same point."""

    def state(self) -> Mapping[str, Leaf]:
        """State of the communicator itself (residuals of compressors)."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave, of the same or another number of workers."""

    def barrier(self) -> None:
        """Wait for all workers."""

    def close(self) -> None:
        """Leave the group."""


@hook("pick")
def open_group(run: Run) -> Group:  # type: ignore[empty-body]
    """Join the workers of this run."""


@hook("pick")
def launch(run: Run) -> Sequence[ProcessSpec]:  # type: ignore[empty-body]
    """Asked by `nlpkernel run` and `resume` before anything is opened: the processes of the run. None: this process
    alone, as where another launcher has started the workers already. Light: no torch. In a worker it is not asked."""


@hook("pick")
def serve(
    run: Run,
    make_optimizer: Callable[[Sequence[ParameterGroup]], torch.optim.Optimizer],
    make_schedule: Callable[[int], Schedule],
) -> None:
    """Asked in a process that is no worker, instead of everything else: do its part until the workers are done.

    `run.process` is its name, `run.world` the number of workers, `run.rank` -1, `run.launch` the word that it shares
    with them; data, model and group are never there. make_optimizer(groups) makes the plan's optimizer, with "peak" in
    each group, make_schedule(updates) the plan's schedule.

    It is ended by SystemExit, raised in the main thread once all workers are done or have been ended, also where it
    waits in a poll: close sockets in a `finally`, within a second or two. It may return before that as well. A signal
    from elsewhere ends the run as one to a worker does, and this process after the workers, which need it to finish
    their step. It moves its pulse (`run.pulse.moves`, `run.pulse.step`) for those who look; it may stand still for as
    long as it likes."""


@hook("pick")
def join(run: Run) -> Post | None:
    """Asked where no supervisor of ours started this process, before anything is opened: its post among the workers
    that another launcher (torchrun, Slurm, Kubernetes, Ray) started. None: it is alone."""


POINT = Point(
    name="communicator",
    slot=True,
    must=("open_group",),
    may=("launch", "serve", "join"),
    free=True,
    help="the workers that run one plan together",
)
