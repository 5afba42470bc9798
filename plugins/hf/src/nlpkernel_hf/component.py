"""The component `hf`. Light: torch and transformers are imported when a model is made."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from nlpkernel import component, extension, hookimpl, setting

if TYPE_CHECKING:
    from nlpkernel.context import Run
    from nlpkernel.hookspecs.data import DataInfo
    from nlpkernel.hookspecs.everywhere import Facts
    from nlpkernel.hookspecs.model import Model

Attention = Literal["auto", "sdpa", "eager"]
Pool = Literal["mean", "first", "last"]

#: What configurations call their sizes.
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers")
_HEADS = ("num_attention_heads", "n_head", "n_heads")


@component
class Hf:
    """Any model of the library transformers, built from a configuration or taken from a local folder."""

    folder: Path | None = setting(
        default=None,
        help="a folder with config.json and weights in safetensors; relative to the file that writes it; nothing is "
        "ever downloaded",
    )
    config: dict[str, Any] | None = setting(
        default=None,
        help="instead of `folder`, a model that begins anew: `model_type`, and values of that type's configuration; "
        "vocabulary, labels and, where they are left out, positions come from the data",
    )
    dropout: float | None = setting(
        default=None, ge=0, lt=1, help="in the place of every dropout that the configuration has"
    )
    attention: Attention = setting(
        default="auto",
        help="sdpa: torch's fused attention; eager: the plain formula; auto: what the library takes for this model",
    )
    pool: Pool = setting(
        default="mean",
        help="for pairs, how a text's states become one: their mean, the first, or the last one",
    )
    checkpointing: Literal["none", "full"] | int = setting(
        default="none",
        ge=1,
        help="which blocks recompute their activations in the backward pass: none, all, or every k-th",
    )
    transform: list[Any] = extension(
        "transform", many=True, help="changes to the structure before it is filled, in order"
    )

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """One of the two sources, and a type."""
        if self.folder is not None and self.config is not None:
            yield "config", "folder and config are both given; a model comes from one of them"
        elif self.config is None:
            if self.folder is None:
                yield "folder", "neither folder nor config is given; write one of them"
        elif not isinstance(self.config.get("model_type"), str):
            yield "config", 'config has no model_type; write one, as in { model_type = "gpt2" }'

    @hookimpl
    def create_model(self, run: Run, info: DataInfo) -> Model:
        """Build the structure, its anatomy, and the rule that fills it. Raise PlanError for a model that does not go
        with the data (HFM004, HFM005), the task (HFM006) or the settings (HFM001, HFM003, HFM010)."""
        from nlpkernel_hf.build import build

        return build(self, run, info)

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """Blocks, and parts into which they can be cut, as far as `config` names them. Parameters are left out: only
        the built model tells."""
        config = self.config or {}
        if facts.task == "seq2seq":
            # Their blocks hand on more than the hidden state.
            return facts
        layers, heads = _named(config, _LAYERS), _named(config, _HEADS)
        if layers is not None:
            facts = attrs.evolve(facts, blocks=layers)
        if heads is not None:
            groups = _named(config, ("num_key_value_heads",)) or heads
            hidden = _named(config, ("intermediate_size",)) or heads
            facts = attrs.evolve(facts, cuts=math.gcd(heads, groups, hidden))
        return facts


def _named(config: dict[str, Any], names: Iterable[str]) -> int | None:
    """The first of these that is there and a positive whole number."""
    values = (config.get(name) for name in names)
    return next((value for value in values if isinstance(value, int) and value > 0), None)
