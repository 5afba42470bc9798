"""The heavy half of the tiny components of text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from nlpkernel.hookspecs.data import Batch, DataInfo
from nlpkernel.hookspecs.model import Anatomy, Model, Outputs, ParameterFacts
from nlpkernel.hookspecs.task import Counts, Row, Term
from nlpkernel_sdk.worded import WordData, load_codec

__all__ = ["ByteTokenizer", "NextToken", "WordData", "build", "load_codec"]


class ByteTokenizer:
    """Bytes as ids; 256 ends a document."""

    vocabulary = 257
    end: int | None = 256
    pad: int | None = None

    def encode(self, text: str) -> list[int]:
        """The bytes."""
        return list(text.encode())

    def encode_batch(self, texts: Sequence[str]) -> Sequence[np.ndarray[Any, Any]]:
        """One after the other."""
        return [np.array(self.encode(text), dtype=np.int64) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the bytes; the end is nothing."""
        return bytes(each for each in ids if each < 256).decode("utf-8", "replace")

    def save(self) -> bytes:
        """Only what it is."""
        return b"bytes"


class NextToken:
    """Summed cross entropy of each token but the first, given those before it."""

    name = "lm"
    main = ("loss", "min")

    def batch(self, rows: Sequence[Row]) -> Batch:
        """tokens [rows, widest], padded with 0; lengths [rows]."""
        lengths = torch.tensor([len(row["tokens"]) for row in rows])
        tokens = torch.zeros((len(rows), int(lengths.max())), dtype=torch.int64)
        for at, row in enumerate(rows):
            tokens[at, : len(row["tokens"])] = torch.as_tensor(np.asarray(row["tokens"], dtype=np.int64))
        return {"tokens": tokens, "lengths": lengths}

    def weights(self, rows: Sequence[Row]) -> Mapping[str, float]:
        """Tokens that have one before them."""
        return {"loss": float(sum(len(row["tokens"]) - 1 for row in rows))}

    def inputs(self, batch: Batch) -> Mapping[str, Any]:
        """The tokens."""
        return {"tokens": batch["tokens"]}

    def loss(self, outputs: Outputs, batch: Batch) -> Sequence[Term]:
        """One term."""
        logits = _logits(outputs)
        target = batch["tokens"][:, 1:].clone()
        positions = torch.arange(1, batch["tokens"].shape[1], device=target.device)
        target[positions >= batch["lengths"][:, None]] = -100
        flat = logits[:, :-1].float().reshape(-1, logits.shape[-1])
        return [
            Term(
                "loss", functional.cross_entropy(flat, target.reshape(-1), ignore_index=-100, reduction="sum")
            )
        ]

    def evaluate(self, forward: Callable[..., Outputs], batch: Batch) -> Counts:
        """Sum and count."""
        (term,) = self.loss(forward(**self.inputs(batch)), batch)
        return {"loss": term.sum.double(), "tokens": (batch["lengths"] - 1).sum().double()}

    def value(self, counts: Mapping[str, Any]) -> Mapping[str, float | None]:
        """The mean."""
        return {"loss": counts["loss"] / counts["tokens"] if counts.get("tokens") else None}


def _logits(outputs: Outputs) -> Tensor:
    if outputs.logits is not None:
        return outputs.logits
    assert outputs.hidden is not None, "a model gives logits, or hidden states and a head"
    assert outputs.head is not None, "hidden states come with a head"
    return outputs.hidden @ outputs.head.T


class Worded(nn.Module):
    """tokens [rows, width] to logits, of each row where rows are classified, else of each token."""

    def __init__(self, width: int, info: DataInfo) -> None:
        super().__init__()
        self.rows = info.task == "classification"
        self.embedding = nn.Embedding(info.vocabulary, width)
        self.block = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.head = nn.Linear(
            width, len(info.labels) if info.task in ("classification", "tokens") else info.vocabulary
        )

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor | None = None,
        documents: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Outputs:
        """Each token by itself; a row is the mean of its tokens."""
        hidden = self.block(self.embedding(tokens))
        if self.rows:
            assert lengths is not None, "whoever classifies rows says how long they are"
            inside = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
            hidden = (hidden * inside[..., None]).sum(1) / lengths[:, None]
        return Outputs(logits=self.head(hidden))


def build(width: int, info: DataInfo) -> Model:
    """The tiny model of text with its anatomy."""
    module = Worded(width, info)

    def initialise(name: str, tensor: Tensor, generator: torch.Generator) -> None:
        tensor.normal_(0.0, 0.1, generator=generator)

    tags = {"embedding": "embedding", "block": "mlp", "head": "head"}
    facts = {
        name: ParameterFacts(decay=p.dim() > 1, tags=frozenset({tags[name.partition(".")[0]]}))
        for name, p in module.named_parameters()
    }
    anatomy = Anatomy(blocks=("block",), embedding="embedding", head="head", parameters=facts)
    return Model(module=module, anatomy=anatomy, initialise=initialise)
