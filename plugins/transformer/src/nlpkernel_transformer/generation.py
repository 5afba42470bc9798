"""The decoding loop: from a prompt to text, one token at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import attrs
import torch
from torch import Tensor

from nlpkernel.errors import NlpkernelError, UsageError, fail
from nlpkernel_transformer.stream import TextStream

if TYPE_CHECKING:
    from nlpkernel.hookspecs.data import Codec

#: Why a text ended: its length, the end-of-text token, or a stop text.
Reason = Literal["length", "end", "stop"]


class Generative(Protocol):
    """What generation asks of a model, as `nlpkernel.hookspecs.model.Model` says it."""

    @property
    def context(self) -> int:
        """Most positions of a row."""

    def prefill(self, tokens: Tensor, capacity: int | None = None) -> tuple[Tensor, Any]:
        """Read a prompt."""

    def decode(self, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Read one more token."""


@attrs.frozen(kw_only=True)
class Sampling:
    """How the next token is drawn.

    tokens: at most so many. temperature: what the logits are divided by; 0 always takes the likeliest token. top_k:
    draw among the k likeliest only. top_p: draw among the fewest tokens that together have at least this probability
    (Holtzman et al., 2020), after top_k. seed: of the draws. stop: texts that end the output, and are not part of it.
    Raise UsageError (TRF005) for a value out of range.
    """

    tokens: int = 200
    temperature: float = 0.8
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    stop: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        wrong = [
            message
            for bad, message in (
                (self.tokens < 1, f"--tokens is {self.tokens}, and must be at least 1"),
                (
                    not 0 <= self.temperature < math.inf,
                    f"--temperature is {self.temperature}, and must be a number from 0 on",
                ),
                (
                    self.top_k is not None and self.top_k < 1,
                    f"--top-k is {self.top_k}, and must be at least 1",
                ),
                (
                    self.top_p is not None and not 0 < self.top_p <= 1,
                    f"--top-p is {self.top_p}, and must be above 0 and at most 1",
                ),
                (not 0 <= self.seed < 2**63, f"--seed is {self.seed}, and must be from 0 to 2^63 - 1"),
                ("" in self.stop, "--stop is empty"),
            )
            if bad
        ]
        if wrong:
            raise fail(UsageError, "TRF005", "; ".join(wrong))


class Sample:
    """One text in the making. Iterating gives its pieces as they are decoded; doing so again gives the same ones.

    After the last piece `tokens` is the number of tokens made and `reason` says why there are no more.
    """

    def __init__(
        self,
        module: Generative,
        codec: Codec,
        ids: Sequence[int],
        sampling: Sampling,
        device: torch.device | None,
    ) -> None:
        self.tokens = 0
        self.reason: Reason = "length"
        self._module, self._codec, self._ids = module, codec, ids
        self._sampling, self._device = sampling, device

    def __iter__(self) -> Iterator[str]:
        self.tokens, self.reason = 0, "length"
        stream = TextStream(self._codec, self._sampling.stop)
        for token in _tokens(self._module, self._ids, self._sampling, self._device):
            if token == self._codec.end:
                self.reason = "end"
                break
            self.tokens += 1
            if piece := stream.push(token):
                yield piece
            if stream.stopped:
                break
        if piece := stream.finish():
            yield piece
        if stream.stopped:
            self.reason = "stop"


def sample(
    module: Generative, codec: Codec, prompt: str, sampling: Sampling, *, device: torch.device | None = None
) -> Sample:
    """The text that goes on from `prompt`, in pieces; the prompt itself is not among them.

    The same module, prompt and sampling give the same text: draws are made on the CPU from a generator of the seed. An
    empty prompt starts at the end-of-text token. Of a prompt longer than the model's context the end is read. When the
    context is full, the window slides: the last three quarters of it are read again as a new prompt, so the model
    sees between three quarters and all of its context. device: where the module is.
    Raise UsageError (TRF002) where there is nothing to start from.
    """
    ids = codec.encode(prompt)
    if not ids:
        if codec.end is None:
            raise fail(
                UsageError,
                "TRF002",
                "the prompt is empty, and the tokenizer has no end-of-text token to start at",
                hint="give a prompt",
            )
        ids = [codec.end]
    return Sample(module, codec, ids, sampling, device)


def choose(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    """Draw the next token from logits [vocabulary]. Raise NlpkernelError (TRF004) where they are not finite."""
    scores = logits.detach().to("cpu", torch.float32)
    best = scores.max()
    # The largest is NaN if any is.
    if not math.isfinite(float(best)):
        raise fail(NlpkernelError, "TRF004", "the scores of the next token are not finite")
    if sampling.temperature == 0:
        return int(scores.argmax())
    # The best first becomes 0, so that no temperature makes it infinite.
    scores = (scores - best) / sampling.temperature
    order: Tensor | None = None
    if sampling.top_k is not None and sampling.top_k < scores.numel():
        scores, order = scores.topk(sampling.top_k)
    chances = scores.softmax(-1)
    if sampling.top_p is not None and sampling.top_p < 1:
        chances, by_chance = chances.sort(descending=True, stable=True)
        order = by_chance if order is None else order[by_chance]
        # A token stays as long as those before it do not reach top_p: the first always does.
        chances = chances * (chances.cumsum(-1) - chances < sampling.top_p)
    drawn = torch.multinomial(chances, 1, generator=generator)
    return int(drawn if order is None else order[drawn])


def _tokens(
    module: Generative, ids: Sequence[int], sampling: Sampling, device: torch.device | None
) -> Iterator[int]:
    """Tokens that go on from `ids`, as many as wanted."""
    generator = torch.Generator().manual_seed(sampling.seed)
    context = module.context
    keep = max(1, context * 3 // 4)
    window = list(ids[-context:])
    cache: Any = None
    for left in range(sampling.tokens, 0, -1):
        if cache is None:
            room = min(context, len(window) + left)
            logits, cache = module.prefill(torch.tensor([window], device=device), room)
        else:
            logits, cache = module.decode(torch.tensor([window[-1:]], device=device), cache)
        token = choose(logits[0], sampling, generator)
        yield token
        window.append(token)
        if len(window) > context:
            window, cache = window[-keep:], None
