"""Cross entropy of a linear layer's scores, without ever holding the scores of all tokens.

The layer is cut along the tokens, and the gradients are computed with the loss, chunk by chunk: what stays is
as large as the inputs (the method of Liger Kernel, P. Hsu et al., arXiv:2410.10989). torch has
`torch.nn.functional.linear_cross_entropy`; it sums in the type of its inputs, and a sum in bfloat16 keeps
three digits, so it does not do here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

#: Scores held at once.
CHUNK = 1 << 22


def linear_cross_entropy(hidden: Tensor, head: Tensor, labels: Tensor) -> Tensor:
    """The sum of the cross entropy of `hidden` [tokens, width] times `head` [vocabulary, width], in float32.

    labels: int64 [tokens]; negative ones do not count. Under autocast the products are of its type, sums of
    float32.
    """
    if not torch.is_grad_enabled() or not (hidden.requires_grad or head.requires_grad):
        return linear_scores(hidden, head, labels)[0].float()
    result: Tensor = _LinearCrossEntropy.apply(hidden, head, labels, _type(hidden))  # type: ignore[no-untyped-call]
    return result


@torch.no_grad()
def linear_scores(hidden: Tensor, head: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The same sum and the number of labels with the highest score, both in float64, without gradient."""
    loss = torch.zeros((), dtype=torch.float64, device=hidden.device)
    correct = torch.zeros((), dtype=torch.float64, device=hidden.device)
    kind = _type(hidden)
    with torch.autocast(hidden.device.type, enabled=False):
        weight = head.to(kind)
        for rows in _chunks(len(labels), len(head)):
            scores, target = (hidden[rows].to(kind) @ weight.t()).float(), labels[rows]
            loss += (
                torch.nn.functional.cross_entropy(
                    scores, target.clamp(min=-1), reduction="none", ignore_index=-1
                )
                .double()
                .sum()
            )
            correct += (scores.argmax(dim=-1) == target).sum()
    return loss, correct


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, labels: Tensor, kind: torch.dtype) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            weight = head.to(kind)
            total = torch.zeros((), dtype=torch.float32, device=hidden.device)
            by_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
            by_head = torch.zeros_like(head, dtype=torch.float32) if ctx.needs_input_grad[1] else None
            for rows in _chunks(len(labels), len(head)):
                inputs, target = hidden[rows].to(kind), labels[rows]
                counts = target >= 0
                target = target.clamp(min=0)[:, None]
                scores = (inputs @ weight.t()).float()
                scale = scores.logsumexp(dim=-1, keepdim=True)
                total += torch.where(counts, (scale - scores.gather(1, target)).squeeze(1), 0.0).sum()
                # From here on the buffer of the scores holds their gradient: softmax less one at the label.
                gradient = scores.sub_(scale).exp_()
                gradient.scatter_add_(1, target, torch.full_like(scale, -1.0))
                gradient.masked_fill_(~counts[:, None], 0.0)
                gradient = gradient.to(kind)
                if by_hidden is not None:
                    by_hidden[rows] = gradient @ weight
                if by_head is not None:
                    by_head += gradient.t() @ inputs
        ctx.save_for_backward(by_hidden, by_head)
        ctx.head_type = head.dtype
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        by_hidden, by_head = ctx.saved_tensors
        return (
            None if by_hidden is None else by_hidden * gradient.to(by_hidden.dtype),
            None if by_head is None else (by_head * gradient).to(ctx.head_type),
            None,
            None,
        )


def _chunks(tokens: int, vocabulary: int) -> Iterator[slice]:
    size = max(1, CHUNK // vocabulary)
    return (slice(at, at + size) for at in range(0, tokens, size))


def _type(hidden: Tensor) -> torch.dtype:
    """The type of the products: autocast's, or that of the inputs."""
    device = hidden.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
