"""The compressors that a plan can name. Light: torch is imported when one is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from nlpkernel import component, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.compressor import Compressor
    from nlpkernel.hookspecs.everywhere import Facts


@component
class Fp16:
    """Values travel, and are added up, as float16: half the bytes. Sums beyond 65,504 overflow, and the window is left
    out; values below 6e-8 vanish."""

    @hookimpl
    def create_compressor(self, run: Run) -> Compressor:
        """Make it."""
        import torch

        from nlpkernel_torchdist.compress.cast import Cast

        return Cast("fp16", torch.float16)


@component
class Bf16:
    """Values travel, and are added up, as bfloat16: half the bytes, the range of float32, three digits."""

    @hookimpl
    def create_compressor(self, run: Run) -> Compressor:
        """Make it."""
        import torch

        from nlpkernel_torchdist.compress.cast import Cast

        return Cast("bf16", torch.bfloat16)


@component
class Feedback:
    """Base of the compressors that add to the next gradient what they did not send of this one."""

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """What is owed, before and after the window that is under way."""
        if facts.gradient_bytes is None:
            return facts
        note = "the compressor keeps what it has not sent yet: with the gradients, three times their bytes"
        return attrs.evolve(facts, gradient_bytes=3 * facts.gradient_bytes, notes=(*facts.notes, note))


@component
class Int8(Feedback):
    """Values travel as whole numbers from -127 to 127 times the step of their block: a quarter of the bytes. What
    rounding leaves is added to the next gradient (error feedback)."""

    block: int = setting(default=1024, ge=16, unit="count", help="values that share a step")

    @hookimpl
    def create_compressor(self, run: Run) -> Compressor:
        """Make it."""
        from nlpkernel_torchdist.compress.int8 import Int8

        return Int8(self.block)


@component
class TopK(Feedback):
    """Only the values of the greatest size travel, with their places: 8 bytes each. The others are added to the next
    gradient (error feedback)."""

    share: float = setting(default=0.01, gt=0, le=1, help="the part of all values that travels")

    @hookimpl
    def create_compressor(self, run: Run) -> Compressor:
        """Make it."""
        from nlpkernel_torchdist.compress.topk import TopK

        return TopK(self.share)


@component
class PowerSgd(Feedback):
    """Of each matrix two factors of low rank travel, found by one step of a power iteration that begins where the last
    one ended; the remainder is added to the next gradient (error feedback). Vectors travel whole. Vogels et al., 2019,
    "PowerSGD"."""

    rank: int = setting(default=4, ge=1, help="columns of the two factors")

    @hookimpl
    def create_compressor(self, run: Run) -> Compressor:
        """Make it."""
        from nlpkernel_torchdist.compress.powersgd import PowerSgd

        return PowerSgd(self.rank, run.seed)
