"""The library's models that write text, with the library's own caches."""

from __future__ import annotations

import copy
from typing import Any

import attrs
import torch
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.modeling_outputs import BaseModelOutput

from nlpkernel.hookspecs.model import Outputs
from nlpkernel_hf.networks import Network, real

_REPLACED = (DynamicLayer, DynamicSlidingWindowLayer)


@attrs.define(eq=False)
class Written:
    """What is kept of a text in the making. cache: the library's. capacity: most positions. length: positions held.
    states, mask: of the source that it is made from."""

    cache: Any
    capacity: int
    length: int = 0
    states: Tensor | None = None
    mask: Tensor | None = None

    def room(self, new: int) -> None:
        """Count `new` positions more. Raise ValueError where they do not fit."""
        if self.length + new > self.capacity:
            raise ValueError(
                f"the cache holds {self.length} of {self.capacity} positions; {new} more do not fit"
            )
        self.length += new

    def select(self, rows: Tensor) -> Written:
        """These rows, each as often as it comes; what there was stays as it is."""

        def picked(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor.index_select(0, rows)

        cache = _apart(self.cache)
        cache.reorder_cache(rows)
        return Written(cache, self.capacity, self.length, picked(self.states), picked(self.mask))


def _apart(cache: Any) -> Any:
    """A cache that shares tensors with another, and is changed without it."""
    twin = copy.copy(cache)
    if isinstance(cache, EncoderDecoderCache):
        twin.self_attention_cache = _apart(cache.self_attention_cache)
        twin.cross_attention_cache = _apart(cache.cross_attention_cache)
        twin.is_updated = dict(cache.is_updated)
    else:
        # Keys and values are replaced when they grow; a running state is changed in place.
        twin.layers = [
            copy.copy(layer) if type(layer) in _REPLACED else copy.deepcopy(layer) for layer in cache.layers
        ]
    return twin


class Writer(Network):
    """A decoder: predicts the token after each position."""

    def forward(
        self, tokens: Tensor, positions: Tensor | None = None, documents: Tensor | None = None
    ) -> Outputs:
        """Logits [rows, positions, vocabulary] of tokens [rows, positions]. Padding stands behind only, where no token
        sees it. positions, documents: where documents must not see each other, the place of each token in its own, and
        which that is."""
        return Outputs(
            logits=self.model(**self.reads(tokens, None, positions, documents, causal=True)).logits
        )

    @torch.no_grad()
    def prefill(self, tokens: Tensor, capacity: int | None = None) -> tuple[Tensor, Written]:
        """Read a prompt [rows, positions]; return the logits after its last token [rows, vocabulary], and the cache.
        capacity: most positions; left out: `context`. Raise ValueError where the prompt does not fit."""
        capacity = self.context if capacity is None else capacity
        if capacity > self.context:
            raise ValueError(f"{capacity} positions are more than this model's context of {self.context}")
        return self.decode(tokens, Written(DynamicCache(config=self.model.config), capacity))

    @torch.no_grad()
    def decode(self, tokens: Tensor, cache: Written) -> tuple[Tensor, Written]:
        """Read one or more further tokens [rows, new]; return the logits after the last [rows, vocabulary].

        The cache is extended in place. Raise ValueError where it has no room."""
        start, new = cache.length, tokens.shape[1]
        cache.room(new)
        given: dict[str, Any] = {"input_ids": tokens, "cache": cache.cache, "use_cache": True}
        if self.first is not None:
            places = torch.arange(start, start + new, device=tokens.device) + self.first
            given["position_ids"] = places.expand(tokens.shape)
        if "logits_to_keep" in self.takes:
            given["logits_to_keep"] = 1
        return self.model(**given, return_dict=True).logits[:, -1], cache

    def select(self, cache: Written, rows: Tensor) -> Written:
        """The cache of these rows [count], each as often as it comes."""
        return cache.select(rows)


class Translator(Network):
    """An encoder-decoder: reads one text and writes another."""

    def forward(self, tokens: Tensor, lengths: Tensor | None, target: Tensor) -> Outputs:
        """Logits [rows, written, vocabulary] after each position of target [rows, written], which begins with the start
        id and has padding behind only. tokens: the source [rows, positions]; lengths: how many of each row are no
        padding."""
        if target.shape[1] > self.context:
            raise ValueError(
                f"{target.shape[1]} positions are more than this model's context of {self.context}"
            )
        given = self.reads(tokens, lengths)
        return Outputs(logits=self.model(**given, decoder_input_ids=target).logits)

    @torch.no_grad()
    def encode(self, tokens: Tensor, lengths: Tensor, capacity: int) -> Written:
        """Read sources [rows, positions], of which `lengths` [rows] are no padding. capacity: most positions of what is
        written. Raise ValueError where that is more than `context`."""
        if capacity > self.context:
            raise ValueError(f"{capacity} positions are more than this model's context of {self.context}")
        given = self.reads(tokens, lengths)
        states = self.model.get_encoder()(**given)[0]
        config = self.model.config
        cache = EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))
        return Written(cache, capacity, 0, states, real(lengths, tokens.shape[1]).long())

    @torch.no_grad()
    def decode(self, tokens: Tensor, cache: Written) -> tuple[Tensor, Written]:
        """Read one or more tokens [rows, new] of what is written, at first the start id; return the logits after the
        last [rows, vocabulary]. The cache is extended in place. Raise ValueError where it has no room."""
        cache.room(tokens.shape[1])
        outputs = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=cache.states),
            attention_mask=cache.mask,
            decoder_input_ids=tokens,
            cache=cache.cache,
            use_cache=True,
            return_dict=True,
        )
        return outputs.logits[:, -1], cache

    def select(self, cache: Written, rows: Tensor) -> Written:
        """The cache of these rows [count], each as often as it comes."""
        return cache.select(rows)
