"""An opened run: everything that its steps need, and the step itself."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nlpkernel.engine.capture import plain_groups
from nlpkernel.engine.environment import memory_in_use
from nlpkernel.engine.evaluation import evaluate
from nlpkernel.engine.memory import Memory
from nlpkernel.engine.nonfinite import Suspects, culprits, names_of
from nlpkernel.engine.readings import Reading, Readings
from nlpkernel.engine.versions import Versions
from nlpkernel.errors import NlpkernelError, Problem, TrainingError, fail
from nlpkernel.events import Decided, Logged, StepCompleted, WindowSkipped
from nlpkernel.hookspecs.everywhere import Action, Decision
from nlpkernel.progress import Progress

if TYPE_CHECKING:
    from torch import Tensor

    from nlpkernel.context import Run
    from nlpkernel.engine.naming import Names
    from nlpkernel.hookspecs.checkpoint import Store
    from nlpkernel.hookspecs.communicator import Group, Held, Update, Work
    from nlpkernel.hookspecs.data import Data, Microbatch
    from nlpkernel.lock import Lock
    from nlpkernel.plan import Plan
    from nlpkernel.plugins.hooks import Hooks
    from nlpkernel.state import Stateful

#: Windows in a row that may overflow before a falling loss scale is no explanation any more.
_OVERFLOWS = 50


class Session:
    """One run between its opening and its end. `engine.opening` makes it; `advance` takes one step.

    length: steps of the whole run. end: where this process ends, the length but for a dry run. progress: how far it
    is. stop: status and reason, set from anywhere (a signal, a policy) to end the run after the current step.
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
        held: Sequence[Held],
        trained: Sequence[Held],
        names: Names,
        store: Store | None,
        lock: Lock,
        stateful: Mapping[str, Stateful],
        length: int,
    ) -> None:
        self.plan, self.run, self.hooks, self.bus = plan, run, hooks, run.bus
        self.group, self.data, self.work, self.lock = group, data, work, lock
        self.held, self.trained, self.names = held, trained, names
        self.stateful, self.length, self.end = stateful, length, length
        self.progress = Progress()
        self.memory = Memory(work.task.main)
        work.left_out = lambda step: step in self.memory.avoid
        self.stop: tuple[str, str] | None = None
        self._readings = Readings()
        self._suspects = Suspects()
        self._evaluated_at: int | None = None
        self._overflows, self._overflowed_at = 0, -1
        # The optimizer's settings as the plan gives them; a schedule or the optimizer itself moves them later.
        self.planned = plain_groups(work.optimizer)
        self.versions = Versions(self, store)
        self._wants_steps = self.bus.wants(StepCompleted)
        self._observed = bool(hooks.bound("update_applied"))
        self._pulse = run.pulse
        # What a stream was before the window at hand: one that spoils the weights has not been trained on.
        self._streams = bool(data.state())
        self._data_before: Mapping[str, Any] = {}

    # -- a step -------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """One step: forward and backward of a window, an update, and what is due after it."""
        before, data, group = self.progress, self.data, self.group
        step = before.step
        self._pulse.step = step + 1
        self._pulse.moves += 1
        if self._streams:
            self._data_before = data.state()
        window = data.window(step)
        totals = group.total([each.weights for each in window])
        sums: Mapping[str, Tensor] = {}
        update: Update | None = None
        reason = None
        if step in self.memory.avoid:
            reason = self.memory.avoid[step]
        elif not any(totals.values()):
            reason = "empty"
        else:
            mine = group.assign(step, len(window))
            sums = group.run_window(self.work, step, mine, totals)
            update = group.update(self.work, before.updates, sums)
            sums = sums if update.sums is None else update.sums
            if update.applied is False:
                reason = self._why_not_applied(sums)
        if reason is not None:
            self._skipped(step, window, reason, ran=update is not None)
            if update is not None and reason == "non-finite" and self.run.train.on_nan != "skip":
                # No weight was changed, and what happens now is for the policies to say.
                self.work.bad = None
                if self._streams:
                    data.load_state(self._data_before)
                self.decide({"non-finite": float(step)})
                return
        self._count(before, window, reason is None)
        self._readings.add(before, sums, totals, update if reason is None else None)
        if self._wants_steps:
            self.bus.publish(
                StepCompleted(
                    time=time.time(),
                    progress=self.progress,
                    sums=sums,
                    totals=totals,
                    norm=update.norm if update is not None else None,
                )
            )
        if self._observed:
            self.hooks.observe("update_applied", run=self.run, progress=self.progress, applied=reason is None)
        self._after()

    def _count(self, before: Progress, window: Sequence[Microbatch], applied: bool) -> None:
        step, updates, samples, tokens, _ = before
        for each in window:
            samples += each.samples
            tokens += each.tokens
        step += 1
        self.progress = self.run.progress = Progress(
            step, updates + applied, samples, tokens, self.data.epoch(step)
        )

    def _after(self) -> None:
        """Log, evaluate, decide, save: each where it is due."""
        if self.versions.pending:
            self.versions.settle()
        step, train = self.progress.step, self.run.train
        last = step >= self.end
        metrics: dict[str, float | None] = {}
        if last or step % train.log.every == 0:
            metrics |= self.log()
        every = train.evaluate.every
        if last or (every is not None and step % every == 0):
            metrics |= self._look()
            if "non-finite" not in metrics:
                metrics |= self.evaluate()
        self.decide(metrics)

    # -- what is due ----------------------------------------------------------------------------------------------

    def log(self) -> dict[str, float | None]:
        """Read the device once and tell what it said."""
        if not len(self._readings):
            return {}
        reading = self._readings.read(self.progress, self.group.merge)
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
                losses=reading.losses,
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
        with self._pulse.during("evaluate"):
            for split in self.run.train.evaluate.splits:
                if split in self.data.info.splits:
                    metrics |= evaluate(self, split)
        if metrics:
            self.work.schedule.observe(metrics)
        self._evaluated_at = self.progress.step
        self._readings.restart()
        return metrics

    def decide(self, metrics: Mapping[str, float | None]) -> None:
        """Ask every policy; of several answers the strongest wins, and a run that stops is saved by `finish`."""
        answers = self.hooks.decisions(self.run, self.progress, metrics)
        chosen = max(answers, key=lambda answer: answer[1].action) if answers else None
        if metrics:
            # What follows a clock may be answered otherwise elsewhere. Between two readings nobody looks at one.
            chosen = Decision.shared(self.group.share, chosen)
        if chosen is None:
            return
        owner, strongest = chosen
        if strongest.action is Action.SAVE:
            self.save()
            return
        if strongest.action is Action.STOP and self.memory.ended is not None:
            return  # It is said again of the last evaluation.
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
            raise self._failure("NK403", self._reason(strongest, metrics), owner)
        if strongest.action is Action.ROLLBACK:
            self._roll_back(strongest, metrics, owner)
        else:
            self.memory.ended = f"{strongest.reason} ({owner})"
            self.stop = self.stop or ("stopped", self.memory.ended)

    def save(self) -> None:
        """Put the state into a version, unless this step is saved already."""
        if not self.versions.due:
            return
        found = self._look()
        if found:
            self.decide(found)
            return
        self._readings.pause()
        self.versions.save()
        self._readings.restart()

    def load(self, reference: str | None = None, *, allow: Sequence[str] | None = None) -> None:
        """Put the run where a version was taken, the newest where none is named. A run that a policy had ended stays
        ended, unless the plan has changed since. `allow`: what may be other than it was then; None where this process
        made the version itself."""
        snapshot = self.versions.load(reference, allow)
        self._readings = Readings()
        self.work.bad = None
        self._evaluated_at = None
        if self.memory.ended is not None and snapshot.facts["plan"] == self.plan.text():
            self.stop = ("stopped", f"it had stopped before: {self.memory.ended}")
        self.memory.ended = None

    def finish(self) -> None:
        """What a run that stops owes: the last log, the last evaluation (not after a signal), the last version."""
        metrics = self.log()
        interrupted = self.stop is not None and self.stop[0] == "interrupted"
        if not interrupted and self._evaluated_at != self.progress.step and "non-finite" not in metrics:
            metrics |= self.evaluate()
        if metrics:
            self.decide(metrics)
        self.save()
        self.versions.settle(wait=True)

    # -- windows that change nothing --------------------------------------------------------------------------------

    def _why_not_applied(self, sums: Mapping[str, Tensor]) -> str:
        """A loss scale can make gradients overflow, and no finite loss anything else."""
        scaled = self.work.precision.scaled and all(math.isfinite(float(value)) for value in sums.values())
        return "overflow" if scaled else "non-finite"

    def _skipped(self, step: int, window: Sequence[Microbatch], reason: str, ran: bool) -> None:
        """Account for a window that changes no weight; its samples are named."""
        if ran:
            self._suspects = culprits(self, step, window)
        else:
            self._suspects = Suspects(names_of(self, step, range(len(window))))
        self.run.count("engine", f"windows skipped: {reason}")
        self.bus.publish(
            WindowSkipped(time=time.time(), step=step, reason=reason, samples=self._suspects.names)
        )
        if reason == "overflow":
            self._overflows = self._overflows + 1 if step == self._overflowed_at + 1 else 1
            self._overflowed_at = step
            if self._overflows == _OVERFLOWS:
                raise self._failure(
                    "NK404",
                    f"{_OVERFLOWS} windows in a row overflowed, the last in step {step + 1}: no loss scale can be "
                    f"the reason; samples: {', '.join(self._suspects.names)}",
                    None,
                )

    def _latched(self, before: Progress) -> dict[str, float | None]:
        """The device says that the window after `before` was not finite: nothing was changed since, so the run stands
        there."""
        self.progress = self.run.progress = before
        self.work.bad = None
        self._skipped(before.step, self.data.window(before.step), "non-finite", ran=True)
        return {"loss": None, "norm": None, "non-finite": float(before.step)}

    def _reason(self, decision: Decision, metrics: Mapping[str, float | None]) -> str:
        if "non-finite" not in metrics:
            return decision.reason
        return f"{decision.reason}, {self._suspects}"

    def _failure(self, code: str, message: str, owner: str | None) -> TrainingError:
        """What ends the run. The weights are those of the last good step, and are not thrown away."""
        problems = [Problem(code=code, message=message, owner=owner)]
        try:
            self.save()
            self.versions.settle(wait=True)
        except NlpkernelError as error:
            problems += error.problems
        return TrainingError(problems)

    def _roll_back(self, decision: Decision, metrics: Mapping[str, float | None], owner: str) -> None:
        """Take up the newest version, and leave out the windows that spoilt the weights."""
        bad = metrics.get("non-finite")
        windows = decision.windows or (self.progress.step - 1 if bad is None else int(bad),)
        why = "non-finite" if bad is not None else "spike" if decision.windows else "roll-back"
        avoid = dict.fromkeys(windows, why) | self.memory.avoid
        problem = ""
        self.versions.settle(wait=True)
        # One that came into the run later knows of older ones alone.
        newest = self.group.share(self.versions.current)
        if newest is None:
            problem = "there is no version to roll back to"
        elif self.memory.avoid.keys() >= set(windows):
            problem = f"the window of step {windows[0] + 1} is left out already, so the same would come again"
        if problem:
            message = f"{self._reason(decision, metrics)}; {problem}"
            raise fail(TrainingError, "NK405", message, owner=owner, hint="let [checkpoint] save earlier")
        times = self.run.counts["engine", "roll-backs"] + 1
        self.load(newest)
        self.memory.avoid = avoid
        self.run.counts["engine", "roll-backs"] = times
