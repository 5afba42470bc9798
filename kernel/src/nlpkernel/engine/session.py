"""An opened run: everything that its steps need, and the step itself."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nlpkernel.engine.capture import capture, restore
from nlpkernel.engine.environment import memory_in_use
from nlpkernel.engine.evaluation import evaluate
from nlpkernel.engine.memory import Memory
from nlpkernel.engine.nonfinite import culprits
from nlpkernel.engine.readings import Reading, Readings
from nlpkernel.errors import TrainingError, fail
from nlpkernel.events import Decided, Logged, StepCompleted, VersionSaved, WindowSkipped
from nlpkernel.hookspecs.everywhere import Action, Decision
from nlpkernel.progress import Progress

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.checkpoint import Store
    from nlpkernel.hookspecs.communicator import Group, Work
    from nlpkernel.hookspecs.data import Data, Microbatch
    from nlpkernel.lock import Lock
    from nlpkernel.plan import Plan
    from nlpkernel.plugins.hooks import Hooks
    from nlpkernel.state import Stateful

#: Windows in a row that may overflow before a falling loss scale is no explanation any more.
_OVERFLOWS = 50


class Session:
    """One run between its opening and its end. `engine.opening` makes it; `advance` takes one step.

    length: steps of the whole run. progress: how far it is. stop: set from anywhere (a signal, a policy) to end the
    run after the current step.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        run: Run,
        hooks: Hooks,
        group: Group,
        data: Data,
        work: Work,
        store: Store | None,
        lock: Lock,
        stateful: Mapping[str, Stateful],
        length: int,
    ) -> None:
        self.plan, self.run, self.hooks, self.bus = plan, run, hooks, run.bus
        self.group, self.data, self.work, self.store, self.lock = group, data, work, store, lock
        self.stateful, self.length = stateful, length
        self.progress = Progress()
        self.memory = Memory(work.task.main)
        self.stop: tuple[str, str] | None = None
        self._readings = Readings()
        self._saved_at: int | None = None
        self._evaluated_at: int | None = None
        self._overflows = 0
        self._wants_steps = self.bus.wants(StepCompleted)
        self._observed = bool(hooks.bound("update_applied"))

    # -- a step -------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """One step: forward and backward of a window, an update, and what is due after it."""
        number = self.progress.step
        window = self.data.window(number)
        totals = self.group.total([each.weights for each in window])
        samples = tokens = 0
        for each in window:
            samples += each.samples
            tokens += each.tokens
        if number in self.memory.avoid:
            self._skip(number, window, "non-finite", samples, tokens)
        elif not any(totals.values()):
            self._skip(number, window, "empty", samples, tokens)
        else:
            mine = self.group.assign(number, len(window))
            sums = self.group.run_window(self.work, number, mine, totals)
            update = self.group.update(self.work, self.progress.updates, sums)
            self._readings.add(number, sums, totals, update, samples, tokens)
            if update.applied is False and self._not_applied(number, window):
                return
            self._count(samples, tokens, applied=update.applied is not False)
            if update.applied:
                self._overflows = 0
            if self._wants_steps:
                self.bus.publish(
                    StepCompleted(
                        time=time.time(), progress=self.progress, sums=sums, totals=totals, norm=update.norm
                    )
                )
            if self._observed:
                self.hooks.observe(
                    "update_applied",
                    run=self.run,
                    progress=self.progress,
                    applied=update.applied is not False,
                )
        self._after()

    def _count(self, samples: int, tokens: int, *, applied: bool) -> None:
        step, updates, seen, read, _ = self.progress
        step += 1
        self.progress = self.run.progress = Progress(
            step, updates + applied, seen + samples, read + tokens, self.data.epoch(step)
        )

    def _after(self) -> None:
        """Log, evaluate, decide, save: each where it is due."""
        step, train = self.progress.step, self.run.train
        last = step >= self.length
        metrics: dict[str, float | None] = {}
        if step % train.log.every == 0 or last:
            metrics |= self.log()
        every = train.evaluate.every
        if every is not None and step % every == 0:
            metrics |= self._look()
            if "non-finite" not in metrics:
                metrics |= self.evaluate()
        self.decide(metrics)

    # -- what is due ----------------------------------------------------------------------------------------------

    def log(self) -> dict[str, float | None]:
        """Read the device once and tell what it said."""
        if not len(self._readings):
            return {}
        reading = self._readings.read()
        if reading.bad is not None:
            return self._latched(reading.bad)
        rates = [group["lr"] for group in self.work.optimizer.param_groups]
        metrics = {**reading.metrics, "rate": max(rates, default=None)}
        self._tell(reading, metrics)
        return metrics

    def _look(self) -> dict[str, float | None]:
        """Ask the device whether a window since the last log was not finite; one read, and only where something is
        due that must not happen on top of it."""
        bad = self.work.bad
        return self.log() if bad is not None and bool(bad) else {}

    def _tell(self, reading: Reading, metrics: Mapping[str, float | None]) -> None:
        if not self.bus.wants(Logged):
            return
        self.bus.publish(
            Logged(
                time=time.time(),
                progress=self.progress,
                steps=reading.steps,
                metrics=metrics,
                seconds=reading.seconds,
                tokens=reading.tokens,
                samples=reading.samples,
                skipped=reading.skipped,
                memory=memory_in_use(self.group.device),
            )
        )

    def evaluate(self) -> dict[str, float | None]:
        """Evaluate the splits that the plan names and the data has; tell the schedule."""
        self._readings.pause()
        metrics: dict[str, float | None] = {}
        for split in self.run.train.evaluate.splits:
            if split in self.data.info.splits:
                metrics |= evaluate(self, split)
        if metrics:
            self.work.schedule.observe(metrics)
        self._evaluated_at = self.progress.step
        self._readings.restart()
        return metrics

    def decide(self, metrics: Mapping[str, float | None]) -> None:
        """Ask every policy; of several answers the strongest wins, and a save is done beside a stop."""
        answers = self.hooks.decisions(self.run, self.progress, metrics)
        if not answers:
            return
        owner, strongest = max(answers, key=lambda answer: answer[1].action)
        if strongest.action > Action.SAVE:
            self.bus.publish(
                Decided(
                    time=time.time(),
                    progress=self.progress,
                    action=strongest.action.name.lower(),
                    reason=strongest.reason,
                    source=owner,
                )
            )
        if strongest.action is Action.FAIL:
            # The weights are those of the last good step; what was learned is not thrown away.
            self.save()
            raise fail(TrainingError, "NK403", self._failure(strongest, metrics), owner=owner)
        if strongest.action is Action.ROLLBACK:
            self._roll_back(strongest, metrics, owner)
            return
        if any(decision.action is Action.SAVE for _, decision in answers):
            self.save()
        if strongest.action is Action.STOP:
            self.stop = ("stopped", f"{strongest.reason} ({owner})")

    def save(self) -> None:
        """Put the state into a version, unless this step is saved already."""
        if self.store is None or self._saved_at == self.progress.step:
            return
        found = self._look()
        if found:
            self.decide(found)
            return
        self._readings.pause()
        start = time.monotonic()
        version = self.store.save(capture(self))
        self._saved_at = self.progress.step
        self.bus.publish(
            VersionSaved(
                time=time.time(),
                progress=self.progress,
                version=version.name,
                bytes=version.bytes,
                seconds=time.monotonic() - start,
            )
        )
        self._readings.restart()

    def load(self, reference: str | None = None) -> None:
        """Put the run where a version was taken, the newest where none is named."""
        assert self.store is not None, "a run without a store has nothing to load"
        snapshot = self.store.load(reference)
        restore(self, snapshot)
        self._saved_at = self.progress.step

    def finish(self) -> None:
        """Last log, last evaluation, last version."""
        self.decide(self.log())
        interrupted = self.stop is not None and self.stop[0] == "interrupted"
        if not interrupted and self._evaluated_at != self.progress.step:
            self.decide(self.evaluate())
        self.save()

    # -- windows that change nothing --------------------------------------------------------------------------------

    def _skip(
        self, number: int, window: Sequence[Microbatch], reason: str, samples: int, tokens: int
    ) -> None:
        """A window that is not run: no counted label in it, or known not to be finite."""
        self.run.count("engine", f"windows skipped: {reason}")
        self.bus.publish(
            WindowSkipped(time=time.time(), step=number, reason=reason, samples=self._names(number, window))
        )
        self._readings.skip(samples, tokens)
        self._count(samples, tokens, applied=False)

    def _not_applied(self, number: int, window: Sequence[Microbatch]) -> bool:
        """The host knows that an update was skipped: an overflow of the loss scale, policy `skip`, or an optimizer
        that the host decides for. True where the policies decided and this step is over."""
        if self.work.precision.scaled:
            self._overflows += 1
            if self._overflows >= _OVERFLOWS:
                raise fail(
                    TrainingError,
                    "NK404",
                    f"{self._overflows} windows in a row overflowed, the last in step {number + 1}: "
                    "no loss scale can be the reason",
                )
        reason = "overflow" if self.work.precision.scaled else "non-finite"
        self.run.count("engine", f"windows skipped: {reason}")
        self.bus.publish(
            WindowSkipped(
                time=time.time(), step=number, reason=reason, samples=culprits(self, number, window)
            )
        )
        if not self.work.latch:
            return False
        self._readings = Readings()
        self.work.bad = None
        self.decide({"non-finite": float(number)})
        return True

    def _latched(self, number: int) -> dict[str, float | None]:
        """The device says that window `number` was not finite: nothing was changed since, so the run stands there."""
        window = self.data.window(number)
        done = self.progress
        back = sum(each.samples for each in window), sum(each.tokens for each in window)
        for step in range(number + 1, done.step):
            later = self.data.window(step)
            back = back[0] + sum(each.samples for each in later), back[1] + sum(each.tokens for each in later)
        self.progress = self.run.progress = Progress(
            number,
            done.updates - (done.step - number),
            done.samples - back[0],
            done.tokens - back[1],
            self.data.epoch(number),
        )
        self.work.bad = None
        self.run.count("engine", "windows skipped: non-finite")
        self.bus.publish(
            WindowSkipped(
                time=time.time(), step=number, reason="non-finite", samples=culprits(self, number, window)
            )
        )
        return {"loss": None, "norm": None, "non-finite": float(number)}

    def _failure(self, decision: Decision, metrics: Mapping[str, float | None]) -> str:
        step = metrics.get("non-finite")
        if step is None:
            return decision.reason
        names = culprits(self, int(step), self.data.window(int(step)))
        return f"{decision.reason}, on rank {self.run.rank}; samples: {', '.join(names)}"

    def _roll_back(self, decision: Decision, metrics: Mapping[str, float | None], owner: str) -> None:
        """Take up the newest version, and leave out the window that spoilt the weights."""
        if self.store is None or not self.store.list():
            raise fail(
                TrainingError,
                "NK405",
                f"{self._failure(decision, metrics)}; there is no version to roll back to",
                owner=owner,
                hint="let [checkpoint] save earlier",
            )
        avoid = {
            *self.memory.avoid,
            *([int(step)] if (step := metrics.get("non-finite")) is not None else []),
        }
        self._readings = Readings()
        self.load()
        self.memory.avoid |= avoid
        self.work.bad = None
        self.run.count("engine", "roll-backs")

    def _names(self, number: int, window: Sequence[Microbatch]) -> tuple[str, ...]:
        names = [name for index in range(len(window)) for name in self.data.names(number, index)]
        return tuple(names[:8]) + ((f"and {len(names) - 8} more",) if len(names) > 8 else ())
