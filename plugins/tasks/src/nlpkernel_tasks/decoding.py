"""Searching the text that a model gives the best score: greedy, and with beams."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import attrs
import torch
from torch import Tensor


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


class Text(NamedTuple):
    """A text that was found: its tokens without the end, its score, and whether it ended by itself."""

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
