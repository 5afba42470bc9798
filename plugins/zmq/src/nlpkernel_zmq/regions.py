"""Regions of bytes as the tensors that lie in them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nlpkernel_zmq.layout import Space


def places(spaces: Sequence[Space]) -> tuple[list[int], int]:
    """Where in a slot each shard's space begins, and the bytes of a slot."""
    bases, at = [], 0
    for space in spaces:
        bases.append(at)
        at += space.bytes
    return bases, at


def views_in(region: Tensor, space: Space, kinds: Sequence[torch.dtype]) -> list[Tensor]:
    """The stretches of a space as flat tensors of their types, in a region of bytes."""
    views = []
    for stretch in space.stretches:
        kind = kinds[stretch.parameter]
        end = stretch.at + stretch.elements * kind.itemsize
        views.append(region[stretch.at : end].view(kind))
    return views
