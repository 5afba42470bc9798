"""The components `gpt`, `llama`, `encoder` and `encoder-decoder`: one family of settings with their own defaults.
Light: no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import attrs

from nlpkernel import component, hookimpl, setting
from nlpkernel.errors import PlanError, fail
from nlpkernel_transformer import presets
from nlpkernel_transformer.codes import OWNER
from nlpkernel_transformer.network import (
    Network,
    activation_setting,
    bias_setting,
    norm_setting,
    positions_setting,
    tie_setting,
)
from nlpkernel_transformer.shape import (
    IMAGE_TEXT,
    Activation,
    EncoderShape,
    Logits,
    Norm,
    Order,
    PairShape,
    Pool,
    Positions,
    Purpose,
    Shape,
    Towers,
)

if TYPE_CHECKING:
    from nlpkernel.hookspecs.data import DataInfo
    from nlpkernel.hookspecs.everywhere import Facts
    from nlpkernel.hookspecs.model import Model

#: The tasks that an encoder has a head for.
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)
#: The task that an encoder-decoder is for.
PAIRED = "seq2seq"


def _logits() -> Logits:
    made: Logits = setting(
        default="full",
        help="full: the model gives logits; chunked: it gives hidden states and the head's weight, and the task "
        "computes the loss piece by piece",
    )
    return made


@component
class Decoder(Network):
    """What `gpt` and `llama` share. Not a component of its own."""

    logits: Logits = _logits()

    def shape(self, vocabulary: int, window: int) -> Shape:
        """The model's shape for data with this vocabulary and rows of at most `window` tokens.

        Raise PlanError (TRF001) where `context` is shorter than the rows.
        """
        return Shape(logits=self.logits, **self._sizes(vocabulary, window))

    @hookimpl
    def create_model(self, info: DataInfo) -> Model:
        """Build the structure, its anatomy, and the rule that fills it. Raise PlanError (TRF006) for a task of
        others."""
        from nlpkernel_transformer.build import build

        if info.task in (*PURPOSES, PAIRED, IMAGE_TEXT):
            use = {PAIRED: "encoder-decoder", IMAGE_TEXT: IMAGE_TEXT}.get(info.task, "encoder")
            raise fail(
                PlanError,
                "TRF006",
                f"a decoder has no head for the task {info.task!r}",
                owner=OWNER,
                hint=f'write `use = "{use}"` in [model], or the task "lm"',
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

    positions: Positions = positions_setting("rotary")
    norm: Norm = norm_setting("rms")
    activation: Activation = activation_setting("swiglu")
    tie: bool = tie_setting(False)


@component(presets=presets.ENCODER)
class Encoder(Network):
    """An encoder like BERT: learned positions, LayerNorm, GELU, biases; every token sees its whole row (Devlin et al.,
    2019). Its head is what the task needs: of classes of rows or of tokens, of masked tokens, or none for pairs."""

    order: Order = setting(
        default="pre",
        help="pre: norms before each half of a block and behind the last; post: behind each half and the embedding, as "
        "in BERT",
    )
    pool: Pool = setting(
        default="mean",
        help="how a row's states become the one that is classified or compared: their mean, the first (BERT's, for "
        "rows that begin with a token for it), or their maximum",
    )
    towers: Towers = setting(
        default="shared",
        help="for pairs: shared: both texts go through the same weights; separate: the second has all for itself",
    )
    scale: bool = setting(
        default=False,
        help="for pairs: the model learns what likeness is multiplied by, from 1/0.07 on, at most 100, as in CLIP",
    )
    bias: bool = bias_setting(True)

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
            towers=self.towers,
            scaled=self.scale and purpose == "pairs",
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
        known = ", ".join(map(repr, PURPOSES))
        raise fail(
            PlanError,
            "TRF006",
            f"an encoder has no head for the task {info.task!r}, only for {known}",
            owner=OWNER,
            hint='write `use = "gpt"` in [model] for language modelling, `use = "encoder-decoder"` for seq2seq, `use = '
            '"image-text"` for images, or choose another task in [data]',
        )

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """Parameters and bytes, in float32, as far as vocabulary and window are known. Which classes there are, only
        the data tells: the rows that the last layer has for them are not counted."""
        window = None if facts.window is None else facts.window + 1
        purpose: Purpose = next((each for each in PURPOSES if each == facts.task), "classification")
        if facts.task in ("lm", PAIRED, IMAGE_TEXT):
            message = f"the task is {facts.task}, for which an encoder has no head: the run will stop"
            facts = attrs.evolve(facts, notes=(*facts.notes, message))
        towers = 2 if purpose == "pairs" and self.towers == "separate" else 1
        facts = self._estimated(
            facts, window, lambda entries, rows: self.shape(entries, rows - 1, purpose, 0)
        )
        return attrs.evolve(facts, blocks=towers * self.layers)


@component(presets=presets.ENCODER_DECODER)
class EncoderDecoder(Network):
    """A Transformer as first described: an encoder reads a text, a decoder writes another; sinusoidal positions,
    LayerNorm, ReLU, biases, one tied embedding for both texts and the head (Vaswani et al., 2017). The paper has
    `order = "post"`."""

    decoder_layers: int | None = setting(
        default=None, ge=1, help="blocks of the decoder; left out: as many as `layers`, those of the encoder"
    )
    order: Order = setting(
        default="pre",
        help="pre: norms before each part of a block and behind the last, which trains without care; post: behind each "
        "part, as in the paper",
    )
    positions: Positions = positions_setting("sinusoidal")
    activation: Activation = activation_setting("relu")
    bias: bool = bias_setting(True)
    logits: Logits = _logits()

    def shape(self, vocabulary: int, window: int) -> PairShape:
        """The model's shape for two texts of at most `window` + 1 tokens each. Raise PlanError (TRF001) where
        `context` is shorter."""
        sizes = self._sizes(vocabulary, window + 1)
        return PairShape(
            logits=self.logits, order=self.order, decoder_layers=self.decoder_layers or self.layers, **sizes
        )

    @hookimpl
    def create_model(self, info: DataInfo) -> Model:
        """Build the structure, its anatomy, and the rule that fills it. Raise PlanError (TRF006) for a task that has no
        second text to write."""
        from nlpkernel_transformer.build import build

        if info.task != PAIRED:
            use = "encoder" if info.task in PURPOSES else IMAGE_TEXT if info.task == IMAGE_TEXT else "gpt"
            raise fail(
                PlanError,
                "TRF006",
                f"an encoder-decoder has no head for the task {info.task!r}, only for {PAIRED!r}",
                owner=OWNER,
                hint=f'write `use = "{use}"` in [model], or the task "{PAIRED}" in [data]',
            )
        return build(self.shape(info.vocabulary, info.window))

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        """Parameters and bytes, in float32, as far as vocabulary and window are known; both texts are taken to be as
        long as the window."""
        window = None if facts.window is None else facts.window + 1
        if facts.task not in (None, PAIRED):
            message = f"the task is {facts.task}, for which an encoder-decoder has no head: the run will stop"
            facts = attrs.evolve(facts, notes=(*facts.notes, message))
        facts = self._estimated(facts, window, lambda entries, rows: self.shape(entries, rows - 1))
        return attrs.evolve(facts, blocks=self.layers + (self.decoder_layers or self.layers))
