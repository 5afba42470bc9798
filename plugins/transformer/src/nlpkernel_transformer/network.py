"""What all components of this package share: the settings of a network, and what follows from them. Light: no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import attrs

from nlpkernel import component, extension, setting
from nlpkernel.errors import PlanError, fail
from nlpkernel_transformer.codes import OWNER
from nlpkernel_transformer.shape import Activation, Attend, Norm, Positions, Shape, Sparse

if TYPE_CHECKING:
    from nlpkernel.hookspecs.everywhere import Facts


def positions_setting(default: Positions) -> Any:
    """How places enter, with a component's own default."""
    return setting(
        default=default,
        help="how a token's place enters: a learned table, rotation of queries and keys, or a fixed table of "
        "sines, beside which embeddings are multiplied by the square root of the width",
    )


def norm_setting(default: Norm) -> Any:
    """Which norm, likewise."""
    return setting(
        default=default, help="LayerNorm, or RMSNorm, before each half of a block and before the head"
    )


def activation_setting(default: Activation) -> Any:
    """Which activation, likewise."""
    return setting(default=default, help="of the feed-forward layer: GELU, ReLU, or SwiGLU with its gate")


def tie_setting(default: bool) -> Any:
    """Whether the head is tied, likewise."""
    return setting(default=default, help="the head uses the embedding's weight")


def bias_setting(default: bool) -> Any:
    """Whether there are biases, likewise."""
    return setting(default=default, help="biases in the projections and in LayerNorm")


#: What the shape has from elsewhere than a setting of the same name.
_DERIVED = ("vocabulary", "context", "kv_heads", "hidden", "recompute", "causal", "logits", "order")


@component
class Network:
    """What all share: sizes, and how it computes. Not a component of its own."""

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
    positions: Positions = positions_setting("learned")
    rope_base: float = setting(default=10_000.0, gt=1, help="base of the rotary wavelengths")
    norm: Norm = norm_setting("layer")
    activation: Activation = activation_setting("gelu")
    bias: bool = bias_setting(False)
    tie: bool = tie_setting(True)
    dropout: float = setting(
        default=0.0,
        ge=0,
        lt=1,
        help="of the embedding, the attention probabilities and both outputs of a block",
    )
    attention: Attend = setting(
        default="sdpa", help="sdpa: torch's fused attention; eager: the plain formula, as a reference"
    )
    span: int | None = setting(
        default=None,
        ge=1,
        help="self-attention sees a token and the span - 1 before it; in an encoder the token and half a span on each "
        "side; memory grows with the row's length alone; left out: the whole row",
    )
    sparse: Sparse | None = setting(
        default=None,
        help="self-attention sees blocks around a token and at the beginning of the row; left out: all",
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
        if self.positions == "sinusoidal" and self.width % 2:
            yield "width", f"sinusoidal positions need an even width, and it is {self.width}"
        if self.kv_heads is not None and self.heads % self.kv_heads:
            yield (
                "kv_heads",
                f"{self.heads} heads do not divide into {self.kv_heads} groups of one key-value head",
            )
        if self.span is not None and self.sparse is not None:
            yield "sparse", "span and sparse each say what attention sees; write one of them"
        if not isinstance(self.checkpointing, str) and self.checkpointing > self.layers:
            yield (
                "checkpointing",
                f"checkpointing is {self.checkpointing}, and there are only {self.layers} blocks",
            )

    def _sizes(self, vocabulary: int, window: int) -> dict[str, Any]:
        """What shapes have in common, for data with this vocabulary and rows of at most `window` tokens. Raise
        PlanError (TRF001) where `context` is shorter than the rows."""
        context = window if self.context is None else self.context
        if context < window:
            raise fail(
                PlanError,
                "TRF001",
                f"context is {context}, and the data has rows of {window} tokens",
                owner=OWNER,
                hint=f"leave context out or write at least {window}, or shorten the data's window",
            )
        recompute = {"none": 0, "full": 1}.get(self.checkpointing, self.checkpointing)  # type: ignore[arg-type]
        given = {
            field.name: getattr(self, field.name)
            for field in attrs.fields(Shape)
            if field.name not in _DERIVED
        }
        return {
            **given,
            "vocabulary": vocabulary,
            "context": context,
            "kv_heads": self.kv_heads or self.heads,
            "hidden": self.hidden or _hidden(self.width, self.activation),
            "recompute": recompute,
        }

    def _estimated(self, facts: Facts, window: int | None, shape: Callable[[int, int], Shape]) -> Facts:
        """Parameters and bytes, in float32, as far as vocabulary and `window`, the longest row, are known. shape: of a
        vocabulary and a window."""
        hidden = self.hidden or _hidden(self.width, self.activation)
        # Each part of a layer has whole heads of queries, keys and values.
        cuts = math.gcd(self.heads, self.kv_heads or self.heads, hidden)
        facts = attrs.evolve(facts, blocks=self.layers, cuts=cuts)
        if facts.vocabulary is None or (window is None and self.context is None):
            return facts
        if window is not None and self.context is not None and self.context < window:
            message = f"model.context is {self.context}, shorter than the data's rows of {window}: the run will stop"
            return attrs.evolve(facts, notes=(*facts.notes, message))
        made = shape(facts.vocabulary, window or self.context or 1)
        number = made.parameters()
        return attrs.evolve(
            facts,
            parameters=number,
            trainable=number,
            parameter_bytes=4 * number,
            gradient_bytes=4 * number,
            activation_bytes=made.activation_bytes(facts.micro, window or made.context),
        )


def _hidden(width: int, activation: Activation) -> int:
    return 4 * width if activation != "swiglu" else -(-(8 * width) // (3 * 64)) * 64
