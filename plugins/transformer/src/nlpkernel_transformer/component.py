"""The components `gpt`, `llama` and `encoder`: one family of settings with their own defaults. Light: no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, get_args

import attrs

from nlpkernel import component, extension, hookimpl, setting
from nlpkernel.errors import PlanError, fail
from nlpkernel_transformer import presets
from nlpkernel_transformer.codes import OWNER
from nlpkernel_transformer.shape import (
    Activation,
    Attend,
    EncoderShape,
    Logits,
    Norm,
    Order,
    Pool,
    Positions,
    Purpose,
    Shape,
)

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


def _bias(default: bool) -> Any:
    return setting(default=default, help="biases in the projections and in LayerNorm")


#: What the shape has from elsewhere than a setting of the same name.
_DERIVED = ("vocabulary", "context", "kv_heads", "hidden", "recompute", "causal", "logits", "order")
#: The tasks that an encoder has a head for.
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)


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
    positions: Positions = _positions("learned")
    rope_base: float = setting(default=10_000.0, gt=1, help="base of the rotary wavelengths")
    norm: Norm = _norm("layer")
    activation: Activation = _activation("gelu")
    bias: bool = _bias(False)
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
    return 4 * width if activation == "gelu" else -(-(8 * width) // (3 * 64)) * 64


@component
class Decoder(Network):
    """What `gpt` and `llama` share. Not a component of its own."""

    logits: Logits = setting(
        default="full",
        help="full: the model gives logits; chunked: it gives hidden states and the head's weight, and the task "
        "computes the loss piece by piece",
    )

    def shape(self, vocabulary: int, window: int) -> Shape:
        """The model's shape for data with this vocabulary and rows of at most `window` tokens.

        Raise PlanError (TRF001) where `context` is shorter than the rows.
        """
        return Shape(logits=self.logits, **self._sizes(vocabulary, window))

    @hookimpl
    def create_model(self, info: DataInfo) -> Model:
        """Build the structure, its anatomy, and the rule that fills it. Raise PlanError (TRF006) for a task of
        encoders."""
        from nlpkernel_transformer.build import build

        if info.task in PURPOSES:
            raise fail(
                PlanError,
                "TRF006",
                f"a decoder has no head for the task {info.task!r}",
                owner=OWNER,
                hint='write `use = "encoder"` in [model], or the task "lm"',
            )
        return build(self.shape(info.vocabulary, info.window))

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """Parameters and bytes, in float32, as far as vocabulary and window are known."""
        return self._estimated(facts, facts.window, self.shape)


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


@component(presets=presets.ENCODER)
class Encoder(Network):
    """An encoder like BERT: learned positions, LayerNorm, GELU, biases; every token sees its whole row (Devlin et al.,
    2019). Its head is what the task needs: of classes, or of masked tokens."""

    order: Order = setting(
        default="pre",
        help="pre: norms before each half of a block and behind the last; post: behind each half and the embedding, as "
        "in BERT",
    )
    pool: Pool = setting(
        default="mean",
        help="how a row's states become the one that is classified: their mean, the first (BERT's, for rows that begin "
        "with a token for it), or their maximum",
    )
    bias: bool = _bias(True)

    def shape(self, vocabulary: int, window: int, purpose: Purpose, labels: int) -> EncoderShape:
        """The model's shape for rows of at most `window` + 1 tokens: an encoder reads the token, too, that a decoder
        only predicts. Raise PlanError (TRF001) where `context` is shorter than the rows."""
        sizes = self._sizes(vocabulary, window + 1)
        return EncoderShape(
            logits="full",
            causal=False,
            order=self.order,
            purpose=purpose,
            labels=labels,
            pool=self.pool,
            **sizes,
        )

    @hookimpl
    def create_model(self, info: DataInfo) -> Model:
        """Build the structure, its anatomy, and the rule that fills it. Raise PlanError (TRF006) for a task that it
        has no head for."""
        from nlpkernel_transformer.build import build

        for purpose in PURPOSES:
            if info.task == purpose:
                return build(self.shape(info.vocabulary, info.window, purpose, len(info.labels)))
        known = " and ".join(map(repr, PURPOSES))
        raise fail(
            PlanError,
            "TRF006",
            f"an encoder has no head for the task {info.task!r}, only for {known}",
            owner=OWNER,
            hint='write `use = "gpt"` in [model] for language modelling, or choose another task in [data]',
        )

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """Parameters and bytes, in float32, as far as vocabulary and window are known. Which classes there are, only
        the data tells: the rows that the last layer has for them are not counted."""
        window = None if facts.window is None else facts.window + 1
        purpose: Purpose = "mlm" if facts.task == "mlm" else "classification"
        if facts.task == "lm":
            message = "the task is lm, for which an encoder has no head: the run will stop"
            facts = attrs.evolve(facts, notes=(*facts.notes, message))
        return self._estimated(facts, window, lambda entries, rows: self.shape(entries, rows - 1, purpose, 0))
