"""A model as others write them: its blocks return tuples, and its forward is its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nlpkernel.hookspecs.model import Anatomy, Model, Outputs, ParameterFacts


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.register_buffer("gain", torch.empty(width))
        self.kind = "layer"

    def forward(self, hidden_states: Tensor, mask: Tensor | None = None) -> tuple[Tensor, None]:
        weights = torch.ones_like(mask, dtype=hidden_states.dtype).masked_fill(mask == 0, 0.0)  # type: ignore[arg-type]
        mean = weights.tril() @ self.mix(hidden_states) / hidden_states.shape[1]
        return hidden_states + torch.tanh(self.out(mean)) * self.gain, None


class Inner(nn.Module):
    """Embedding, layers and norm, apart from the head."""

    def __init__(self, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.final = nn.LayerNorm(width)
        self.register_buffer("mask", torch.empty(64, 64, dtype=torch.bool))
        self.register_buffer("seen", torch.empty(1), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        hidden = self.embed(tokens)
        every = []
        for layer in self.layers[: len(self.layers)]:
            assert layer.kind == "layer"
            every.append(hidden)
            hidden = layer(hidden_states=hidden, mask=self.mask[:length, :length])[0]
        return self.final(hidden)  # type: ignore[no-any-return]


class Tuples(nn.Module):
    def __init__(self, vocabulary: int = 61, width: int = 16, layers: int = 4) -> None:
        super().__init__()
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.model = Inner(vocabulary, width, layers)

    def forward(self, tokens: Tensor) -> Outputs:
        return Outputs(logits=self.lm_head(self.model(tokens)))

    @classmethod
    def made(cls, **sizes: Any) -> Model:
        """As a model component gives it. Its head is registered first."""
        with torch.device("meta"):
            module = cls(**sizes)
        return Model(
            module=module,
            anatomy=Anatomy(
                blocks=tuple(f"model.layers.{index}" for index in range(len(module.model.layers))),
                embedding="model.embed",
                head="lm_head",
                parameters={name: ParameterFacts() for name, _ in module.named_parameters()},
            ),
            initialise=_initialise,
        )


def _initialise(name: str, tensor: Tensor, generator: torch.Generator) -> None:
    if tensor.dtype == torch.bool:
        tensor.fill_(True)
    else:
        tensor.normal_(0.0, 0.3, generator=generator)
