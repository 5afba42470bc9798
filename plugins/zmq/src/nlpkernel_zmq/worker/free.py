"""The group of a worker that computes whole windows by itself (`async`, `ssp`).

The engine takes every worker through all windows; those that another worker computes are passed over. So the number of
updates, the rate and the length of the run are those of one process, and a window is trained on once, by whoever got
it from the coordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from torch import Tensor

from nlpkernel.errors import PlanError, fail
from nlpkernel.hookspecs.communicator import Update, Work
from nlpkernel.state import Leaf
from nlpkernel_zmq.codes import OWNER
from nlpkernel_zmq.worker.group import ZmqGroup

if TYPE_CHECKING:
    import torch

    from nlpkernel.context import Run
    from nlpkernel.hookspecs.data import Batch
    from nlpkernel.hookspecs.task import Counts
    from nlpkernel_zmq.component import ZmqPs
    from nlpkernel_zmq.worker.exchange import Exchange
    from nlpkernel_zmq.worker.link import Link


#: More than any run has.
_ALL = 1 << 62


class FreeGroup(ZmqGroup):
    """See the module. The first worker alone logs, evaluates, decides and saves."""

    def __init__(self, settings: ZmqPs, run: Run, link: Link, device: torch.device) -> None:
        super().__init__(settings, run, link, device)
        #: Windows that were computed before the engine came to them.
        self._early: set[int] = set()

    @property
    def present(self) -> Collection[int]:
        """The first worker has all that is saved."""
        return (0,)

    #: The window that the coordinator gave this worker and that is not computed yet.
    _window: int | None = None
    #: The first window that the run goes on with; what is before it was trained on.
    _begin_at = 0
    #: The first window that was not trained on when the state was gathered.
    _next = -1
    _norm: Tensor | None = None

    def assign(self, step: int, count: int) -> Sequence[int]:
        """All micro-batches, if the window is mine."""
        self._count = count
        return range(count)

    def run_window(
        self, work: Work, step: int, mine: Sequence[int], totals: Mapping[str, float]
    ) -> Mapping[str, Tensor]:
        """Compute a window, or pass over it."""
        exchange = self._ready(work, step)
        if self._link.late and self._fresh:
            self._fresh = False
            exchange.pull()
            self._link.take_part()
        self._passing = step in self._early or self._claimed(work, exchange, step) != step
        self._early.discard(step)
        if self._passing:
            return {}
        self._at_hand = (step, totals)
        exchange.begin(0, 1, step, window=step)
        sums = self._compute(work, exchange, step, mine, totals)
        return {name: sums.get(name, self._zero) for name in totals}

    def update(self, work: Work, number: int, sums: Mapping[str, Tensor]) -> Update:
        """The servers step when its turn comes; here the parameters are taken as they are then."""
        norm = self._zero if self._norm is None else self._norm
        if self._passing:
            return Update(True, norm, self._zero, {})
        exchange = self._ready(work, self._at_hand[0])
        self._window = None
        update = self._applied(work, exchange.take_up(self._at_hand[0]))
        self._norm = update.norm
        return update

    def _claimed(self, work: Work, exchange: Exchange, step: int) -> int:
        """The next window of this worker from `step` on. One before it was somebody's who is gone, and is done now, as
        one is that is left out, to which the engine does not come."""
        while True:
            if self._window is None:
                end = self._run.end
                self._window = self._link.claim(_ALL if end is None else end)
            if self._window < 0 or (self._window >= step and not work.left_out(self._window)):
                return self._window
            self._do(work, exchange, self._window)

    def _do(self, work: Work, exchange: Exchange, window: int) -> None:
        """Compute a window out of the engine's order."""
        weights = [each.weights for each in work.data.window(window)]
        self._count = len(weights)
        totals = self.total(weights)
        # A window without weight, or that is left out, makes no update, as where the engine comes to it.
        mine = range(len(weights)) if any(totals.values()) and not work.left_out(window) else range(0)
        exchange.begin(0, 1, window, window=window)
        self._compute(work, exchange, window, mine, totals)
        exchange.take_up(window)
        self._window = None

    def _begin(self, work: Work, exchange: Exchange, step: int) -> None:
        if self._next >= 0:
            raise fail(
                PlanError,
                "ZPS009",
                f"a policy takes the run back to a version, and with mode = {self._settings.mode!r} the other workers "
                "have gone on",
                owner=OWNER,
                hint='write mode = "sync", or a policy that stops or skips',
            )
        step = max(step, self._begin_at)
        if self.rank == 0:
            self._upload(work, exchange, step)
            self._link.resume(begin=step)
        self._link.meet(b"")
        exchange.began(0)
        self._link.take_part()
        self._next = step

    # -- the first worker alone ---------------------------------------------------------------------------------------

    def share(self, value: Any) -> Any:
        """The first worker decides; nobody waits for it."""
        return value if self.rank == 0 else None

    def barrier(self) -> None:
        """Nobody waits."""

    def spread(self, batches: Iterable[Batch]) -> Iterator[tuple[Batch, bool]]:
        """All of them for the first worker, with the newest parameters; the others have one that counts nothing."""
        if self.rank:
            return ((batch, False) for batch in islice(batches, 1))
        if self._exchange is not None and not self._fresh:
            self._exchange.pull()
        return ((batch, True) for batch in batches)

    def merge(self, counts: Counts) -> Counts:
        """Each has its own."""
        return counts

    def gather(self, work: Work) -> None:
        """The first worker waits until nothing is under way, and gets parameters and optimizer state as they are
        then."""
        if self.rank or self._fresh or self._exchange is None:
            return
        exchange, link = self._exchange, self._link
        link.hold()
        while True:
            if self._window is not None and self._window >= 0:
                # The engine comes to it later, and passes over it.
                if self._window >= self._run.progress.step:
                    self._early.add(self._window)
                self._do(work, exchange, self._window)
            self._window = link.claim(0)
            if self._window < 0:
                break
        self._window = None
        held = link.quiet()
        self._next = held.next
        exchange.pull(held.number)
        self._fetch(work, exchange, held.number)
        link.resume()

    def state(self) -> Mapping[str, Leaf]:
        """Up to which window all have been trained on: some after the step of the version have."""
        return {**super().state(), "windows": Leaf(max(self._next, self._run.progress.step))}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on there."""
        super().load_state({name: value for name, value in state.items() if name != "windows"})
        self._begin_at = int(state.get("windows", 0))
