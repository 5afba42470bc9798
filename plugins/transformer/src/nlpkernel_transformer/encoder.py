"""The encoder: every position sees its whole row, and a head gives what the task asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nlpkernel.hookspecs.model import Outputs
from nlpkernel_transformer.module import Trunk, norm_of, padding_mask, real_of

if TYPE_CHECKING:
    from nlpkernel_transformer.shape import EncoderShape, Pool


class Encoder(Trunk):
    """An encoder like BERT's (Devlin et al., 2019) with one of three heads.

    For classification a row's states become one (`pool`), which goes through a dense layer with tanh, dropout and a
    linear layer with a row for each class. For the classes of tokens the states go through dropout and the linear layer
    alone. For masked language modelling the states that are asked for go through a
    dense layer with GELU, a norm and the scores of the vocabulary.
    """

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__(shape)
        self.pool = shape.pool
        self.purpose = shape.purpose
        masked = shape.purpose == "mlm"
        self.dense = (
            None if shape.purpose == "tokens" else nn.Linear(shape.width, shape.width, bias=shape.bias)
        )
        self.dense_norm = norm_of(shape) if masked else None
        if masked:
            self.head = nn.Linear(shape.width, shape.vocabulary, bias=shape.bias)
        else:
            self.head = nn.Linear(shape.width, shape.labels)
        if shape.tied:
            self.head.weight = self.embedding.weight

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor | None = None,
        at: Tensor | None = None,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> Outputs:
        """Logits of each row's classes [rows, classes], of each token's [rows, positions, classes], or of the
        vocabulary [rows, asked, vocabulary].

        tokens: ids [rows, positions]. lengths: how many of each row are no padding, [rows]; left out: all. at: for
        masked language modelling, the positions that are asked for [rows, asked]; left out: all. positions, documents:
        as for the decoder; a token sees those of its own document, and padding is a document of its own. Raise
        ValueError for rows longer than `context`.
        """
        x = self.states(tokens, lengths, positions, documents)
        if self.dense is None or self.purpose == "classification":
            if self.dense is not None:
                x = torch.tanh(self.dense(pooled(x, self.pool, lengths)))
            if self.dropout and self.training:
                x = F.dropout(x, self.dropout)
            return Outputs(logits=self.head(x))
        if at is not None:
            x = x.gather(1, at.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
        x = F.gelu(self.dense(x))
        return Outputs(logits=self.head(x if self.dense_norm is None else self.dense_norm(x)))

    def states(
        self,
        tokens: Tensor,
        lengths: Tensor | None = None,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> Tensor:
        """The last hidden states [rows, positions, width]; those of padding mean nothing."""
        self._fits(tokens.shape[1])
        mask = None
        if documents is not None:
            mask = documents
            if self.pattern is None:
                mask = (documents[:, :, None] == documents[:, None, :]).unsqueeze(1)
        elif lengths is not None:
            mask = padding_mask(lengths, tokens.shape[1], self.pattern)
        return self._states(tokens, positions, 0, mask, None)


def pooled(x: Tensor, how: Pool, lengths: Tensor | None) -> Tensor:
    """One state for each row, [rows, width], of x [rows, positions, width]; padding does not count."""
    if how == "first":
        return x[:, 0]
    if lengths is None:
        return x.mean(dim=1) if how == "mean" else x.amax(dim=1)
    real = real_of(lengths, x.shape[1]).unsqueeze(-1)
    if how == "max":
        return x.masked_fill(~real, float("-inf")).amax(dim=1)
    return (x * real).sum(dim=1) / real.sum(dim=1)
