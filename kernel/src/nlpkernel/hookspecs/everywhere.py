"""Hooks that a component of any slot or extension point may implement. They are asked in plan order.

Nothing here is asked in a step unless some component of the plan implements it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal

import attrs

from nlpkernel.hookspecs._spec import hook

if TYPE_CHECKING:
    from torch import Tensor

    from nlpkernel.bus import Bus
    from nlpkernel.context import Run
    from nlpkernel.progress import Progress
    from nlpkernel.state import Stateful

#: `gradients_ready`: "local" is this worker's share of a window, "global" that of all workers together.
Stage = Literal["local", "global"]
#: `weights_for`: what the weights are about to be used for.
Use = Literal["evaluate", "export"]


@attrs.frozen(kw_only=True)
class Facts:
    """What can be said of a run without opening anything; `check` threads it through `estimate`. None: not known.

    vocabulary: entries. window: tokens of a row. image: pixels of a side of its image. task: its name. micro: rows of
    one forward. parameters, trainable: numbers. blocks: repeated blocks of the model. cuts: equal parts into which each
    of its layers can be cut. need: what the optimizer needs, "elementwise" or "whole_tensor". The bytes are of one
    worker: `parameter_bytes`, `gradient_bytes`, `optimizer_bytes`, and `activation_bytes` of one forward and backward
    of a micro-batch. parameter_parts, optimizer_parts: among how many workers those are divided. `notes` are sentences
    that the user should read (a sync that each step pays).
    """

    vocabulary: int | None = None
    window: int | None = None
    image: int | None = None
    task: str | None = None
    micro: int = 1
    batch: int = 1
    blocks: int | None = None
    cuts: int | None = None
    need: str = "whole_tensor"
    parameters: int | None = None
    trainable: int | None = None
    parameter_bytes: int | None = None
    gradient_bytes: int | None = None
    optimizer_bytes: int | None = None
    parameter_parts: int = 1
    optimizer_parts: int = 1
    activation_bytes: int | None = None
    notes: tuple[str, ...] = ()


class Action(IntEnum):
    """What `decide` may ask for; of several answers the greatest wins, except that a save is done beside a stop."""

    CONTINUE = 0
    SAVE = 1
    STOP = 2
    ROLLBACK = 3
    FAIL = 4


@attrs.frozen
class Decision:
    """An answer to `decide`. `reason` is a clause that is shown: "no better loss in 3 evaluations". `windows`: those
    (from 0) that a roll-back leaves out from now on; empty: the one that is not finite, or the last."""

    action: Action
    reason: str = ""
    windows: tuple[int, ...] = ()

    @staticmethod
    def shared(
        share: Callable[[Any], Any], answer: tuple[str, Decision] | None
    ) -> tuple[str, Decision] | None:
        """The first worker's answer, and whose it is, on all workers; `share` is the group's."""
        plain = None
        if answer is not None:
            owner, decision = answer
            plain = [owner, int(decision.action), decision.reason, list(decision.windows)]
        plain = share(plain)
        if plain is None:
            return None
        owner, action, reason, windows = plain
        return owner, Decision(Action(action), reason, tuple(windows))


@hook("transform")
def estimate(facts: Facts) -> Facts:  # type: ignore[empty-body]
    """Asked by `check`: add what your settings say about size. Light: no torch, no files."""


@hook("collect")
def misfits(facts: Facts) -> Sequence[tuple[str, str]]:  # type: ignore[empty-body]
    """Asked by `check`, `run` and `resume` of the whole estimate: which of your settings do not go with the rest of the
    plan, each with the reason as a clause. Light: no torch, no files."""


@hook("collect")
def subscribe(run: Run, bus: Bus) -> None:
    """Asked once, before the first step: subscribe to events with `bus.on(EventClass, function)`."""


@hook("collect")
def component_state(run: Run) -> Stateful:  # type: ignore[empty-body]
    """Asked once: an object that holds this component's state, to be saved with every version and restored exactly."""


@hook("observe")
def gradients_ready(run: Run, named: Sequence[tuple[str, Tensor]], stage: Stage) -> None:
    """Asked each step after backward: the gradients of this worker, by parameter name. Do not read them on the host.

    At stage "local" a gradient may be changed in place, and is still scaled by the loss scale; at "global" it is what
    the norm is taken of.
    """


@hook("observe")
def update_applied(run: Run, progress: Progress, applied: bool) -> None:
    """Asked each step after the update. `applied` is False where the window was skipped and the host knows it."""


@hook("collect")
def weights_for(run: Run, use: Use) -> AbstractContextManager[None]:  # type: ignore[empty-body]
    """Asked before weights are used outside training: a context in which the model holds other weights (averages), and
    its own again afterwards, bit for bit. "evaluate": for an evaluation of the run. "export": for a copy in a version,
    beside the weights that training goes on with; it is what `open_model`, and with it every command that uses a
    version, and `versions export` take."""


@hook("pick")
def backward(run: Run, loss: Tensor, sums: Mapping[str, Tensor]) -> None:
    """Asked instead of `loss.backward()`: fill the gradients of one micro-batch. At most one component may own it."""


@hook("collect")
def decide(run: Run, progress: Progress, metrics: Mapping[str, float | None]) -> Decision | None:
    """Asked after every step, and of the log and the evaluation that end a run.

    `metrics` holds what became known in this step: logged values under their names ("loss"), evaluation results as
    "validation/loss"; it is empty in between, and who takes `metrics` alone is not asked then. With "non-finite" it
    holds the number (from 0) of a window that is not finite: no weight was changed by it or since, and the run stands
    before it.

    With metrics, the first worker's answer holds for all. Without, each worker goes by its own: what is answered then
    must follow from the progress alone, and from no clock.
    """


@hook("collect")
def close(run: Run) -> None:
    """Asked at the end of the run, in reverse plan order, whatever happened."""
