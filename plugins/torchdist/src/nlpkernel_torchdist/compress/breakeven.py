"""Whether a compressor pays on this link with this model: measured before the first step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median

import torch
import torch.distributed as dist

from nlpkernel.engine.breakeven import BreakEven
from nlpkernel.hookspecs.compressor import Compressor, Span
from nlpkernel_torchdist import exchange
from nlpkernel_torchdist.compress.reduction import Reduction
from nlpkernel_torchdist.cost import ring

#: Elements that are sent to find out, at most; first of all so many, to learn how many take about `_SECONDS`.
_MOST, _FIRST, _SECONDS = 1 << 21, 1 << 16, 0.06
#: How often; the median counts.
_TIMES = 5


def measure(reduction: Reduction, fresh: Compressor, gradients: int) -> BreakEven | None:
    """Time exchanges of a part of what `reduction` adds up, without and with a `fresh` compressor, which is of no use
    afterwards. All workers of the group do it together. gradients: bytes of all of them. None where they train
    nothing, as a stage of a pipeline may."""
    spans = [span for key in reduction.encoders for span in key]
    elements = sum(span.elements for span in spans)
    if not elements:
        return None
    device, group, workers = reduction.device, reduction.group, reduction.workers
    other = Reduction(fresh, group, device)
    first = torch.zeros(min(elements, _FIRST), device=device)
    probe = _seconds(lambda: dist.all_reduce(first, group=group), device, times=2)[-1]
    room = exchange.share(int(min(_MOST, max(_FIRST, first.numel() * _SECONDS / probe))), group)
    sample = list(_sample(spans, room))
    count = sum(span.elements for span in sample)
    flat = torch.randn(count, generator=torch.Generator().manual_seed(0)).to(device) * 1e-3
    encoder = other.encoder([(span.name, span.shape) for span in sample])

    def bare() -> None:
        dist.all_reduce(flat, group=group)

    def compressed() -> None:
        other.add_up(flat, encoder)
        fresh.settle(False)

    without, through = [], []
    for turn in range(_TIMES + 1):
        flat.div_(flat.norm() + 1)
        times = _seconds(bare, device), _seconds(compressed, device)
        if turn:
            without += times[0]
            through += times[1]
    link = ring(flat.nbytes, workers) / median(without)
    more = median(through) - other.sent(encoder) / link
    return BreakEven(
        name=fresh.name,
        plain=ring(gradients, workers),
        sent=sum(map(reduction.sent, reduction.encoders.values())),
        seconds=more * elements / count,
        link=link,
    )


def _seconds(work: Callable[[], object], device: torch.device, times: int = 1) -> list[float]:
    """Of each time."""
    found = []
    for _ in range(times):
        _wait(device)
        start = time.perf_counter()
        work()
        _wait(device)
        found.append(time.perf_counter() - start)
    return found


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def _sample(spans: Sequence[Span], room: int) -> Iterator[Span]:
    """Some of them of about `room` elements, the greatest first, one that is too great cut to fewer rows."""
    for span in sorted(spans, key=lambda span: -span.elements):
        if not room or not span.elements:
            return
        shape = span.shape or (1,)
        row = span.elements // shape[0]
        rows = min(shape[0], max(1, room // row))
        yield Span.whole(span.name, (rows, *shape[1:]))
        room = max(0, room - rows * row)
