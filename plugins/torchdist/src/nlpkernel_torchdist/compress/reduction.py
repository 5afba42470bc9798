"""Gradients of data workers, added up by way of a compressor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from nlpkernel.hookspecs.compressor import Compressor, Encoder, Span
from nlpkernel_torchdist.compress.lanes import lane
from nlpkernel_torchdist.cost import ring

#: Names and sizes of the parameters whose gradients travel together.
Bucket = Sequence[tuple[str, Sequence[int]]]


class Reduction:
    """Adds up buckets over the workers of a group, which all do it in the same order. `scale`: what the gradients of
    this window are multiplied by."""

    def __init__(self, compressor: Compressor, group: dist.ProcessGroup, device: torch.device) -> None:
        self.compressor, self.group, self.device = compressor, group, device
        self.workers = dist.get_world_size(group)
        self.scale: Tensor | None = None
        #: By what they encode.
        self.encoders: dict[tuple[Span, ...], Encoder] = {}
        self._lane = lane(device)
        self._gathered: dict[int, Tensor] = {}

    def encoder(self, bucket: Bucket) -> Encoder:
        """That of a bucket, made where it is new."""
        spans = tuple(Span.whole(name, shape) for name, shape in bucket)
        if spans not in self.encoders:
            names = {span.name for span in spans}
            others = {
                key: each for key, each in self.encoders.items() if names.isdisjoint(s.name for s in key)
            }
            self.encoders = others | {spans: self.compressor.encoder(spans, self.device)}
        return self.encoders[spans]

    def put(self, flat: Tensor, encoder: Encoder | None) -> Future[Tensor]:
        """Do `add_up` beside the backward pass; without an encoder, nothing."""
        return self._lane.put(lambda: None if encoder is None else self.add_up(flat, encoder), flat)

    def finish(self) -> None:
        """Raise what `put` could not do."""
        self._lane.finish()

    def close(self) -> None:
        """No more buckets come."""
        self._lane.close()

    def add_up(self, flat: Tensor, encoder: Encoder) -> None:
        """Make `flat` the sum over all workers, as they all decode it."""
        with torch.no_grad():
            if self.compressor.summable:
                for tensor in encoder.rounds(flat, self.scale):
                    dist.all_reduce(tensor, group=self.group)
                return
            gathered = self._room(encoder)
            dist.all_gather_single(gathered, encoder.encode(flat, self.scale), group=self.group)
            into = flat if flat.dtype == torch.float32 else torch.zeros_like(flat, dtype=torch.float32)
            into.zero_()
            for wire in torch.split(gathered, encoder.bytes):
                encoder.decode(wire, into)
            if into is not flat:
                flat.copy_(into)

    def sent(self, encoder: Encoder) -> float:
        """Bytes that each worker sends for a bucket: of sums as in a ring, of what cannot be added up to every other
        worker."""
        if self.compressor.summable:
            return ring(sum(encoder.sums), self.workers)
        return float((self.workers - 1) * encoder.bytes)

    def _room(self, encoder: Encoder) -> Tensor:
        """One place for what comes of any bucket: they come one after the other."""
        size = encoder.bytes * self.workers
        if size not in self._gathered:
            self._gathered[size] = torch.empty(size, dtype=torch.uint8, device=self.device)
        return self._gathered[size]
