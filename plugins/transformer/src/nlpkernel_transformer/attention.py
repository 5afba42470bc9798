"""Attention: fused (torch's SDPA) and eager (the formula), causal or not, with grouped key-value heads.

Shapes: q [rows, heads, queries, head width]; k, v [rows, kv heads, keys, head width]; a mask is boolean, True where a
query may look, and broadcasts to [rows, heads, queries, keys].
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nlpkernel_transformer.patterns import pattern_of
from nlpkernel_transformer.rotary import rotate

if TYPE_CHECKING:
    from nlpkernel_transformer.cache import LayerCache, Memory
    from nlpkernel_transformer.rotary import Rotation
    from nlpkernel_transformer.shape import Shape


def eager(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, causal: bool = True
) -> Tensor:
    """softmax(q k' / sqrt(head width)) v as it is written (Vaswani et al., 2017): the reference for `sdpa`.

    Without a mask a query sees itself and what is before it, or all keys if not `causal`; a single query sees all keys.
    The softmax is taken in float32 or better. Returns [rows, heads, queries, head width].
    """
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    queries, keys = scores.shape[-2:]
    if mask is None and causal and queries > 1:
        mask = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    kind = torch.promote_types(scores.dtype, torch.float32)
    chances = F.softmax(scores, dim=-1, dtype=kind).to(v.dtype)
    if dropout:
        chances = F.dropout(chances, dropout)
    return chances @ v


def sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, causal: bool = True) -> Tensor:
    """The same through `scaled_dot_product_attention`, which picks a fused kernel where there is one."""
    if q.requires_grad and q.dtype is not torch.float32 and q.device.type == "cpu":
        return _sdpa_in_float32(q, k, v, mask, dropout, causal)
    return F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=causal and mask is None and q.shape[2] > 1,
        enable_gqa=q.shape[1] != k.shape[1],
    )


def _sdpa_in_float32(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, causal: bool
) -> Tensor:
    # On a CPU the fused backward in bfloat16 takes up to six times as long as the one in float32 (torch 2.13, AVX-512
    # with AMX, 64 positions, head width 32); the two casts cost far less than that.
    kind = q.dtype
    with torch.autocast("cpu", enabled=False):
        return sdpa(q.float(), k.float(), v.float(), mask, dropout, causal).to(kind)


class Cross(nn.Module):
    """Attention to the states of another text.

    `kv` makes keys and values in one projection, first all keys, then all values (`parts` in the anatomy). The number
    of heads is read from what the projections give, as in `Attention`.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.query = nn.Linear(shape.width, shape.width, bias=shape.bias)
        self.kv = nn.Linear(shape.width, sum(shape.fused[1:]), bias=shape.bias)
        self.out = nn.Linear(shape.width, shape.width, bias=shape.bias)
        self.head_width = shape.head_width
        self.dropout = shape.dropout
        self.attend = eager if shape.attention == "eager" else sdpa

    def memory(self, states: Tensor) -> Memory:
        """Keys and values of states [rows, positions, width]."""
        rows, positions, _ = states.shape
        kv = self.kv(states).view(rows, positions, -1, self.head_width).transpose(1, 2)
        keys, values = kv.chunk(2, dim=1)
        return keys, values

    def forward(self, x: Tensor, memory: Memory, real: Tensor | None = None) -> Tensor:
        """x [rows, positions, width] to the same shape. real: where x may look, [rows, 1, 1, positions of memory]."""
        rows, positions, _ = x.shape
        q = self.query(x).view(rows, positions, -1, self.head_width).transpose(1, 2)
        mixed = self.attend(q, *memory, real, self.dropout if self.training else 0.0, False)
        return self.out(mixed.transpose(1, 2).reshape(rows, positions, -1))  # type: ignore[no-any-return]


class Attention(nn.Module):
    """Self-attention of one block.

    `qkv` makes queries, keys and values in one projection. Its output rows are contiguous by kind: first all query
    heads, then all key heads, then all value heads (`Shape.fused`), which the anatomy says as `parts`. The number of
    heads is read from the width that the projection gives, so that a worker which holds an equal share of each kind
    runs this code unchanged.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.qkv = nn.Linear(shape.width, sum(shape.fused), bias=shape.bias)
        self.out = nn.Linear(shape.width, shape.width, bias=shape.bias)
        self.head_width = shape.head_width
        self.group = shape.heads // shape.kv_heads
        self.dropout = shape.dropout
        self.causal = shape.causal
        self.pattern = pattern_of(shape)
        self.attend = eager if shape.attention == "eager" else sdpa

    def forward(
        self,
        x: Tensor,
        rotation: Rotation | None = None,
        mask: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """x [rows, positions, width] to the same shape. With `cache`, earlier keys and values are seen too.

        mask: as above. Where attention has a pattern, the group of each position instead, [rows, positions]
        (`Pattern`), unless there are earlier keys.
        """
        rows, positions, _ = x.shape
        qkv = self.qkv(x).view(rows, positions, -1, self.head_width)
        kv_heads = qkv.shape[2] // (self.group + 2)
        heads = kv_heads * self.group
        if rotation is None:
            q, k, v = qkv.split((heads, kv_heads, kv_heads), dim=2)
        else:
            turned, v = qkv.split((heads + kv_heads, kv_heads), dim=2)
            q, k = rotate(turned, rotation).split((heads, kv_heads), dim=2)  # type: ignore[no-untyped-call]
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        if cache is not None:
            k, v = cache.extend(k, v)
        dropout = self.dropout if self.training else 0.0
        if self.pattern is None or k.shape[2] != positions:
            mixed = self.attend(q, k, v, mask, dropout, self.causal)
        elif self.attend is eager:
            mixed = eager(q, k, v, self.pattern.whole(positions, mask, x.device), dropout)
        else:
            mixed = self.pattern.attend(self.attend, q, k, v, mask, dropout)
        return self.out(mixed.transpose(1, 2).reshape(rows, positions, -1))  # type: ignore[no-any-return]
