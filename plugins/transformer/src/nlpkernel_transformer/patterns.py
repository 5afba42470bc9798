"""Attention to a part of a row: a span of positions, or blocks of them, in memory that is linear in the row's length.

Queries go in chunks of one size. Each chunk looks at the keys of the chunks around it, and at those at the beginning of
the row that all look at; what it may see of these is a mask for each chunk, so no tensor has a row's length squared.
The same as a mask of the whole row (`Pattern.visible`) is what `attention = "eager"` computes, the reference.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from nlpkernel_transformer.shape import Shape, Sparse

#: Queries, keys, values, a mask, dropout, causal: `attention.sdpa` or `attention.eager`.
Attending = Callable[[Tensor, Tensor, Tensor, Tensor | None, float, bool], Tensor]
#: Chunks of fewer queries are not worth a product of their own.
_LEAST = 16
#: Of what fills up the last chunk: no group of a row is negative.
_FILLING = -1


class Pattern(ABC):
    """Which keys a query sees.

    chunk: queries of a chunk. back, ahead: how many chunks before and behind its own a query may see. first: how many
    positions at the beginning of a row are seen by all, and see all where nothing is `causal`. causal: a query sees no
    later key.
    """

    def __init__(self, chunk: int, back: int, ahead: int, first: int, causal: bool) -> None:
        self.chunk, self.back, self.ahead, self.first, self.causal = chunk, back, ahead, first, causal

    @abstractmethod
    def visible(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Whether a query at one position sees a key at another; both broadcast."""

    @abstractmethod
    def covers(self, length: int) -> bool:
        """Whether in rows of this length everything is seen that `causal` lets be seen. No longer than a few chunks."""

    def after(self, start: int, new: int, device: torch.device) -> Tensor:
        """What `new` queries behind `start` positions see of all these, [new, start + new]."""
        keys = torch.arange(start + new, device=device)
        return self.visible(keys[start:, None], keys)

    def whole(self, length: int, groups: Tensor | None, device: torch.device) -> Tensor:
        """What is seen in rows of this length, as a mask [rows or 1, 1, length, length]."""
        seen = self.after(0, length, device)[None]
        if groups is not None:
            seen = seen & (groups[:, :, None] == groups[:, None, :])
        return seen.unsqueeze(1)

    def attend(
        self, attending: Attending, q: Tensor, k: Tensor, v: Tensor, groups: Tensor | None, dropout: float
    ) -> Tensor:
        """The attention of rows, q [rows, heads, positions, head width], k and v [rows, kv heads, positions, head
        width], to q's shape. groups: a number, or a truth value, for each position [rows, positions]; a query sees keys
        of its own group alone."""
        rows, heads, length, width = q.shape
        if self.covers(length):
            # A row so short that its mask is no longer than what the pattern sees.
            mask = None if groups is None else self.whole(length, groups, q.device)
            return attending(q, k, v, mask, dropout, self.causal)
        number = -(-length // self.chunk)
        filling = number * self.chunk - length
        cut = F.pad(q, (0, 0, 0, filling)).view(rows, heads, number, self.chunk, width)
        mask = self._mask(length, number, groups, q.device)
        mixed = attending(
            cut.transpose(1, 2).flatten(0, 1),
            self._around(k, number, filling),
            self._around(v, number, filling),
            mask.expand(rows, -1, -1, -1).flatten(0, 1).unsqueeze(1),
            dropout,
            False,
        )
        mixed = mixed.view(rows, number, *mixed.shape[1:]).transpose(1, 2).flatten(2, 3)[:, :, :length]
        first = 0 if self.causal else min(self.first, length)
        if not first:
            return mixed
        seen = None
        if groups is not None:
            seen = (groups[:, :first, None] == groups[:, None, :]).unsqueeze(1)
        return torch.cat((attending(q[:, :, :first], k, v, seen, dropout, False), mixed[:, :, first:]), 2)

    def _around(self, x: Tensor, number: int, filling: int) -> Tensor:
        """What each chunk may look at, of x [rows, heads, positions, width]: [rows * chunks, heads, keys, width]."""
        size = (self.back + 1 + self.ahead) * self.chunk
        padded = F.pad(x, (0, 0, self.back * self.chunk, self.ahead * self.chunk + filling))
        around = padded.unfold(2, size, self.chunk).permute(0, 2, 1, 4, 3)
        if self.first:
            first = x[:, None, :, : self.first].expand(-1, number, -1, -1, -1)
            around = torch.cat((first, around), 3)
        return around.flatten(0, 1)

    def _mask(self, length: int, number: int, groups: Tensor | None, device: torch.device) -> Tensor:
        """What each query sees of that, [rows or 1, chunks, chunk, keys]."""
        ends = self.back * self.chunk, self.ahead * self.chunk + number * self.chunk - length
        size = (self.back + 1 + self.ahead) * self.chunk
        starts = torch.arange(number, device=device)[:, None, None] * self.chunk
        queries = starts + torch.arange(self.chunk, device=device)[:, None]
        keys = starts - ends[0] + torch.arange(size, device=device)
        seen = self.visible(queries, keys) & (keys >= 0)
        if groups is None:
            groups = torch.zeros(1, length, dtype=torch.long, device=device)
        own = F.pad(groups.long(), (0, ends[1]), value=_FILLING)
        of_keys = F.pad(own, (ends[0], 0), value=_FILLING).unfold(1, size, self.chunk)
        of_queries = own[:, : number * self.chunk].view(-1, number, self.chunk)
        seen = seen & (of_queries[..., None] == of_keys[:, :, None, :])
        if not self.first:
            return seen
        # Those that a chunk has around itself already are not counted twice.
        keys = torch.arange(min(self.first, length), device=device).expand(1, 1, -1)
        far = (keys < starts - ends[0]) | (keys >= starts - ends[0] + size)
        begin = self.visible(queries, keys) & far
        begin = begin & (of_queries[..., None] == groups.long()[:, None, None, : self.first])
        return torch.cat((begin, seen), 3)


class Span(Pattern):
    """A sliding window (Beltagy et al., 2020): a query sees itself and the `span` - 1 before it, or, where it looks to
    both sides, itself and `span` // 2 on each."""

    def __init__(self, span: int, causal: bool) -> None:
        self.reach = span - 1 if causal else span // 2
        super().__init__(max(self.reach, _LEAST), 1, 0 if causal else 1, 0, causal)

    def visible(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Whether a query at one position sees a key at another."""
        away = queries - keys
        return (away >= (0 if self.causal else -self.reach)) & (away <= self.reach)

    def covers(self, length: int) -> bool:
        """Whether the span is as long as the row."""
        return length <= self.reach + 1


class Blocks(Pattern):
    """Blocks of positions (Zaheer et al., 2020, without their random blocks): a query sees its own block and the
    `local` - 1 before it, or, where it looks to both sides, `local` // 2 on each; and the first blocks of the row,
    which themselves see all that `causal` lets them see."""

    def __init__(self, sparse: Sparse, causal: bool) -> None:
        back, ahead = (sparse.local - 1, 0) if causal else (sparse.local // 2, sparse.local // 2)
        super().__init__(sparse.block, back, ahead, sparse.first * sparse.block, causal)

    def visible(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Whether a query at one position sees a key at another."""
        own: Tensor = torch.div(queries, self.chunk, rounding_mode="floor")
        away = own - torch.div(keys, self.chunk, rounding_mode="floor")
        seen: Tensor = ((away <= self.back) & (away >= -self.ahead)) | (keys < self.first)
        return seen & (keys <= queries) if self.causal else seen | (queries < self.first)

    def covers(self, length: int) -> bool:
        """Whether the row has no more blocks than are around each."""
        reach = self.back if self.causal else min(self.back, self.ahead)
        return length <= (reach + 1) * self.chunk


def pattern_of(shape: Shape) -> Pattern | None:
    """The pattern of this shape's self-attention; None: a query sees the whole row."""
    if shape.span is not None:
        return Span(shape.span, shape.causal)
    return None if shape.sparse is None else Blocks(shape.sparse, shape.causal)
