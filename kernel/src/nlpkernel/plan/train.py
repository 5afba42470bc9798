"""The kernel's own section of a plan: `[train]`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from nlpkernel.components import extension, setting, settings

#: Settings of [train] that change no number of a step, so that a resumed run may have others.
FREE = ("steps", "epochs", "tokens", "log", "on_nan", "strict", "stall")


@settings
class Evaluate:
    """When the validation split is evaluated, beside the end of the run."""

    every: int | None = setting(
        default=None, ge=1, help="steps between evaluations; left out: at the end only"
    )
    start: bool = setting(default=False, help="evaluate before the first step too")
    splits: tuple[str, ...] = setting(
        default=("validation",), help="splits to evaluate, where the data has them"
    )


@settings
class Log:
    """When values are read from the device."""

    every: int = setting(default=10, ge=1, help="steps between two reads of loss and norm from the device")


@settings
class Train:
    """How long and how: the part of a plan that no plugin owns."""

    seed: int = setting(default=0, ge=0, lt=2**63, help="every random draw of a run follows from it")
    steps: int | None = setting(default=None, ge=1, unit="count", help="length of the run in steps")
    epochs: float | None = setting(
        default=None, gt=0, help="length of the run in passes over the training split"
    )
    tokens: int | None = setting(default=None, ge=1, unit="count", help="length of the run in tokens")
    batch: int = setting(default=32, ge=1, help="samples of one step, over all workers")
    micro: int | None = setting(default=None, ge=1, help="samples of one forward; left out: the batch")
    partial: Literal["step", "carry", "drop"] = setting(
        default="step",
        help="the samples left at an epoch's end that fill no batch: a step of their own, carried into the "
        "next epoch, or dropped and counted",
    )
    clip: float | None = setting(default=None, gt=0, help="largest global norm of the gradient")
    evaluate: Evaluate = setting(default=Evaluate(), help="when to evaluate")
    log: Log = setting(default=Log(), help="when to read values from the device")
    on_nan: Literal["stop", "skip", "rollback"] = setting(
        default="stop", help="what to do when loss or gradient is not finite"
    )
    policy: Any = extension("policy", many=True, help="who may end the run: early-stopping, budget, ...")
    stall: Literal["never"] | float = setting(
        default=600.0,
        ge=3,
        unit="seconds",
        help="how long a supervised run may stand still in a step before it is ended as stuck (six times that outside "
        'the steps); "never": for ever',
    )
    strict: bool = setting(default=False, help="an observer that fails ends the run")
    deterministic: bool = setting(
        default=True, help="ask torch for algorithms that repeat themselves bit for bit"
    )
    threads: int | None = setting(default=None, ge=1, help="threads of torch; left out: torch's own choice")

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Settings that do not go together."""
        given = [name for name in ("steps", "epochs", "tokens") if getattr(self, name) is not None]
        if len(given) > 1:
            yield given[1], f"the length of a run is given once, and {given[0]} gives it already"
        if self.micro is not None and self.micro > self.batch:
            yield "micro", f"micro is {self.micro} and larger than batch, which is {self.batch}"

    @property
    def rows(self) -> int:
        """Samples of one forward."""
        return self.micro or self.batch
