"""The optimizers that a plan can name. Light: torch is imported when an optimizer is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from nlpkernel import component, hookimpl, setting
from nlpkernel.errors import TrainingError, fail
from nlpkernel_optim.base import READS, Optimizer, TorchGroup

if TYPE_CHECKING:
    import torch

    from nlpkernel.context import Run
    from nlpkernel.hookspecs.everywhere import Facts
    from nlpkernel.hookspecs.model import ParameterGroup

Fused = Literal["auto", "on", "off"]
_FUSED = "one kernel for all parameters, which also skips a bad update without a read of the device"


@component
class AdamW(Optimizer):
    """AdamW: Adam with decoupled weight decay (Loshchilov and Hutter, 2019), torch's own."""

    betas: tuple[float, float] = setting(default=(0.9, 0.95), ge=0, lt=1, help="decay of the two moments")
    eps: float = setting(default=1e-8, gt=0, help="added to the root of the second moment")
    weight_decay: float = setting(default=0.1, ge=0, help="decay of weights, times the rate")
    fused: Fused = setting(default="auto", help=_FUSED)

    @hookimpl
    def create_optimizer(self, run: Run, groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
        """Make torch's AdamW."""
        import torch

        from nlpkernel_optim.kernels import choose_fused

        made = self.torch_groups(groups, self.lr * self.scale(run), self.weight_decay)
        fused = choose_fused(self.fused, made, run, "adamw")
        # None and not False where it is not fused: then torch takes its multi-tensor version where it has one.
        return torch.optim.AdamW(
            made,
            lr=self.lr,
            betas=self.betas,
            eps=self.eps,
            weight_decay=self.weight_decay,
            fused=fused or None,
        )

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """Two moments a parameter."""
        return _reads(super().estimate(facts), self.fused)

    def state_bytes(self, parameters: int, width: float) -> float:
        """Two moments a parameter."""
        return 2 * parameters * width


@component
class Sgd(Optimizer):
    """Stochastic gradient descent with momentum (Polyak, 1964; Nesterov, 1983), torch's own.

    Weight decay is an L2 penalty here: it is added to the gradient, before the momentum.
    """

    momentum: float = setting(default=0.9, ge=0, lt=1, help="decay of the sum of gradients; 0: none is kept")
    nesterov: bool = setting(default=False, help="look one step ahead along the momentum")
    weight_decay: float = setting(default=0.0, ge=0, help="L2 penalty, added to the gradient")
    fused: Fused = setting(default="auto", help=_FUSED)

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Settings that do not go together."""
        if self.nesterov and self.momentum == 0:
            yield "nesterov", "nesterov needs a momentum above 0"

    @hookimpl
    def create_optimizer(self, run: Run, groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
        """Make torch's SGD."""
        from nlpkernel_optim.kernels import choose_fused, make_sgd

        made = self.torch_groups(groups, self.lr * self.scale(run), self.weight_decay)
        fused = choose_fused(self.fused, made, run, "sgd")
        return make_sgd(made, momentum=self.momentum, nesterov=self.nesterov, fused=fused)

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """One moment a parameter, or none."""
        return _reads(super().estimate(facts), self.fused)

    def state_bytes(self, parameters: int, width: float) -> float:
        """One moment a parameter, or none."""
        return parameters * width if self.momentum else 0.0


@component
class Lion(Optimizer):
    """Lion: the sign of a momentum (Chen et al., 2023, "Symbolic Discovery of Optimization Algorithms").

    Its rate is usually 3 to 10 times smaller than AdamW's and its weight decay as many times larger.
    """

    betas: tuple[float, float] = setting(
        default=(0.9, 0.99), ge=0, lt=1, help="weight of the momentum in the update, and its decay"
    )
    weight_decay: float = setting(default=0.3, ge=0, help="decay of weights, times the rate")

    @hookimpl
    def create_optimizer(self, run: Run, groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
        """Make Lion."""
        from nlpkernel_optim import lion
        from nlpkernel_optim.kernels import require_fused

        made = self.torch_groups(groups, self.lr * self.scale(run), self.weight_decay)
        require_fused(made, "lion")
        return lion.Lion(made, betas=self.betas)

    def state_bytes(self, parameters: int, width: float) -> float:
        """One moment a parameter."""
        return parameters * width


@component
class Adafactor(Optimizer):
    """Adafactor (Shazeer and Stern, 2018): the second moment of a matrix from the means of its rows and columns.

    Own, since torch's reads the device three times a parameter and step. The rate is relative to the size of each
    tensor where `relative` is on; its course over the run is the schedule's. The paper's own min(1e-2, 1/sqrt(t)) is
    close to `lr = 1e-2` with the schedule `inverse-sqrt` and `timescale = 10_000`.
    """

    need: ClassVar[str] = "whole_tensor"

    lr: float = setting(default=1e-2, gt=0, help="peak learning rate, relative to the size of the weights")
    relative: bool = setting(
        default=True, help="multiply the rate of each tensor by the root mean square of its weights"
    )
    decay: float = setting(
        default=0.8, gt=0, le=1, help="update t weighs t**-decay in the running means of squared gradients"
    )
    clip: float = setting(default=1.0, gt=0, help="largest root mean square of an update before the rate")
    eps: tuple[float, float] = setting(
        default=(1e-30, 1e-3),
        gt=0,
        help="added to squared gradients; least size of weights that `relative` sees",
    )
    weight_decay: float = setting(default=0.0, ge=0, help="decay of weights, times the rate")

    @hookimpl
    def create_optimizer(self, run: Run, groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
        """Make Adafactor."""
        from nlpkernel_optim import adafactor
        from nlpkernel_optim.kernels import require_fused

        made = self.torch_groups(groups, self.lr * self.scale(run), self.weight_decay)
        require_fused(made, "adafactor")
        return adafactor.Adafactor(
            made, relative=self.relative, decay=self.decay, clip=self.clip, eps=self.eps
        )

    def state_bytes(self, parameters: int, width: float) -> float:
        """A float32 for each row, column and element of a vector. Shapes are not known here: the bound of transformers
        that are at least 128 wide."""
        return 4 * parameters / 48


@component
class Muon(Optimizer):
    """Muon (Jordan et al., 2024) for hidden matrices: momentum, made orthogonal; AdamW for all other parameters.

    One optimizer object with one state. A hidden matrix has two dimensions and one of the tags in `matrices`.
    With `adjust = "rms"` (Liu et al., 2025) an update is as large as AdamW's, so that the same rate and decay do for
    both; "original" is larger for tall matrices only, and its usual rate is about 0.02.
    """

    need: ClassVar[str] = "whole_tensor"

    momentum: float = setting(default=0.95, ge=0, lt=1, help="decay of the mean of gradients of a matrix")
    nesterov: bool = setting(default=True, help="look one step ahead along the momentum")
    iterations: int = setting(
        default=5, ge=1, le=20, help="Newton-Schulz iterations that make an update orthogonal"
    )
    compute: Literal["bf16", "fp32"] = setting(default="bf16", help="type of number in these iterations")
    adjust: Literal["rms", "original"] = setting(
        default="rms", help="how the size of an update follows from the shape of its matrix"
    )
    weight_decay: float = setting(default=0.1, ge=0, help="decay of weights, times the rate")
    matrices: tuple[str, ...] = setting(
        default=("attention", "mlp"), min_length=1, help="tags of the anatomy whose matrices are Muon's"
    )
    rest_lr: float | None = setting(
        default=None, gt=0, help="peak rate of the parameters that AdamW updates; left out: lr"
    )
    rest_betas: tuple[float, float] = setting(default=(0.9, 0.95), ge=0, lt=1, help="AdamW's two decays")
    rest_eps: float = setting(default=1e-8, gt=0, help="AdamW's addition to the root of the second moment")

    @hookimpl
    def create_optimizer(self, run: Run, groups: Sequence[ParameterGroup]) -> torch.optim.Optimizer:
        """Make Muon with AdamW. Raises TrainingError OPT004 where no parameter is a hidden matrix."""
        from nlpkernel_optim import muon
        from nlpkernel_optim.kernels import require_fused

        scale = self.scale(run)
        rest_lr = self.lr if self.rest_lr is None else self.rest_lr
        tagged = [group for group in groups if not group.tags.isdisjoint(self.matrices)]
        hidden = [self._part(group, hidden=True) for group in tagged]
        rest = [self._part(group, hidden=False) for group in groups]
        # A worker may step none of them; one that steps others of these groups sees what they are.
        steps = any(group.tensors for group in tagged)
        if not tagged or (steps and not any(part.tensors for part in hidden)):
            tags = sorted(set().union(*(group.tags for group in groups)))
            raise fail(
                TrainingError,
                "OPT004",
                f"no parameter of two dimensions has one of the tags {', '.join(self.matrices)}",
                hint=f"this model's tags are {', '.join(tags) or '(none)'}",
            )
        made: list[TorchGroup] = [
            {**group, "hidden": True}
            for group in self.torch_groups(hidden, self.lr * scale, self.weight_decay)
        ]
        made += [
            {**group, "hidden": False}
            for group in self.torch_groups(rest, rest_lr * scale, self.weight_decay)
        ]
        require_fused(made, "muon")
        return muon.Muon(
            made,
            momentum=self.momentum,
            nesterov=self.nesterov,
            iterations=self.iterations,
            compute=self.compute,
            adjust=self.adjust,
            betas=self.rest_betas,
            eps=self.rest_eps,
        )

    def state_bytes(self, parameters: int, width: float) -> float:
        """One moment for a hidden matrix and two for the rest. Shares are not known here: the upper bound."""
        return 2 * parameters * width

    def _part(self, group: ParameterGroup, *, hidden: bool) -> ParameterGroup:
        """The hidden matrices of a group, or the others."""
        tagged = not group.tags.isdisjoint(self.matrices)
        chosen = [
            (name, tensor)
            for name, tensor in zip(group.names, group.tensors, strict=True)
            if (tagged and tensor.ndim == 2) == hidden
        ]
        return attrs.evolve(
            group, names=[name for name, _ in chosen], tensors=[tensor for _, tensor in chosen]
        )


def _reads(facts: Facts, fused: Fused) -> Facts:
    return attrs.evolve(facts, notes=(*facts.notes, READS)) if fused == "off" else facts
