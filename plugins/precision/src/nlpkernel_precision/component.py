"""The precisions that a plan can name. Light: torch is imported when one is made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import attrs

from nlpkernel import component, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.everywhere import Facts
    from nlpkernel.hookspecs.precision import Precision
    from nlpkernel_precision.hardware import Hardware
    from nlpkernel_precision.scale import LossScale

#: Bytes that a forward keeps for the backward under autocast, as a part of what it keeps in float32, without the copies
#: of weights; and the same where the parameters themselves are bfloat16. Measured: see the README.
MIXED, PURE = 0.6, 0.55


@component
class _Base:
    """What all precisions do: set how float32 matrices are multiplied, and put it back at the end."""

    _products: Any = attrs.field(default=None, init=False)

    @hookimpl
    def close(self) -> None:
        """Put back what the process did before the run."""
        if self._products is not None:
            self._products.restore()
            self._products = None

    def hardware(self, run: Run) -> Hardware:
        """What the run's device can do."""
        from nlpkernel_precision.hardware import probe

        if run.device is None:
            raise ValueError("the run has no device yet")
        return probe(run.device)

    def products(self, wanted: Literal["highest", "high"]) -> None:
        """Set how this process multiplies float32 matrices, until `close`."""
        from nlpkernel_precision.formats import Float32Products

        self._products = Float32Products(wanted)

    def short(self, run: Run, name: str) -> str:
        """Prepare a short format and give the device's type. Says so where it is not known to be faster."""
        from nlpkernel_precision.hardware import require

        hardware = self.hardware(run)
        require(hardware, name)
        if name not in hardware.fast:
            text = f"on {hardware.name} ({hardware.kind}) {name} is not known to be faster than fp32"
            run.notice(f"precision {name}", text, level="warning")
        self.products("highest")
        return hardware.kind


@component
class Fp32(_Base):
    """float32 throughout."""

    @hookimpl
    def create_precision(self, run: Run) -> Precision:
        """Make it; works on any device."""
        from nlpkernel_precision.formats import Format

        self.products("highest")
        return Format("fp32")


@component
class Tf32(_Base):
    """float32 everywhere but in matrix products, whose factors CUDA rounds to TensorFloat-32: 8 bits of exponent, 10 of
    mantissa. Needs compute capability 8.0."""

    @hookimpl
    def create_precision(self, run: Run) -> Precision:
        """Make it. Raises TrainingError PRC001 where the device cannot."""
        from nlpkernel_precision.formats import Format
        from nlpkernel_precision.hardware import require

        require(self.hardware(run), "tf32")
        self.products("high")
        return Format("tf32")


@component
class Bf16(_Base):
    """bfloat16 for matrix products and attention; what stays float32 is in torch's autocast lists.

    The parameters are float32 (mixed) or bfloat16 too (pure): then weights, gradients and moments take half the memory,
    and an update that is smaller than 1/256 of a weight is lost.
    """

    parameters: Literal["fp32", "bf16"] = setting(
        default="fp32", help="type of the parameters, their gradients and moments"
    )

    @hookimpl
    def create_precision(self, run: Run) -> Precision:
        """Make it. Raises TrainingError PRC001 where the device cannot."""
        import torch

        from nlpkernel_precision.formats import Format

        device = self.short(run, "bf16")
        parameter = torch.bfloat16 if self.parameters == "bf16" else torch.float32
        return Format("bf16", parameter=parameter, output=torch.bfloat16, device=device)

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """Shorter activations, and with parameters = "bf16" everything else too."""
        if self.parameters == "fp32":
            return _mixed(facts)
        return attrs.evolve(
            facts,
            parameter_bytes=_part(facts.parameter_bytes, 0.5),
            gradient_bytes=_part(facts.gradient_bytes, 0.5),
            optimizer_bytes=_part(facts.optimizer_bytes, 0.5),
            activation_bytes=_part(facts.activation_bytes, PURE),
        )


@component
class Fp16(_Base):
    """float16 for matrix products and attention, float32 parameters, and a loss scale that adapts itself.

    The scale keeps small gradients from becoming 0. A window whose gradients overflow changes no weight and is counted.
    """

    scale: float = setting(default=65536.0, gt=0, le=2.0**127, help="what the loss is multiplied by at first")
    growth: float = setting(
        default=2.0, gt=1, help="factor of the scale after `interval` windows without overflow"
    )
    backoff: float = setting(default=0.5, gt=0, lt=1, help="factor of the scale after an overflow")
    interval: int = setting(default=2000, ge=1, help="windows without overflow before the scale grows")
    minimum: float = setting(default=1.0, gt=0, help="least scale")

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Settings that do not go together."""
        if self.minimum > self.scale:
            yield "minimum", f"the least scale is {self.minimum:g}, and the first one {self.scale:g}"

    @hookimpl
    def create_precision(self, run: Run) -> Precision:
        """Make it. Raises TrainingError PRC001 where the device cannot."""
        import torch

        from nlpkernel_precision.formats import Scaled

        device = self.short(run, "fp16")
        return Scaled("fp16", torch.float16, device, self.loss_scale())

    def loss_scale(self) -> LossScale:
        """The scale at the start of a run."""
        from nlpkernel_precision.scale import LossScale

        return LossScale(
            scale=self.scale,
            growth=self.growth,
            backoff=self.backoff,
            interval=self.interval,
            minimum=self.minimum,
        )

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """Shorter activations, and a read of the device in each step."""
        note = "dynamic loss scaling reads the device once a step: a window that overflows must not move the schedule"
        return attrs.evolve(_mixed(facts), notes=(*facts.notes, note))


@component
class Auto(_Base):
    """The precision that suits the device, and says which it is.

    CUDA: bf16, or fp16 where the device does not compute in bfloat16. CPU: bf16 with AMX, else fp32. MPS: fp32.
    """

    _picked: Any = attrs.field(default=None, init=False)

    @hookimpl
    def create_precision(self, run: Run) -> Precision:
        """Pick and make it. Raises TrainingError PRC002 for a device of which nothing is known."""
        from nlpkernel_precision.hardware import choose

        name, reason = choose(self.hardware(run))
        run.notice("precision auto", f"picked {name}: {reason}")
        self._picked = {"fp32": Fp32, "bf16": Bf16, "fp16": Fp16}[name]()
        precision: Precision = self._picked.create_precision(run)
        return precision

    @hookimpl
    def close(self) -> None:
        """Close what was picked."""
        if self._picked is not None:
            self._picked.close()
            self._picked = None

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """Sizes stay those of fp32, since the device is not known here."""
        note = "precision auto picks by the device when the run starts; the memory here is that of fp32"
        return attrs.evolve(facts, notes=(*facts.notes, note))


def _mixed(facts: Facts) -> Facts:
    """Shorter activations, and beside them a copy of the weights in two bytes each, kept for the backward."""
    copies = 2 * facts.parameters if facts.parameters else 0
    kept = _part(facts.activation_bytes, MIXED)
    return attrs.evolve(facts, activation_bytes=None if kept is None else kept + copies)


def _part(size: int | None, part: float) -> int | None:
    return None if size is None else round(size * part)
