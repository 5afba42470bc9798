"""The library's models behind our own forward: the inputs of our tasks in, `Outputs` out."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from nlpkernel.errors import PlanError, fail
from nlpkernel.hookspecs.model import Outputs
from nlpkernel_hf.codes import OWNER
from nlpkernel_hf.component import Pool

#: `context` of a model without a limit of its own.
UNLIMITED = 1 << 20


class Network(nn.Module):
    """What all share. model: the library's. context: most positions of a row. first: the number of the first position
    where the library would count from the padding's id (RoBERTa and its kin), else None."""

    def __init__(self, model: nn.Module, context: int, first: int | None) -> None:
        super().__init__()
        self.model: Any = model
        self.context = context
        self.first = first
        self.takes = frozenset(inspect.signature(model.forward).parameters)

    def reads(
        self,
        tokens: Tensor,
        lengths: Tensor | None,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
        *,
        causal: bool = False,
    ) -> dict[str, Any]:
        """What the library's forward is called with. Raise PlanError (HFM008) where documents must not see each other
        and this model cannot do that; ValueError for rows longer than `context`."""
        width = tokens.shape[1]
        if width > self.context:
            raise ValueError(f"{width} positions are more than this model's context of {self.context}")
        given: dict[str, Any] = {"input_ids": tokens, "return_dict": True}
        if documents is not None:
            self._keeps_apart()
            given["attention_mask"] = self._mask(documents, causal)
        elif lengths is not None:
            given["attention_mask"] = real(lengths, width).long()
        if positions is not None or self.first is not None:
            if positions is None:
                positions = torch.arange(width, device=tokens.device).expand(tokens.shape)
            given["position_ids"] = positions + (self.first or 0)
        return given

    def _mask(self, documents: Tensor, causal: bool) -> Tensor:
        seen = documents[:, :, None] == documents[:, None, :]
        seen = (seen.tril() if causal else seen).unsqueeze(1)
        if self.model.config._attn_implementation == "eager":
            # The plain formula adds its mask.
            kind = self.model.dtype
            return torch.zeros(seen.shape, dtype=kind, device=seen.device).masked_fill_(
                ~seen, torch.finfo(kind).min
            )
        return seen

    def _keeps_apart(self) -> None:
        config = self.model.config
        layers = set(getattr(config, "layer_types", None) or ())
        full = not getattr(config, "sliding_window", None) and layers <= {"full_attention"}
        if not (full and {"attention_mask", "position_ids"} <= self.takes):
            raise fail(
                PlanError,
                "HFM008",
                f"a {config.model_type!r} cannot keep the documents of a row apart",
                owner=OWNER,
                hint='write `pack = "rows"` or `pack = "joined"` in [data]',
            )


class Reader(Network):
    """Gives logits: of each row's classes, of each token's, or of the vocabulary for masked tokens."""

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor | None = None,
        at: Tensor | None = None,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> Outputs:
        """tokens: ids [rows, positions]; lengths: how many of each row are no padding [rows]. at: the positions that
        are asked for [rows, asked]; left out: all. Logits [rows, classes], [rows, positions, classes], or [rows, asked,
        vocabulary]."""
        given = self.reads(tokens, lengths, positions, documents)
        head = self._simple_head()
        if at is None or head is None:
            logits = self.model(**given).logits
            if at is not None:
                logits = logits.gather(1, at.unsqueeze(-1).expand(-1, -1, logits.shape[-1]))
            return Outputs(logits=logits)
        # The head is asked for the chosen positions only.
        states = self.model.base_model(**given)[0]
        return Outputs(logits=head(states.gather(1, at.unsqueeze(-1).expand(-1, -1, states.shape[-1]))))

    def _simple_head(self) -> Any:
        """The only part beside the body, where it is a head under one of the library's usual names."""
        others = [name for name, part in self.model.named_children() if part is not self.model.base_model]
        return getattr(self.model, others[0]) if others in (["cls"], ["lm_head"]) else None


class LastState(Network):
    """Classifies a row by the state of its last token: a decoder's."""

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Outputs:
        """Logits [rows, classes] of tokens [rows, positions], of which `lengths` [rows] are no padding.

        The library looks for the last token that is not the padding's id; here the length tells, whatever the ids.
        """
        states = self.model.base_model(**self.reads(tokens, lengths))[0]
        return Outputs(logits=self.model.score(last(states, lengths)))


class Pairs(Network):
    """Gives a vector for each of two texts, which are read in one pass."""

    def __init__(self, model: nn.Module, context: int, first: int | None, pool: Pool) -> None:
        super().__init__(model, context, first)
        self.pool = pool

    def forward(self, tokens: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor) -> Outputs:
        """Hidden [rows, 2, width] of two texts, tokens [rows, positions] and target [rows, others], each with how many
        of a row are no padding [rows]. The vectors are not normalised."""
        width = max(tokens.shape[1], target.shape[1])
        both = torch.cat([nn.functional.pad(each, (0, width - each.shape[1])) for each in (tokens, target)])
        lengths = torch.cat([lengths, target_lengths])
        states = self.model(**self.reads(both, lengths))[0]
        vectors = self._pooled(states, lengths)
        return Outputs(hidden=torch.stack(vectors.chunk(2), dim=1))

    def _pooled(self, states: Tensor, lengths: Tensor) -> Tensor:
        if self.pool == "first":
            return states[:, 0]
        if self.pool == "last":
            return last(states, lengths)
        there = real(lengths, states.shape[1]).unsqueeze(-1).to(states.dtype)
        return (states * there).sum(dim=1) / there.sum(dim=1)


def real(lengths: Tensor, width: int) -> Tensor:
    """What is no padding, [rows, width]. A row of nothing but padding keeps its first position: a softmax over nothing
    is not a number."""
    return torch.arange(width, device=lengths.device) < lengths.clamp(min=1)[:, None]


def last(states: Tensor, lengths: Tensor | None) -> Tensor:
    """The state of each row's last token [rows, width]."""
    if lengths is None:
        return states[:, -1]
    return states[torch.arange(len(states), device=states.device), lengths.clamp(min=1) - 1]
