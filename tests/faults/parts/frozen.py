"""A transform under which most of a model never changes, so that versions share it."""

from __future__ import annotations

from nlpkernel import component, hookimpl


@component
class Frozen:
    """Nothing but the norms is trained."""

    @hookimpl
    def transform_model(self, model):
        for name, parameter in model.module.named_parameters():
            parameter.requires_grad_("norm" in name)
        return model
