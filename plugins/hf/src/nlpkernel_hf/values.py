"""First values by the library's own rule, one parameter or buffer at a time."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Generator, Tensor, nn
from transformers import PreTrainedModel

from nlpkernel.errors import PluginError, fail
from nlpkernel_hf.codes import OWNER

#: The logarithm of the scale of likeness, in models of images and texts.
_SCALE = "logit_scale"


class FirstValues:
    """Fills one tensor as the library's `_init_weights` would, whatever else of the model is there.

    The library's rule fills whole modules in place, and draws from torch's own generator. So it is applied to a copy of
    the structure of which everything is on the meta device but the one tensor: what it draws for that depends on the
    generator alone, and nothing else takes memory.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        """model: on the meta device; it is copied."""
        self._model: Any = copy.deepcopy(model)
        # Of tied names the library fills the one that the others are tied to.
        self._source: dict[str, str] = {}
        by_tensor: dict[int, list[str]] = {}
        for name, tensor in self._model.named_parameters(remove_duplicate=False):
            by_tensor.setdefault(id(tensor), []).append(name)
        targets = getattr(self._model, "all_tied_weights_keys", {})
        for names in by_tensor.values():
            free = [name for name in names if name not in targets]
            self._source.update(dict.fromkeys(names, (free or names)[0]))

    def fill(self, name: str, tensor: Tensor, generator: Generator) -> None:
        """Fill the tensor of this name, on the CPU, in place. Raise PluginError (HFM009) where the rule leaves it as it
        is."""
        path, _, leaf = self._source.get(name, name).rpartition(".")
        owner = self._model.get_submodule(path)
        store = owner._parameters if leaf in owner._parameters else owner._buffers
        placeholder = store[leaf]
        if tensor.is_floating_point():
            tensor.fill_(float("nan"))
        elif tensor.dtype != torch.bool:
            tensor.fill_(torch.iinfo(tensor.dtype).min)
        here = tensor.detach()
        store[leaf] = nn.Parameter(here, requires_grad=False) if store is owner._parameters else here
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                torch.default_generator.set_state(generator.get_state())
                for module, rule in self._rules(path):
                    rule(module)
                if leaf == _SCALE and hasattr(self._model.config, f"{_SCALE}_init_value"):
                    # Set when the library makes a model, and not by its rule.
                    tensor.fill_(getattr(self._model.config, f"{_SCALE}_init_value"))
        finally:
            store[leaf] = placeholder
        untouched = tensor.isnan() if tensor.is_floating_point() else tensor == _least(tensor)
        if tensor.numel() and bool(untouched.any()):
            raise fail(
                PluginError,
                "HFM009",
                f"the library's {type(self._model).__name__} has no first value for {name}",
                owner=OWNER,
                hint="load the model from a folder that has it",
            )

    def _rules(self, path: str) -> list[tuple[nn.Module, Any]]:
        """The modules that hold a tensor, the innermost first, each with the rule of the model that it belongs to."""
        found = []
        module: Any = self._model
        model = self._model
        found.append((module, model._init_weights))
        for part in path.split(".") if path else ():
            module = module.get_submodule(part)
            if isinstance(module, PreTrainedModel):
                model = module
            found.append((module, model._init_weights))
        return found[::-1]


def _least(tensor: Tensor) -> int:
    # Of truth values any is one.
    return 2 if tensor.dtype == torch.bool else int(torch.iinfo(tensor.dtype).min)
