"""Texts that a model writes: the one that it gives the best score, greedily or with beams, or one drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import attrs
import torch
from torch import Tensor

from nlpkernel.sampling import key


class Writing(Protocol):
    """What is asked of a model that writes a second text, as `nlpkernel.hookspecs.model.Model` says it."""

    def encode(self, tokens: Tensor, lengths: Tensor, capacity: int) -> Any:
        """Read the first text."""

    def decode(self, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Read one more token of the second."""

    def select(self, cache: Any, rows: Tensor) -> Any:
        """The cache of some rows."""


@attrs.frozen(kw_only=True)
class Search:
    """How a text is searched.

    start: the token that a text begins after. end: the one that ends it. most: at most so many tokens, the end counted.
    beams: texts that are followed at once; 1 is greedy. length: what a text's summed log-probability is divided by is
    its number of tokens, the end counted, to this power (0: by nothing, so that short texts are preferred).
    """

    start: int
    end: int
    most: int
    beams: int = 1
    length: float = 1.0

    def score(self, total: float, tokens: int) -> float:
        """The score of a text of so many tokens with this summed log-probability."""
        return total / float(max(1, tokens) ** self.length)


@attrs.frozen(kw_only=True)
class Drawing:
    """How a text is drawn, token after token.

    temperature: what the logits are divided by, above 0. top_k: only so many of the likeliest tokens are drawn from
    (Fan et al., 2018); None: from all. top_p: only the fewest likeliest tokens whose probability is that together,
    after `top_k` (Holtzman et al., 2020); 1: all.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0


class Text(NamedTuple):
    """A text that was written: its tokens without the end, its score, and whether it ended by itself."""

    tokens: list[int]
    score: float
    ended: bool


@torch.no_grad()
def search(model: Writing, tokens: Tensor, lengths: Tensor, how: Search) -> list[Text]:
    """The best text for each row of `tokens` [rows, width], of which `lengths` are no padding.

    With k beams, of all ways to go on with the k texts of a row the 2 k likeliest are looked at. Those among the first
    k that end are kept aside with their score, and the k likeliest of the others are followed. A row is done when k
    have ended and no text that is followed is better than the worst of them, as its score is now; then the best that
    ended is taken. At `most` tokens it is the best of all, ended or not. As in Wu et al. (2016), with a plain power of
    the length.
    """
    rows, beams, device = len(tokens), how.beams, tokens.device
    cache = model.encode(tokens, lengths, how.most)
    if beams > 1:
        cache = model.select(cache, torch.arange(rows, device=device).repeat_interleave(beams))
    # All beams of a row are the same at first, so that only one of them counts.
    scores = torch.full((rows, beams), float("-inf"), device=device)
    scores[:, 0] = 0.0
    texts = torch.empty(rows, beams, 0, dtype=torch.long, device=device)
    last = torch.full((rows * beams, 1), how.start, dtype=torch.long, device=device)
    aside = [_Aside(how) for _ in range(rows)]
    for length in range(1, how.most + 1):
        logits, cache = model.decode(last, cache)
        steps = logits.float().log_softmax(dim=-1).view(rows, beams, -1)
        best, at = (
            (scores[:, :, None] + steps).flatten(1).topk(min(2 * beams, beams * steps.shape[-1]), dim=1)
        )
        beam, token = at // steps.shape[-1], at % steps.shape[-1]
        ends = token == how.end
        for row, place in ends[:, :beams].nonzero().tolist():
            aside[row].add(float(best[row, place]), texts[row, beam[row, place]])
        # The likeliest that do not end, in their order.
        order = ends.to(torch.int8).argsort(dim=1, stable=True)[:, :beams]
        scores = best.masked_fill(ends, float("-inf")).gather(1, order)
        parent, chosen = beam.gather(1, order), token.gather(1, order)
        texts = texts.gather(1, parent[:, :, None].expand(-1, -1, length - 1))
        texts = torch.cat((texts, chosen[:, :, None]), dim=2)
        for each, reached in zip(aside, scores[:, 0].tolist(), strict=True):
            each.close(reached, length)
        if all(each.done for each in aside):
            break
        first = torch.arange(rows, device=device)[:, None] * beams
        cache = model.select(cache, (first + parent).flatten())
        last = chosen.reshape(-1, 1)
    return [each.best(float(scores[row, 0]), texts[row, 0]) for row, each in enumerate(aside)]


class _Aside:
    """The texts of a row that have ended, the best of them first, at most as many as beams."""

    def __init__(self, how: Search) -> None:
        self._how = how
        self._texts: list[Text] = []
        self.done = False

    def add(self, total: float, tokens: Tensor) -> None:
        if self.done or total == float("-inf"):
            return
        found = tokens.tolist()
        self._texts.append(Text(found, self._how.score(total, len(found) + 1), True))
        self._texts = sorted(self._texts, key=lambda text: -text.score)[: self._how.beams]

    def close(self, reached: float, length: int) -> None:
        """Done, where the likeliest that is followed, of so many tokens, does not reach those that have ended."""
        full = len(self._texts) == self._how.beams
        self.done |= full and self._texts[-1].score >= self._how.score(reached, length)

    def best(self, total: float, tokens: Tensor) -> Text:
        if self.done:
            return self._texts[0]
        found = tokens.tolist()
        followed = Text(found, self._how.score(total, len(found)), False)
        return max(*self._texts, followed, key=lambda text: text.score) if self._texts else followed


#: Probabilities are drawn from as whole multiples of 2^-40, which add up to the same in any order.
_SCALE = 1 << 40


@torch.no_grad()
def draw(
    model: Writing, tokens: Tensor, lengths: Tensor, how: Search, drawing: Drawing, keys: Sequence[int]
) -> list[Text]:
    """A text for each row of `tokens` [rows, width], of which `lengths` are no padding, drawn by its own key of 64
    bits.

    Nothing else is drawn from: neither torch's generators nor other rows change a text. Scores are of the model's own
    log-probabilities, without temperature. `how.beams` does not count. Raise ValueError where keys are not one for each
    row.
    """
    rows, device = len(tokens), tokens.device
    if len(keys) != rows:
        raise ValueError(f"{len(keys)} keys for {rows} rows")
    cache = model.encode(tokens, lengths, how.most)
    last = torch.full((rows, 1), how.start, dtype=torch.long, device=device)
    going = torch.ones(rows, dtype=torch.bool, device=device)
    totals = torch.zeros(rows, device=device)
    written = torch.zeros(rows, dtype=torch.long, device=device)
    texts: list[Tensor] = []
    for number in range(how.most):
        logits, cache = model.decode(last, cache)
        # 53 bits, as many as a double holds.
        numbers = [(key(each, number) >> 11) * 2.0**-53 for each in keys]
        chosen = _drawn(logits.float(), drawing, torch.tensor(numbers, dtype=torch.float64, device=device))
        gained = logits.float().log_softmax(dim=-1).gather(1, chosen[:, None])[:, 0]
        totals = totals + gained.where(going, torch.zeros_like(gained))
        written = written + going
        going = going & (chosen != how.end)
        texts.append(chosen)
        if not going.any():
            break
        last = chosen[:, None]
    found = torch.stack(texts, dim=1).tolist()
    return [
        Text(row[: count - ended], how.score(total, count), ended)
        for row, count, total, ended in zip(
            found, written.tolist(), totals.tolist(), (~going).tolist(), strict=True
        )
    ]


def _drawn(logits: Tensor, drawing: Drawing, numbers: Tensor) -> Tensor:
    """The token of each row of logits [rows, vocabulary] that a number from 0 to below 1 falls on, [rows]."""
    scores, order = logits / drawing.temperature, None
    if drawing.top_k is not None:
        scores, order = scores.topk(min(drawing.top_k, scores.shape[1]), dim=1)
    elif drawing.top_p < 1:
        scores, order = scores.sort(dim=1, descending=True, stable=True)
    shares = (scores.double().softmax(dim=1) * _SCALE).round().long()
    if drawing.top_p < 1:
        # The token that reaches the share is the last one of them.
        before = shares.cumsum(dim=1) - shares
        shares = shares.where(before < drawing.top_p * shares.sum(dim=1, keepdim=True), 0)
    ends = shares.cumsum(dim=1)
    total = ends[:, -1:]
    at = (numbers[:, None] * total).floor().long().minimum(total - 1)
    place = torch.searchsorted(ends, at, right=True)
    return (place if order is None else order.gather(1, place))[:, 0]
