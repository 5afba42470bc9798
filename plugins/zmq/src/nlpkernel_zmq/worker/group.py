"""The group of a worker where all compute each window together: what the engine speaks to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nlpkernel.agreement import difference
from nlpkernel.engine.capture import plain_groups
from nlpkernel.engine.group import SingleGroup, named_gradients, run_microbatch, shares_of, trainable
from nlpkernel.engine.owed import Books, total
from nlpkernel.errors import PlanError, TrainingError, fail
from nlpkernel.hookspecs.communicator import Axis, Held, Requirements, Update, Work, WorkersChanged
from nlpkernel.state import Leaf, Replicated, local
from nlpkernel_zmq.codes import OWNER
from nlpkernel_zmq.layout import Equals
from nlpkernel_zmq.worker import words
from nlpkernel_zmq.worker.exchange import Exchange

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.compressor import Compressor
    from nlpkernel.hookspecs.data import Batch
    from nlpkernel.hookspecs.model import Anatomy, ParameterGroup
    from nlpkernel.hookspecs.task import Counts
    from nlpkernel_zmq.component import ZmqPs
    from nlpkernel_zmq.wire.messages import Release
    from nlpkernel_zmq.worker.link import Link


#: How names in a version begin of parameters that workers compute with, where the servers have others.
_REFERENCE = "reference/"


class ZmqGroup:
    """See `nlpkernel.hookspecs.communicator.Group`. Every worker has the whole model; the optimizer is on the servers,
    and the first worker stands for it: it sends its state there, and gets it to save it.

    A worker that comes into a run which goes on passes over the windows that were trained on without it.
    """

    requires = Requirements()

    def __init__(self, settings: ZmqPs, run: Run, link: Link, device: torch.device) -> None:
        self.rank, self.world, self.device = run.rank, run.world, device
        self.stream = run.rank
        self.axes: Mapping[str, Axis] = {
            name: Axis(run.rank, run.world) if name == "data" else Axis()
            for name in ("data", "tensor", "pipe", "expert")
        }
        self._settings, self._run, self._link = settings, run, link
        self._local = SingleGroup(device)
        self._groups: Sequence[ParameterGroup] = ()
        self._exchange: Exchange | None = None
        self._compressor: Compressor | None = None
        if settings.compressor is not None:
            self._compressor = run.ask(settings.compressor, "create_compressor")
        self._down: Compressor | None = None
        if settings.down is not None:
            self._down = run.ask(settings.down, "create_compressor")
        #: The parameters that all workers compute with, while this worker's model has those of the servers.
        self._reference: dict[str, Tensor] = {}
        self._captured = False
        self._told_cost = False
        #: What is trained, whole on each worker, by name.
        self._trained: Mapping[str, Held] = {}
        #: Whether the servers have to get what this run begins or goes on with.
        self._fresh = True
        self._zero = torch.zeros((), device=device)
        #: Who computes the round at hand, and who is at its meetings.
        self._owners: tuple[int, ...] = tuple(range(settings.here))
        self._there: tuple[int, ...] = self._owners
        #: The last window that was trained on before this worker came; None once it takes part.
        self._behind: int | None = None
        self._passing = False
        #: Whether this worker came into a run that went on, and takes part now.
        self._came_in = False
        self._count = 0
        self._at_hand: tuple[int, Mapping[str, float]] = (0, {})

    # -- coming together ----------------------------------------------------------------------------------------------

    @property
    def present(self) -> Collection[int]:
        """The workers that were there from the beginning and still are: who came later has no part in versions."""
        beats = self._link.beats
        if beats is None or beats.members is None:
            here = range(self._settings.here)
            return [rank for rank in here if not (self._link.late and rank == self.rank)]
        return set(beats.members) - set(beats.late)

    def agree(self, fingerprint: Mapping[str, str]) -> None:
        """All say theirs, and each compares."""
        said = dict(enumerate(map(words.plain, self._link.meet(words.packed(dict(fingerprint))))))
        # One that comes later gets what was said then, and has to compare its own.
        said[self.rank] = dict(fingerprint)
        found = [difference(rank, said[0], said[rank]) for rank in sorted(said)[1:]]
        if any(found):
            raise fail(
                TrainingError,
                "ZPS002",
                "; ".join(filter(None, found)),
                owner=OWNER,
                hint="install the same releases everywhere, and start all workers with the same plan",
            )

    def share(self, value: Any) -> Any:
        """What the first worker says at a meeting."""
        if self._passing or self._link.joined:
            return None
        return words.plain(self._link.meet(words.packed(value if self.rank == 0 else None))[0])

    def barrier(self) -> None:
        """A meeting."""
        if not (self._passing or self._link.joined):
            self._link.meet(b"")

    def close(self) -> None:
        """Leave."""
        end = self._run.end
        self._link.close(early=self._link.joined and (end is None or self._run.progress.step < end))

    # -- the model ----------------------------------------------------------------------------------------------------

    def distribute(
        self,
        module: nn.Module,
        anatomy: Anatomy,
        finish_block: Callable[[nn.Module], nn.Module],
        dtype: torch.dtype,
    ) -> nn.Module:
        """Each worker has all of it."""
        return self._local.distribute(module, anatomy, finish_block, dtype)

    def held(self, module: nn.Module) -> Sequence[Held]:
        """All of the model; the first worker saves it."""
        return self._local.held(module)

    def trained(self, held: Sequence[Held]) -> Sequence[Held]:
        """The first worker stands for the optimizer, which is elsewhere."""
        trained = trainable(held)
        self._trained = {each.name: each for each in trained}
        return trained if self.rank == 0 else []

    def create_optimizer(
        self,
        make: Callable[[Sequence[ParameterGroup]], torch.optim.Optimizer],
        groups: Sequence[ParameterGroup],
    ) -> torch.optim.Optimizer:
        """One that is never stepped here: the servers make theirs alike."""
        self._groups = groups
        return make(groups)

    # -- a window -----------------------------------------------------------------------------------------------------

    def assign(self, step: int, count: int) -> Sequence[int]:
        """Every so many-th micro-batch. Which of them is known when the window is run: this worker may come into the
        run only then."""
        self._count = count
        self._passing = self._behind is not None and step <= self._behind
        return self._mine(step, count)

    def _mine(self, step: int, count: int) -> range:
        if self._passing or self.rank not in self._owners:
            return range(0)
        return range(self._owners.index(self.rank), count, len(self._owners))

    def total(self, weights: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
        """Sums on the host."""
        return self._local.total(weights)

    def run_window(
        self, work: Work, step: int, mine: Sequence[int], totals: Mapping[str, float]
    ) -> Mapping[str, Tensor]:
        """Forward and backward of my share, whose gradients leave as they come."""
        exchange = self._ready(work, step)
        if self._captured:
            self._compute_with_reference(work)
        if self._link.late and not self._came_in:
            self._come_in(exchange, step)
        if self._passing:
            return {}
        if self.rank not in self._owners:
            raise fail(
                TrainingError,
                "ZPS004",
                f"worker {self.rank} was counted as lost, and the others went on without it",
                owner=OWNER,
                hint="logs/run.log says when it was silent; `silence` in [communicator] is the limit",
            )
        self._at_hand = (step, totals)
        sums = self._run_share(work, exchange, step, self._owners.index(self.rank), totals)
        return {name: sums.get(name, self._zero) for name in totals}

    def _run_share(
        self,
        work: Work,
        exchange: Exchange,
        step: int,
        share: int,
        totals: Mapping[str, float],
        *,
        leased: bool = False,
    ) -> Mapping[str, Tensor]:
        of = len(self._owners)
        exchange.begin(share, of, step, leased=leased)
        return self._compute(work, exchange, step, range(share, self._count, of), totals)

    def _compute(
        self, work: Work, exchange: Exchange, step: int, mine: Sequence[int], totals: Mapping[str, float]
    ) -> Mapping[str, Tensor]:
        """Run micro-batches, push what they give, and say that it is whole."""
        shares, sums = shares_of(totals), dict[str, Tensor]()
        scale = 1.0
        if work.precision.scaled:
            scale = float(work.precision.scale(torch.ones((), device=self.device)))
        if exchange.up is not None:
            exchange.up.scale = scale
        # Who changes or makes gradients itself is done with them only after the whole backward pass.
        leaves = work.gradients_local is None and work.backward is None
        for number, index in enumerate(mine, 1):
            exchange.gradients.watch(leaves and number == len(mine))
            run_microbatch(work, work.model, self.device, step, index, shares, sums, telling=True)
        exchange.gradients.watch(False)
        if work.gradients_local is not None:
            work.gradients_local(named_gradients(work))
        factor = work.schedule.factor(self._run.progress.updates)
        terms = {name: float(value) for name, value in sums.items()}
        exchange.end(empty=not mine, scale=scale, factor=factor, sums=terms)
        for group in work.optimizer.param_groups:
            group["lr"] = group["peak"] * factor
        for _, tensor in work.named:
            tensor.grad = None
        return sums

    def update(self, work: Work, number: int, sums: Mapping[str, Tensor]) -> Update:
        """The servers step once they have all shares; here the parameters are taken from them. Meanwhile this worker
        does shares of workers that are gone."""
        if self._passing:
            return Update(True, self._zero, self._zero, {})
        exchange = self._ready(work, self._at_hand[0])
        round = exchange.round
        while not exchange.is_over(round):
            self._link.wait(
                lambda: exchange.is_over(round) or bool(self._link.leased.get(round)), "the other workers"
            )
            for share in self._link.leased.pop(round, []):
                if share != self._owners.index(self.rank):
                    step, totals = self._at_hand
                    self._run_share(work, exchange, step, share, totals, leased=True)
        release = exchange.take_up(round)
        exchange.round += 1
        # Those of other machines meet nobody.
        self._there = tuple(rank for rank in self._owners if rank < self._settings.here)
        self._owners = release.owners
        self._link.after(round)
        return self._applied(work, release)

    def _applied(self, work: Work, release: Release) -> Update:
        if work.precision.scaled:
            work.precision.observe(not release.applied)
        return Update(
            release.applied,
            torch.tensor(release.norm, dtype=torch.float32, device=self.device),
            torch.tensor(float(not release.applied), device=self.device),
            {name: torch.tensor(value, device=self.device) for name, value in release.sums.items()},
        )

    def _come_in(self, exchange: Exchange, step: int) -> None:
        """Take part from the next round on, with the parameters as they are then."""
        self._fresh = False
        self._link.enlist()
        link = self._link

        def admitted() -> bool:
            said = [server.release for server in link.servers]
            rounds = {each.round for each in said if each is not None}
            return (
                None not in said
                and len(rounds) == 1
                and all(each is not None and self.rank in each.owners for each in said)
                and exchange.is_over(rounds.pop())
            )

        link.wait(admitted, "the others to let this worker in")
        first = link.servers[0].release
        assert first is not None
        release = exchange.take_up(first.round)
        exchange.began(release.round + 1)
        self._owners, self._behind, self._came_in = release.owners, release.step, True
        link.after(release.round)
        self._passing = step <= release.step
        self._run.notice(
            "communicator zmq-ps", f"worker {self.rank} comes in after window {release.step + 1}"
        )

    def _ready(self, work: Work, step: int) -> Exchange:
        """What goes between this worker and the servers; at first, and after a version was taken up, they get what the
        run goes on with."""
        if self._exchange is None:
            if work.gradients_global is not None:
                raise fail(
                    PlanError,
                    "ZPS006",
                    "a component of the plan looks at the gradient of all workers (gradients_ready)",
                    owner=OWNER,
                )
            whole = self._run.optimizer_need == "whole_tensor"
            self._exchange = Exchange(
                self._settings,
                self._link,
                work,
                self._groups,
                whole=whole,
                compressor=self._compressor,
                down=self._down,
            )
            if self.rank == 0 and self._exchange.told:
                self._run.notice("communicator zmq-ps", self._exchange.told)
        if self._fresh and (self._came_in or not self._link.late):
            self._fresh = False
            self._begin(work, self._exchange, step)
        return self._exchange

    def _begin(self, work: Work, exchange: Exchange, step: int) -> None:
        if self.rank == 0:
            self._upload(work, exchange, step)
        if self._reference:
            self._compute_with_reference(work)
        exchange.began(int(words.plain(self._link.meet(words.packed(exchange.round))[0])))
        self._link.take_part()

    def _upload(self, work: Work, exchange: Exchange, step: int) -> None:
        exchange.upload(
            work.optimizer.state,
            plain_groups(work.optimizer),
            dict(work.named),
            step=step,
            updates=self._run.progress.updates,
            reference=self._reference,
        )
        work.optimizer.state.clear()
        if self._settings.compresses and not self._told_cost:
            self._told_cost = True
            self._tell_break_even(exchange)

    def _tell_break_even(self, exchange: Exchange) -> None:
        settings, exchanged = self._settings, exchange.exchanged(self.world)
        found = [
            measure(self._run.ask(component, "create_compressor"))
            for component, measure in ((settings.compressor, exchanged.up), (settings.down, exchanged.down))
            if component is not None
        ]
        joins = settings.here < settings.workers
        for each in found:
            # This worker is beside the servers, and knows nothing of the way to those of other machines.
            text = (
                f"{each} (measured here; workers of other machines have another way)" if joins else str(each)
            )
            warns = not each.pays and not joins
            self._run.notice("communicator zmq-ps", text, level="warning" if warns else "info")

    # -- evaluation ---------------------------------------------------------------------------------------------------

    def spread(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, bool]]:
        """Every so many-th batch. Who passes over windows has one that counts nothing."""
        if self._passing or self._link.joined:
            return ((batch, False) for batch in islice(batches, 1))
        there = self._there
        return ((batch, True) for batch in islice(batches, there.index(self.rank), None, len(there)))

    def forward(self, work: Work, inputs: Mapping[str, Any]) -> Any:
        """A forward of the model as it stands."""
        if self._captured:
            self._compute_with_reference(work)
        return self._local.forward(work, inputs)

    def merge(self, counts: Counts) -> Counts:
        """All say theirs, and each adds up."""
        if self._passing or self._link.joined:
            return counts
        said = self._link.meet(words.counts(counts))
        if self._link.members != self._there:
            self._there = self._link.members
            raise WorkersChanged
        return words.added(said, self.device)

    # -- state --------------------------------------------------------------------------------------------------------

    def gather(self, work: Work) -> None:
        """The first worker gets the optimizer's state from the servers; and where only differences travel, the
        parameters themselves."""
        if self.rank or self._fresh or self._exchange is None:
            return
        if self._down is not None:
            if self._captured:
                self._compute_with_reference(work)
            self._reference = {name: tensor.detach().clone() for name, tensor in work.named}
            self._exchange.pull(self._exchange.round)
            self._captured = True
        self._fetch(work, self._exchange, self._exchange.round)

    def _fetch(self, work: Work, exchange: Exchange, number: int) -> None:
        by_name = dict(work.named)
        state = work.optimizer.state
        state.clear()
        for name, key, value in exchange.fetch(number):
            state[by_name[name]][key] = value

    def state(self) -> Mapping[str, Leaf]:
        """What a compressor keeps from one window to the next, and the parameters as workers have them."""
        kept = {_REFERENCE + name: Leaf(each) for name, each in self._reference.items() if not self.rank}
        if self._compressor is not None:
            kept.update(self._books.leaves(self._compressor))
        return kept

    def _compute_with_reference(self, work: Work) -> None:
        with torch.no_grad():
            for name, tensor in work.named:
                tensor.copy_(self._reference[name])
        self._reference, self._captured = {}, False

    @property
    def _books(self) -> Books:
        names = frozenset(self._trained)
        # Without sums of all workers, each has factors of its own.
        return Books(Equals(self.world), self.rank, self._trained, names, names)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """The servers get what was taken up before the next round."""
        self._fresh, self._captured = True, False
        self._behind, self._passing = None, False
        self._reference = {
            name.removeprefix(_REFERENCE): local(value, Replicated()).clone()
            for name, value in state.items()
            if self._down is not None and name.startswith(_REFERENCE)
        }
        if self._compressor is not None:
            self._books.take_up(self._compressor, state)
        elif total(state):
            self._run.notice(
                "communicator zmq-ps",
                "the version holds gradients that a compressor had not sent yet; there is none now, so they are lost",
                level="warning",
            )
        ahead = state.get("windows")
        if ahead is not None and ahead > self._run.progress.step:
            self._run.notice(
                "communicator zmq-ps",
                f"the version was made without rounds (async or ssp): {ahead - self._run.progress.step} windows after "
                "its step were trained on already, and are again",
                level="warning",
            )
