"""The components `gpt` and `llama`: one family of settings with two sets of defaults. Light: no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import attrs

from nlpkernel import component, extension, hookimpl, setting
from nlpkernel.errors import PlanError, fail
from nlpkernel_transformer import presets
from nlpkernel_transformer.shape import Activation, Attend, Logits, Norm, Positions, Shape

if TYPE_CHECKING:
    from nlpkernel.hookspecs.data import DataInfo
    from nlpkernel.hookspecs.everywhere import Facts
    from nlpkernel.hookspecs.model import Model


def _positions(default: Positions) -> Any:
    return setting(
        default=default, help="how a token's place enters: a learned table, or rotation of queries and keys"
    )


def _norm(default: Norm) -> Any:
    return setting(
        default=default, help="LayerNorm, or RMSNorm, before each half of a block and before the head"
    )


def _activation(default: Activation) -> Any:
    return setting(default=default, help="of the feed-forward layer: GELU, or SwiGLU with its gate")


def _tie(default: bool) -> Any:
    return setting(default=default, help="the head uses the embedding's weight")


@component
class Decoder:
    """What `gpt` and `llama` share: sizes, how it computes, and the hooks. Not a component of its own."""

    preset: str = setting(default="nano", help="a named size: layers, heads, width and what goes with them")
    layers: int = setting(ge=1, help="number of blocks")
    heads: int = setting(ge=1, help="attention heads; the width divided by it is the width of a head")
    kv_heads: int | None = setting(
        default=None,
        ge=1,
        help="heads of keys and values, shared by groups of query heads; left out: as many as heads",
    )
    width: int = setting(ge=1, help="width of the residual stream")
    hidden: int | None = setting(
        default=None,
        ge=1,
        help="width of the feed-forward layer; left out: 4 widths for gelu, for swiglu 8/3 of the width, "
        "rounded up to a multiple of 64",
    )
    context: int | None = setting(
        default=None, ge=1, help="most positions of a row; left out: the window of the data"
    )
    positions: Positions = _positions("learned")
    rope_base: float = setting(default=10_000.0, gt=1, help="base of the rotary wavelengths")
    norm: Norm = _norm("layer")
    activation: Activation = _activation("gelu")
    bias: bool = setting(default=False, help="biases in the projections and in LayerNorm")
    tie: bool = _tie(True)
    dropout: float = setting(
        default=0.0,
        ge=0,
        lt=1,
        help="of the embedding, the attention probabilities and both outputs of a block",
    )
    attention: Attend = setting(
        default="sdpa", help="sdpa: torch's fused attention; eager: the plain formula, as a reference"
    )
    logits: Logits = setting(
        default="full",
        help="full: the model gives logits; chunked: it gives hidden states and the head's weight, and the task "
        "computes the loss piece by piece",
    )
    init_std: float = setting(
        default=0.02,
        gt=0,
        help="standard deviation of the first weights; projections into the residual stream get "
        "it divided by the square root of twice the layers",
    )
    checkpointing: Literal["none", "full"] | int = setting(
        default="none",
        ge=1,
        help="which blocks recompute their activations in the backward pass: none, all, or "
        "every k-th; saves memory, costs about a forward of those blocks",
    )
    transform: list[Any] = extension(
        "transform", many=True, help="changes to the structure before it is filled, in order"
    )

    def check_settings(self) -> Iterable[tuple[str, str]]:
        """Settings that do not go together."""
        if self.width % self.heads:
            yield "heads", f"width is {self.width} and does not divide into {self.heads} heads"
        elif self.positions == "rotary" and (self.width // self.heads) % 2:
            yield (
                "heads",
                f"rotary positions need an even head width, and {self.width} over {self.heads} heads gives "
                f"{self.width // self.heads}",
            )
        if self.kv_heads is not None and self.heads % self.kv_heads:
            yield (
                "kv_heads",
                f"{self.heads} heads do not divide into {self.kv_heads} groups of one key-value head",
            )
        if not isinstance(self.checkpointing, str) and self.checkpointing > self.layers:
            yield (
                "checkpointing",
                f"checkpointing is {self.checkpointing}, and there are only {self.layers} blocks",
            )

    def shape(self, vocabulary: int, window: int) -> Shape:
        """The model's shape for data with this vocabulary and rows of at most `window` tokens.

        Raise PlanError (TRF001) where `context` is shorter than the rows.
        """
        context = window if self.context is None else self.context
        if context < window:
            raise fail(
                PlanError,
                "TRF001",
                f"context is {context}, and the data has rows of {window} tokens",
                owner="model (nlpkernel-plugin-transformer)",
                hint=f"leave context out or write at least {window}, or shorten the data's window",
            )
        recompute = {"none": 0, "full": 1}.get(self.checkpointing, self.checkpointing)  # type: ignore[arg-type]
        given = {
            field.name: getattr(self, field.name)
            for field in attrs.fields(Shape)
            if field.name not in ("vocabulary", "context", "kv_heads", "hidden", "recompute")
        }
        return Shape(
            vocabulary=vocabulary,
            context=context,
            kv_heads=self.kv_heads or self.heads,
            hidden=self.hidden or _hidden(self.width, self.activation),
            recompute=recompute,
            **given,
        )

    @hookimpl
    def create_model(self, info: DataInfo) -> Model:
        """Build the structure, its anatomy, and the rule that fills it."""
        from nlpkernel_transformer.build import build

        return build(self.shape(info.vocabulary, info.window))

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """Parameters and bytes, in float32, as far as vocabulary and window are known."""
        window = facts.window
        hidden = self.hidden or _hidden(self.width, self.activation)
        # Each part of a layer has whole heads of queries, keys and values.
        cuts = math.gcd(self.heads, self.kv_heads or self.heads, hidden)
        facts = attrs.evolve(facts, blocks=self.layers, cuts=cuts)
        if facts.vocabulary is None or (window is None and self.context is None):
            return facts
        if window is not None and self.context is not None and self.context < window:
            message = f"model.context is {self.context}, shorter than the data's window of {window}: the run will stop"
            return attrs.evolve(facts, notes=(*facts.notes, message))
        shape = self.shape(facts.vocabulary, window or self.context or 1)
        number = shape.parameters()
        return attrs.evolve(
            facts,
            parameters=number,
            trainable=number,
            parameter_bytes=4 * number,
            gradient_bytes=4 * number,
            activation_bytes=shape.activation_bytes(facts.micro, window or shape.context),
        )


def _hidden(width: int, activation: Activation) -> int:
    return 4 * width if activation == "gelu" else -(-(8 * width) // (3 * 64)) * 64


@component(presets=presets.GPT)
class Gpt(Decoder):
    """A decoder like GPT-2: learned positions, LayerNorm, GELU, tied embeddings (Radford et al., 2019)."""


@component(presets=presets.LLAMA)
class Llama(Decoder):
    """A decoder like Llama: rotary positions, RMSNorm, SwiGLU, grouped-query attention (Touvron et al., 2023)."""

    positions: Positions = _positions("rotary")
    norm: Norm = _norm("rms")
    activation: Activation = _activation("swiglu")
    tie: bool = _tie(False)
