"""The communicator of a run that is one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from nlpkernel.components import component, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.communicator import Group


@component
class Single:
    """One process on one device."""

    device: str = setting(
        default="auto",
        help="where to train: auto, cpu, cuda, cuda:1, mps; auto takes the accelerator that torch has, and says which",
    )

    @hookimpl
    def open_group(self, run: Run) -> Group:
        """Pick the device."""
        from nlpkernel.engine.group import SingleGroup, pick_device

        return SingleGroup(pick_device(self.device, run))


@component
class Plain:
    """The number formats of the model as it is (float32): no autocast, no loss scale."""

    mode: Literal["fp32"] = setting(default="fp32", help="the only mode; a precision plugin has more")

    @hookimpl
    def create_precision(self, run: Run) -> object:
        """Nothing to set up."""
        from nlpkernel.engine.precision import PlainPrecision

        return PlainPrecision()
