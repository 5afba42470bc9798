"""What workers say to each other at a meeting, as bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgpack  # type: ignore[import-untyped, unused-ignore]
import torch
from torch import Tensor

from nlpkernel_zmq.wire.tensors import buffer_of, name_of, view_of


def packed(value: Any) -> bytes:
    """Plain data as bytes."""
    made: bytes = msgpack.packb(value)
    return made


def plain(word: bytes) -> Any:
    """Plain data of bytes."""
    return msgpack.unpackb(word, strict_map_key=False)


def counts(values: Mapping[str, Tensor]) -> bytes:
    """Tensors by name as bytes."""
    return packed(
        [
            [name, name_of(each.dtype), list(each.shape), bytes(buffer_of(each))]
            for name, each in values.items()
        ]
    )


def added(words: Sequence[bytes], device: torch.device) -> dict[str, Tensor]:
    """The sums, in the order of the words."""
    total: dict[str, Tensor] = {}
    for word in words:
        for name, dtype, shape, data in plain(word):
            count = 1
            for length in shape:
                count *= length
            value = view_of(data, dtype, count).reshape(shape)
            total[name] = value.clone() if name not in total else total[name] + value
    return {name: value.to(device) for name, value in total.items()}
